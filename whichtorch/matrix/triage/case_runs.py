"""Run a case's script, or what becomes of it, in the case's environment."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.diagnosis.failure import Failure
from whichtorch.matrix.diagnosis.tracebacks import read_chain
from whichtorch.matrix.fix.lanes import Lanes
from whichtorch.matrix.model import Outcome, Record
from whichtorch.matrix.process.forking_executor import BRIEF_EXIT
from whichtorch.matrix.run.attempt import AttemptOrder, run_attempt
from whichtorch.matrix.run.signals import Lookout
from whichtorch.matrix.suite.companions import companions, lay_beside
from whichtorch.matrix.triage.failure_facts import CompileCall
from whichtorch.matrix.triage.minimise import operator_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whichtorch.matrix.diagnosis.tracebacks import RaisedException
    from whichtorch.matrix.model import Environment
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.process.executor import Executor
    from whichtorch.matrix.records.store import RunStore

LAYER_HOOK, LAYER_VARIABLE = "compile_layer", "WHICHTORCH_LADDER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a run differs from the script as its user runs it."""

    rung: Mapping[str, Any] | None = None  # for the start-up hook: "layer", "dynamic", "strict"; {} only notes calls
    variables: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None  # instead of the script; such a run is always in a scratch folder
    in_scratch: bool = False  # in a folder and a home of its own, with copies of what the script reads
    values_at: int | None = None  # number of the call of torch whose values are noted; 0 for none, None: no call is
    goal: float | None = None  # seconds with a core, of a longer look at what was slow
    hung_at: str | None = None  # signature of a hang that a longer look has shown: what is busy there hangs, too
    may_fork: bool = False  # from a process that has imported torch, with compilers' caches of the runs before
    is_brief: bool = False  # a fork ends without taking torch apart, so that a crash there is not seen


OFF = {"layer": "off"}  # the rung at which nothing is compiled
PLAIN = Setting()
NOTING = Setting(rung={})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    """What came of one run."""

    record: Record
    stderr: str
    calls: tuple[CompileCall, ...] = ()
    operators: str = ""  # the calls of torch under way at its end, as the start-up hook wrote them
    applied: tuple[str, ...] = ()  # what of a part of the compiler was asked for, one after the other

    @property
    def failure(self) -> Failure:
        """What it shows."""
        return Failure.of(self.record, self.chain)

    @property
    def chain(self) -> tuple[RaisedException, ...]:
        """The exception that ended it, and its causes."""
        return read_chain(self.stderr) if self.record.attempt.outcome is Outcome.FAIL else ()


@dataclass(kw_only=True)
class CaseRuns:
    """Where the runs of one case are made."""

    planned: PlannedCell
    environment: Environment
    executor: Executor
    forking: Executor  # the same, with processes that have imported torch
    home: Path
    store: RunStore
    beside: Path  # the folder that the user started the script in
    caches: Path  # of compilers, for runs that may share them
    forks: bool = False  # a forked run was seen to show what a cold one shows
    lookout: Lookout = field(default_factory=lambda: Lookout(tuple))
    cut_off: str = ""  # how long the run took that was interrupted, and where it was, in words

    @cached_property
    def companions(self) -> dict[str, Path]:
        """What the script needs beside itself."""
        return companions(self.planned.scenario.path, self.beside)

    def run(self, limit: float, setting: Setting = PLAIN) -> CaseRun:
        """Run the script once; raises KeyboardInterrupt where it was interrupted."""
        with self._workshop() as workshop:
            planned = self.planned
            folder = None
            if setting.in_scratch or setting.source is not None:
                folder = workshop / "work"
                planned = self._scratch(planned, setting, folder)
            planned = _hooked(planned, setting, workshop)
            may_fork = setting.may_fork and self.forks
            order = AttemptOrder(
                limit=limit,
                goal=setting.goal,
                folder=folder,
                caches=self.caches if may_fork else None,
                hung_before=lambda signature: signature == setting.hung_at,
            )
            executor = self.forking if may_fork else self.executor
            begun, record = time.monotonic(), None
            try:
                record = run_attempt(planned, self.environment, order, executor, self.home, self.store)
            finally:
                name = f"{planned.name}  {self.environment.label}"
                self.cut_off = "" if record else self.lookout.cut_off(name, begun)
            if record is None:
                raise KeyboardInterrupt
            return CaseRun(
                record=record,
                stderr=_text(self.home / record.attempt.stderr),
                calls=tuple(_calls(workshop / "calls.jsonl")),
                operators=_text(workshop / "operators.json"),
                applied=tuple(_text(workshop / "applied.txt").splitlines()),
            )

    def lanes(self, count: int) -> Lanes:
        """Return where so many runs may be made at once; an interrupt there stops them all."""

        def stop() -> None:
            self.executor.interrupt()
            self.forking.interrupt()

        return Lanes(count, stop)

    def _scratch(self, planned: PlannedCell, setting: Setting, folder: Path) -> PlannedCell:
        """Return the cell with its script in a folder of its own, which is its home as well."""
        folder.mkdir()
        lay_beside(self.companions, folder)
        script = folder / planned.scenario.path.name
        source = setting.source
        script.write_bytes(planned.scenario.path.read_bytes() if source is None else source.encode())
        scenario = planned.scenario.model_copy(update={"path": script})
        return replace(planned, scenario=scenario).configured({"HOME": str(folder)})

    @contextmanager
    def _workshop(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="whichtorch-", ignore_cleanup_errors=True) as name:
            yield Path(name)


def _hooked(planned: PlannedCell, setting: Setting, workshop: Path) -> PlannedCell:
    """Return the cell with the variables and the start-up hooks of a setting, which write into a folder."""
    env, hooks = dict(setting.variables), list[str]()
    if setting.is_brief:
        env[BRIEF_EXIT] = "1"
    if setting.rung is not None:
        hooks.append(LAYER_HOOK)
        notes = {"notes": str(workshop / "calls.jsonl"), "applied": str(workshop / "applied.txt")}
        env[LAYER_VARIABLE] = json.dumps(notes | dict(setting.rung))
    if setting.values_at is not None:
        hooks.append(operator_call.HOOK)
        asked = {"file": str(workshop / "operators.json"), "values_at": setting.values_at}
        env[operator_call.VARIABLE] = json.dumps(asked)
    return planned.configured(env, hooks)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _calls(notes: Path) -> Iterator[CompileCall]:
    for line in _text(notes).splitlines():
        try:
            yield CompileCall.model_validate_json(line)
        except ValueError:
            continue  # a line that was torn when the process ended
