import contextlib

import torch
from torch import nn


class Recorder:
    def __init__(self):
        self.seen = {}
        self.handles = []

    def attach(self, model):
        for name, module in model.named_modules():
            if isinstance(module, (nn.Linear, nn.Conv1d)):
                self.handles.append(module.register_forward_hook(self.hook(name)))
        return self

    def hook(self, name):
        def record(module, args, output):
            self.seen.setdefault(name, []).append(output.detach().flatten(1).norm(dim=1))

        return record

    def remove(self):
        while self.handles:
            self.handles.pop().remove()

    def summary(self):
        return {name: torch.stack(norms).mean(0) for name, norms in self.seen.items()}


@contextlib.contextmanager
def recording(model):
    recorder = Recorder().attach(model)
    try:
        yield recorder
    finally:
        recorder.remove()


model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
with recording(model) as recorder, torch.no_grad():
    for size in (6, 6, 3):
        model(torch.randn(size, 2, 10))
for name, norm in recorder.summary().items():
    print(name, norm)
