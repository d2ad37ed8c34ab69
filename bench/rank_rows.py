"""Whether a large distributed job is told in time: many ranks with many threads, one of which is elsewhere."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from bench.row import BenchRow, Figure

RANKS, THREADS = 64, 20
PROGRAM = Path(__file__).parent / "programs" / "ranks_many.py"
SENTENCE = "rank 32 is not there, and the others wait for it"
SECONDS, LINES = 20.0, 200
PATIENCE = 120.0  # seconds for the ranks to meet


def ranks(folder: Path, interpreter: str) -> Figure:
    """Start the ranks, ask where they are stuck, and time the answer; every rank is parked by then."""
    with subprocess.Popen(
        [interpreter, PROGRAM, str(RANKS), str(THREADS)], cwd=folder, stdout=subprocess.PIPE, start_new_session=True
    ) as job:
        try:
            assert job.stdout is not None
            end = time.monotonic() + PATIENCE
            while job.stdout.readline() != b"ready\n" and time.monotonic() < end:
                pass
            time.sleep(2.0)  # for the last ranks to come to the second collective
            begin = time.monotonic()
            command = [sys.executable, "-m", "whichtorch", "stacks", str(job.pid)]
            told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
            seconds = time.monotonic() - begin
        finally:
            os.killpg(job.pid, 9)
    is_right = bool(told) and told[0].endswith(SENTENCE)
    text = f"{seconds:.1f} s, {len(told)} lines, {'the right sentence' if is_right else 'another sentence'}"
    return Figure(text=text, met=is_right and seconds <= SECONDS and len(told) <= LINES)


def rows(interpreter: str) -> list[BenchRow]:
    """Return the row, for a Python with torch."""
    return [
        BenchRow(
            name="ranks",
            what=f"where a job of {RANKS} gloo ranks with {THREADS} threads each is stuck",
            target=f"<= {SECONDS:.0f} s, one sentence, <= {LINES} lines",
            measure=partial(ranks, interpreter=interpreter),
            group="hangs",
        )
    ]
