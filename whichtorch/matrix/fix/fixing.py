"""A script that fails in one environment and passes in another -> the smallest change of Python that cures it.

The order of things: see it fail; note what it runs on both sides; order the changed units; try them until one cures;
leave out what is not needed; confirm it in both directions. All trials are in a journal, so that the same call goes
on where it was interrupted.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import PreventedError, why_stopped
from whichtorch.matrix.fix.candidates import at_import, each_once
from whichtorch.matrix.fix.closure import Closure
from whichtorch.matrix.fix.cure_kind import brings_functions, cure_kinds
from whichtorch.matrix.fix.cure_search import CureSearch
from whichtorch.matrix.fix.fix_setup import NOTED_SLOWDOWN, candidate_tiers, setup_of
from whichtorch.matrix.fix.minimum import smallest
from whichtorch.matrix.fix.origins import Origin  # noqa: TC001  pydantic reads it
from whichtorch.matrix.fix.package_trees import FilePair
from whichtorch.matrix.fix.patch import lines_of, unified_diff
from whichtorch.matrix.fix.tree_change import TreeChange
from whichtorch.matrix.fix.trials import GUESS, Trial, TrialEffect, Trials, in_words
from whichtorch.matrix.fix.units import Kind, Proposal, in_order
from whichtorch.matrix.grouping import counted
from whichtorch.matrix.model import Outcome, digest
from whichtorch.matrix.search.driving import drive
from whichtorch.matrix.search.runs_oracle import BudgetSpentError, Journal, RunsOracle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.fix.cure_runs import CureRuns
    from whichtorch.matrix.fix.fix_setup import CureRequest, FixSetup
    from whichtorch.matrix.fix.units import Unit
    from whichtorch.matrix.trial.observation import Observation

SHOWN = 5  # names of a kind; more are counted
FURTHER = 60  # trials that are proposed at least, to go on with
CONFIRMATIONS = 3  # runs with the patch, and without it


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


@dataclass(slots=True)
class _Seen:
    """What the trials have shown so far."""

    cure: Proposal | None = None  # the last one: a search proposes nothing greater once it has a cure
    last: Trial | None = None


def fix(request: CureRequest, runs: CureRuns) -> Fix:
    """Search, minimize and confirm. If it is interrupted, it returns what is known; the same call goes on from there.

    KeyboardInterrupt passes through before the first trial.

    Raises UsageError where the script does not fail in the one and pass in the other environment, PreventedError
    where a run says nothing.
    """
    started = time.monotonic()
    setup = setup_of(request, runs)
    request.tell(f"{len(setup.pairs)} files of Python differ")
    search, to_cure, seen = CureSearch(setup.closure), 0, _Seen()
    notes: tuple[str, ...] = ()
    tiers = candidate_tiers(request, runs, setup)
    oracle = _oracle(request, runs, setup, seen, started)
    answer = Fix()
    try:
        with oracle:
            try:
                cure = drive(
                    search.run(each_once(tiers, setup.seeds), at_import(setup.change, setup.loaded)),
                    oracle,
                    lambda: CureSearch(setup.closure).run(each_once(tiers, {}), at_import(setup.change, setup.loaded)),
                )
                to_cure = oracle.made
                if cure is not None:
                    begin = partial(smallest, cure, setup.closure, _idle(cure, request, runs, setup))
                    drive(begin(), oracle, begin)
            except BudgetSpentError:
                notes = tuple(_when_spent(oracle.made, time.monotonic() - started, seen.cure))
        if seen.cure is not None:
            answer = _patched(seen.cure, setup)
            try:
                answer = _confirmed(answer, seen.cure, request, runs, setup)
            except PreventedError as error:  # the patch is known all the same
                notes = (*notes, f"the patch could not be confirmed: {error}")
        elif notes:
            notes = (*notes, *known_so_far(_evidence(setup, search, seen)))
        else:
            answer = replace(answer, why_not=tuple(reasons(_evidence(setup, search, seen))))
    except KeyboardInterrupt as interrupt:
        answer = _patched(seen.cure, setup) if seen.cure else answer
        answer = replace(answer, stopped=why_stopped(interrupt))
    answer = replace(answer, trials=oracle.made, trials_to_cure=to_cure, candidates=len(setup.seeds), notes=notes)
    return replace(answer, trials_ahead=oracle.ahead, seconds=round(time.monotonic() - started, 1))


def _when_spent(trials: int, seconds: float, cure: Proposal | None) -> Iterator[str]:
    """Yield what is to be said of a search whose budget is used up."""
    yield f"stopped after {counted(trials, 'trial')} and {seconds:.0f} s"
    if cure is not None:
        files = len({unit.path for unit in cure.units})
        where = f"{files} file{'s' * (files > 1)}"
        yield f"the smallest change that was seen to cure it is in {where}; a smaller one may be enough"
    yield f"to go on from here: --max-trials {max(2 * trials, FURTHER)} --max-time {math.ceil(2 * seconds / 60)}m"


def _oracle(
    request: CureRequest, runs: CureRuns, setup: FixSetup, seen: _Seen, started: float
) -> RunsOracle[Proposal, Trial]:
    planned, failure = runs.planned, setup.test.failure
    question = digest(
        [planned.scenario.source_hash, planned.variant, request.bad.id, failure.outcome, failure.signature]
    )

    def answered(proposal: Proposal, trial: Trial) -> None:
        seen.last = trial
        if trial.effect is TrialEffect.CURED:
            seen.cure = proposal
        request.tell(in_words(oracle.made, proposal, trial))

    oracle = RunsOracle(
        inquiry=Trials(
            change=setup.change, question=question, test=lambda files: runs.trial(request.bad, files, setup.test)
        ),
        pool=runs.workers(request.jobs),
        journal=Journal(runs.folder / f"trials-{question}.jsonl", Trial),
        guess=GUESS,
        answered=answered,
        most=request.max_trials,
        until=started + request.max_seconds if request.max_seconds is not None else None,
    )
    return oracle


def _idle(cure: Proposal, request: CureRequest, runs: CureRuns, setup: FixSetup) -> set[Unit]:
    """Return the functions of a cure that the cured script does not run."""
    if len(cure.units) < 3:
        return set()
    try:
        cured_run = runs.noted(request.bad, NOTED_SLOWDOWN * setup.test.limit, setup.change.texts(cure))
    except PreventedError:
        return set()
    ran = {(path, name.rpartition(".")[2]) for path, _, name in cured_run.functions}
    return {unit for unit in cure.units if unit.is_function and (unit.path, unit.own_name) not in ran}


def _evidence(setup: FixSetup, search: CureSearch, seen: _Seen) -> SearchEvidence:
    lacking = {symbol for seed in setup.seeds for symbol in setup.closure.of([seed]).lacking}
    return SearchEvidence(
        reached=len(setup.seeds),
        tried=len(search.harmless.intersection(setup.seeds)),  # without their dependencies
        breaking=tuple(unit.name for unit in search.breaking),
        last_effect=str(seen.last.effect) if seen.last else "",
        lacking=tuple(sorted(lacking.union(search.refused.values()))),
        is_native=setup.test.failure.outcome is Outcome.CRASH,
    )


def _confirmed(answer: Fix, cure: Proposal, request: CureRequest, runs: CureRuns, setup: FixSetup) -> Fix:
    """Return the answer with the patch, run several times with and without it, and taken back from the good release."""
    files = setup.change.texts(cure)
    # first those with the patch: beside a failure that keeps cores busy a pass takes longer
    with runs.workers(request.jobs) as workers:
        patched = workers.results(*[partial(runs.fair_run, request.bad, files, setup.test)] * CONFIRMATIONS)
    with runs.workers(request.jobs) as workers:
        turned = workers.start(partial(_reverted, cure.units, request, runs, setup))
        plain = workers.results(*[partial(runs.run, request.bad, setup.test.limit)] * CONFIRMATIONS)
    return replace(
        answer,
        with_patch=_passes(patched),
        without_patch=_passes(plain),
        manner=cure_kinds(cure, setup.good_run() if any(map(brings_functions, cure.units)) else None),
        reverted=turned.result(),
    )


def _patched(cure: Proposal, setup: FixSetup) -> Fix:
    """Return an answer with the patch of a cure."""
    files = setup.change.texts(cure)
    patch = unified_diff({path: setup.pairs[path].bad for path in files}, files)
    return Fix(patch=patch, units=tuple(map(str, in_order(cure.units))))


def _passes(seen: Sequence[Observation]) -> tuple[int, int]:
    return sum(each.record.attempt.outcome is Outcome.PASS for each in seen), len(seen)


def _reverted(units: frozenset[Unit], request: CureRequest, runs: CureRuns, setup: FixSetup) -> str:
    """Return what taking the units back from the good release does to the failure there: "cured" for nothing."""
    paths = {unit.path for unit in units}
    pairs = {path: FilePair(path=path, bad=setup.pairs[path].good, good=setup.pairs[path].bad or "") for path in paths}
    backwards = TreeChange(pairs, setup.paths)
    taken = [found for unit in units if (found := backwards.named(unit.path, unit.name))]
    changed = [unit for unit in taken if unit.kind is not Kind.REMOVED]
    effect = ""
    for some in filter(None, (changed, taken)):  # what else uses a new function would miss it
        files = backwards.texts(Proposal(units=Closure(backwards).of(some).units))
        effect = str(runs.trial(request.good, files, setup.test).effect)
        if effect == TrialEffect.SAME:
            break
    return effect


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
