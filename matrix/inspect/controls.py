"""Run the control scenarios, which need no torch, and say whether each got its own outcome."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.model import Attempt, Build, Cell, Config, Environment, Outcome, Request, digest
from matrix.plan.planning import RunOptions, plan
from matrix.process.evidence.capture import NOT_PERMITTED
from matrix.records.store import Records
from matrix.run.pipeline import recorded_run
from matrix.suite import selection

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.environments.provider import Stage
    from matrix.events import Show

FAMILY = "control/*"
PATIENCE = 30.0  # seconds for an interpreter to tell its version
EXPLAINED = {"control/deadlock": "lock cycle", "control/gil_deadlock": "GIL cycle"}  # kinds of hang


class Bare:
    """One Python as the only environment, with or without torch: no probe, no canary."""

    def __init__(self, home: Path, interpreter: Path, version: str) -> None:
        self.home, self.interpreter, self.version = home, interpreter, version

    @property
    def request(self) -> Request:
        """What asks for it."""
        return Request(
            torch="",
            python="",
            build=Build(name="existing"),
            config=Config(name="default"),
            interpreter=self.interpreter,
        )

    def known(self, request: Request) -> Environment:
        """Return the environment, as it always is."""
        return Environment(
            id=digest(["bare", str(self.interpreter), self.version]),
            label=request.label,
            torch="none",
            python=self.version,
            build=request.build.name,
            config=request.config.name,
            interpreter=self.interpreter,
            options=request.options,
        )

    def is_installed(self, request: Request) -> bool:  # noqa: ARG002
        """Return True: it is there."""
        return True

    def typical_install(self) -> float:
        """Return 0: nothing is ever installed."""
        return 0.0

    def in_the_way(self, request: Request) -> None:
        """Return None: no index is needed."""

    def acquire(
        self,
        request: Request,
        cancelled: threading.Event | None = None,  # noqa: ARG002
        stage: Stage | None = None,  # noqa: ARG002
    ) -> Environment:
        """Return the environment; nothing is installed."""
        return self.known(request)

    def release(self, request: Request) -> None:
        """Do nothing: it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What came of a control, and what should have."""

    cell: Cell
    own: Outcome
    kind: str | None = None  # of hang, as it was diagnosed
    is_diagnosed: bool = "diagnosis" in Attempt.model_fields  # stacks of what hangs are taken and read

    @property
    def problem(self) -> str | None:
        """What is wrong with it, None where nothing is."""
        if self.cell.outcome is Outcome.SKIP:
            return None  # it says that it does not apply to this Python
        if self.cell.outcome is not self.own:
            return (
                f"{self.cell.outcome}, not {self.own}: {self.cell.reason or self.cell.signature or 'no reason known'}"
            )
        wanted = EXPLAINED.get(self.cell.scenario)
        if wanted and self.is_diagnosed and self.kind != wanted:
            why = ", for want of permission to read stacks" if self._is_refused else ""
            return f"explained as {self.kind or 'nothing'}, not as {wanted}{why}"
        return None

    @property
    def remedy(self) -> str:
        """What to do about a problem."""
        if self._is_refused:
            return "see ptrace"
        log = self.cell.attempts[-1].stderr if self.cell.attempts else "none"
        return f"look at {log} in the state folder; a busy machine may need another try"

    @property
    def _is_refused(self) -> bool:
        return any(NOT_PERMITTED in attempt.note for attempt in self.cell.attempts)


def run_controls(
    home: Path,
    interpreter: Path,
    jobs: int,
    show: Show,
    globs: tuple[str, ...] = (FAMILY,),
) -> Iterator[Control]:
    """Run controls with an interpreter, all unless `globs` names some; yield what came of each.

    They go through the same pipeline as any cell, and nothing that is recorded counts. Raises UsageError
    where the interpreter does not run.
    """
    cache = Bare(home, interpreter, _version_of(interpreter))
    suite = selection.select(selection.suite(), globs)
    planned = plan([cache.request], suite, RunOptions(jobs=jobs, fresh=True))
    with recorded_run(cache, Records(), show) as lab:
        _, cells = lab(planned, jobs)
    for one, cell in zip(planned, cells, strict=True):
        environment = cache.known(one.request)
        axes = {"torch": "0", "python": environment.python, "build": environment.build, "config": environment.config}
        line = selection.expected(one.scenario, one.variant, **axes)
        yield Control(cell=cell, own=line.outcome if line else Outcome.PASS, kind=_kind(cell))


def _kind(cell: Cell) -> str | None:
    """Return the kind of hang that the stacks of an attempt show, None where there were none."""
    for attempt in reversed(cell.attempts):
        diagnosis: dict[str, object] | None = getattr(attempt, "diagnosis", None)
        if diagnosis and attempt.outcome is Outcome.HANG:
            return str(diagnosis.get("kind", ""))
    return None


def _version_of(interpreter: Path) -> str:
    argv = [str(interpreter), "-c", "import platform; print(platform.python_version())"]
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"{interpreter} does not run as a Python: {error}") from None
    return ended.stdout.strip()


def control_lines(controls: list[Control]) -> Iterator[str]:
    """Yield a line for each control, and what is wrong with those that are not as they should be."""
    width = max((len(control.cell.name) for control in controls), default=0)
    for control in controls:
        cell = control.cell
        state = "PROBLEM" if control.problem else "good"
        kind = f", {control.kind}" if control.kind else ""
        what = control.problem or f"{cell.outcome}{kind}, {cell.seconds:.1f} s"
        yield f"{state:<8} {cell.name:<{width}}  {what}"
        if control.problem:
            yield f"{'':<8} remedy: {control.remedy}"
