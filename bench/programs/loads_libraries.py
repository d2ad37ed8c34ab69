# imports torch and its lazy parts with nothing of them in the page cache
import importlib.util
import os
from pathlib import Path

folder = Path(importlib.util.find_spec("torch").submodule_search_locations[0], "lib")
for library in folder.glob("*.so*"):
    descriptor = os.open(library, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
import torch
import torch._dynamo
import torch._inductor.compile_fx
import torch.distributed
