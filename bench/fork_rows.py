"""Whether a forked script shows what a cold one shows, and how much less it takes."""

from __future__ import annotations

import platform
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.row import BenchRow, Figure
from whichtorch.matrix.inspect.controls import BareInterpreter
from whichtorch.matrix.model import Outcome
from whichtorch.matrix.plan import planning
from whichtorch.matrix.process.executor import LocalExecutor
from whichtorch.matrix.process.forking_executor import BRIEF_EXIT, ForkingExecutor
from whichtorch.matrix.run.attempt import run_attempt
from whichtorch.matrix.run.attempt_request import AttemptRequest
from whichtorch.matrix.run.pipeline import opened_run
from whichtorch.matrix.suite import selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.model import Record, Scenario

LIMIT = 60.0  # seconds for a script
CACHED_LIMITS = {"torch": 0.3, "dynamo": 0.3, "inductor": 3.0}  # seconds of CPU, at the median, by what is imported
LEAST_RATIO = 10.0  # of the CPU of a cold script to that of a forked one
NATIVE = "worker_thread"  # its module of C++ is built by the pipeline


@dataclass(frozen=True, slots=True)
class _Pair:
    """One script, cold and forked; the third run found the kernels of the others."""

    name: str
    cold: Record
    forked: Record
    again: Record

    @property
    def level(self) -> str:
        evidence = self.forked.attempt.evidence
        return evidence.start.removeprefix("fork").strip() if evidence.is_forked else ""

    @property
    def is_equal(self) -> bool:
        return _shown(self.cold) == _shown(self.forked)


def _shown(record: Record) -> tuple[Outcome, str | None]:
    """Return what a run came to. What the clock ended while it moved may be called a hang or slow."""
    outcome = record.attempt.outcome
    if outcome in {Outcome.HANG, Outcome.SLOW}:
        return Outcome.HANG, None
    return outcome, record.signature


def _scripts(folders: Sequence[Path]) -> Iterator[Scenario]:
    """Yield the suite, and the scripts of further folders."""
    yield from (each for each in selection.suite() if NATIVE not in each.name)
    for folder in folders:
        yield from (selection.script(str(path)) for path in sorted(folder.glob("*.py")))


@dataclass(slots=True)
class _Runs:
    """The runs that both rows are measured by, made once."""

    interpreter: str
    folders: Sequence[Path]
    pairs: tuple[_Pair, ...] = ()

    def equal(self, folder: Path) -> Figure:
        """Count scripts that show the same, those that start cold for a stated reason among them."""
        self._make(folder)
        cold = [pair for pair in self.pairs if not pair.level]
        unlike = [pair for pair in self.pairs if not pair.is_equal]
        unsaid = [pair for pair in cold if not pair.forked.attempt.evidence.cold_because]
        text = f"{len(self.pairs) - len(unlike)} of {len(self.pairs)}, {len(cold)} of them cold for a stated reason"
        text += "".join(f"; {pair.name}: {_shown(pair.cold)} / {_shown(pair.forked)}" for pair in unlike)
        return Figure(text=text, met=not unlike and not unsaid)

    def cost(self, folder: Path) -> Figure:
        """Compare the CPU that scripts take which end by themselves, with the kernels of the run before."""
        self._make(folder)
        levels: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for pair in self.pairs:
            if _is_timed(pair.forked):
                levels[pair.level].append((pair.cold.attempt.cpu_seconds, pair.again.attempt.cpu_seconds))
        parts, is_met = [], True
        for level, seconds in sorted(levels.items()):
            forked = statistics.median(fork for _, fork in seconds)
            ratio = statistics.median(cold for cold, _ in seconds) / max(forked, 0.01)
            parts.append(f"{level} {forked:.2f} s, {ratio:.0f} x, {len(seconds)} scripts")
            is_met = is_met and forked <= CACHED_LIMITS.get(level, 0) and ratio >= LEAST_RATIO
        return Figure(text="; ".join(parts), met=is_met)

    def _make(self, home: Path) -> None:
        """Run every script and variant three times, one after the other."""
        if not self.pairs:
            self.pairs = tuple(_pairs(self.interpreter, self.folders, home))


def _pairs(interpreter: str, folders: Sequence[Path], home: Path) -> Iterator[_Pair]:
    bare = BareInterpreter(home, Path(interpreter), platform.python_version())
    planned = planning.plan([bare.request], list(_scripts(folders)), planning.RunOptions())
    environment = bare.known(bare.request)
    cold = LocalExecutor()
    with opened_run(home) as store, ForkingExecutor() as forking:
        for cell in planned:
            limit = min(LIMIT, cell.scenario.timeout)
            caches = home / "caches" / cell.name.replace("/", "_")
            order = AttemptRequest(limit=limit, caches=caches)
            brief = cell.configured({BRIEF_EXIT: "1"})  # as triage forks most of its runs
            first = run_attempt(cell, environment, order, cold, home, store)
            forked = run_attempt(brief, environment, order, forking, home, store)
            if first is None or forked is None:
                raise KeyboardInterrupt
            again = run_attempt(brief, environment, order, forking, home, store) if _is_timed(forked) else None
            print(f"  {cell.name}: " + ", ".join(map(_words, filter(None, (first, forked, again)))), flush=True)
            yield _Pair(cell.name, first, forked, again or forked)


def _is_timed(record: Record) -> bool:
    """Return whether a run was forked and ended by itself."""
    return record.attempt.evidence.is_forked and record.attempt.stopped_by == "exit"


def _words(record: Record) -> str:
    attempt = record.attempt
    return f"{attempt.outcome.word} {attempt.evidence.start} {attempt.cpu_seconds:.2f} s"


def rows(interpreter: str, folders: Sequence[Path]) -> list[BenchRow]:
    """Return the rows; both come of the same runs."""
    runs = _Runs(interpreter, folders)
    return [
        BenchRow(
            name="fork-equal",
            what="scripts that show the same forked and cold",
            target="all",
            measure=runs.equal,
            group="fork",
        ),
        BenchRow(
            name="fork-cost",
            what="CPU of a forked script with cached kernels, at the median, and against cold",
            target="torch and Dynamo 0.3 s, Inductor 3 s; 10 x",
            measure=runs.cost,
            group="fork",
        ),
    ]
