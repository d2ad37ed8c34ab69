"""What is known before the first trial: how the script fails and passes, what differs, and the order of candidates."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.failure import Failure
from whichtorch.matrix.diagnosis.patience import CURE, CURE_OF_HANG
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.fix.candidates import by_runs, named, on_stack
from whichtorch.matrix.fix.closure import Closure
from whichtorch.matrix.fix.cure_runs import CureTest
from whichtorch.matrix.fix.functions_run import words_of
from whichtorch.matrix.fix.package_trees import differing
from whichtorch.matrix.fix.tree_change import TreeChange
from whichtorch.matrix.model import Environment, Outcome, Record
from whichtorch.matrix.search.driving import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whichtorch.matrix.diagnosis.tracebacks import CodeFrame
    from whichtorch.matrix.fix.cure_runs import CureRuns
    from whichtorch.matrix.fix.functions_run import FunctionsRun
    from whichtorch.matrix.fix.package_trees import FilePair, PackageTree
    from whichtorch.matrix.fix.units import Unit

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
class FixSetup:
    """What is known before the first trial."""

    test: CureTest
    trees: tuple[PackageTree, PackageTree]  # of the bad and of the good release
    pairs: dict[str, FilePair]
    paths: frozenset[str]
    change: TreeChange
    closure: Closure
    frames: tuple[CodeFrame, ...]
    good_run: Callable[[], FunctionsRun]  # made once, when it is asked for
    seeds: dict[Unit, None] = field(default_factory=dict)  # as the search asks for them
    loaded: set[str] = field(default_factory=set)  # files, known when the functions that ran are


def setup_of(request: CureRequest, runs: CureRuns) -> FixSetup:
    """See the script fail and pass, and what differs.

    Raises UsageError where it does not fail in the one, as is meant, and pass in the other.
    """
    longest = runs.planned.limits.timeout
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
    bad_tree, good_tree = runs.tree(request.bad), runs.tree(request.good)
    pairs = differing(bad_tree, good_tree)
    paths = frozenset(bad_tree.digests.keys() | good_tree.digests.keys())
    change = TreeChange(pairs, paths)
    lacking = Deferred(lambda: runs.symbols(request.good) - runs.symbols(request.bad))
    return FixSetup(
        test=CureTest(failure=failure, limit=limit, cpu_seconds=good_record.attempt.cpu_seconds),
        trees=(bad_tree, good_tree),
        pairs=pairs,
        paths=paths,
        change=change,
        closure=Closure(change, lacking),
        frames=runs.frames(seen),
        good_run=cache(lambda: runs.noted(request.good, NOTED_SLOWDOWN * limit)),
    )


def candidate_tiers(request: CureRequest, runs: CureRuns, setup: FixSetup) -> list[Callable[[], list[Unit]]]:
    """Return the candidates, the nearest first; what only later ones need is found out when these are asked for."""
    script = runs.planned.scenario.text

    def noted() -> tuple[Sequence[FunctionsRun], ...]:
        request.tell("what it runs is noted in both")
        longer = NOTED_SLOWDOWN * setup.test.limit
        patience = setup.test.limit if setup.test.failure.outcome is Outcome.HANG else longer
        bad, good = runs.at_once(lambda: runs.noted(request.bad, patience), setup.good_run)
        setup.loaded.update(bad.loaded | good.loaded)
        active = bad.active | good.active
        usual = runs.at_once(*(partial(runs.common_calls, each, active) for each in (request.bad, request.good)))
        return (bad.besides(usual[0]), good.besides(usual[1])), (bad, good)

    pairs = Deferred(noted)

    def by_name() -> list[Unit]:
        pairs()
        return named(setup.change, setup.loaded, words_of(script) | words_of(setup.test.failure.message))

    def reached(place: int) -> list[Unit]:
        bad, good = pairs()[place]
        words = set[str]().union(*(run.words(tree.text) for run, tree in zip((bad, good), setup.trees, strict=True)))
        return by_runs(setup.change, bad, good, words | words_of(script), setup.loaded)

    once = [cache(by_name), *(cache(partial(reached, place)) for place in (0, 1))]
    return [lambda: on_stack(setup.change, setup.frames), *once]


def _expect(record: Record, environment: Environment, *, passes: bool) -> None:
    outcome = record.attempt.outcome
    if passes and outcome is not Outcome.PASS:
        raise UsageError(f"it does not pass in {environment.label}: {outcome}", hint="name another good release")
    if not passes and not outcome.is_red and outcome is not Outcome.SLOW:
        raise UsageError(f"it does not fail in {environment.label}: {outcome}", hint="name another bad release")
