"""A script that fails -> a case: the steps, in the order of what they cost, each kept as soon as it is done."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.bisect.strategy.evidence import Change
from matrix.environments.whole_files import write_whole
from matrix.model import Outcome
from matrix.triage import logs
from matrix.triage.case import FILE, MINIMAL, Case, CaseEnvironment, CaseFolder, Ladder, ShownTest
from matrix.triage.case_runs import Setting
from matrix.triage.categories import logs_of
from matrix.triage.classification import classify, signs_of
from matrix.triage.companions import lay_beside
from matrix.triage.ladder import climb
from matrix.triage.minimise.failure_shape import shape_of
from matrix.triage.minimise.minimising import Minimising
from matrix.triage.minimise.same_failure import OFF, Reference, SameFailure
from matrix.triage.places import Elsewhere, opened_case
from matrix.triage.reproduction import reproduce
from matrix.triage.step import Step
from matrix.triage.unit_test import unit_test

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.environments.cache import EnvironmentCache
    from matrix.events import Show
    from matrix.model import Environment, Scenario
    from matrix.triage.case_runs import CaseRuns
    from matrix.triage.places import CasePlace, CaseTest


UNTOLD = (
    "it is not cut down: a check of its own fails, and no release is known in which it passes, so that nothing would "
    "tell the failure of a smaller script from any other"
)
BRIEF_HANG = 20.0  # seconds for a candidate that may hang; what is found has the whole limit to show it
TEST_MARGIN = 2.0  # times the script's limit, for a test that runs it in a process of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageOrder:
    """Which script is to become a case, where it fails, and what it may cost."""

    place: CasePlace
    test: CaseTest
    folder: Path  # of the case
    last: Step = list(Step)[-1]  # that is taken; all before it are what it needs
    fresh: bool = False  # what the folder holds does not count
    max_seconds: float | None = None
    tell: Callable[[str], None] = print


def triage(order: TriageOrder, cache: EnvironmentCache, show: Show) -> Case:
    """Take the steps that are asked for and not yet done, and return the case.

    Raises UsageError for what names no one environment, PreventedError where none can be had. KeyboardInterrupt
    passes through; the same order then goes on where it was.
    """
    with opened_case(order.place, order.test, cache, show) as runs:
        return Casework(order, runs, Elsewhere(order.place, cache, show)).done()


class Casework:
    """One case under way. What a step found is on disk before the next one begins."""

    def __init__(self, order: TriageOrder, runs: CaseRuns, elsewhere: Elsewhere) -> None:
        self.order, self.runs, self.elsewhere = order, runs, elsewhere
        self.folder = CaseFolder(order.folder)
        self.case = self._begun()
        self._until = None if order.max_seconds is None else time.monotonic() + order.max_seconds

    def done(self) -> Case:
        """Take the steps."""
        steps = {
            Step.ENVIRONMENT: self._environment,
            Step.REPRODUCE: self._reproduce,
            Step.LAYER: self._layer,
            Step.CLASSIFY: self._classify,
            Step.GATHER: self._gather,
            Step.MINIMISE: self._minimise,
            Step.BISECT: self._bisect,
            Step.UNIT_TEST: self._unit_test,
        }
        for step in list(Step)[: list(Step).index(self.order.last) + 1]:
            if self._until is not None and time.monotonic() >= self._until:
                self.order.tell(f"{step}: left out, the time is over")
                break
            started = time.monotonic()
            if steps[step]():
                took = {**self.case.seconds, str(step): round(time.monotonic() - started, 1)}
                self._keep(self.case.model_copy(update={"seconds": took}))
            if self.case.environment is not None and self.case.environment.problem:
                break
        return self.case

    def _begun(self) -> Case:
        """Return the case as it is on disk, or a new one: of another script, environment or variant it is another."""
        scenario, environment = self.order.test.scenario, self.runs.environment
        known = None if self.order.fresh else self.folder.read()
        if known is not None and _is_of(known, scenario, self.order.test.variant, environment):
            return known
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.folder.empty()
        shutil.copyfile(scenario.path, self.folder.path / scenario.path.name)
        lay_beside(self.runs.companions, self.folder.path)
        return Case(
            name=self.folder.path.name,
            script=scenario.path.name,
            source_hash=scenario.source_hash,
            variant=self.order.test.variant,
        )

    def _keep(self, case: Case) -> None:
        self.case = case
        line = self.runs.store.redactor.json_line(case.model_dump_json(by_alias=True, indent=1))
        write_whole(self.folder.path / FILE, line)

    # the steps; each returns whether there was anything to do

    def _environment(self) -> bool:
        if self.case.environment is not None:
            return False
        environment = CaseEnvironment.of(self.runs.environment)
        self._keep(self.case.model_copy(update={"environment": environment}))
        return True

    def _reproduce(self) -> bool:
        if self.case.reproduction is not None:
            return False
        reproduction, shown = reproduce(self.runs, self.order.tell)
        calls = next((run.calls for run in shown if run.calls), ())
        self._keep(self.case.model_copy(update={"reproduction": reproduction, "calls": calls}))
        return True

    def _try_fork(self) -> None:
        """See whether a forked run shows what a cold one has shown; if not, all runs stay cold."""
        seen = self.case.reproduction
        if seen is None or self.case.cold_because is not None:
            self.runs.forks = self.case.cold_because == ""
            return
        self.runs.forks = True
        run = self.runs.run(seen.limit, Setting(rung={}, may_fork=True))
        because = run.record.attempt.evidence.cold_because
        if not because and not seen.failure.is_shown_by(run.record) and seen.outcome.is_red:
            because = f"a forked run showed {run.record.attempt.outcome.word} {run.record.signature or ''}".strip()
        self.runs.forks = not because
        self._keep(self.case.model_copy(update={"cold_because": because}))

    def _layer(self) -> bool:
        ladder, seen = self.case.ladder or Ladder(), self.case.reproduction
        if ladder.is_complete or seen is None:
            return False
        self._try_fork()
        if self.case.calls and not (ladder.graph_breaks or ladder.recompilations):
            breaks, recompilations = logs.count(self.runs, seen.limit)
            ladder = ladder.model_copy(update={"graph_breaks": breaks, "recompilations": recompilations})
        if seen.outcome.is_red:
            climbing = partial(climb, self.runs, self.case.calls, seen.failure, seen.limit)
            for rung in climbing(ladder.rungs, self.order.tell):
                ladder = ladder.model_copy(update={"rungs": (*ladder.rungs, rung)})
                self._keep(self.case.model_copy(update={"ladder": ladder}))
        self._keep(self.case.model_copy(update={"ladder": ladder.model_copy(update={"is_complete": True})}))
        return True

    def _classify(self) -> bool:
        """Classify anew each time: it costs nothing, and the rules may have become better."""
        if self.case.reproduction is None:
            return False
        found = classify(signs_of(self.case, self.order.test.scenario.path))
        self._keep(self.case.model_copy(update={"classification": found}))
        return True

    def _gather(self) -> bool:
        found, seen = self.case.classification, self.case.reproduction
        if self.case.logs is not None or found is None or seen is None or not self.case.calls:
            return False
        kept = logs.gather(self.runs, logs_of(found.category), seen.limit, self.folder.path / "logs")
        self.runs.store.redactor.tree(self.folder.path / "logs")
        self._keep(self.case.model_copy(update={"logs": kept}))
        return True

    def _minimise(self) -> bool:
        seen, ladder = self.case.reproduction, self.case.ladder
        if self.case.minimal is not None or seen is None or ladder is None or not seen.outcome.is_red:
            return False
        source = self.order.test.scenario.path.read_text(encoding="utf-8")
        whole = self.runs.run(seen.limit, Setting(source=source))
        if not seen.failure.is_shown_by(whole.record):
            self.order.tell("it does not fail in a folder and a home of its own, so that it cannot be cut down safely")
            return True
        self._try_fork()
        with ExitStack() as held:
            has_own_check = signs_of(self.case, self.order.test.scenario.path).is_raised_by_script
            reference = self._reference(ladder, held, has_own_check=has_own_check)
            if reference is None and has_own_check:
                self.order.tell(UNTOLD)
                return True
            same = SameFailure(
                runs=self.runs,
                shape=shape_of(whole),
                limit=seen.limit,
                brief_limit=min(seen.limit, BRIEF_HANG) if seen.outcome is Outcome.HANG else seen.limit,
                reference=reference,
            )
            minimising = Minimising(
                same=same, whole=whole, calls=self.case.calls, known=self.folder.answers(), tell=self.order.tell
            )
            minimal = minimising.smallest(source)
        (self.folder.path / MINIMAL).write_text(minimal.source, encoding="utf-8")
        self._keep(self.case.model_copy(update={"minimal": minimal}))
        return True

    def _reference(self, ladder: Ladder, held: ExitStack, *, has_own_check: bool) -> Reference | None:
        """Return where the script passes: with nothing compiled, or, where its own check fails, in a near release.

        A smaller script whose own check fails may do so for any reason; what torch refuses is told by torch's words.
        """
        if any(rung.name == "off" and rung.is_healthy for rung in ladder.rungs):
            return Reference(runs=self.runs, rung=OFF, words="the same environment with nothing compiled")
        if not has_own_check:
            return None
        self._bisect()
        release = _healthy_release(self.case)
        if not release:
            return None
        elsewhere = held.enter_context(self.elsewhere.runs(release, self.order.test))
        elsewhere.forks = self.runs.forks
        return Reference(runs=elsewhere, rung={}, words=elsewhere.environment.label)

    def _bisect(self) -> bool:
        """Search all releases for the change, by the smallest script: where it fails in one it may pass in another."""
        seen, environment = self.case.reproduction, self.case.environment
        is_release = self.order.place.interpreter is None
        if self.case.bisection is not None or seen is None or environment is None or not is_release:
            return False
        if not seen.outcome.is_red:
            return False
        left = None if self._until is None else max(1.0, self._until - time.monotonic())
        found = self.elsewhere.searched(
            self.folder.path / self.case.smallest, self.order.test.variant, environment.torch, left
        )
        self._keep(self.case.model_copy(update={"bisection": found}))
        return True

    def _unit_test(self) -> bool:
        seen, found = self.case.reproduction, self.case.classification
        if self.case.unit_test is not None or seen is None or found is None or not seen.outcome.is_red:
            return False
        source = (self.folder.path / self.case.smallest).read_text(encoding="utf-8")
        tests = unit_test(source, self.case.name, seen.outcome, seen.limit, (found.category, found.layer))
        name = f"test_{Path(self.case.script).stem}.py"
        folder = self.folder.path / "tests"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(tests.pytest, encoding="utf-8")
        (folder / f"torch_{name}").write_text(tests.test_case, encoding="utf-8")
        shown = ShownTest(file=f"tests/{name}", test_case=f"tests/torch_{name}", place=tests.place)
        if self._run_test(self.runs, tests.pytest, seen.limit) is Outcome.FAIL:
            shown = shown.model_copy(update={"fails_in": self.runs.environment.label})
        healthy = _healthy_release(self.case)
        if healthy:
            with self.elsewhere.runs(healthy, self.order.test) as runs:
                if self._run_test(runs, tests.pytest, seen.limit) is Outcome.PASS:
                    shown = shown.model_copy(update={"passes_in": runs.environment.label})
        self._keep(self.case.model_copy(update={"unit_test": shown}))
        return True

    def _run_test(self, runs: CaseRuns, source: str, limit: float) -> Outcome:
        """Return how the tests of a file end; they are called as pytest would, which need not be installed there."""
        called = "\nfor name, test in list(globals().items()):\n    if name.startswith('test_'):\n        test()\n"
        limit = TEST_MARGIN * limit
        setting = Setting(source=source + called, in_scratch=True)
        return runs.run(limit, setting).record.attempt.outcome


def _healthy_release(case: Case) -> str:
    """Return the release nearest to the failing ones in which the script passes, "" where none is known."""
    if case.bisection is None:
        return ""
    for boundary in reversed(case.bisection.boundaries):
        return boundary.to if boundary.change is Change.FIX else boundary.from_
    passing = [probe.value for probe in case.bisection.probes if probe.outcome is Outcome.PASS]
    return passing[-1] if passing else ""


def _is_of(case: Case, scenario: Scenario, variant: dict[str, str], environment: Environment) -> bool:
    """Return whether a case is about this test in this environment."""
    is_there = case.environment is None or case.environment.label == environment.label
    return is_there and (case.source_hash, case.variant) == (scenario.source_hash, variant)
