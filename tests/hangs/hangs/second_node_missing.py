"""torchrun is started on one node of a job of two."""

import socket
import sys
import tempfile

from torch.distributed.run import main

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as script:
    script.write("import torch.distributed as dist\ndist.init_process_group('gloo')\n")
job = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=7", f"--rdzv-endpoint=127.0.0.1:{port}"]
sys.exit(main([*job, script.name]))
