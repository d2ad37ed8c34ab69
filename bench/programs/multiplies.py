# one operator that runs for long, in native code
import time

import torch

SECONDS = 8.0  # with a core of its own
SIZE = 1200

torch.set_num_threads(1)
x = torch.randn(1, SIZE, SIZE)
x @ x
begin = time.process_time()
x @ x
alone = max(time.process_time() - begin, 1e-3)
many = x.expand(round(SECONDS / alone) + 1, SIZE, SIZE)
torch.bmm(many, many).sum()
