import sys
import torch.distributed as dist
from fail import fail

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    fail(sys.argv[1])
dist.barrier()
