"""Whether a forked script shows what a cold one shows, and how much less it takes."""

from __future__ import annotations

import platform
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fork_probes import PROBES
from bench.row import BenchRow, Figure
from whichtorch.matrix import planning
from whichtorch.matrix.attempt import run_attempt
from whichtorch.matrix.lab import opened_run
from whichtorch.matrix.variation import AttemptRequest
from whichtorch.model import Outcome
from whichtorch.process.executor import BRIEF_EXIT, ForkingExecutor, LocalExecutor
from whichtorch.suite import selection
from whichtorch.watch.checkup import BareInterpreter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Record, Scenario

LIMIT = 60.0  # seconds for a script
CACHED_LIMITS = {"torch": 0.3}  # seconds of CPU, at the median, by what is imported; of others 1
LEAST_RATIO = 10.0  # of the CPU of a cold script to that of a forked one
NATIVE = "worker_thread"  # its module of C++ is built by the pipeline


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of one script: cold, forked as a matrix forks it, and forked briefly, with the kernels of the others."""

    name: str
    cold: Record
    forked: Record
    again: Record | None
    unlike: str = ""  # what the forked one shows that no cold one does
    is_wrong: bool = False  # a matrix would count it

    @property
    def level(self) -> str:
        evidence = self.forked.attempt.evidence
        return evidence.start.removeprefix("fork").strip() if evidence.is_forked else ""


def _shown(record: Record, home: Path) -> dict[str, str]:
    """Return what a run came to. What the clock ended while it moved may be called a hang or slow."""
    outcome = record.attempt.outcome
    is_late = outcome in {Outcome.HANG, Outcome.SLOW}
    shown = {"outcome": "hang" if is_late else str(outcome), "signature": "" if is_late else record.signature or ""}
    return shown | {"output": (home / record.attempt.stdout).read_text(errors="replace")}


def _scripts(folders: Sequence[Path], probes: Path) -> Iterator[Scenario]:
    """Yield the suite, the probes, and the scripts of further folders."""
    yield from (each for each in selection.suite() if NATIVE not in each.name)
    for name, text in PROBES.items():
        path = probes / f"probe-{name}.py"
        path.write_text(text if "import torch\n" in text else f"import torch\n{text}\n")
        yield selection.script(str(path))
    for folder in folders:
        yield from (selection.script(str(path)) for path in sorted(folder.glob("*.py")))


@dataclass(slots=True)
class _Comparison:
    """The runs that both rows are measured by, made once."""

    interpreter: str
    folders: Sequence[Path]
    runs: tuple[_Runs, ...] = ()

    def equal(self, folder: Path) -> Figure:
        """Count forked scripts that show what a cold one shows. What a matrix would make again cold is no mistake."""
        self._make(folder)
        forked = [runs for runs in self.runs if runs.level]
        unlike = [runs for runs in forked if runs.unlike]
        wrong = [runs for runs in unlike if runs.is_wrong]
        unsaid = [runs for runs in self.runs if not runs.level and not runs.forked.attempt.evidence.cold_because]
        text = f"{len(forked) - len(unlike)} of {len(forked)} forked, {len(unlike) - len(wrong)} made again cold"
        text += f", {len(wrong)} wrong; {len(self.runs) - len(forked)} cold for a stated reason"
        text += "".join(f"; {runs.name}: {runs.unlike}{' WRONG' if runs.is_wrong else ''}" for runs in unlike)
        return Figure(text=text, met=not wrong and not unsaid)

    def cost(self, folder: Path) -> Figure:
        """Compare the CPU that scripts take which end by themselves, with the kernels of the run before."""
        self._make(folder)
        levels: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for runs in self.runs:
            if runs.again is not None:
                levels[runs.level].append((runs.cold.attempt.cpu_seconds, runs.again.attempt.cpu_seconds))
        parts, is_met = [], True
        for level, seconds in sorted(levels.items()):
            forked = statistics.median(fork for _, fork in seconds)
            ratio = statistics.median(cold for cold, _ in seconds) / max(forked, 0.01)
            parts.append(f"{level} {forked:.2f} s, {ratio:.0f} x, {len(seconds)} scripts")
            is_met = is_met and forked <= CACHED_LIMITS.get(level, 1) and ratio >= LEAST_RATIO
        return Figure(text="; ".join(parts), met=is_met)

    def _make(self, home: Path) -> None:
        """Run every script and variant, one after the other."""
        if not self.runs:
            self.runs = tuple(_runs(self.interpreter, self.folders, home))


def _runs(interpreter: str, folders: Sequence[Path], home: Path) -> Iterator[_Runs]:
    bare = BareInterpreter(home, Path(interpreter), platform.python_version())
    planned = planning.plan([bare.request], list(_scripts(folders, home)), planning.RunOptions())
    environment = bare.known(bare.request)
    cold = LocalExecutor()
    with opened_run(home) as store, ForkingExecutor() as forking:

        def run(cell: PlannedCell, executor: LocalExecutor, *, caches: bool = False) -> Record:
            kept = home / "caches" / cell.name.replace("/", "_") if caches else None
            order = AttemptRequest(limit=min(LIMIT, cell.scenario.timeout), caches=kept)
            record = run_attempt(cell, environment, order, executor=executor, home=home, store=store)
            if record is None:
                raise KeyboardInterrupt
            return record

        for cell in planned:
            first, forked = run(cell, cold), run(cell, forking)
            shown, wanted = _shown(forked, home), [_shown(first, home)]
            is_forked = forked.attempt.evidence.is_forked and first.attempt.outcome is not Outcome.SLOW
            if is_forked and shown != wanted[0]:
                wanted.append(_shown(run(cell, cold), home))
            same = [part for part in shown if is_forked and len({each[part] for each in wanted}) == 1]
            unlike = [part for part in same if shown[part] != wanted[0][part]]
            told = ", ".join(f"{part} {wanted[0][part][-80:]!r} / {shown[part][-80:]!r}" for part in unlike)
            again = None
            if _is_timed(forked):
                brief = cell.configured({BRIEF_EXIT: "1"})  # as triage forks most of its runs
                run(brief, forking, caches=True)
                again = run(brief, forking, caches=True)
            print(f"  {cell.name}: " + ", ".join(map(_words, filter(None, (first, forked, again)))), told, flush=True)
            is_wrong = bool(unlike) and forked.attempt.outcome in {Outcome.PASS, Outcome.SKIP}
            yield _Runs(cell.name, first, forked, again, told, is_wrong)


def _is_timed(record: Record) -> bool:
    """Return whether a run was forked and ended by itself."""
    return record.attempt.evidence.is_forked and record.attempt.stopped_by == "exit"


def _words(record: Record) -> str:
    attempt = record.attempt
    start = attempt.evidence.cold_because or attempt.evidence.start
    return f"{attempt.outcome.word} {start} {attempt.cpu_seconds:.2f} s"


def rows(interpreter: str, folders: Sequence[Path]) -> list[BenchRow]:
    """Return the rows; both come of the same runs."""
    runs = _Comparison(interpreter, folders)
    return [
        BenchRow(
            name="fork-equal",
            what="forked scripts that show what cold ones show: outcome, signature, output",
            target="no forked pass that a cold one does not show",
            measure=runs.equal,
            group="fork",
        ),
        BenchRow(
            name="fork-cost",
            what="CPU of a forked script with cached kernels, at the median, and against cold",
            target="torch 0.3 s, compilers 1 s; 10 x",
            measure=runs.cost,
            group="fork",
        ),
    ]
