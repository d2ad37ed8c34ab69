"""One search for many tests: each keeps a search of its own, and all share the positions that are probed.

The first and the last position run everything. After that, a position is chosen for all tests at once: the one with the
most bits per second, where a position that is installed costs its runs alone. Only the tests run there to which it says
something. So another test that changes at a known boundary costs runs, and no position.

Chance would rarely put the changes of several tests in one place, so tests that agree on theirs confirm each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from whichtorch.base.grouping import grouped
from whichtorch.search.decision import answer_so_far, decide_parallel
from whichtorch.search.search_state import (
    Change,
    Find,
    NextProbe,
    Purpose,
    SearchAnswer,
    SearchState,
    SearchVerdict,
    entropy,
)

AGREEING_TESTS = 3  # so many tests that change in one place confirm each other
AGREEING_PASS_RUNS = 2  # of the position that passes there: the second run rules out a failure of the whole process
START = 5.0  # seconds that a process takes before its first test

Tests = Mapping[str, SearchState]  # by id; a position that was run says nothing about a test that does not exist there


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedProbe(NextProbe):
    """What to run next at a position; as a probe of its own, it has the purpose of most of its tests."""

    tests: Mapping[str, NextProbe] | None = None  # by id, all at this position; None: all that there are

    @classmethod
    def of(cls, position: int, tests: Mapping[str, NextProbe]) -> SharedProbe:
        """Return the probe of some tests."""
        ((purpose, _),) = Counter(probe.purpose for probe in tests.values()).most_common(1)
        runs = max(probe.runs for probe in tests.values())
        return cls(position=position, runs=runs, purpose=purpose, tests=tests)


class SharedReply(NamedTuple):
    """What is known of every test after some probes."""

    tests: Tests
    ended: frozenset[int]  # positions of probes that have ended
    positions_without_tests: frozenset[int] = frozenset()  # positions where no test could be run


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAnswer:
    """The answers of the tests that were searched, and the bounds between which that was done."""

    tests: Mapping[str, SearchAnswer] = field(default_factory=dict)
    bounds: tuple[int, int] | None = None  # None: no two positions could run the tests


SharedSearch = Generator[tuple[SharedProbe, ...], SharedReply, SharedAnswer]
_Wanted = Mapping[SearchState, tuple[NextProbe, ...]]  # by the state of tests that behave alike, the first one first


def shared_search(bounds: tuple[int, int], jobs: int = 1) -> SharedSearch:
    """Yield up to `jobs` probes at a time, and return the answer of each test whose outcome differs between the bounds.

    A test is run at most as often as `decide` promises for a search of its own, and once more at each position that
    another test has made available. Runs that show nothing at all end its search when they are asked for again. So at
    most as many positions are probed as there are, and at most 2 + b ceil(log2 n) where each of the tests changes at
    one of b boundaries and can be tested everywhere.
    """
    found = yield from _whole_runs(bounds, jobs)
    if found is None:
        return SharedAnswer()
    ends, tests = found
    answers: dict[str, SearchAnswer] = {}
    idle: defaultdict[str, frozenset[int]] = defaultdict(frozenset)  # where a test was run without any result
    running: dict[int, SharedProbe] = {}  # as they were begun
    open_ones = [name for name, state in tests.items() if is_in_question(_between(state, ends, frozenset()))]
    while True:
        alike: dict[SearchState, SearchState] = {}  # one for all tests that behave the same, which it caches for
        now = {name: _between(tests[name], ends, idle[name]) for name in open_ones}
        states = _in_company({name: alike.setdefault(state, state) for name, state in now.items()})
        names = grouped((name for name in open_ones if name not in answers), states.__getitem__)
        wanted: dict[SearchState, tuple[NextProbe, ...]] = {}
        for state, those in names.items():
            step = decide_parallel(state, jobs)
            if isinstance(step, SearchAnswer) or _is_useless(state, step[0]):
                answer = step if isinstance(step, SearchAnswer) else answer_so_far(state)
                answers.update(dict.fromkeys(those, answer))
            else:
                wanted[state] = step
        if not wanted:
            return SharedAnswer(tests=answers, bounds=ends)
        chosen = _chosen(wanted, names, jobs, running)
        question = tuple(running.get(probe.position, probe) for probe in chosen)
        reply = yield question
        for probe in question:
            for name in (probe.tests or ()) if probe.position in reply.ended else ():
                if reply.tests[name].observations == tests[name].observations:
                    idle[name] |= {probe.position}
        running = {probe.position: probe for probe in question if probe.position not in reply.ended}
        tests = reply.tests


def is_in_question(state: SearchState) -> bool:
    """Return whether a test's outcome changes in the way that is asked for, or may do so as far as its bounds tell.

    It may where it fails at one bound, and the other one says nothing.
    """
    find = state.options.find
    if find is Find.ALL or state.steps:
        return find is Find.ALL or any(find.wants(step.change) for step in state.steps)
    low, high = map(state.label, state.bounds)
    failing = {Change.FIX: low, Change.REGRESSION: high}
    fails = any(find.wants(change) and label is SearchVerdict.BAD for change, label in failing.items())
    return fails and (state.is_flaky or low is not high)


def _whole_runs(
    bounds: tuple[int, int], jobs: int
) -> Generator[tuple[SharedProbe, ...], SharedReply, tuple[tuple[int, int], Tests] | None]:
    """Run everything at both bounds, and return them with what they showed; None where there are no two.

    A bound where no test could be run is replaced by one further inside, by doubling, after both were tried.
    """
    ends, jumps = list(bounds), [1, -1]
    ended: frozenset[int] = frozenset()
    tests: Tests = {}
    while ends[0] < ends[1]:
        missing = [end for _, end in sorted(zip(map(abs, jumps), ends, strict=True)) if end not in ended]
        if not missing:
            return (ends[0], ends[1]), tests
        reply = yield tuple(SharedProbe(position=end, purpose=Purpose.BOUND) for end in missing[:jobs])
        ended, tests = ended | reply.ended, reply.tests
        for side, end in enumerate(ends):
            if end in ended & reply.positions_without_tests:
                ends[side] += jumps[side]
                jumps[side] *= 2
    return None


def _between(state: SearchState, ends: tuple[int, int], idle: frozenset[int]) -> SearchState:
    options = replace(state.options, low=ends[0], high=ends[1])
    return replace(state, options=options, exhausted=state.exhausted | idle)


def _in_company(tests: Tests) -> dict[str, SearchState]:
    """Return the tests; those that change where others do are asked to pass less often."""
    changes = Counter(places for state in tests.values() if (places := _narrowed(state)))
    return {
        name: replace(state, options=replace(state.options, pass_runs=min(state.options.pass_runs, AGREEING_PASS_RUNS)))
        if changes[_narrowed(state)] >= AGREEING_TESTS
        else state
        for name, state in tests.items()
    }


def _narrowed(state: SearchState) -> tuple[tuple[int, int, Change], ...]:
    """Return where a test changes; nothing if there is a position to try in between, or the test is flaky."""
    places = tuple((step.before, step.after, step.change) for step in state.steps)
    is_done = all(after - before == 1 + len(state.dead(before, after)) for before, after, _ in places)
    return places if is_done and not state.is_flaky else ()


def _is_useless(state: SearchState, probe: NextProbe) -> bool:
    """Return whether a probe cannot add information: it showed nothing before, or both bounds are alike."""
    is_sample = probe.purpose is Purpose.SAMPLE and state.options.find is not Find.ALL
    return is_sample or probe.position in state.exhausted


def _chosen(
    wanted: _Wanted, names: Mapping[SearchState, list[str]], jobs: int, running: Collection[int]
) -> Iterator[SharedProbe]:
    """Yield up to `jobs` probes, the most telling first; what runs goes on as long as a test wants it.

    Where fewer positions are wanted, the next ones are those that tests would come to want.
    """
    taken: set[int] = set()
    for rank in range(jobs):
        ranked = {state: steps[rank] for state, steps in wanted.items() if rank < len(steps)}
        while ranked and len(taken) < jobs:
            worth = {position: _rate(ranked, names, position) for position in _candidates(ranked) - taken}
            if not worth:
                break
            best = max(worth, key=lambda position: (position in running, worth[position], position))
            mine = {state: probe for state, step in ranked.items() if (probe := _probe_at(state, step, best))}
            taken.add(best)
            yield SharedProbe.of(best, {name: probe for state, probe in mine.items() for name in names[state]})
            ranked = {state: step for state, step in ranked.items() if state not in mine}


def _candidates(ranked: Mapping[SearchState, NextProbe]) -> set[int]:
    """Return the positions that a test wants, and those that cost no install and tell one something."""
    installed = {
        position
        for state, step in ranked.items()
        for position, seconds in enumerate(state.costs.install)
        if not seconds and _probe_at(state, step, position)
    }
    return installed | {step.position for step in ranked.values()}


def _probe_at(state: SearchState, step: NextProbe, position: int) -> NextProbe | None:
    """Return what a test that wants `step` runs at a position; None if that would tell less for what it costs."""
    if step.position == position:
        return step
    if step.purpose is not Purpose.NARROW or state.is_flaky or state.label(position) is not None:
        return None
    ride = replace(step, position=position)
    own_seconds = _seconds(state, step) + state.costs.install_at(step.position)
    is_worth_it = _bits(state, ride) * own_seconds >= _bits(state, step) * _seconds(state, ride)
    return ride if position not in state.exhausted and is_worth_it else None


def _rate(ranked: Mapping[SearchState, NextProbe], names: Mapping[SearchState, list[str]], position: int) -> float:
    """Return the bits per second of a position."""
    bits, seconds = 0.0, START + next(iter(ranked)).costs.install_at(position)
    for state, step in ranked.items():
        if probe := _probe_at(state, step, position):
            bits += _bits(state, probe) * len(names[state])
            seconds += _seconds(state, probe) * len(names[state])
    return bits / seconds


def _bits(state: SearchState, probe: NextProbe) -> float:
    """Return what a probe tells: inside a bracket as much as its part there, elsewhere as much as halving it."""
    if probe.purpose is not Purpose.NARROW or state.is_flaky:
        return 1.0
    return max((entropy(share) for share in _shares(state, probe.position)), default=0.0)


def _seconds(state: SearchState, probe: NextProbe) -> float:
    """Return what the runs of a probe take, as far as is known."""
    label = state.label(probe.position)
    bad = 0.5 if label is None else float(label is SearchVerdict.BAD)
    return probe.runs * (bad * state.costs.bad + (1 - bad) * state.costs.good)


def _shares(state: SearchState, position: int) -> Iterator[float]:
    """Yield which part of a bracket lies before a position, for each bracket that holds it."""
    for step in state.steps:
        if step.before < position < step.after:
            yield (position - step.before) / (step.after - step.before)
