"""Whether a large distributed job is told in time: many ranks with many threads, one of which is elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.row import BenchRow, Figure
from matrix.model import Environment
from matrix.records import store

RANKS, THREADS = 64, 20
TORCH = "2.15.0"
PROGRAM = Path(__file__).with_name("ranks.py")
SENTENCE = "rank 32 is not there, and the others wait for it"
SECONDS, LINES = 20.0, 200
PATIENCE = 120.0  # seconds for the ranks to meet


def _interpreter(home: Path) -> Path:
    """Return a Python that has torch, which is installed where it is missing."""
    command = [sys.executable, "-m", "matrix", "matrix", "--torch", TORCH, "--scenario", "fake_tensor/add_meta"]
    subprocess.run(command, env=os.environ | {"WHICHTORCH_HOME": str(home)}, stdout=subprocess.DEVNULL, check=False)
    known: list[Environment] = list(store.read_environments(home))
    return next(each.interpreter for each in known if each.torch == TORCH and each.interpreter)


def ranks(folder: Path) -> Figure:
    """Start the ranks, ask where they are stuck, and time the answer; every rank is parked by then."""
    python = _interpreter(store.state_folder())
    with subprocess.Popen(
        [python, PROGRAM, str(RANKS), str(THREADS)], cwd=folder, stdout=subprocess.PIPE, start_new_session=True
    ) as job:
        try:
            assert job.stdout is not None
            end = time.monotonic() + PATIENCE
            while job.stdout.readline() != b"ready\n" and time.monotonic() < end:
                pass
            time.sleep(2.0)  # for the last ranks to come to the second collective
            begin = time.monotonic()
            command = [sys.executable, "-m", "matrix", "stacks", str(job.pid)]
            told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
            seconds = time.monotonic() - begin
        finally:
            os.killpg(job.pid, 9)
    is_right = bool(told) and told[0].endswith(SENTENCE)
    text = f"{seconds:.1f} s, {len(told)} lines, {'the right sentence' if is_right else 'another sentence'}"
    return Figure(text=text, met=is_right and seconds <= SECONDS and len(told) <= LINES)


ROWS = [
    BenchRow(
        name="ranks",
        what=f"where a job of {RANKS} gloo ranks with {THREADS} threads each is stuck",
        target=f"<= {SECONDS:.0f} s, one sentence, <= {LINES} lines",
        measure=ranks,
        real=True,
    )
]
