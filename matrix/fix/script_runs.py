"""Run one script in environments and in overlays of them, each run through the same attempt as a cell of a matrix."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from matrix.environments.inside.startup.note_functions import FOLDER
from matrix.environments.overlay import lay
from matrix.environments.whole_files import remove_tree
from matrix.errors import PreventedError
from matrix.fix.functions_run import FunctionsRun, read_functions_run
from matrix.fix.trial import Effect, Trial, failing_frames
from matrix.model import Environment, Outcome, Record, digest
from matrix.process.supervision import Task
from matrix.run.attempt import AttemptOrder, run_attempt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.bisect.sightings import Failure
    from matrix.plan.planning import PlannedCell
    from matrix.process.executor import Executor
    from matrix.records.store import RunStore

SYMBOLS = Path(__file__).parents[1] / "environments" / "inside" / "symbol_dump.py"
SYMBOLS_TIMEOUT = 300.0  # seconds: `import torch` from a cold disk takes up to a minute
_NOTING = "note_functions"  # the start-up hook
_OVERLAYS = "overlays"  # folder of those that are in use, named after the process that uses them


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRuns:
    """Where the runs of one search are made."""

    planned: PlannedCell  # script, variant, and the limits of a run
    executor: Executor
    home: Path
    store: RunStore

    @property
    def folder(self) -> Path:
        """Where overlays and what the search keeps lie: on the environments' file system."""
        return self.home / "fix"

    def run(self, environment: Environment, limit: float) -> Record:
        """Run the script once; raise KeyboardInterrupt where it was interrupted."""
        return self._record(self.planned, environment, AttemptOrder(limit=limit))

    def noted(self, environment: Environment, limit: float) -> FunctionsRun:
        """Run the script once and return which functions of torch it ran; how it ended is no evidence of a failure."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="functions-") as name:
            config = self.planned.request.config
            variables = config.env | {FOLDER: name}
            noting = config.model_copy(update={"hooks": (*config.hooks, _NOTING), "env": variables})
            request = self.planned.request.model_copy(update={"config": noting})
            order = AttemptOrder(limit=limit)
            record = self._record(replace(self.planned, request=request), environment, order)
            return read_functions_run(Path(name), passed=record.attempt.outcome is Outcome.PASS)

    @contextmanager
    def changed(self, environment: Environment, files: Mapping[str, str | None]) -> Iterator[Environment]:
        """Lay an overlay of an environment, and remove it afterwards."""
        assert environment.interpreter is not None
        venv, name = environment.interpreter.parent.parent, digest([environment.id, sorted(files.items())])
        overlay = self.folder / _OVERLAYS / f"{os.getpid()}-{name}"
        lay(venv, overlay, files)
        interpreter = overlay / environment.interpreter.relative_to(venv)
        changes = {"id": f"{environment.id}+{name}", "label": f"{environment.label}+{name[:6]}"}
        try:
            yield environment.model_copy(update=changes | {"interpreter": interpreter})
        finally:
            remove_tree(overlay)

    def sweep(self) -> None:
        """Remove the overlays that killed tools have left behind."""
        for overlay in (self.folder / _OVERLAYS).glob("*"):
            owner = overlay.name.removeprefix(".").partition("-")[0]
            if not (owner.isdigit() and psutil.pid_exists(int(owner))):
                remove_tree(overlay)

    def stderr(self, record: Record) -> str:
        """Return what a run wrote to stderr."""
        return (self.home / record.attempt.stderr).read_text(encoding="utf-8", errors="replace")

    def trial(self, environment: Environment, files: Mapping[str, str | None], failure: Failure, limit: float) -> Trial:
        """Run the script with files changed, and tell what that does to a failure."""
        with self.changed(environment, files) as overlay:
            record = self.run(overlay, limit)
            return judged(record, self.stderr(record), failure)

    def symbols(self, environment: Environment) -> frozenset[str]:
        """Return the dotted names of what an environment's binary offers; raises PreventedError."""
        kept = self.folder / f"symbols-{environment.id}.json"
        if not kept.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="symbols-") as name:
                self._dump_symbols(environment, Path(name), kept)
        return frozenset(json.loads(kept.read_text(encoding="utf-8")))

    def _dump_symbols(self, environment: Environment, folder: Path, kept: Path) -> None:
        script, answer, log = folder / "symbols.py", folder / "answer.json", folder / "output.txt"
        shutil.copyfile(SYMBOLS, script)  # alone in its folder, so that none of the tool's modules can be imported
        task = Task(
            argv=(str(environment.interpreter), str(script), str(answer)),
            cwd=str(folder),
            env=self.planned.environ(environment, self.home),
            stdout=str(log),
            stderr=str(log),
            timeout=SYMBOLS_TIMEOUT,
        )
        if self.executor.run(task) is None:
            raise KeyboardInterrupt
        if not answer.exists():
            last = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no answer"])[-1]
            raise PreventedError(f"{environment.label} did not tell its symbols: {last}")
        answer.replace(kept)

    def _record(self, planned: PlannedCell, environment: Environment, order: AttemptOrder) -> Record:
        record = run_attempt(planned, environment, order, self.executor, self.home, self.store)
        if record is None:
            raise KeyboardInterrupt
        return record


def judged(record: Record, stderr: str, failure: Failure) -> Trial:
    """Return what a run with a change says of a failure; raises PreventedError where it says nothing."""
    attempt = record.attempt
    if attempt.outcome.is_prevented:
        raise PreventedError(f"a run could not be judged: {attempt.note or attempt.outcome}")
    if attempt.outcome is Outcome.PASS:
        return Trial(effect=Effect.CURED, seconds=attempt.seconds)
    # what does not end in the time that a cure would take still hangs
    is_same = failure.is_seen_in(record) or (failure.outcome is Outcome.HANG and attempt.outcome is Outcome.SLOW)
    return Trial(
        effect=Effect.SAME if is_same else Effect.UNRESOLVED,
        exception=f"{(record.signature or '').partition(' in ')[0]}: {attempt.message}",
        frames=failing_frames(stderr),
        seconds=attempt.seconds,
    )
