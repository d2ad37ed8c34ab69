"""A tool that runs one task: prints its supervisor's pid, waits."""

import os
import sys

sys.path.insert(0, sys.argv[1])
from pathlib import Path

from whichtorch.process import marks, supervision

folder = Path(sys.argv[2])
running = supervision.start(
    supervision.Task(
        argv=(sys.executable, str(Path(__file__).with_name("tree.py"))),
        cwd=str(folder),
        env=dict(os.environ),
        stdout=str(folder / "out"),
        stderr=str(folder / "err"),
        timeout=600,
        mark=marks.mark_for(folder, "1"),
    )
)
print(running.pid, flush=True)
running.wait()
