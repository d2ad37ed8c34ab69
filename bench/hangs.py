"""How surely hangs are told from slow work, and how soon: at rest, and beside eight processes that never rest."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.hang_rows import IDLE_AT_ONCE, cells_of
from bench.row import BenchRow, Figure
from whichtorch.model import Outcome
from whichtorch.suite import selection

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = Path(__file__).with_name("programs")
HEALTHY = Path(__file__).with_name("healthy")  # programs that wait for what comes, or give up
RUNS = 200  # of healthy programs
LOAD = 8  # processes that want a core at the same time
WORKING_AT_ONCE = 4  # healthy programs that work: half of the load
WORKS = 12.0  # seconds that healthy programs are given at first which work: with a core each they need 6 to 30
WAITS = 4.0  # seconds for those which wait for 8
WORKING = ("compiles_graph", "compiles_cpp", "loads_libraries", "multiplies")
WAITING = ("saves_to_disk", "sleeps", "polls_child", "polls_and_tells")
DEADLOCKS = 5
TIMEOUT = 20.0  # seconds that ranks are given


@contextmanager
def crowd(processes: int) -> Iterator[None]:
    """Keep so many processes busy meanwhile."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    # A session of its own each: the kernel shares cores out among sessions first.
    busy = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def slow(folder: Path, interpreter: str, runs: int) -> Figure:
    """Run healthy programs that are not done in time, on a crowded machine; count those that are called a hang."""
    outcomes: Counter[str] = Counter()
    for group, at_once, first, beside in (
        (WAITING, IDLE_AT_ONCE, WAITS, LOAD),
        (WORKING, WORKING_AT_ONCE, WORKS, LOAD - WORKING_AT_ONCE),
    ):
        suite = [selection.script(str(PROGRAMS / f"{name}.py")) for name in group]
        with crowd(beside):
            for _ in range(max(runs // len(WORKING + WAITING), 1)):
                for cell in cells_of(folder, suite, 1, at_once, first, interpreter):
                    name = Path(cell.scenario).stem
                    notes = "; ".join(f"{attempt.outcome} of {attempt.limit:.0f} s" for attempt in cell.attempts)
                    print(f"  {name}: {cell.outcome}, {notes} {cell.reason or ''}", file=sys.stderr, flush=True)
                    outcomes[f"{cell.outcome} {name}" if cell.outcome is not Outcome.PASS else "pass"] += 1
    hangs = sum(count for name, count in outcomes.items() if name.startswith(Outcome.HANG))
    others = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    is_met = hangs == 0 and outcomes["pass"] == sum(outcomes.values())
    return Figure(text=f"{hangs} of {sum(outcomes.values())} ({others}; {len(WORKING + WAITING)} programs)", met=is_met)


def patient(folder: Path, interpreter: str) -> Figure:
    """Run programs that wait for long, or give up, with limits and without, at rest or not; count those called hung."""
    suite = [selection.script(str(path)) for path in sorted(HEALTHY.glob("*.py"))]
    outcomes: Counter[str] = Counter()
    for load, timeout in ((0, None), (0, TIMEOUT), (LOAD, None), (LOAD, TIMEOUT)):
        with crowd(load):
            for cell in cells_of(folder, suite, 1, IDLE_AT_ONCE, timeout, interpreter):
                name = f"{cell.outcome} {Path(cell.scenario).stem}"
                outcomes[name if cell.outcome in {Outcome.HANG, Outcome.FAIL} else str(cell.outcome)] += 1
    hangs = sum(count for name, count in outcomes.items() if name.startswith(Outcome.HANG))
    others = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    return Figure(text=f"{hangs} of {outcomes.total()} ({others}; {len(suite)} programs)", met=hangs == 0)


def deadlock(folder: Path, load: int, most: float) -> Figure:
    """Return the seconds from the start of a deadlocked program to the verdict, the longest of some."""
    script = selection.script(str(PROGRAMS / "locks_cross.py"))
    with crowd(load):
        cells = cells_of(folder, [script], DEADLOCKS, 1, 60.0)
    seconds = [cell.seconds for cell in cells]
    hung = sum(cell.outcome is Outcome.HANG for cell in cells)
    text = f"{max(seconds):.1f} s at most, {min(seconds):.1f} s at least; {hung} of {len(cells)} called a hang"
    return Figure(text=text, met=hung == len(cells) and max(seconds) <= most)


def ranks(folder: Path, interpreter: str, most: float) -> Figure:
    """Return the seconds that a cell takes whose ranks wait for each other, its diagnosis included."""
    load, began = os.getloadavg()[0], time.monotonic()
    (cell,) = cells_of(folder, [selection.script(str(PROGRAMS / "ranks_disagree.py"))], 1, 1, TIMEOUT, interpreter)
    seconds = time.monotonic() - began
    text = f"{seconds:.1f} s, {cell.outcome}: {cell.reason}; load before {load:.1f}"
    return Figure(text=text, met=cell.outcome is Outcome.HANG and seconds <= most)


def rows(interpreter: str, runs: int) -> list[BenchRow]:
    """Return the rows of the group, for a Python with torch and so many runs of healthy programs."""
    cases = ("idle", "machine at rest", 0, 6.0), ("load", f"beside {LOAD} busy processes", LOAD, 15.0)
    return [
        *(
            BenchRow(
                name=f"hangs-{name}",
                what=f"deadlock to verdict, {DEADLOCKS} times, {beside}",
                target=f"<= {most:.0f} s",
                measure=partial(deadlock, load=load, most=most),
                group="hangs",
            )
            for name, beside, load, most in cases
        ),
        BenchRow(
            name="hangs-ranks",
            what=f"ranks that wait for each other, timeout {TIMEOUT:.0f} s, machine at rest: verdict with diagnosis",
            target="<= 25 s",
            measure=partial(ranks, interpreter=interpreter, most=25.0),
            group="hangs",
        ),
        BenchRow(
            name="hangs-slow",
            what=f"called a hang, of {runs} runs of slow but healthy programs on a machine with a load of {LOAD}",
            target="0",
            measure=partial(slow, interpreter=interpreter, runs=runs),
            group="hangs",
        ),
        BenchRow(
            name="hangs-patient",
            what=f"called a hang, of programs that wait for long, at default limits and others, beside 0 and {LOAD}",
            target="0",
            measure=partial(patient, interpreter=interpreter),
            group="hangs",
        ),
    ]
