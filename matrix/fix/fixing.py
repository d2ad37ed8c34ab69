"""A script that fails in one environment and passes in another -> the smallest change of Python that cures it.

The order of things: see it fail; note what it runs on both sides; order the changed units; try them until one cures;
leave out what is not needed; confirm it in both directions. All trials are in a journal, so that the same call goes
on where it was interrupted.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from matrix.bisect.sightings import Failure, is_named
from matrix.environments.overlay import site_packages
from matrix.errors import UsageError
from matrix.fix.beyond_python import SearchEvidence, reasons
from matrix.fix.candidates import at_import, by_runs, each_once, on_stack
from matrix.fix.closure import Closure
from matrix.fix.cure_search import CureSearch
from matrix.fix.forecast import Deferred
from matrix.fix.functions_run import words_of
from matrix.fix.journal import Journal
from matrix.fix.manner import AppliedUnit, brings_functions, manner_of
from matrix.fix.minimum import smallest
from matrix.fix.origins import Origin  # noqa: TC001  pydantic reads it
from matrix.fix.package_trees import FilePair, differing, package_tree
from matrix.fix.patch import lines_of, unified_diff
from matrix.fix.script_runs import CureTest
from matrix.fix.tree_change import TreeChange
from matrix.fix.trial import Effect
from matrix.fix.trials import BudgetSpent, Trials
from matrix.fix.units import Kind, Proposal
from matrix.model import Environment, Outcome, Record, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matrix.fix.functions_run import FunctionsRun
    from matrix.fix.package_trees import PackageTree
    from matrix.fix.script_runs import ScriptRuns
    from matrix.fix.trial import FailingFrame
    from matrix.fix.units import Unit

PASS_MARGIN = 4.0  # times the good run's seconds that a trial gets
SHORTEST_LIMIT = 30.0  # seconds
HANG_MARGIN = 2.5  # the same where it hangs, and each trial that is no cure takes the whole limit
SHORTEST_HANG = 10.0  # seconds
NOTED_SLOWDOWN = 4  # times that a run may take longer while its functions are noted; a hang stays one
CONFIRMATIONS = 3  # runs with the patch, and without it


@dataclass(frozen=True, slots=True, kw_only=True)
class FixRequest:
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

    @property
    def lines(self) -> int:
        """How many lines the patch adds or removes."""
        return lines_of(self.patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """What is known before the first trial."""

    test: CureTest
    trees: tuple[PackageTree, PackageTree]  # of the bad and of the good release
    pairs: dict[str, FilePair]
    paths: frozenset[str]
    change: TreeChange
    closure: Closure
    frames: tuple[FailingFrame, ...]
    good_run: Callable[[], FunctionsRun]  # made once, when it is asked for
    seeds: dict[Unit, None] = field(default_factory=dict)  # as the search asks for them
    loaded: set[str] = field(default_factory=set)  # files, known when the functions that ran are


def fix(request: FixRequest, runs: ScriptRuns) -> Fix:
    """Search, minimise and confirm. KeyboardInterrupt passes through; the same call then goes on.

    Raises UsageError where the script does not fail in the one and pass in the other environment, PreventedError
    where a run says nothing.
    """
    started = time.monotonic()
    gc.disable()  # the trees of a release are millions of objects: to look for cycles in them takes most of the time
    runs.sweep()
    scene = _scene(request, runs)
    request.tell(f"{len(scene.pairs)} files of Python differ")
    search, to_cure = CureSearch(scene.closure), 0
    notes: tuple[str, ...] = ()
    tiers = _tiers(request, runs, scene)
    with _trials(request, runs, scene, started) as trials:
        try:
            cure = trials.drive(
                search.run(each_once(tiers, scene.seeds), at_import(scene.change, scene.loaded)),
                lambda: CureSearch(scene.closure).run(each_once(tiers, {}), at_import(scene.change, scene.loaded)),
            )
            to_cure = trials.made
            if cure is not None:
                begin = partial(smallest, cure, scene.closure, _idle(cure, request, runs, scene))
                trials.drive(begin(), begin)
        except BudgetSpent:
            notes = ("the budget was used up",)
    answer = Fix(trials=trials.made, trials_to_cure=to_cure, candidates=len(scene.seeds), notes=notes)
    if trials.cure is None:
        answer = replace(answer, why_not=tuple(reasons(_evidence(scene, search, trials, is_complete=not notes))))
    else:
        answer = _confirmed(answer, trials.cure, request, runs, scene)
    return replace(answer, trials_ahead=trials.ahead, seconds=round(time.monotonic() - started, 1))


def _scene(request: FixRequest, runs: ScriptRuns) -> _Scene:
    """See the script fail and pass, note what it runs, and order what changed."""
    longest = runs.planned.limits.timeout
    good_record = runs.run(request.good, longest)
    _expect(good_record, request.good, passes=True)
    limit = min(longest, max(SHORTEST_LIMIT, PASS_MARGIN * good_record.attempt.seconds))
    bad_record = runs.run(request.bad, limit)
    _expect(bad_record, request.bad, passes=False)
    if not is_named(bad_record, request.failure):
        shown = f"{bad_record.attempt.outcome}: {bad_record.signature or ''} {bad_record.attempt.message}".rstrip()
        raise UsageError(f"it fails in another way in {request.bad.label}: {shown}", hint="leave out --failure")
    failure = _failure(bad_record)
    if failure.outcome is Outcome.HANG:
        limit = min(limit, max(SHORTEST_HANG, HANG_MARGIN * good_record.attempt.seconds))
    bad_tree, good_tree = _tree(request.bad), _tree(request.good)
    pairs = differing(bad_tree, good_tree)
    paths = frozenset(bad_tree.digests.keys() | good_tree.digests.keys())
    change = TreeChange(pairs, paths)
    lacking = Deferred(lambda: runs.symbols(request.good) - runs.symbols(request.bad))
    return _Scene(
        test=CureTest(failure=failure, limit=limit, cpu_seconds=good_record.attempt.cpu_seconds),
        trees=(bad_tree, good_tree),
        pairs=pairs,
        paths=paths,
        change=change,
        closure=Closure(change, lacking),
        frames=runs.frames(bad_record),
        good_run=cache(lambda: runs.noted(request.good, NOTED_SLOWDOWN * limit)),
    )


def _tiers(request: FixRequest, runs: ScriptRuns, scene: _Scene) -> list[Callable[[], list[Unit]]]:
    """Return the candidates, the nearest first; what only later ones need is found out when these are asked for."""
    script = runs.planned.scenario.path.read_text(encoding="utf-8", errors="replace")

    def noted() -> tuple[Sequence[FunctionsRun], ...]:
        request.tell("what it runs is noted in both")
        longer = NOTED_SLOWDOWN * scene.test.limit
        patience = scene.test.limit if scene.test.failure.outcome is Outcome.HANG else longer
        bad, good = runs.at_once(lambda: runs.noted(request.bad, patience), scene.good_run)
        scene.loaded.update(bad.loaded | good.loaded)
        active = bad.active | good.active
        usual = runs.at_once(*(partial(runs.everyday, each, active) for each in (request.bad, request.good)))
        return (bad.besides(usual[0]), good.besides(usual[1])), (bad, good)

    pairs = Deferred(noted)

    def reached(place: int) -> list[Unit]:
        bad, good = pairs()[place]
        words = set[str]().union(*(run.words(tree.text) for run, tree in zip((bad, good), scene.trees, strict=True)))
        return by_runs(scene.change, bad, good, words | words_of(script), scene.loaded)

    return [lambda: on_stack(scene.change, scene.frames), *(cache(partial(reached, place)) for place in (0, 1))]


def _expect(record: Record, environment: Environment, *, passes: bool) -> None:
    outcome = record.attempt.outcome
    if passes and outcome is not Outcome.PASS:
        raise UsageError(f"it does not pass in {environment.label}: {outcome}", hint="name another good release")
    if not passes and not outcome.is_red and outcome is not Outcome.SLOW:
        raise UsageError(f"it does not fail in {environment.label}: {outcome}", hint="name another bad release")


def _failure(record: Record) -> Failure:
    attempt = record.attempt
    outcome = Outcome.HANG if attempt.outcome is Outcome.SLOW else attempt.outcome  # ends in the good release by then
    return Failure(outcome=outcome, signature=record.signature, message=attempt.message)


def _tree(environment: Environment) -> PackageTree:
    assert environment.interpreter is not None
    return package_tree(site_packages(environment.interpreter.parent.parent))


def _trials(request: FixRequest, runs: ScriptRuns, scene: _Scene, started: float) -> Trials:
    planned, failure = runs.planned, scene.test.failure
    question = digest(
        [planned.scenario.source_hash, planned.variant, request.bad.id, failure.outcome, failure.signature]
    )
    return Trials(
        change=scene.change,
        journal=Journal(runs.folder / f"trials-{question}.jsonl"),
        question=question,
        test=lambda files: runs.trial(request.bad, files, scene.test),
        tell=request.tell,
        lanes=runs.lanes(request.jobs),
        most=request.max_trials,
        until=started + request.max_seconds if request.max_seconds is not None else None,
    )


def _idle(cure: Proposal, request: FixRequest, runs: ScriptRuns, scene: _Scene) -> set[Unit]:
    """Return the functions of a cure that the cured script does not run."""
    if len(cure.units) < 3:
        return set()
    with runs.changed(request.bad, scene.change.texts(cure)) as overlay:
        cured_run = runs.noted(overlay, NOTED_SLOWDOWN * scene.test.limit)
    ran = {(path, name.rpartition(".")[2]) for path, _, name in cured_run.functions}
    return {unit for unit in cure.units if unit.is_function and (unit.path, unit.own_name) not in ran}


def _evidence(scene: _Scene, search: CureSearch, trials: Trials, *, is_complete: bool) -> SearchEvidence:
    lacking = {symbol for seed in scene.seeds for symbol in scene.closure.of([seed]).lacking}
    return SearchEvidence(
        reached=len(scene.seeds),
        tried=len(search.harmless),
        breaking=tuple(unit.name for unit in search.breaking),
        closing=str(trials.last.effect) if trials.last else "",
        lacking=tuple(sorted(lacking.union(search.refused.values()))),
        is_native=scene.test.failure.outcome is Outcome.CRASH,
        is_complete=is_complete,
    )


def _confirmed(answer: Fix, cure: Proposal, request: FixRequest, runs: ScriptRuns, scene: _Scene) -> Fix:
    """Return the answer with the patch, run several times with and without it, and taken back from the good release."""
    files = scene.change.texts(cure)
    # first those with the patch: beside a failure that keeps cores busy a pass takes longer
    with runs.changed(request.bad, files) as overlay, runs.lanes(request.jobs) as lanes:
        patched = lanes.results(*[partial(runs.fair_run, overlay, scene.test)] * CONFIRMATIONS)
    with runs.lanes(request.jobs) as lanes:
        turned = lanes.start(partial(_reverted, cure.units, request, runs, scene))
        plain = lanes.results(*[partial(runs.run, request.bad, scene.test.limit)] * CONFIRMATIONS)
    return replace(
        answer,
        patch=unified_diff({path: scene.pairs[path].bad for path in files}, files),
        units=tuple(map(str, sorted(cure.units, key=lambda unit: (unit.path, unit.name)))),
        with_patch=_passes(patched),
        without_patch=_passes(plain),
        manner=_manner(cure, scene),
        reverted=turned.result(),
    )


def _manner(cure: Proposal, scene: _Scene) -> tuple[str, ...]:
    ordered = sorted(cure.units, key=lambda unit: (unit.path, unit.name))
    applied = [AppliedUnit(unit=unit, draft=cure.drafts.get(unit)) for unit in ordered]
    return manner_of(applied, scene.good_run() if any(map(brings_functions, ordered)) else None)


def _passes(records: Sequence[Record]) -> tuple[int, int]:
    return sum(record.attempt.outcome is Outcome.PASS for record in records), len(records)


def _reverted(units: frozenset[Unit], request: FixRequest, runs: ScriptRuns, scene: _Scene) -> str:
    """Return what taking the units back from the good release does to the failure there: "cured" for nothing."""
    paths = {unit.path for unit in units}
    pairs = {path: FilePair(path=path, bad=scene.pairs[path].good, good=scene.pairs[path].bad or "") for path in paths}
    backwards = TreeChange(pairs, scene.paths)
    taken = [found for unit in units if (found := backwards.named(unit.path, unit.name))]
    changed = [unit for unit in taken if unit.kind is not Kind.REMOVED]
    effect = ""
    for some in filter(None, (changed, taken)):  # what else uses a new function would miss it
        files = backwards.texts(Proposal(units=Closure(backwards).of(some).units))
        effect = str(runs.trial(request.good, files, scene.test).effect)
        if effect == Effect.SAME:
            break
    return effect
