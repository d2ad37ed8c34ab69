# /// scenario
# summary = "a forked child runs a parallel operator after its parent did"
# tags = ["threads", "fork"]
# timeout = 60
# links = ["https://github.com/pytorch/pytorch/issues/17199"]
# [variants]
# threads = [1, 2]
# [[expect]]
# config = "single-thread"
# outcome = "pass"
# [[expect]]
# config = "iomp"
# outcome = "pass"
# why = "Intel's OpenMP starts anew in a forked child"
# [[expect]]
# variant = { threads = 2 }
# outcome = "hang"
# why = "libgomp's pool of threads does not survive a fork"
# ///
import os
import sys

import torch

if not hasattr(os, "fork"):
    print("nothing forks here", file=sys.stderr)
    sys.exit(125)

threads = int(os.environ.get("WHICHTORCH_THREADS", "2"))
limit = int(os.environ.get("OMP_NUM_THREADS", threads))  # set_num_threads would override it
torch.set_num_threads(min(threads, limit))


def work():
    return (torch.ones(800, 800) * 2).exp().sum()


work()
child = os.fork()
if child == 0:
    work()
    os._exit(0)
_, status = os.waitpid(child, 0)
print("the child ended with status", status)
assert status == 0
