# https://github.com/pytorch/pytorch/issues/152374
import glob, os
import torch

torch._inductor.config.trace.enabled = True
torch._dynamo.config.debug_dir_root = os.path.join(os.getcwd(), f"debug_{os.getpid()}")

@torch.compile
def f(x):
    return x.sin() + 1

f(torch.randn(8))
found = glob.glob(f"debug_{os.getpid()}/**/output_code.py", recursive=True)
assert found, "TORCH_COMPILE_DEBUG wrote no output_code.py: %s" % glob.glob(f"debug_{os.getpid()}/**", recursive=True)
print("ok", found)
