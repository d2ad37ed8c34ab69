import torch
import torch._dynamo
from torch import nn

torch._dynamo.config.cache_size_limit = 32
torch.set_float32_matmul_precision("high")


class Router(nn.Module):
    def __init__(self, dim, experts, top_k=2):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList([nn.Linear(dim, dim) for _ in range(experts)])
        self.top_k = top_k

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        weights, chosen = scores.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).any(-1)
            if rows.sum() > 0:
                out[rows] += expert(x[rows])
        return out * weights[:, :1]


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.router = Router(dim, 4)

    def forward(self, x):
        return x + self.router(self.norm(x))


torch.manual_seed(0)
model = Layer(16).eval()
compiled = torch.compile(model, backend="eager", fullgraph=True)
with torch.no_grad():
    x = torch.randn(8, 16)
    expected = model(x)
    actual = compiled(x)
    print((expected - actual).abs().max())
