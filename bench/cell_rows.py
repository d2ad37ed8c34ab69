"""What supervision costs, how soon a deadlock is found, and whether anything healthy is called a hang."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.row import BenchRow, Figure
from whichtorch.matrix.process.supervision import Ending, Task, start
from whichtorch.matrix.suite import selection

RUNS = 20
HEALTHY_RUNS = 500
IDLE_AT_ONCE = 50  # healthy controls that sleep: they cost a machine nothing
BUSY_AT_ONCE = 2
WORK = "import json, decimal, email, http.client\nsum(range(3_000_000))\n"  # about a third of a second
IDLE = "import threading\nthreading.Thread(target=threading.Event().wait, args=(30,)).start()\n"
BUSY = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: sum(range(10_000))\n"


def _task(folder: Path, argv: tuple[str, ...], *, timeout: float = 60, environ: dict[str, str] | None = None) -> Task:
    folder.mkdir(parents=True, exist_ok=True)
    return Task(
        argv=argv,
        cwd=str(folder),
        env=dict(os.environ) | (environ or {}),
        stdout=str(folder / "stdout.txt"),
        stderr=str(folder / "stderr.txt"),
        timeout=timeout,
        memory_mb=4096,
        stall=True,
        sample=True,
    )


def overhead(folder: Path) -> Figure:
    """Race a script alone against the same script as a cell, turn by turn."""
    script = folder / "work.py"
    script.write_text(WORK)
    argv = (sys.executable, str(script))
    bare, cell = [], []
    for run in range(RUNS):
        begin = time.perf_counter()
        subprocess.run(argv, check=True, capture_output=True)
        middle = time.perf_counter()
        ending = start(_task(folder / str(run), argv)).wait()
        assert ending.exit_code == 0
        bare.append(middle - begin)
        cell.append(time.perf_counter() - middle)
    alone, supervised = statistics.median(bare), statistics.median(cell)
    text = f"{supervised / alone:.2f} x ({supervised - alone:+.3f} s on {alone:.3f} s)"
    return Figure(text=text, met=supervised <= 1.05 * alone + 0.1)


def supervisor_cpu(folder: Path) -> Figure:
    """Charge what the supervisor and its tree used, less the tree's own, to a 30 s cell: idle, then busy."""
    shares = []
    for name, source in (("idle", IDLE), ("busy", BUSY)):
        script = folder / f"{name}.py"
        script.write_text(source)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ending = start(_task(folder / name, (sys.executable, str(script)))).wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        shares.append((used - ending.cpu_seconds) / ending.seconds)
    return Figure(text=", ".join(f"{share:.2%}" for share in shares) + " (idle, busy)", met=max(shares) <= 0.02)


def _controls(pattern: str) -> list[tuple[str, tuple[str, ...], dict[str, str]]]:
    """Return name, command line and variables of each control and variant that a glob chooses."""
    return [
        (
            scenario.name + "".join(f" {value}" for value in variant.values()),
            (sys.executable, str(scenario.path)),
            selection.variant_environ(variant),
        )
        for scenario in selection.select(selection.suite(), [pattern])
        for variant in selection.variants_of(scenario)
    ]


def deadlock(folder: Path) -> Figure:
    """Time each deadlock control from its start, import of Python included, to its verdict."""
    times = {}
    for name, argv, environ in _controls("control/*deadlock*"):
        ending = start(_task(folder / name.replace("/", "-"), argv, environ=environ)).wait()
        times[name] = (ending.seconds, ending.stopped_by)
    text = ", ".join(
        f"{name.removeprefix('control/')} {seconds:.1f} s by {how}" for name, (seconds, how) in times.items()
    )
    return Figure(text=text, met=bool(times) and all(s <= 6 and how == "stall" for s, how in times.values()))


def false_hangs(folder: Path) -> Figure:
    """Run the slow-but-healthy controls until there are 500 runs; none may be stopped."""
    controls = _controls("control/slow*")
    each = -(-HEALTHY_RUNS // len(controls))
    wrong: list[str] = []
    total = 0

    def once(number: int, name: str, argv: tuple[str, ...], environ: dict[str, str]) -> tuple[str, Ending]:
        attempt_folder = folder / f"{name.replace('/', '-').replace(' ', '-')}-{number}"
        return name, start(_task(attempt_folder, argv, timeout=600, environ=environ)).wait()

    for name, argv, environ in controls:
        at_once = BUSY_AT_ONCE if "compile" in name else IDLE_AT_ONCE
        with ThreadPoolExecutor(at_once) as pool:
            for which, ending in pool.map(lambda number: once(number, name, argv, environ), range(each)):  # noqa: B023
                total += 1
                if ending.stopped_by != "exit" or ending.exit_code != 0:
                    wrong.append(f"{which}: {ending.stopped_by} {ending.exit_code}")
    return Figure(text=f"{len(wrong)} of {total}" + (f" ({wrong[0]}, …)" if wrong else ""), met=not wrong)


ROWS = [
    BenchRow(
        name="overhead",
        what="wall time of a cell over the bare script, 20 runs, median",
        target="<= 1.05 x + 0.1 s",
        measure=overhead,
    ),
    BenchRow(
        name="supervisor",
        what="CPU of the supervisor while a cell runs 30 s",
        target="<= 2 % of a core",
        measure=supervisor_cpu,
    ),
    BenchRow(
        name="deadlock",
        what="from the start of a deadlock to its verdict, timeout 60 s",
        target="<= 6 s",
        measure=deadlock,
    ),
    BenchRow(
        name="false-hangs", what="false hangs in 500 healthy runs of the slow controls", target="0", measure=false_hangs
    ),
]
