"""A script that fails -> a case: the steps, in the order of what they cost, each kept as soon as it is done."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.base.errors import why_stopped
from whichtorch.base.redaction import is_secret
from whichtorch.matrix.variation import FORKED, NOTES, Observation, Variation
from whichtorch.model import Environment, Outcome, Scenario
from whichtorch.search.runs_oracle import Journal
from whichtorch.suite.companions import copy_companions
from whichtorch.triage.case import ANSWERS, FILE, MINIMAL, PATCH, Case, CaseEnvironment, Ladder, Stopped, facts_of
from whichtorch.triage.categories import classify, logs_of
from whichtorch.triage.ladder import OFF, at_rung, climb, compile_calls, culprit_pass, reproduce, seen_in
from whichtorch.triage.minimise.minimising import Minimising, Reference, SameFailure
from whichtorch.triage.places import OtherReleases, change_of, newest_of, opened_case, patch_for
from whichtorch.triage.step import Step, TriageRequest
from whichtorch.triage.unit_test import shown_test

if TYPE_CHECKING:
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.matrix.lab import Runner
    from whichtorch.model.events import Show
    from whichtorch.triage.case import Reproduction


UNTOLD = (
    "it is not cut down: a check of its own fails, and no release is known in which it passes, so that nothing would "
    "tell the failure of a smaller script from any other"
)


def triage(order: TriageRequest, cache: EnvironmentCache, show: Show) -> Case:
    """Take the steps that are asked for and not yet done, and return the case.

    Raises UsageError for what names no one environment, PreventedError where none can be had. An interrupted case
    says where it was stopped, and the same order then goes on there; KeyboardInterrupt passes through before the first
    step.
    """
    with opened_case(order.place, order.test, cache, show) as runs:
        return Casework(order, runs, OtherReleases(order.place, cache, show, order.tell)).done()


class Casework:
    """One case under way. What a step found is on disk before the next one begins."""

    def __init__(self, order: TriageRequest, runs: Runner, other_releases: OtherReleases) -> None:
        self.order, self.runs, self.other_releases = order, runs, other_releases
        self.folder = order.folder
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
            Step.VALIDATE: self._validate,
            Step.FIX: self._fix,
        }
        for step in self.order.steps:
            if self._until is not None and time.monotonic() >= self._until:
                self.order.tell(f"{step}: left out, the time is over")
                break
            started = time.monotonic()
            try:
                is_taken = steps[step]()
            except KeyboardInterrupt as interrupt:
                self._stop(step, interrupt)
                break
            if is_taken:
                self._keep(seconds={**self.case.seconds, str(step): round(time.monotonic() - started, 1)})
                self.order.shown(self.case)
            if self.case.environment is not None and self.case.environment.problem:
                break
        return self.case

    def _begun(self) -> Case:
        """Return the case as it is on disk, or a new one: of another script, environment or variant it is another."""
        scenario, environment = self.order.test.scenario, self.runs.environment
        known = None if self.order.fresh else read_json(self.folder / FILE, Case)
        if known is not None and _is_of(known, scenario, self.order.test.variant, environment):
            is_partial = known.stopped is not None and known.stopped.step == Step.REPRODUCE
            return known.model_copy(update={"stopped": None} | ({"reproduction": None} if is_partial else {}))
        self.folder.mkdir(parents=True, exist_ok=True)
        _empty(self.folder)
        shutil.copyfile(scenario.path, self.folder / scenario.path.name)
        copy_companions(self.runs.companions, self.folder)
        return Case(
            name=self.folder.name,
            script=scenario.path.name,
            source_hash=scenario.source_hash,
            variant=self.order.test.variant,
            arguments=scenario.arguments,
            requirements=environment.requirements,
            overrides=environment.overrides,
            variables={name: text for name, text in self.order.place.file.needs.variables if not is_secret(name)},
        )

    def _keep(self, **found: object) -> None:
        """Keep what was found as fields of the case."""
        self.case = self.case.model_copy(update=found)
        line = self.runs.lab.store.redactor.json_line(self.case.model_dump_json(by_alias=True, indent=1))
        for folder in (self.folder, self.runs.lab.store.folder):  # pages of runs find it in the second
            write_atomic(folder / FILE, line)

    def _stop(self, step: Step, interrupt: KeyboardInterrupt) -> None:
        """Keep in which step the case was left, and show what is known."""
        store, stopped = self.runs.lab.store, Stopped(step=step, why=why_stopped(interrupt), run=self.runs.cut_off)
        self.order.tell(stopped.words)
        store.run = store.run.model_copy(update={"interrupted": stopped.is_interrupted})
        self._keep(stopped=stopped)
        self.order.shown(self.case)

    # the steps; each returns whether there was anything to do

    def _environment(self) -> bool:
        if self.case.environment is not None:
            return False
        self._keep(environment=CaseEnvironment.of(self.runs.environment))
        return True

    def _reproduce(self) -> bool:
        if self.case.reproduction is not None:
            return False
        made: list[Observation] = []
        try:
            reproduce(self.runs, self.order.tell, made)
        finally:  # of one that is interrupted, the runs that ended count
            if made:
                reproduction, shown = seen_in(made, self.runs.planned.limits.timeout)
                self._keep(reproduction=reproduction, calls=next(filter(None, map(compile_calls, shown)), ()))
        return True

    def _try_fork(self) -> None:
        """See whether a forked run shows what a cold one has shown; if not, all runs stay cold."""
        seen = self.case.reproduction
        if seen is None or self.case.cold_because is not None:
            self.runs.forks = self.case.cold_because == ""
            return
        self.runs.forks = True
        run = self.runs.run(seen.brief_limit(forks=True), at_rung({}, FORKED))
        because = run.record.attempt.evidence.cold_because
        if not because and not seen.failure.compare(run.failure) and seen.outcome.is_red:
            because = f"a forked run showed {run.record.attempt.outcome.word} {run.record.signature or ''}".strip()
        self.runs.forks = not because
        self._keep(cold_because=because)

    def _layer(self) -> bool:
        ladder, seen = self.case.ladder or Ladder(), self.case.reproduction
        if ladder.is_complete or seen is None:
            return False
        self._try_fork()
        if self.case.calls and not (ladder.graph_breaks or ladder.recompilations):
            breaks, recompilations = logged_counts(self.runs, seen.brief_limit(forks=False))
            ladder = ladder.model_copy(update={"graph_breaks": breaks, "recompilations": recompilations})
        if seen.outcome.is_red:
            climbing = partial(climb, self.runs, self.case.calls, seen.failure, seen.limit)
            for rung in climbing(ladder.rungs, self.order.tell):
                ladder = ladder.model_copy(update={"rungs": (*ladder.rungs, rung)})
                self._keep(ladder=ladder)
            culprit = culprit_pass(self.runs, ladder.rungs, seen.failure, seen.limit)
            ladder = ladder.model_copy(update={"guilty": culprit})
        self._keep(ladder=ladder.model_copy(update={"is_complete": True}))
        return True

    def _classify(self) -> bool:
        """Classify anew each time: it costs nothing, and the rules may have become better."""
        if self.case.reproduction is None:
            return False
        self._keep(classification=classify(facts_of(self.case, self.order.test.scenario.path)))
        return True

    def _gather(self) -> bool:
        found, seen = self.case.classification, self.case.reproduction
        if self.case.logs is not None or found is None or seen is None or not self.case.calls:
            return False
        logs = self.folder / "logs"
        kept = gathered_logs(self.runs, logs_of(found.category), seen.brief_limit(forks=False), logs)
        self.runs.lab.store.redactor.tree(logs)
        self._keep(logs=kept)
        return True

    def _minimise(self) -> bool:
        seen, ladder = self.case.reproduction, self.case.ladder
        if self.case.minimal is not None or seen is None or ladder is None or not seen.outcome.is_red:
            return False
        with ExitStack() as held:
            has_own_check = facts_of(self.case, self.order.test.scenario.path).is_raised_by_script
            reference = self._reference(ladder, held, has_own_check=has_own_check)
            if reference is None and has_own_check:
                self.order.tell(UNTOLD)
            else:
                self._cut_down(seen, reference)
        return True

    def _cut_down(self, seen: Reproduction, reference: Reference | None) -> None:
        """Find the smallest script that fails like this one, and passes where the reference is."""
        source = self.order.test.scenario.path.read_text(encoding="utf-8")
        whole = self.runs.run(seen.brief_limit(forks=False), Variation(source=source))
        if not seen.failure.compare(whole.failure):
            self.order.tell("it does not fail in a folder and a home of its own, so that it cannot be cut down safely")
            return
        self._try_fork()
        failure = whole.failure
        if failure.outcome is Outcome.SLOW and seen.shape is not None:
            failure = seen.shape  # a hang, which a longer look has shown
        same = SameFailure(
            runs=self.runs,
            failure=failure,
            limit=seen.limit,
            brief_limit=seen.brief_limit(forks=self.runs.forks),
            reference=reference,
        )
        minimal = Minimising(
            same=same,
            whole=whole,
            calls=self.case.calls,
            known=Journal(self.folder / ANSWERS, bool),
            jobs=self.order.place.jobs,
            has_own_check=facts_of(self.case, self.order.test.scenario.path).is_raised_by_script,
            tell=self.order.tell,
        ).smallest(source)
        (self.folder / MINIMAL).write_text(minimal.source, encoding="utf-8")
        bisected = MINIMAL if reference is not None and reference.is_release else self.case.bisected
        self._keep(minimal=minimal, bisected=bisected)

    def _reference(self, ladder: Ladder, held: ExitStack, *, has_own_check: bool) -> Reference | None:
        """Return where the script passes: with nothing compiled, or, where its own check fails, in a near release.

        A smaller script whose own check fails may do so for any reason; what torch refuses is told by torch's words.
        """
        if any(rung.name == "off" and rung.is_healthy for rung in ladder.rungs):
            return Reference(runs=self.runs, rung=OFF, words="the same environment with nothing compiled")
        if not has_own_check:
            return None
        self._bisect()
        return self._release_reference(held) if self.case.healthy_release else None

    def _release_reference(self, held: ExitStack) -> Reference:
        """Return the nearest release in which the script passes."""
        other_releases = held.enter_context(self.other_releases.runs(self.case.healthy_release, self.order.test))
        other_releases.forks = self.runs.forks
        return Reference(runs=other_releases, rung={}, words=other_releases.environment.label)

    def _bisect(self) -> bool:
        """Search for the change; what was cut down too far to pass anywhere is cut down again beside a release."""
        seen, known = self.case.reproduction, self.case.bisection
        is_done = known is not None and not known.interrupted
        if seen is None or not self._has_releases:
            return False
        if not is_done:
            found, script = change_of(self.case, self.folder, self.other_releases, self.order.test, self._left)
            self._keep(bisection=found, bisected=script)
            if found is not None and found.interrupted:
                raise KeyboardInterrupt
        is_too_small = self.case.minimal is not None and self.case.bisected == self.case.script != self.case.smallest
        # what crashed or hung may well be refused since then: for the smallest script that is as good as a pass
        if is_too_small and self.case.healthy_release and seen.outcome is Outcome.FAIL:
            self.order.tell(f"the smallest script passes in no release, the whole one in {self.case.healthy_release}")
            with ExitStack() as held:
                self._cut_down(seen, self._release_reference(held))
            return True
        return not is_done

    def _unit_test(self) -> bool:
        seen = self.case.reproduction
        if self.case.unit_test is not None or seen is None or not seen.outcome.is_red:
            return False
        self._keep(unit_test=shown_test(self.case, self.folder, self.runs, self.other_releases, self.order.test))
        return True

    def _validate(self) -> bool:
        if self.case.newest is not None or not self._has_releases:
            return False
        self._keep(newest=newest_of(self.case, self.folder, self.other_releases, self.order.test))
        return True

    def _fix(self) -> bool:
        if not self._has_releases or (self.case.fix is not None and not self.case.fix.interrupted):
            return False
        found = patch_for(self.case, self.folder, self.other_releases, self.order.test, self._left)
        self._keep(fix=found)
        if found is not None and found.interrupted:
            raise KeyboardInterrupt
        return True

    @property
    def _has_releases(self) -> bool:
        """Whether there is a failure, and it may be looked for in other releases."""
        seen = self.case.reproduction
        return seen is not None and seen.outcome.is_red and self.order.place.interpreter is None

    @property
    def _left(self) -> float | None:
        """Seconds that are left, where they are counted."""
        return None if self._until is None else max(1.0, self._until - time.monotonic())


def _empty(folder: Path) -> None:
    """Remove what a case of before has left in a folder; other files stay."""
    for name in (FILE, MINIMAL, PATCH, ANSWERS, "CASE.md", "case.zip"):
        (folder / name).unlink(missing_ok=True)
    for name in ("logs", "tests"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _is_of(case: Case, scenario: Scenario, variant: dict[str, str], environment: Environment) -> bool:
    """Return whether a case is about this test in this environment."""
    at = case.environment  # without an id in a case of an older version
    is_there = at is None or (at.label == environment.label and at.id in {"", environment.id})
    return is_there and (case.source_hash, case.variant) == (scenario.source_hash, variant)


COUNTED = "graph_breaks,recompiles"
MOST_BYTES = 1_000_000  # of a file: more is not read by anybody; half of a trace cannot be read
_GRAPH_BREAK = re.compile(r"\[__graph_breaks\].*Graph break\b|\bGraph break in user code at")
_RECOMPILATION = re.compile(r"\[__recompiles(?:_verbose)?\].*Recompiling function")
_INVALID = re.compile(r"Invalid log settings")
_LOGS = "TORCH_LOGS"
VARIABLE = "TORCH_TRACE"  # torch writes its trace into this folder, from 2.3 on


def logged_counts(runs: Runner, limit: float) -> tuple[int, int]:
    """Return how many graph breaks and recompilations torch logs in one run.

    Torch before 2.1 has no such logs: there both are 0.
    """
    lines = runs.run(limit, Variation(variables={_LOGS: COUNTED})).stderr.splitlines()
    return sum(bool(_GRAPH_BREAK.search(line)) for line in lines), sum(map(bool, map(_RECOMPILATION.search, lines)))


def gathered_logs(runs: Runner, names: Sequence[str], limit: float, folder: Path) -> dict[str, str]:
    """Run the script once with the logs that its category needs; return what was kept, by path in the case's folder.

    What this release has no log of that name for is left out. What it traces of its compilations comes along.
    """
    wanted = list(names)
    while wanted:
        run = runs.run(limit, Variation(variables={_LOGS: ",".join(wanted), VARIABLE: NOTES}))
        if not _INVALID.search(run.stderr):
            folder.mkdir(parents=True, exist_ok=True)
            kept = _keep(folder, "torch_logs.txt", run.stderr, f"{_LOGS}={','.join(wanted)}")
            return kept | keep_trace(run.notes, folder)
        known = [name for name in wanted if not re.search(rf"['\"{{, ]{name}['\"}}, ]", run.stderr)]
        wanted = known if len(known) < len(wanted) else wanted[:-1]
    return {}


def _keep(folder: Path, name: str, text: str, what: str) -> dict[str, str]:
    """Write a log, its beginning and its end where it is long; return its entry."""
    if len(text) > MOST_BYTES:
        half = MOST_BYTES // 2
        text = f"{text[:half]}\n[... {len(text) - MOST_BYTES} characters cut here ...]\n{text[-half:]}"
    (folder / name).write_text(text, encoding="utf-8")
    return {f"{folder.name}/{name}": what}


def keep_trace(written: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write torch's traces, texts by path, into a folder; return what each is, by path below the folder's parent."""
    kept: dict[str, str] = {}
    for path, text in sorted(written.items()):
        if not path.endswith(".log") or len(text) > MOST_BYTES:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        trace = folder / (PurePath(path).name if kept else "torch_trace.log")
        trace.write_text(text, encoding="utf-8")
        kept[f"{folder.name}/{trace.name}"] = f"{VARIABLE}, as tlparse reads it"
    return kept
