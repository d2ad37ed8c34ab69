"""Many tests in one search: each gets its boundary, and they share the positions."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichtorch.search.search_state import (
    MOST_RUNS_EACH,
    RUN_COUNTS,
    AnswerKind,
    Change,
    Costs,
    Find,
    NextProbe,
    ProbeRun,
    Purpose,
    SearchAnswer,
    SearchOptions,
    SearchState,
    SearchVerdict,
    most_runs,
)
from whichtorch.search.shared_search import SharedAnswer, SharedReply, is_in_question, shared_search

GOOD, BAD, UNTESTABLE = SearchVerdict.GOOD, SearchVerdict.BAD, SearchVerdict.UNTESTABLE
Behavior = Callable[[int, Random], SearchVerdict]  # of a position


def broken_in(culprit: int, rate: float = 1.0) -> Behavior:
    """Return a test that fails from a position on, in this share of its runs."""
    return lambda position, random: BAD if position >= culprit and random.random() < rate else GOOD


def fixed_in(culprit: int) -> Behavior:
    return lambda position, _random: BAD if position < culprit else GOOD


def only_in(positions: Sequence[int] | range, behavior: Behavior) -> Behavior:
    """Return a test that does not exist elsewhere."""
    return lambda position, random: behavior(position, random) if position in positions else UNTESTABLE


@dataclass
class Suite:
    """Tests with a history each, and a search of all of them."""

    size: int
    tests: Mapping[str, Behavior]
    options: SearchOptions = field(default_factory=SearchOptions)
    jobs: int = 1
    random: Random = field(default_factory=lambda: Random(0))
    known: Mapping[str, tuple[ProbeRun, ...]] = field(default_factory=dict)  # of earlier runs
    install: float = 30.0  # seconds
    vanishes: bool = False  # what a position showed is gone with its environment once it is untestable
    runs: defaultdict[str, list[ProbeRun]] = field(default_factory=lambda: defaultdict(list))
    made: Counter[str] = field(default_factory=Counter)
    installed: list[int] = field(default_factory=list)  # in the order in which they were tried
    sessions: int = 0

    def search(self) -> SharedAnswer:
        """Do what the search asks for until it answers; of several probes that run, any one ends first."""
        for name, runs in self.known.items():
            self.runs[name].extend(runs)
            self.installed += [run.position for run in runs if run.position not in self.installed]
        search = shared_search((0, self.size - 1), self.jobs)
        running: dict[int, Mapping[str, NextProbe] | None] = {}
        question = next(search)
        while True:
            assert 0 < len(question) <= self.jobs
            assert len({probe.position for probe in question}) == len(question)
            running = {position: tests for position, tests in running.items() if position in _positions(question)}
            for probe in question:
                running.setdefault(probe.position, probe.tests)
            ended = self.random.choice(list(running))
            self._run(ended, running.pop(ended))
            try:
                question = search.send(SharedReply(self.states(), frozenset({ended}), self.positions_without_tests()))
            except StopIteration as end:
                answer: SharedAnswer = end.value
                return answer

    def _run(self, position: int, tests: Mapping[str, NextProbe] | None) -> None:
        self.sessions += 1
        if position not in self.installed:
            self.installed.append(position)
        bound = NextProbe(position=position, purpose=Purpose.BOUND)
        for name, probe in (dict.fromkeys(self.tests, bound) if tests is None else tests).items():
            assert probe.position == position
            for _ in range(probe.runs):
                verdict = self.tests[name](position, self.random)
                self.made[name] += 1
                if self.vanishes and verdict is UNTESTABLE:
                    self.runs[name] = [run for run in self.runs[name] if run.position != position]
                self.runs[name].append(ProbeRun(position=position, verdict=verdict))
                if verdict in {probe.until, UNTESTABLE}:
                    break

    def positions_without_tests(self) -> frozenset[int]:
        """Return the positions where no test exists."""
        shown = {run.position for runs in self.runs.values() for run in runs if run.verdict is not UNTESTABLE}
        return frozenset(range(self.size)) - shown

    def states(self) -> dict[str, SearchState]:
        costs = tuple(0.0 if position in self.installed else self.install for position in range(self.size))
        return {
            name: SearchState(
                size=self.size,
                observations=tuple(self.runs[name]),
                options=self.options,
                costs=Costs(install=costs),
                made=self.made[name],
            )
            for name in self.tests
        }


def _positions(question: Sequence[NextProbe]) -> set[int]:
    return {probe.position for probe in question}


def boundaries(answer: SearchAnswer) -> list[tuple[int, int]]:
    assert answer.kind is AnswerKind.BOUNDARY
    return [(found.before, found.after) for found in answer.boundaries]


@cache
def fewest(gaps: int, of: int, changes: int) -> float:
    """Return how many positions within so many neighboring gaps of all are tried on average, whatever the strategy.

    A position is tried if there is a change among the gaps around it, and splits these in two.
    """
    if gaps == 1:
        return 0.0
    rest = min(fewest(left, of, changes) + fewest(gaps - left, of, changes) for left in range(1, gaps))
    return 1 - (1 - gaps / of) ** changes + rest


@pytest.mark.thorough
def test_two_hundred_tests_that_change_at_five_boundaries() -> None:
    """All are right, and no strategy tries fewer of 30 positions on average; no session runs what it need not."""
    tried, fewest_known = [], []
    for seed in range(8):
        culprits = Random(seed).sample(range(1, 30), 5)
        tests = {f"test_{number}": (broken_in, fixed_in)[number % 2](culprits[number % 5]) for number in range(200)}
        suite = Suite(30, tests)
        answer = suite.search()
        assert len(answer.tests) == 200
        for number in range(200):
            culprit = culprits[number % 5]
            assert boundaries(answer.tests[f"test_{number}"]) == [(culprit - 1, culprit)]
        tried.append(len(suite.installed))
        fewest_known.append(len({0, 29, *culprits, *(culprit - 1 for culprit in culprits)}))
        assert sum(suite.made.values()) <= 11 * 200
    assert min(tried) >= min(fewest_known)
    assert mean(tried) <= 2 + fewest(29, 29, 5) + 0.7


def test_another_test_at_a_known_boundary_costs_no_position() -> None:
    """A hundred tests that change at two places take the positions of two tests, and few more sessions."""
    two = Suite(30, {"a": broken_in(11), "b": fixed_in(23)})
    two.search()
    many = Suite(30, {f"test_{number}": (broken_in(11), fixed_in(23))[number % 2] for number in range(100)})
    many.search()
    assert set(many.installed) == set(two.installed)
    assert many.sessions <= two.sessions + 2


def test_what_does_not_change_is_run_at_the_bounds_only() -> None:
    """Tests that pass at both bounds, fail at both, or exist at neither, are not searched."""
    tests = {
        "changes": broken_in(4),
        "passes": broken_in(99),
        "fails": fixed_in(99),
        "is new for a while": only_in(range(3, 6), broken_in(4)),
        "is there at the end": only_in(range(3, 9), broken_in(99)),
    }
    suite = Suite(9, tests)
    assert list(suite.search().tests) == ["changes"]
    assert {name: made for name, made in suite.made.items() if name != "changes"} == dict.fromkeys(list(tests)[1:], 2)


def test_a_test_that_does_not_exist_in_some_releases() -> None:
    """Where it does not exist, it is neither good nor bad: its bracket holds those positions."""
    tests = {
        "new": only_in(range(5, 20), broken_in(12)),
        "gone between": only_in([*range(8), *range(13, 20)], broken_in(10)),
        "always": broken_in(12),
    }
    answer = Suite(20, tests).search()
    assert boundaries(answer.tests["new"]) == boundaries(answer.tests["always"]) == [(11, 12)]
    (found,) = answer.tests["gone between"].boundaries
    assert (found.before, found.after) == (7, 13)
    assert {*found.untestable_between, *found.untried_between} == set(range(8, 13))


def test_flaky_tests_are_searched_by_probability_beside_the_others() -> None:
    """The boundary of a test that fails now and then is right or not told, and the others are not disturbed."""
    right = 0
    for seed in range(6):
        tests = {f"test_{number}": broken_in(13) for number in range(10)} | {
            "now and then": broken_in(21, rate=0.6),
            "anywhere": broken_in(0, rate=0.5),
        }
        suite = Suite(30, tests, random=Random(seed))
        answer = suite.search()
        for number in range(10):
            assert boundaries(answer.tests[f"test_{number}"]) == [(12, 13)]
        if flaky := answer.tests.get("now and then"):
            assert flaky.kind is not AnswerKind.BOUNDARY or boundaries(flaky) == [(20, 21)]
            right += flaky.kind is AnswerKind.BOUNDARY
        if anywhere := answer.tests.get("anywhere"):
            assert anywhere.kind is not AnswerKind.BOUNDARY
    assert right >= 2


@pytest.mark.parametrize(
    ("find", "searched"),
    [
        (Find.ANY, {"broken", "fixed"}),
        (Find.FIX, {"fixed"}),
        (Find.REGRESSION, {"broken"}),
        (Find.ALL, {"broken", "fixed", "for a while"}),
    ],
)
def test_only_the_change_that_is_asked_for_is_searched(find: Find, searched: set[str]) -> None:
    """Asked for a fix or a regression, tests that change the other way are left; with all, nothing stays hidden."""
    tests = {
        "broken": broken_in(5),
        "fixed": fixed_in(3),
        "for a while": lambda position, _random: BAD if position in range(3, 6) else GOOD,
    }
    answer = Suite(9, tests, SearchOptions(find=find)).search()
    assert answer.tests.keys() == searched
    if find is Find.ALL:
        assert boundaries(answer.tests["for a while"]) == [(2, 3), (5, 6)]


def test_a_bound_that_runs_no_test_is_replaced() -> None:
    """Where no test can be run in the oldest releases, the search begins with one further inside."""
    tests = {"a": only_in(range(3, 12), broken_in(7)), "b": only_in(range(3, 12), fixed_in(5))}
    suite = Suite(12, tests)
    answer = suite.search()
    assert answer.bounds == (3, 11)
    assert suite.installed[:4] == [0, 11, 1, 3]
    assert [boundaries(each) for each in answer.tests.values()] == [[(6, 7)], [(4, 5)]]


def test_no_release_runs_the_tests() -> None:
    """Where nothing can be run anywhere, there are no bounds, and the search ends."""
    suite = Suite(12, {"a": only_in((), broken_in(3))})
    assert suite.search() == SharedAnswer()
    assert suite.sessions <= 10


def test_what_is_known_is_not_run_again() -> None:
    """Releases that an earlier run has installed come first, and its results count."""
    runs = [ProbeRun(position=position, verdict=BAD if position >= 7 else GOOD) for position in (4, 9)]
    suite = Suite(30, {"a": broken_in(7), "b": broken_in(7)}, known={"a": tuple(runs)})
    answer = suite.search()
    assert all(boundaries(each) == [(6, 7)] for each in answer.tests.values())
    assert set(suite.installed) == {0, 29, 4, 9, 6, 7}  # b follows a through 4 and 9
    assert [run.position for run in suite.runs["a"]].count(4) == 1


def test_a_test_rides_along_where_it_learns_something() -> None:
    """A test whose bracket is wider, since it does not exist at a position, runs where the others go."""
    tests: dict[str, Behavior] = {f"test_{number}": broken_in(3) for number in range(5)}
    tests["not at 8"] = only_in([position for position in range(17) if position != 8], broken_in(3))
    suite = Suite(17, tests)
    assert boundaries(suite.search().tests["not at 8"]) == [(2, 3)]
    assert len(suite.installed) == len({0, 16, 8, 4, 2, 3})


def test_tests_that_change_in_one_place_confirm_each_other() -> None:
    """From three of them on, the release where they pass is run twice; alone, a test passes there five times."""
    for number, passes in ((2, 5), (3, 2)):
        suite = Suite(9, {f"test_{each}": broken_in(4) for each in range(number)})
        suite.search()
        assert [run.position for run in suite.runs["test_0"]].count(3) == passes


def test_a_flaky_bound_is_in_question() -> None:
    """A test that passed and failed at the failing bound is searched; one that always fails at both is not."""

    def state(*runs: tuple[int, SearchVerdict]) -> SearchState:
        observed = tuple(ProbeRun(position=position, verdict=verdict) for position, verdict in runs)
        return SearchState(size=5, observations=observed)

    assert is_in_question(state((0, BAD), (0, GOOD), (4, GOOD)))
    assert not is_in_question(state((0, BAD), (4, BAD)))
    assert not is_in_question(state((0, UNTESTABLE), (4, GOOD)))
    assert is_in_question(state((0, UNTESTABLE), (4, BAD)))
    assert state((0, GOOD), (4, BAD)).steps[0].change is Change.REGRESSION


@settings(max_examples=60, deadline=None)
@given(
    said=st.lists(st.lists(st.sampled_from(SearchVerdict), min_size=1, max_size=7), min_size=1, max_size=4),
    size=st.integers(2, 12),
    is_by_position=st.booleans(),
    vanishes=st.booleans(),
    find=st.sampled_from(Find),
    flaky=st.booleans(),
    jobs=st.sampled_from([1, 1, 2, 3]),
    seed=st.integers(0, 9),
)
def test_a_shared_search_ends_within_its_runs(
    said: list[list[SearchVerdict]],
    size: int,
    is_by_position: bool,
    vanishes: bool,
    find: Find,
    flaky: bool,
    jobs: int,
    seed: int,
) -> None:
    """Whatever tests show, run after run, each is run as often as in a search of its own, and once a position more."""
    turns: Counter[tuple[int, int]] = Counter()

    def behavior(number: int) -> Behavior:
        def behave(position: int, _random: Random) -> SearchVerdict:
            place = position if is_by_position else 0
            turns[number, place] += 1
            return said[number][(turns[number, place] + place) % len(said[number])]

        return behave

    tests = {f"test_{number}": behavior(number) for number in range(len(said))}
    options = SearchOptions(find=find, flaky=flaky)
    suite = Suite(size, tests, options, jobs, Random(seed), vanishes=vanishes)
    answer = suite.search()
    most = most_runs(size, flaky=True) + 2 * size + (jobs - 1) * max(RUN_COUNTS)
    assert max(suite.made.values()) <= most
    assert suite.sessions <= len(tests) * most + 2 * size
    assert max(Counter(run.position for run in runs).most_common(1)[0][1] for runs in suite.runs.values() if runs) <= (
        MOST_RUNS_EACH
    )
    assert answer.tests.keys() <= tests.keys()


@settings(max_examples=40, deadline=None)
@given(
    culprits=st.lists(st.integers(1, 19), min_size=1, max_size=6),
    absent=st.sets(st.integers(1, 18), max_size=6),
    jobs=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 9),
)
def test_every_bracket_holds_its_boundary(culprits: list[int], absent: set[int], jobs: int, seed: int) -> None:
    """Whichever releases lack some tests, and however many run at once, no answer is wrong."""
    there = [position for position in range(20) if position not in absent]
    tests = {
        f"test_{number}": only_in(there if number % 2 else range(20), broken_in(culprit))
        for number, culprit in enumerate(culprits)
    }
    answer = Suite(20, tests, jobs=jobs, random=Random(seed)).search()
    for number, culprit in enumerate(culprits):
        (found,) = answer.tests[f"test_{number}"].boundaries
        before = max(position for position in (there if number % 2 else range(20)) if position < culprit)
        after = min(position for position in (there if number % 2 else range(20)) if position >= culprit)
        assert found.before <= before < after <= found.after
        # what is untried lies among untestable releases, as in the search of a single test
        assert {*found.untestable_between, *found.untried_between} == {*range(found.before + 1, found.after)}
        assert not found.untried_between or found.untestable_between
