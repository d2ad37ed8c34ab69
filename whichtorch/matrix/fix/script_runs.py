"""Run one script in environments and in overlays of them, each run through the same attempt as a cell of a matrix."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from whichtorch.matrix.diagnosis.hang.stack_folder import read_folder
from whichtorch.matrix.diagnosis.patience import BOTH_LOOKS
from whichtorch.matrix.diagnosis.stacks import Language
from whichtorch.matrix.environments.inside.startup.note_functions import FOLDER
from whichtorch.matrix.environments.overlay import lay
from whichtorch.matrix.environments.whole_files import remove_tree
from whichtorch.matrix.errors import PreventedError
from whichtorch.matrix.fix.functions_run import PASSED, FunctionsRun, read_functions_run
from whichtorch.matrix.fix.lanes import Lanes
from whichtorch.matrix.fix.trial import Effect, FailingFrame, Trial, failing_frames
from whichtorch.matrix.model import Environment, Outcome, Record, digest
from whichtorch.matrix.process.supervision import Task
from whichtorch.matrix.run.attempt import AttemptOrder, run_attempt
from whichtorch.matrix.run.signals import Lookout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from whichtorch.matrix.bisect.sightings import Failure
    from whichtorch.matrix.model import Attempt
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.process.executor import Executor
    from whichtorch.matrix.records.store import RunStore

_INSIDE = Path(__file__).parents[1] / "environments" / "inside"
SYMBOLS = _INSIDE / "symbol_dump.py"
EVERYDAY = _INSIDE / "everyday.py"
COMPILERS = {"dynamo": "torch/_dynamo/", "inductor": "torch/_inductor/", "export": "torch/export/"}  # steps of EVERYDAY
INSIDE_TIMEOUT = 300.0  # seconds: `import torch` from a cold disk takes up to a minute, and so do compilers
STARVED = 1.25  # times the processor time of a pass: with less, a trial may not have come to its end
_NOTING = "note_functions"  # the start-up hook
_IN_USE = "in-use"  # folder of overlays and the like, each named after the process that uses it


@dataclass(frozen=True, slots=True, kw_only=True)
class CureTest:
    """What a trial is to show: that a failure is gone, in the time that a cure would take."""

    failure: Failure
    limit: float  # seconds
    cpu_seconds: float = 0.0  # on all cores, of a run that passes

    def was_starved(self, attempt: Attempt) -> bool:
        """Return whether a trial was stopped that had no more of the machine than a run that passes needs."""
        return attempt.outcome is Outcome.SLOW and attempt.cpu_seconds < STARVED * self.cpu_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRuns:
    """Where the runs of one search are made."""

    planned: PlannedCell  # script, variant, and the limits of a run
    executor: Executor
    home: Path
    store: RunStore
    tell: Callable[[str], None] = print
    lookout: Lookout = field(default_factory=lambda: Lookout(tuple))

    @property
    def folder(self) -> Path:
        """Where overlays and what the search keeps lie: on the environments' file system."""
        return self.home / "fix"

    def run(self, environment: Environment, limit: float) -> Record:
        """Run the script once; raise KeyboardInterrupt where it was interrupted."""
        return self._record(self.planned, environment, AttemptOrder(limit=limit))

    def noted(self, environment: Environment, limit: float) -> FunctionsRun:
        """Run the script once and return which functions of torch it ran; how it ended is no evidence of a failure.

        What was noted once is kept, for the same search goes on from it.
        """
        kept = self.folder / f"functions-{digest([self.planned.key(environment)])}"
        if not kept.exists():
            with self._workshop() as folder:
                record = self._record(self._noting(folder / "notes"), environment, AttemptOrder(limit=limit))
                if record.attempt.outcome is Outcome.PASS:
                    (folder / "notes" / PASSED).touch()
                (folder / "notes").replace(kept)
        return read_functions_run(kept)

    @contextmanager
    def changed(self, environment: Environment, files: Mapping[str, str | None]) -> Iterator[Environment]:
        """Lay an overlay of an environment, and remove it afterwards."""
        assert environment.interpreter is not None
        venv, name = environment.interpreter.parent.parent, digest([environment.id, sorted(files.items())])
        overlay = self.folder / _IN_USE / f"{os.getpid()}-{name}"
        lay(venv, overlay, files)
        interpreter = overlay / environment.interpreter.relative_to(venv)
        changes = {"id": f"{environment.id}+{name}", "label": f"{environment.label}+{name[:6]}"}
        try:
            yield environment.model_copy(update=changes | {"interpreter": interpreter})
        finally:
            remove_tree(overlay)

    def sweep(self) -> None:
        """Remove what killed tools have left behind."""
        for folder in (self.folder / _IN_USE).glob("*"):
            owner = folder.name.removeprefix(".").partition("-")[0]
            if not (owner.isdigit() and psutil.pid_exists(int(owner))):
                remove_tree(folder)

    def frames(self, record: Record) -> tuple[FailingFrame, ...]:
        """Return where a run failed: the frames of its tracebacks, and of the stacks where it was stopped."""
        attempt = record.attempt
        raised = failing_frames((self.home / attempt.stderr).read_text(encoding="utf-8", errors="replace"))
        return (*raised, *(_stuck_frames(self.home / attempt.stacks) if attempt.stacks else ()))

    def trial(self, environment: Environment, files: Mapping[str, str | None], test: CureTest) -> Trial:
        """Run the script with files changed, and tell what that does to a failure."""
        with self.changed(environment, files) as overlay:
            record = self.fair_run(overlay, test)
            return judged(record, self.frames(record), test.failure)

    def fair_run(self, environment: Environment, test: CureTest) -> Record:
        """Run the script once, for as long as a cure may take.

        What a busy machine kept from ending gets more time once: a cure must not be taken for the hang.
        """
        record = self.run(environment, test.limit)
        return self.run(environment, BOTH_LOOKS * test.limit) if test.was_starved(record.attempt) else record

    def everyday(self, environment: Environment, active: Collection[str]) -> FunctionsRun:
        """Return the functions of torch that any script may run there.

        Of the compilers those count of which files are `active` in the script's own run.
        """
        steps = [step for step, folder in COMPILERS.items() if any(path.startswith(folder) for path in active)]
        kept = self.folder / f"everyday-{environment.id}-{'-'.join(steps) or 'plain'}"
        if not kept.exists():
            with self._workshop() as folder:
                self._inside(self._noting(folder / "notes"), environment, EVERYDAY, steps)
                (folder / "notes").replace(kept)
        return read_functions_run(kept)

    def symbols(self, environment: Environment) -> frozenset[str]:
        """Return the dotted names of what an environment's binary offers; raises PreventedError."""
        kept = self.folder / f"symbols-{environment.id}.json"
        if not kept.exists():
            with self._workshop() as folder:
                answer = folder / "answer.json"
                said = self._inside(self.planned, environment, SYMBOLS, [str(answer)])
                if not answer.exists():
                    last = (said.strip().splitlines() or ["no answer"])[-1]
                    raise PreventedError(f"{environment.label} did not tell its symbols: {last}")
                answer.replace(kept)
        return frozenset(json.loads(kept.read_text(encoding="utf-8")))

    def lanes(self, count: int) -> Lanes:
        """Return where so many runs may be made at once; an interrupt there stops them all."""
        return Lanes(count, self.executor.interrupt)

    def at_once(self, *calls: Callable[[], FunctionsRun]) -> list[FunctionsRun]:
        """Make several calls side by side: what they note is no matter of time."""
        with self.lanes(len(calls)) as lanes:
            return lanes.results(*calls)

    @contextmanager
    def _workshop(self) -> Iterator[Path]:
        """Give a folder that is gone afterwards, on the file system of what is kept."""
        (self.folder / _IN_USE).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder / _IN_USE, prefix=f"{os.getpid()}-") as name:
            yield Path(name)

    def _noting(self, notes: Path) -> PlannedCell:
        """Return the cell with a hook that notes the functions which run, in a folder."""
        notes.mkdir()
        return self.planned.configured({FOLDER: str(notes)}, [_NOTING])

    def _inside(self, planned: PlannedCell, environment: Environment, source: Path, arguments: Sequence[str]) -> str:
        """Run a script of the tool's own in an environment, and return what it said."""
        with self._workshop() as folder:
            script, log = folder / source.name, folder / "output.txt"
            shutil.copyfile(source, script)  # alone in its folder, so that none of the tool's modules can be imported
            task = Task(
                argv=(str(environment.interpreter), str(script), *arguments),
                cwd=str(folder),
                env=planned.environ(environment, self.home)
                | {name: str(folder) for name in ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")},
                stdout=str(log),
                stderr=str(log),
                timeout=INSIDE_TIMEOUT,
            )
            if self.executor.run(task) is None:
                raise KeyboardInterrupt
            return log.read_text(encoding="utf-8", errors="replace")

    def _record(self, planned: PlannedCell, environment: Environment, order: AttemptOrder) -> Record:
        begun, record = time.monotonic(), None
        try:
            record = run_attempt(planned, environment, order, self.executor, self.home, self.store)
        finally:
            if record is None:
                name = f"{planned.name}  {environment.label}"
                self.tell(f"{name} was stopped: {self.lookout.cut_off(name, begun)}")
        if record is None:
            raise KeyboardInterrupt
        return record


def _stuck_frames(folder: Path) -> Iterator[FailingFrame]:
    """Yield the Python frames of a stopped run's processes, those of threads that were on a core first."""
    threads = [thread for process in read_folder(folder) for thread in process.threads]
    for thread in sorted(threads, key=lambda thread: not thread.active):
        for frame in thread.frames:
            if frame.language is Language.PYTHON and frame.file and frame.line is not None:
                path = frame.file.rpartition("/site-packages/")[2]
                yield FailingFrame(path=path, line=frame.line, function=frame.function)


def judged(record: Record, frames: tuple[FailingFrame, ...], failure: Failure) -> Trial:
    """Return what a run with a change says of a failure; raises PreventedError where it says nothing."""
    attempt = record.attempt
    if attempt.outcome.is_prevented:
        raise PreventedError(f"a run could not be judged: {attempt.note or attempt.outcome}")
    if attempt.outcome is Outcome.PASS:
        return Trial(effect=Effect.CURED, seconds=attempt.seconds)
    return Trial(
        effect=Effect.SAME if failure.is_shown_by(record) else Effect.UNRESOLVED,
        exception=f"{(record.signature or '').partition(' in ')[0]}: {attempt.message}",
        frames=frames,
        seconds=attempt.seconds,
    )
