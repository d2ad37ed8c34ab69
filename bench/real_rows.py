"""The default matrix on real wheels, and the race against the shell loop it replaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.row import BenchRow, Figure
from whichtorch.matrix.records.store import state_folder

LOOP_VERSIONS = ("2.11.0", "2.12.1", "2.15.0")
LOOP_SCENARIOS = ("fake_tensor/add_meta[level=fake]", "threads/fork_after_openmp[threads=2]")
LOOP_TIMEOUT = 60  # seconds, as people write it
SUITE = Path(__file__).parent.parent / "scenarios"


def _matrix(home: Path, *options: str) -> tuple[float, float]:
    """Run `whichtorch matrix`; return the seconds it took, and to the first line of a cell."""
    begin = time.monotonic()
    first = 0.0
    command = [sys.executable, "-m", "whichtorch", "matrix", *options]
    with subprocess.Popen(
        command, env=dict(os.environ) | {"WHICHTORCH_HOME": str(home)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print("   ", line, end="", file=sys.stderr)
            if not first and line.startswith("["):
                first = time.monotonic() - begin
    if process.returncode not in {0, 1}:
        raise RuntimeError(f"whichtorch matrix ended with {process.returncode}")
    return time.monotonic() - begin, first


def default_matrix(_: Path) -> Figure:
    """Run the default matrix anew in the project's own state, environments installed before."""
    home = state_folder()
    _matrix(home, "eager/channel_shuffle*")  # installs what is missing
    seconds, _first = _matrix(home, "--fresh")
    return Figure(text=f"{seconds:.0f} s", met=seconds <= 110)


def fresh_matrix(folder: Path) -> Figure:
    """Run the default matrix where nothing is installed, up to the first cell's line."""
    _seconds, first = _matrix(folder, "meta_mm/*")
    return Figure(text=f"{first:.0f} s", met=0 < first <= 45)


def shell_loop(_: Path) -> Figure:
    """Race three versions x two scripts against `timeout` and `uv run`, both with warm caches."""
    home = state_folder()
    options = ["--torch", ",".join(LOOP_VERSIONS), "--fresh", "--build", "pypi", *LOOP_SCENARIOS]
    _matrix(home, *options)  # warms the cache
    seconds, _first = _matrix(home, *options)
    environ = dict(os.environ) | {
        "UV_CACHE_DIR": str(home / "cache" / "uv"),
        "WHICHTORCH_LEVEL": "fake",
        "WHICHTORCH_THREADS": "2",
    }
    begin = time.monotonic()
    for version in LOOP_VERSIONS:
        for scenario in LOOP_SCENARIOS:
            script = SUITE / f"{scenario.partition('[')[0]}.py"
            words = ["uv", "run", "--no-project", "--python", sys.executable, "--with", f"torch=={version}"]
            command = ["timeout", "-s", "KILL", str(LOOP_TIMEOUT), *words, "--with", "numpy", "python", str(script)]
            ended = subprocess.run(
                command, env=environ, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            hung = ended.returncode in {-signal.SIGKILL, 128 + signal.SIGKILL}
            if hung != scenario.startswith("threads/"):
                raise RuntimeError(f"the loop did not run {scenario} in {version}: {ended.stderr[-500:]}")
    loop = time.monotonic() - begin
    return Figure(text=f"{seconds / loop:.2f} x ({seconds:.0f} s against {loop:.0f} s)", met=seconds <= 0.25 * loop)


ROWS = [
    BenchRow(
        name="default",
        what="default matrix, environments installed, cells run anew",
        target="<= 110 s",
        measure=default_matrix,
        group="real",
    ),
    BenchRow(
        name="fresh",
        what="fresh: time to the first result on screen",
        target="<= 45 s",
        measure=fresh_matrix,
        group="real",
    ),
    BenchRow(
        name="loop",
        what="3 versions x 2 scripts against the shell loop, warm cache",
        target="<= 0.25 x",
        measure=shell_loop,
        group="real",
    ),
]
