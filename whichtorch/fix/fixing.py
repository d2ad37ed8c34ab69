"""A script that fails in one environment and passes in another -> the smallest change of Python that cures it.

The order of things: see it fail; note what it runs on both sides; order the changed units; try them until one cures;
leave out what is not needed; confirm it in both directions. All trials are in a journal, so that the same call goes
on where it was interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from whichtorch.base.errors import PreventedError, UsageError, why_stopped
from whichtorch.base.grouping import counted
from whichtorch.failures.deadline import CURE, CURE_OF_HANG
from whichtorch.failures.failure import Failure
from whichtorch.fix import cure_search
from whichtorch.fix.closure import Closure
from whichtorch.fix.cure_kind import brings_functions, cure_kinds
from whichtorch.fix.cure_runs import CureRuns, CureTest
from whichtorch.fix.cure_search import GUESS, CureSearch, Trial, TrialEffect, at_import, each_once, inquiry, smallest
from whichtorch.fix.functions_run import FunctionsRun, words_of
from whichtorch.fix.origins import Origin  # noqa: TC001  pydantic reads it
from whichtorch.fix.tree_change import PackageTree, TreeChange, differing, lines_of, unified_diff
from whichtorch.fix.units import Kind, Proposal, Unit, in_order
from whichtorch.model import Environment, Outcome, Record, digest
from whichtorch.search.runs_oracle import BudgetSpentError, Deferred, Journal, RunsOracle, drive

if TYPE_CHECKING:
    from whichtorch.failures.tracebacks import CodeFrame
    from whichtorch.matrix.variation import Observation

SHOWN = 5  # names of a kind; more are counted
FURTHER = 60  # trials that are proposed at least, to go on with
CONFIRMATIONS = 3  # runs with the patch, and without it
NOTED_SLOWDOWN = 4  # times that a run may take longer while its functions are noted; a hang stays one


@dataclass(frozen=True, slots=True, kw_only=True)
class CureRequest:
    """What is asked. Both environments are installed and usable."""

    bad: Environment
    good: Environment
    failure: str = ""  # words of the failure that is meant; "" for whichever the bad release shows
    max_trials: int | None = None
    max_seconds: float | None = None
    jobs: int = 1  # runs at once
    tell: Callable[[str], None] = print  # progress, a line each


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """The answer."""

    patch: str = ""  # a diff that applies to the bad release's site-packages; "" where no cure was found
    units: tuple[str, ...] = ()  # what it changes, in words
    why_not: tuple[str, ...] = ()  # evidence that it is not in Python alone
    trials_to_cure: int = 0
    trials: int = 0  # runs of the script with a change, those from the journal included
    trials_ahead: int = 0  # runs made at the same time that turned out not to be needed
    seconds: float = 0
    candidates: int = 0
    with_patch: tuple[int, int] = (0, 0)  # passes, runs
    without_patch: tuple[int, int] = (0, 0)
    manner: tuple[str, ...] = ()  # how it cures, where it switches something off or goes around the failure
    reverted: str = ""  # effect of taking the units back from the good release: "same" brings the failure back
    origins: tuple[Origin, ...] = ()  # commits that the patch goes back to, where a checkout was named
    notes: tuple[str, ...] = ()
    stopped: str = ""  # why it ended early: by Ctrl-C or a signal, or because its time was over

    @property
    def lines(self) -> int:
        """How many lines the patch adds or removes."""
        return lines_of(self.patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEvidence:
    """What a search without a cure has seen."""

    reached: int  # changed units that a run of the script reaches in either release
    tried: int  # of these, those that were tried and had no effect
    breaking: tuple[str, ...] = ()  # units that alone make the script fail in another way: their effect is not known
    last_effect: str = ""  # effect of the last test, with all that was reached and could be applied; "" for none
    lacking: tuple[str, ...] = ()  # symbols of C++ that reached units use and the bad binary does not have
    is_native: bool = False  # the failure is a signal, or a stack that ends in native code


def fix(request: CureRequest, runs: CureRuns) -> Fix:
    """Search, minimize and confirm. If it is interrupted, it returns what is known; the same call goes on from there.

    KeyboardInterrupt passes through before the first trial.

    Raises UsageError where the script does not fail in the one and pass in the other environment, PreventedError
    where a run says nothing.
    """
    started = time.monotonic()
    known = _seen(request, runs)
    search, to_cure, answer, notes = CureSearch(known.closure), 0, Fix(), list[str]()
    tiers = known.tiers()
    oracle = known.oracle(started)
    try:
        with oracle:
            try:
                cure = drive(
                    search.run(each_once(tiers, known.seeds), at_import(known.change, known.loaded)),
                    oracle,
                    lambda: CureSearch(known.closure).run(each_once(tiers, {}), at_import(known.change, known.loaded)),
                )
                to_cure = oracle.made
                if cure is not None:
                    begin = partial(smallest, cure, known.closure, known.idle(cure))
                    drive(begin(), oracle, begin)
            except BudgetSpentError:
                notes += _when_spent(oracle.made, time.monotonic() - started, known.cure)
        if known.cure is not None:
            answer = known.patched(known.cure)
            try:
                answer = known.confirmed(answer, known.cure)
            except PreventedError as error:  # the patch is known all the same
                notes.append(f"the patch could not be confirmed: {error}")
        elif notes:
            notes += known_so_far(known.evidence(search))
        else:
            answer = replace(answer, why_not=tuple(reasons(known.evidence(search))))
    except KeyboardInterrupt as interrupt:
        answer = known.patched(known.cure) if known.cure else answer
        answer = replace(answer, stopped=why_stopped(interrupt))
    return replace(
        answer,
        trials=oracle.made,
        trials_to_cure=to_cure,
        trials_ahead=oracle.ahead,
        candidates=len(known.seeds),
        notes=tuple(notes),
        seconds=round(time.monotonic() - started, 1),
    )


def _seen(request: CureRequest, runs: CureRuns) -> _Known:
    """See the script fail and pass, and what differs.

    Raises UsageError where it does not fail in the one, as is meant, and pass in the other.
    """
    longest = runs.runner.planned.limits.timeout
    good_record = runs.run(request.good, longest).record
    _expect(good_record, request.good, passes=True)
    limit = CURE.limit(good_record.attempt.seconds, longest)
    seen = runs.run(request.bad, limit)
    bad_record = seen.record
    _expect(bad_record, request.bad, passes=False)
    failure = Failure.of(bad_record).provisional  # what is slow ends in the good release by then
    if not failure.has_words(request.failure):
        shown = f"{bad_record.attempt.outcome}: {bad_record.signature or ''} {bad_record.attempt.message}".rstrip()
        raise UsageError(f"it fails in another way in {request.bad.label}: {shown}", hint="leave out --failure")
    if failure.outcome is Outcome.HANG:
        limit = CURE_OF_HANG.limit(good_record.attempt.seconds, limit)
    bad_tree, good_tree = trees = runs.tree(request.bad), runs.tree(request.good)
    pairs = differing(bad_tree, good_tree)
    request.tell(f"{len(pairs)} files of Python differ")
    change = TreeChange(pairs, bad_tree.digests.keys() | good_tree.digests.keys())
    return _Known(
        request=request,
        runs=runs,
        test=CureTest(failure=failure, limit=limit, cpu_seconds=good_record.attempt.cpu_seconds),
        trees=trees,
        change=change,
        closure=Closure(change, Deferred(lambda: runs.symbols(request.good) - runs.symbols(request.bad))),
        frames=runs.frames(seen),
        good_run=cache(lambda: runs.noted(request.good, NOTED_SLOWDOWN * limit)),
    )


def _expect(record: Record, environment: Environment, *, passes: bool) -> None:
    outcome = record.attempt.outcome
    if passes and outcome is not Outcome.PASS:
        raise UsageError(f"it does not pass in {environment.label}: {outcome}", hint="name another good release")
    if not passes and not outcome.is_red and outcome is not Outcome.SLOW:
        raise UsageError(f"it does not fail in {environment.label}: {outcome}", hint="name another bad release")


@dataclass(slots=True, kw_only=True)
class _Known:
    """What is known: before the first trial how the script fails and what differs, then what the trials have shown."""

    request: CureRequest
    runs: CureRuns
    test: CureTest
    trees: tuple[PackageTree, PackageTree]  # of the bad and of the good release
    change: TreeChange
    closure: Closure
    frames: tuple[CodeFrame, ...]
    good_run: Callable[[], FunctionsRun]  # made once, when it is asked for
    seeds: dict[Unit, None] = field(default_factory=dict)  # as the search asks for them
    loaded: set[str] = field(default_factory=set)  # files, known when the functions that ran are
    cure: Proposal | None = None  # the last one: a search proposes nothing greater once it has a cure
    last: Trial | None = None

    def tiers(self) -> list[Callable[[], list[Unit]]]:
        """Return the candidates, the nearest first; what only later ones need is found out when these are asked for."""
        script = self.runs.runner.planned.scenario.text
        noted = Deferred(self._noted)

        def by_name() -> list[Unit]:
            noted()
            return cure_search.named(self.change, self.loaded, words_of(script) | words_of(self.test.failure.message))

        def reached(place: int) -> list[Unit]:
            bad, good = noted()[place]
            words = set[str]().union(*(run.words(tree.text) for run, tree in zip((bad, good), self.trees, strict=True)))
            return cure_search.by_runs(self.change, bad, good, words | words_of(script), self.loaded)

        once = [cache(by_name), *(cache(partial(reached, place)) for place in (0, 1))]
        return [lambda: cure_search.on_stack(self.change, self.frames), *once]

    def _noted(self) -> tuple[Sequence[FunctionsRun], ...]:
        """Return what it runs in both releases: of that first what not any script runs, then all."""
        self.request.tell("what it runs is noted in both")
        both = self.request.bad, self.request.good
        longer = NOTED_SLOWDOWN * self.test.limit
        patience = self.test.limit if self.test.failure.outcome is Outcome.HANG else longer
        with self.runs.runner.workers(2) as workers:
            bad, good = workers.results(lambda: self.runs.noted(both[0], patience), self.good_run)
        self.loaded |= bad.loaded | good.loaded
        active = bad.active | good.active
        with self.runs.runner.workers(2) as workers:
            usual = workers.results(*(partial(self.runs.common_calls, each, active) for each in both))
        return (bad.besides(usual[0]), good.besides(usual[1])), (bad, good)

    def oracle(self, started: float) -> RunsOracle[Proposal, Trial]:
        """Return what answers a search; it keeps the cure and tells of each trial."""
        planned, failure, bad = self.runs.runner.planned, self.test.failure, self.request.bad
        key = digest([planned.scenario.source_hash, planned.variant, bad.id, failure.outcome, failure.signature])
        limit = self.request.max_seconds

        def answered(proposal: Proposal, trial: Trial) -> None:
            self.last = trial
            if trial.effect is TrialEffect.CURED:
                self.cure = proposal
            self.request.tell(cure_search.in_words(oracle.made, proposal, trial))

        oracle = RunsOracle(
            inquiry=partial(inquiry, self.change, key, lambda files: self.runs.trial(bad, files, self.test)),
            pool=self.runs.runner.workers(self.request.jobs),
            journal=Journal(self.runs.folder / f"trials-{key}.jsonl", Trial),
            guess=GUESS,
            answered=answered,
            most=self.request.max_trials,
            until=started + limit if limit is not None else None,
        )
        return oracle

    def idle(self, cure: Proposal) -> set[Unit]:
        """Return the functions of a cure that the cured script does not run."""
        if len(cure.units) < 3:
            return set()
        try:
            cured_run = self.runs.noted(self.request.bad, NOTED_SLOWDOWN * self.test.limit, self.change.texts(cure))
        except PreventedError:
            return set()
        ran = {(path, name.rpartition(".")[2]) for path, _, name in cured_run.functions}
        return {unit for unit in cure.units if unit.is_function and (unit.path, unit.own_name) not in ran}

    def evidence(self, search: CureSearch) -> SearchEvidence:
        """Return what a search without a cure has seen."""
        lacking = {symbol for seed in self.seeds for symbol in self.closure.of([seed]).lacking}
        return SearchEvidence(
            reached=len(self.seeds),
            tried=len(search.harmless.intersection(self.seeds)),  # without their dependencies
            breaking=tuple(unit.name for unit in search.breaking),
            last_effect=str(self.last.effect) if self.last else "",
            lacking=tuple(sorted(lacking)),
            is_native=self.test.failure.outcome is Outcome.CRASH,
        )

    def patched(self, cure: Proposal) -> Fix:
        """Return an answer with the patch of a cure."""
        files = self.change.texts(cure)
        patch = unified_diff({path: self.change.pairs[path].bad for path in files}, files)
        return Fix(patch=patch, units=tuple(map(str, in_order(cure.units))))

    def confirmed(self, answer: Fix, cure: Proposal) -> Fix:
        """Return the answer with what runs show: with the patch, without it, and taken back from the good release."""
        bad, files = self.request.bad, self.change.texts(cure)
        # first those with the patch: beside a failure that keeps cores busy a pass takes longer
        with self.runs.runner.workers(self.request.jobs) as workers:
            patched = workers.results(*[partial(self.runs.fair_run, bad, files, self.test)] * CONFIRMATIONS)
        with self.runs.runner.workers(self.request.jobs) as workers:
            turned = workers.start(partial(self._reverted, cure.units))
            plain = workers.results(*[partial(self.runs.run, bad, self.test.limit)] * CONFIRMATIONS)
        return replace(
            answer,
            with_patch=_passes(patched),
            without_patch=_passes(plain),
            manner=cure_kinds(cure, self.good_run() if any(map(brings_functions, cure.units)) else None),
            reverted=turned.result(),
        )

    def _reverted(self, units: frozenset[Unit]) -> str:
        """Return what taking the units back from the good release does to the failure there: "cured" for nothing."""
        backwards = self.change.backwards({unit.path for unit in units})
        taken = [found for unit in units if (found := backwards.named(unit.path, unit.name))]
        changed = [unit for unit in taken if unit.kind is not Kind.REMOVED]
        effect = ""
        for some in filter(None, (changed, taken)):  # what else uses a new function would miss it
            files = backwards.texts(Proposal(units=Closure(backwards).of(some).units))
            effect = str(self.runs.trial(self.request.good, files, self.test).effect)
            if effect == TrialEffect.SAME:
                break
        return effect


def _passes(seen: Sequence[Observation]) -> tuple[int, int]:
    return sum(each.record.attempt.outcome is Outcome.PASS for each in seen), len(seen)


def _when_spent(trials: int, seconds: float, cure: Proposal | None) -> Iterator[str]:
    """Yield what is to be said of a search whose budget is used up."""
    yield f"stopped after {counted(trials, 'trial')} and {seconds:.0f} s"
    if cure is not None:
        where = counted(len({unit.path for unit in cure.units}), "file")
        yield f"the smallest change that was seen to cure it is in {where}; a smaller one may be enough"
    yield f"to go on from here: --max-trials {max(2 * trials, FURTHER)} --max-time {math.ceil(2 * seconds / 60)}m"


def reasons(evidence: SearchEvidence) -> Iterator[str]:
    """Yield the evidence that a change of Python alone cannot fix it."""
    if evidence.reached == 0:
        yield "no function of torch's Python that the script runs differs between the two releases"
    elif evidence.last_effect == "same":
        yield f"with all {evidence.tried} changed units that the script reaches, it fails as before"
    else:
        yield f"none of {evidence.tried} changed units that the script reaches cures it"
    yield from _unknown(evidence)


def known_so_far(evidence: SearchEvidence) -> Iterator[str]:
    """Yield what is known when a search is cut short before it finds a cure."""
    yield f"no cure so far: {evidence.tried} of {evidence.reached} changed units that the script reaches had no effect"
    yield from _unknown(evidence)


def _unknown(evidence: SearchEvidence) -> Iterator[str]:
    if evidence.breaking:
        yield f"the effect of {_some(evidence.breaking)} is not known: with each alone, it fails in another way"
    if evidence.lacking:
        yield f"the changed code uses symbols that the bad release's binary does not have: {_some(evidence.lacking)}"
    if evidence.is_native:
        yield "it fails in native code"


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
