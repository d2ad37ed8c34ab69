"""Whether hangs get the right diagnosis, and healthy runs pass, through the whole pipeline."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.row import BenchRow, Figure
from tests.process.running import PROGRAMS
from tests.process.test_capture import KINDS
from whichtorch.matrix import planning
from whichtorch.matrix.lab import opened_lab
from whichtorch.matrix.site import ThisMachine
from whichtorch.model import Outcome
from whichtorch.records.line_index import Records
from whichtorch.suite import selection
from whichtorch.watch.checkup import BareInterpreter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.model import Cell, Scenario
    from whichtorch.model.events import Emit

REPETITIONS = 20
RIGHT = 19  # of these
TIMEOUT = 6.0  # seconds that a spin is given
HEALTHY_RUNS = 200
IDLE_AT_ONCE = 8  # of what waits: only its diagnosis costs anything
BUSY_AT_ONCE = 2
SLEEPING_AT_ONCE = 40
_IDLE = ("sleep", "subprocess", "output")  # healthy work that takes no core


@contextmanager
def quiet(_total: int | None) -> Iterator[Emit]:
    """Show nothing."""
    yield lambda _event: None


def cells_of(
    folder: Path,
    suite: Sequence[Scenario],
    times: int,
    at_once: int,
    timeout: float | None = None,
    interpreter: str = sys.executable,
) -> list[Cell]:
    """Run every variant of some scenarios so many times, as cells of a Python; return them all."""
    bare = BareInterpreter(folder, Path(interpreter), platform.python_version())
    default = {"has_timeout": False} | ({"timeout": timeout} if timeout else {})  # what is slow gets its longer look
    suite = [each.model_copy(update=default) for each in suite]
    planned = planning.plan([bare.request], suite, planning.RunOptions(fresh=True))
    with opened_lab(ThisMachine(environments=bare, jobs=at_once), Records(), quiet) as run:
        return list(run([cell for cell in planned for _ in range(times)])[1])


def kinds(folder: Path) -> Figure:
    """Hang and spin in Python, in C with and without the GIL, in a child and in its thread; count right diagnoses."""
    counts: dict[str, Counter[str]] = {}
    for is_busy, at_once in ((False, IDLE_AT_ONCE), (True, BUSY_AT_ONCE)):
        names = [name for name in KINDS if name.startswith("spins") is is_busy]
        suite = [selection.script(str(PROGRAMS / f"{name}.py")) for name in names]
        for cell in cells_of(folder, suite, REPETITIONS, at_once, TIMEOUT):
            kind = cell.diagnosis.kind if cell.diagnosis else "no diagnosis"
            name = Path(cell.scenario).stem
            counts.setdefault(name, Counter())[kind if cell.outcome is Outcome.HANG else str(cell.outcome)] += 1
    right = {name: counts[name][kind] for name, kind in KINDS.items()}
    text = f"{min(right.values())} of {REPETITIONS} at least"
    wrong = [(name, kind, count) for name in KINDS for kind, count in counts[name].items() if kind != KINDS[name]]
    text += "".join(f"; {name}: {count} {kind}" for name, kind, count in wrong)
    return Figure(text=text, met=min(right.values()) >= RIGHT)


def healthy(folder: Path) -> Figure:
    """Run the healthy controls, all but one of which look much like a hang."""
    idle = selection.select(selection.suite(), ["control/pass", *(f"control/slow[work={work}]" for work in _IDLE)])
    busy = selection.select(selection.suite(), ["control/slow[work=compile]"])
    times = HEALTHY_RUNS // (len(_IDLE) + 2)
    cells = [*cells_of(folder, idle, times, SLEEPING_AT_ONCE), *cells_of(folder, busy, times, BUSY_AT_ONCE)]
    outcomes = Counter(attempt.outcome for cell in cells for attempt in cell.attempts)
    others = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    is_met = outcomes[Outcome.HANG] == 0 and outcomes[Outcome.PASS] >= HEALTHY_RUNS
    return Figure(text=f"{outcomes[Outcome.HANG]} of {outcomes.total()} ({others})", met=is_met)


ROWS = [
    BenchRow(
        name="kinds",
        what=f"kinds of hang and spin told right, {len(KINDS)} programs, {REPETITIONS} times each",
        target=f">= {RIGHT} of {REPETITIONS} each",
        measure=kinds,
    ),
    BenchRow(
        name="healthy",
        what=f"called a hang, of {HEALTHY_RUNS} healthy cells that can be asked for their stacks",
        target="0",
        measure=healthy,
    ),
]
