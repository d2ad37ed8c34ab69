"""A runner that runs scripts in this process, with a torch that has one fault in its compiler."""

import contextlib
import io
import json
import sys
import tempfile
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from tests.results import attempt, cell, environment
from whichtorch.bisect.bisection import Bisection, Boundary, Probe
from whichtorch.bisect.search_request import AxisName
from whichtorch.failures.verdict import judge
from whichtorch.fix.commission import FixAnswer
from whichtorch.fix.fixing import Fix
from whichtorch.matrix.lab import Runner
from whichtorch.matrix.variation import NOTES, PLAIN, Observation, Variation
from whichtorch.model import Environment, Outcome, Record
from whichtorch.process.supervision import Ending
from whichtorch.search.search_state import AnswerKind, Find, SearchVerdict
from whichtorch.triage.places import CaseTest

BROKEN, HEALTHY = "2.11.0", "2.12.0"
MESSAGE = "cannot lower a shape of seven"
LIBRARY = "/env/lib/python3.11/site-packages/torch/_inductor/lowering.py"
ONE_AT_A_TIME = threading.Lock()  # a candidate and its reference run side by side, and this process has one torch
SOURCE = f"def lower(shape):\n    if shape == 7:\n        raise RuntimeError({MESSAGE!r})\n"


def stand_in(torch: str, layer: dict[str, Any] | None, calls: list[str]) -> types.ModuleType:
    """Return a torch of which the compiler of one release fails at a shape, and at a layer that is asked for."""
    module, lowering = types.ModuleType("torch"), dict[str, Any]()
    exec(compile(SOURCE, LIBRARY, "exec"), lowering)  # noqa: S102  so that the traceback names a file of torch's

    def compiled(function: Any, backend: str = "inductor") -> Any:
        calls.append(json.dumps({"call": "compile", "backend": backend}))
        asked = (layer or {}).get("layer", backend)

        def call(shape: int) -> Any:
            if asked == "inductor" and torch == BROKEN:
                lowering["lower"](shape)
            return function(shape)

        return call

    module.compile = compiled  # type: ignore[attr-defined]
    module.__version__ = torch  # type: ignore[attr-defined]
    return module


@dataclass
class Crowd:
    """Counts the runs that are made at once; the first ones wait until there are as many as `wanted`."""

    wanted: int = 0
    active: int = 0
    most: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def joined(self) -> Iterator[None]:
        with self.changed:
            self.active += 1
            self.most = max(self.most, self.active)
            self.changed.notify_all()
            if threading.current_thread() is not threading.main_thread():
                self.changed.wait_for(lambda: self.most >= self.wanted, PATIENCE)
        yield
        with self.changed:
            self.active -= 1


@dataclass(kw_only=True)
class FakeRunner(Runner):
    """Runs no process. It keeps what it was asked."""

    asked: list[Variation] = field(default_factory=list)
    crowd: Crowd = field(default_factory=Crowd)

    def run(self, limit: float, variation: Variation = PLAIN) -> Observation:
        with self.crowd.joined():
            return self._observed(variation)

    def start(self, limit: float, variation: Variation = PLAIN) -> Callable[[], Observation]:
        pool = ThreadPoolExecutor(1)
        future = pool.submit(self.run, limit, variation)
        pool.shutdown(wait=False)
        return future.result

    def _observed(self, variation: Variation) -> Observation:
        self.asked.append(variation)
        script = self.planned.scenario.path
        layer, calls = variation.hooks.get("compile_layer"), list[str]()
        with ONE_AT_A_TIME, tempfile.TemporaryDirectory() as folder:
            source = variation.source if variation.source is not None else script.read_text()
            code = compile(source.replace(NOTES, folder), str(script), "exec")
            before = sys.modules.get("torch")
            sys.modules["torch"] = stand_in(self.environment.torch, layer, calls)
            stderr = _ran(code)
            sys.modules.pop("torch")
            if before is not None:
                sys.modules["torch"] = before
            notes = {path.name: path.read_text() for path in Path(folder).iterdir()}
        if layer is not None:
            notes["calls.jsonl"] = "\n".join(calls)
        return Observation(record=self._judged(stderr), stderr=stderr, notes=notes)

    def _judged(self, stderr: str) -> Record:
        verdict = judge(Ending(stopped_by="exit", exit_code=bool(stderr), seconds=0.5), stderr, 1000)
        planned = self.planned
        return Record(
            key=planned.key(self.environment),
            environment=self.environment.id,
            scenario=planned.scenario.name,
            source_hash=planned.scenario.source_hash,
            variant=planned.variant,
            limits=planned.limits,
            attempt=attempt(verdict.outcome, message=verdict.message, exit_code=int(bool(stderr))),
            signature=verdict.signature,
        )


def _ran(code: types.CodeType) -> str:
    """Run a script and return its traceback, "" where it passes. What it leaves open is closed with it."""
    names: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(code, names)  # noqa: S102
        except Exception as error:  # noqa: BLE001
            frames = error.__traceback__.tb_next if error.__traceback__ else None
            return "".join(traceback.format_exception(type(error), error, frames))
        finally:
            names.clear()
    return ""


@dataclass(kw_only=True)
class FakeReleases:
    """The healthy release, and the answers of the searches that would find it."""

    runner: FakeRunner
    healthy: Environment
    searched_scripts: list[str] = field(default_factory=list)

    def tell(self, line: str) -> None:
        """Take a line of progress."""

    def searched(self, script: Path, test: CaseTest, bad: str, seconds: float | None) -> Bisection:
        self.searched_scripts.append(script.name)
        outcomes = {BROKEN: (Outcome.FAIL, SearchVerdict.BAD), HEALTHY: (Outcome.PASS, SearchVerdict.GOOD)}
        probes = tuple(
            Probe(
                value=release,
                outcome=outcome,
                verdict=verdict,
                k=1,
                n=1,
                reused=0,
                environment=environment(release),
                cell=cell(environment(release), outcome),
            )
            for release, (outcome, verdict) in outcomes.items()
        )
        change = {"from": BROKEN, "to": HEALTHY, "change": "fix", "confidence": 0.99}
        return Bisection(
            scenario=script.name,
            question=Find.ANY,
            axis=AxisName.VERSION,
            values=(BROKEN, HEALTHY),
            probes=probes,
            reference=(Outcome.FAIL, MESSAGE),
            boundaries=(Boundary.model_validate(change),),
            installs=0,
            runs=2,
            seconds=1,
            answer=AnswerKind.BOUNDARY,
        )

    def fixed(self, script: Path, test: CaseTest, bad: str, good: str, seconds: float) -> FixAnswer:
        return FixAnswer(scenario=script.name, bad=bad, good=good, fix=Fix(patch="-    if shape == 7:\n"))

    def runs(self, release: str, test: CaseTest) -> AbstractContextManager[FakeRunner]:
        return nullcontext(replace(self.runner, environment=self.healthy))
