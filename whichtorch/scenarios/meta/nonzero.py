# /// scenario
# summary = "nonzero of a meta tensor, told to assume that nothing is zero"
# tags = ["meta"]
# timeout = 60
# links = ["https://github.com/pytorch/pytorch/pull/144727"]
# expect = [{ torch = "<2.7", outcome = "fail" }]
# ///
import torch

try:
    from torch.fx.experimental import _config
except ImportError:
    pass  # the switch came with the fix
else:
    if hasattr(_config, "meta_nonzero_assume_all_nonzero"):
        _config.meta_nonzero_assume_all_nonzero = True

places = torch.nonzero(torch.empty(3, 5, device="meta"))
print("nonzero gives", tuple(places.shape), "on", places.device)
assert places.shape == (15, 2)
assert places.device.type == "meta"
