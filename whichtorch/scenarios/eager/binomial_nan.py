# /// scenario
# summary = "a binomial sample whose count is NaN is never accepted"
# tags = ["eager", "random"]
# timeout = 15
# expect = [{ outcome = "hang" }]
# ///
import torch

count = torch.tensor([float("nan")])
sample = torch.binomial(count, torch.tensor([0.25]))
print(sample)
assert sample.shape == (1,)
