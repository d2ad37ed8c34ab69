"""Run the control scenarios, which need no torch, and check that each gets its own outcome."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.environments.expansion import existing
from whichtorch.matrix.lab import opened_lab
from whichtorch.matrix.planning import RunOptions, plan
from whichtorch.matrix.site import ThisMachine
from whichtorch.model import Cell, Config, Environment, Outcome, Request, digest
from whichtorch.process.evidence.capture import NOT_PERMITTED
from whichtorch.records.known_records import Records
from whichtorch.suite import selection

if TYPE_CHECKING:
    from whichtorch.model.events import Show

FAMILY = "control/*"
PATIENCE = 30.0  # seconds for an interpreter to print its version
AT_ONCE = 6  # controls: most of them wait, and none imports torch
KINDS = {"control/deadlock": "lock cycle", "control/gil_deadlock": "GIL cycle"}  # of hang, as they must be diagnosed


class BareInterpreter:
    """One Python, with or without torch, as the only environment: no install, no probe, no canary."""

    def __init__(self, home: Path, interpreter: Path, version: str) -> None:
        self.home, self.interpreter, self.version = home, interpreter, version
        self.request = existing(interpreter, Config(name="default"))

    def known(self, request: Request) -> Environment:
        """Return the environment."""
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

    def is_installed(self, request: Request) -> bool:
        """Return True for the interpreter."""
        return request == self.request

    def typical_install(self) -> float:
        """Return 0: nothing is ever installed."""
        return 0.0

    def unreachable_index(self, request: Request) -> None:
        """Return None: no index is needed."""

    def acquire(self, request: Request, *_: object, **__: object) -> Environment:
        """Return the environment."""
        return self.known(request)

    def release(self, request: Request) -> None:
        """Do nothing: the interpreter stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The cell of a control, and the outcome it should have."""

    cell: Cell
    own: Outcome

    @property
    def kind(self) -> str | None:
        """The kind of hang that its stacks show; None where it did not hang."""
        diagnosis = self.cell.diagnosis if self.cell.outcome is Outcome.HANG else None
        return diagnosis.kind if diagnosis else None

    @property
    def problem(self) -> str | None:
        """What is wrong with it; None where nothing is."""
        if self.cell.outcome is Outcome.SKIP:
            return None  # it says that it does not apply to this Python
        if self.cell.outcome is not self.own:
            reason = self.cell.reason or self.cell.signature or "no reason known"
            return f"{self.cell.outcome}, not {self.own}: {reason}"
        kind = KINDS.get(self.cell.scenario)
        if kind and self.kind != kind:
            why = ", for want of permission to read stacks" if self._is_refused else ""
            return f"explained as {self.kind or 'nothing'}, not as {kind}{why}"
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
    home: Path, interpreter: Path, jobs: int | None, show: Show, globs: tuple[str, ...] = (FAMILY,)
) -> Iterator[Control]:
    """Run the controls that `globs` selects with an interpreter, through the same pipeline as any cell; yield each.

    By default AT_ONCE run at once. No stored record counts. Raises UsageError where the interpreter does not run.
    """
    bare = BareInterpreter(home, interpreter, _version_of(interpreter))
    planned = plan([bare.request], selection.select(selection.suite(), globs), RunOptions(fresh=True))
    with opened_lab(ThisMachine(environments=bare, jobs=jobs or AT_ONCE), Records(), show) as run:
        _, cells = run(planned)
    axes = bare.request.axes | {"torch": "0", "python": bare.version}
    for control, cell in zip(planned, cells, strict=True):
        line = selection.expected(control.scenario, control.variant, axes)
        yield Control(cell=cell, own=line.outcome if line else Outcome.PASS)


def _version_of(interpreter: Path) -> str:
    argv = [str(interpreter), "-I", "-c", "import platform; print(platform.python_version())"]
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"{interpreter} does not run as a Python: {error}") from None
    return ended.stdout.strip()


def control_lines(controls: list[Control]) -> Iterator[str]:
    """Yield a line for each control, and a line with the remedy for each problem."""
    width = max((len(control.cell.name) for control in controls), default=0)
    for control in controls:
        cell = control.cell
        state = "PROBLEM" if control.problem else "good"
        kind = f", {control.kind}" if control.kind else ""
        what = control.problem or f"{cell.outcome}{kind}, {cell.seconds:.1f} s"
        yield f"{state:<8} {cell.name:<{width}}  {what}"
        if control.problem:
            yield f"{'':<8} remedy: {control.remedy}"
