"""Every search ends within its stated bound, whatever the runs show."""

import ast
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bisect.driving import CRASHED, NOT_APPLICABLE, STUCK, EndOfRun, FakeReleases, MadeUpBench, Raises, versions
from tests.fakes import MOVING, PASSED, FakeCache
from tests.fix.packages import tree_change
from whichtorch.bisect.axes.values import compare_values
from whichtorch.bisect.ledger import Ledger
from whichtorch.bisect.search_request import Axis, AxisName, SearchRequest
from whichtorch.environments import matrix_file
from whichtorch.fix.closure import Closure
from whichtorch.fix.cure_search import LAST_DEPTH, POLISH_TRIALS, STEPS, CureSearch, Trial, TrialEffect, smallest
from whichtorch.fix.units import Proposal
from whichtorch.model import Build, Config, Request
from whichtorch.process.supervision import Ending
from whichtorch.records.store import new_run
from whichtorch.search.decision import answer_so_far, decide_parallel
from whichtorch.search.delta import minimal_set
from whichtorch.search.runs_oracle import RunsOracle, drive, inquiry_of
from whichtorch.search.search_state import (
    MOST_RUNS_EACH,
    RUN_COUNTS,
    AnswerKind,
    Find,
    NextProbe,
    ProbeRun,
    SearchAnswer,
    SearchOptions,
    SearchState,
    SearchVerdict,
    most_runs,
)
from whichtorch.triage.minimise import reduction
from whichtorch.triage.minimise.reduction import MOST_ROWS, MOST_STEPS, in_halves, step_by_step
from whichtorch.triage.minimise.statements import drop_any_statement
from whichtorch.triage.minimise.tree_edit import Edit, Program, ReductionState

LARGEST_BATCH = max(RUN_COUNTS)
SILENT = {SearchVerdict.DIFFERENT, SearchVerdict.UNTESTABLE}
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Found = TypeVar("Found")


@dataclass(kw_only=True)
class Adversary:
    """Answers every run as it likes, ends running probes in any order, and delivers what nobody waits for."""

    random: Random
    said: Sequence[tuple[SearchVerdict, bool]]  # verdict and whether it is provisional, in turn
    is_by_position: bool = False  # each position has turns of its own
    vanishes: bool = False  # what a position showed is gone with its environment once it is untestable
    made: Counter[int] = field(default_factory=Counter)

    def run(self, probe: NextProbe) -> Iterator[ProbeRun]:
        for _ in range(probe.runs):
            turn = probe.position + self.made[probe.position] if self.is_by_position else self.made.total()
            verdict, provisional = self.said[turn % len(self.said)]
            self.made[probe.position] += 1
            yield ProbeRun(position=probe.position, verdict=verdict, provisional=provisional)
            if verdict in {probe.until, SearchVerdict.UNTESTABLE}:
                return

    def face(self, search: SearchState, jobs: int = 1) -> tuple[SearchAnswer, SearchState]:
        """Answer a search until it ends; return its answer and what it knew then."""
        running: dict[int, NextProbe] = {}
        while True:
            step = decide_parallel(search, jobs)
            if isinstance(step, SearchAnswer):
                return step, search
            assert len(step) <= jobs
            asked = search
            for position in [position for position in running if position not in {probe.position for probe in step}]:
                probe = running.pop(position)
                if self.random.random() < 0.5:  # cancelled, but some of its runs were made
                    search = self._told(search, replace(probe, runs=1))
            for probe in step:
                assert asked.label(probe.position) not in SILENT, "it asks for nothing"
                assert 0 < probe.runs <= min(MOST_RUNS_EACH - asked.at(probe.position).runs, asked.runs_left)
                running.setdefault(probe.position, probe)
            ended = running.pop(self.random.choice(list(running)))
            search = self._told(search, ended)

    def _told(self, search: SearchState, probe: NextProbe) -> SearchState:
        runs, kept = list(self.run(probe)), search.observations
        if self.vanishes and runs[-1].verdict is SearchVerdict.UNTESTABLE:
            runs, kept = runs[-1:], tuple(run for run in kept if run.position != probe.position)
        made = self.made.total() if self.vanishes else None
        return replace(search, observations=(*kept, *runs), made=made)


verdicts = st.lists(st.tuples(st.sampled_from(SearchVerdict), st.booleans()), min_size=1, max_size=9)
decisive = st.lists(
    st.tuples(st.sampled_from([SearchVerdict.GOOD, SearchVerdict.BAD]), st.just(False)), min_size=1, max_size=9
)


@st.composite
def searches(draw: st.DrawFn) -> SearchState:
    size = draw(st.integers(2, 16))
    low = draw(st.integers(0, size - 1))
    options = SearchOptions(
        find=draw(st.sampled_from(Find)),
        low=low,
        high=draw(st.one_of(st.none(), st.integers(low, size - 1))),
        flaky=draw(st.booleans()),
        confidence=draw(st.sampled_from([0.8, 0.95, 0.9999])),
        bound_runs=draw(st.sampled_from([1, 3, 30])),
        max_runs=draw(st.sampled_from([None, None, 10, 100000])),
    )
    return SearchState(size=size, options=options)


@pytest.mark.thorough
@settings(max_examples=120)
@given(
    search=searches(),
    said=st.one_of(verdicts, decisive),
    is_by_position=st.booleans(),
    vanishes=st.booleans(),
    seed=st.integers(0, 9),
    jobs=st.sampled_from([1, 1, 2, 3]),
)
def test_a_search_of_positions_ends_within_its_runs(
    search: SearchState,
    said: Sequence[tuple[SearchVerdict, bool]],
    is_by_position: bool,
    vanishes: bool,
    seed: int,
    jobs: int,
) -> None:
    """Whatever runs show, in whatever order they end, no more are made than stated, and nothing is asked in vain."""
    adversary = Adversary(random=Random(seed), said=said, is_by_position=is_by_position, vanishes=vanishes)
    answer, end = adversary.face(search, jobs)
    most = min(most_runs(search.size, flaky=True), search.options.max_runs or math.inf)
    assert adversary.made.total() <= most + (jobs - 1) * LARGEST_BATCH  # of what was running already
    assert max(adversary.made.values(), default=0) <= MOST_RUNS_EACH
    if end.runs_left <= 0 and answer.kind is AnswerKind.INCONCLUSIVE and jobs == 1:
        assert answer_so_far(end) == answer


@pytest.mark.thorough
@settings(max_examples=40)
@given(size=st.integers(2, 40), said=st.lists(st.tuples(st.sampled_from(SearchVerdict), st.just(False)), min_size=1))
def test_a_search_without_flakes_takes_small_tens_of_runs(
    size: int, said: Sequence[tuple[SearchVerdict, bool]]
) -> None:
    """While no position passes and fails, two runs a position and twenty more are the most."""
    adversary = Adversary(random=Random(0), said=said)
    _, end = adversary.face(SearchState(size=size))
    assert end.is_flaky or adversary.made.total() <= 2 * size + 20


def test_two_jobs_make_few_runs_more_than_one() -> None:
    """What a search of two boundaries begins early is of use, in whichever order its probes end."""

    class SameEachTime(Adversary):
        def run(self, probe: NextProbe) -> Iterator[ProbeRun]:
            verdict = SearchVerdict.BAD if probe.position in {2, 3} else SearchVerdict.GOOD
            for _ in range(1 if probe.until is verdict else probe.runs):
                self.made[probe.position] += 1
                yield ProbeRun(position=probe.position, verdict=verdict)

    def total(seed: int, jobs: int) -> int:
        other = SameEachTime(random=Random(seed), said=())
        answer, _ = other.face(SearchState(size=6), jobs)
        assert answer.kind is AnswerKind.BOUNDARY
        return other.made.total()

    assert max(total(seed, 2) for seed in range(100)) <= total(0, 1) + 5


def test_used_up_runs_are_told() -> None:
    """A search that has made all its runs says so, with what it knows."""
    said = [(SearchVerdict.BAD, False), (SearchVerdict.GOOD, False), (SearchVerdict.GOOD, False)]
    answer, end = Adversary(random=Random(0), said=said).face(SearchState(size=8, options=SearchOptions(max_runs=9)))
    assert answer.kind is AnswerKind.INCONCLUSIVE
    assert answer.reasons[-1] == "the limit of 9 runs is reached"
    assert len(end.observations) == 9


def test_runs_of_others_use_up_nothing() -> None:
    """What was known before counts as evidence and leaves the search its own runs."""
    known = tuple(ProbeRun(position=position % 8, verdict=SearchVerdict.GOOD) for position in range(400))
    search = SearchState(size=8, observations=known, made=3)
    assert search.runs_left == most_runs(8, flaky=False) - 3


def test_a_slow_run_among_crashes_says_nothing() -> None:
    """A position that failed twice in the same way stays as it is after a provisional run of another kind."""
    runs = [ProbeRun(position=0, verdict=SearchVerdict.BAD)] * 2
    slow = ProbeRun(position=0, verdict=SearchVerdict.DIFFERENT, provisional=True)
    without, slowed = (SearchState(size=4, observations=tuple(some)) for some in (runs, [slow, *runs, slow]))
    assert slowed.label(0) is without.label(0) is SearchVerdict.BAD
    assert (slowed.at(0).different, slowed.at(0).runs, slowed.missing(0, 4)) == (0, 4, 0)


@pytest.mark.parametrize(
    ("others", "label"), [(["good"], SearchVerdict.DIFFERENT), (["bad"], SearchVerdict.BAD), ([], None)]
)
def test_a_position_that_also_fails_in_another_way_is_told(others: list[str], label: SearchVerdict | None) -> None:
    """It is bad where one run shows the failure, else no evidence; it is not asked again, and the answer names it."""
    shown = [SearchVerdict(other) for other in others]
    runs = [ProbeRun(position=1, verdict=verdict) for verdict in (*shown, SearchVerdict.DIFFERENT) if shown]
    search = SearchState(size=3, observations=tuple(runs), options=SearchOptions(max_runs=0))
    answer = answer_so_far(search)
    assert search.label(1) is label
    assert search.is_open(1) is not bool(shown)
    assert ("1 fails in another way in 1 of 2 runs" in answer.reasons) is bool(shown)


# through the driver

ENDINGS: list[EndOfRun] = [PASSED, PASSED, CRASHED, CRASHED, STUCK, MOVING, NOT_APPLICABLE, Raises("ValueError: a")]


@settings(max_examples=12, deadline=None)
@given(
    said=st.lists(st.sampled_from(ENDINGS), min_size=1, max_size=7),
    size=st.integers(2, 6),
    gone=st.integers(1, 30),
    jobs=st.integers(1, 2),
)
def test_the_driver_ends_within_the_runs(said: list[EndOfRun], size: int, gone: int, jobs: int) -> None:
    """Whatever scripts do, run after run, the whole search makes no more attempts than stated."""
    with TemporaryDirectory() as folder:
        releases = FakeReleases(Path(folder), values=versions(size))

        def behave(version: str, _run: int, _task: Any) -> EndOfRun:
            if releases.runs.total() == gone:  # its environment cannot be had again
                releases.cache.missing = frozenset({version})
            return said[releases.runs.total() % len(said)]

        releases.behave = behave
        bisection = releases.search(jobs=jobs)
        slow_too = 2 * jobs * LARGEST_BATCH  # each run of the last batches may get a longer look
        assert bisection.runs <= most_runs(size, flaky=True) + slow_too
        assert max(releases.runs.values()) <= 2 * MOST_RUNS_EACH


def test_a_script_that_fails_in_another_way_each_time_is_given_up_soon(tmp_path: Path) -> None:
    """Where no two runs fail alike no release is asked again for nothing, and the answer says what they did."""
    releases = FakeReleases(tmp_path, values=versions(30))
    letters = "abcdefghijklmnopqrstuvwxyz"

    def behave(_version: str, _run: int, _task: Any) -> EndOfRun:
        number = releases.runs.total()
        return Raises(f"{letters[number % 26].upper()}{letters[number // 26]}Error: another")

    releases.behave = behave
    bisection = releases.search()
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert bisection.runs <= 14
    assert max(releases.runs.values()) <= 3
    assert any("fails in another way in 2 of 3 runs" in reason for reason in bisection.reasons), bisection.reasons


def test_a_slow_run_does_not_unsettle_a_release_that_crashes(tmp_path: Path) -> None:
    """Crash, slow, crash is a crash: the boundary beside it is found with few runs."""
    values = versions(8)

    def behave(version: str, run: int, _task: Any) -> EndOfRun:
        crashes = values.index(version) < 3
        return PASSED if not crashes else MOVING if run == 2 else CRASHED

    bisection = FakeReleases(tmp_path, behave).search()
    assert [(boundary.from_, boundary.to) for boundary in bisection.boundaries] == [("2.2.0", "2.3.0")]
    assert bisection.answer is AnswerKind.BOUNDARY
    assert bisection.runs <= 15


@settings(max_examples=8, deadline=None)
@given(said=st.lists(st.sampled_from([PASSED, CRASHED, STUCK, NOT_APPLICABLE]), min_size=1, max_size=7))
def test_values_without_an_order_take_a_few_runs_each(said: list[Ending]) -> None:
    """Whatever they show, each value is run `bound_runs` times at most."""
    with TemporaryDirectory() as folder:
        home, runs = Path(folder), Counter[str]()

        def behave(request: Request) -> Ending:
            runs[request.config.name] += 1
            return said[runs.total() % len(said)]

        requests = tuple(
            Request(torch="9.1.0", python="3.11", build=Build(name="mine"), config=Config(name=name)) for name in "abcd"
        )
        file = matrix_file.read_matrix_file(matrix_file.DEFAULT_FILE)
        scenario = FakeReleases(home).scenario
        with new_run(home, ()) as run_store:
            request = SearchRequest(home=home, file=file, scenario=scenario, variant={}, axis=AxisName.CONFIG)
            axis = Axis(name=AxisName.CONFIG, values=tuple("abcd"), requests=requests)
            bench = MadeUpBench(FakeCache(home), run_store, behave)
            ledger = Ledger(request=request, bench=bench, axis=axis, goal=SearchOptions(find=Find.FIX))
            compare_values(ledger)
        assert max(runs.values()) <= SearchOptions().bound_runs


# searches for the smallest of something


def asked(search: Generator[Asked, Answer, Found], answer: Callable[[Asked], Answer], most: float) -> tuple[Found, int]:
    """Return what a search comes to and how many questions it asks; fail where it asks more than `most`."""
    count = 0
    try:
        question = next(search)
        while True:
            count += 1
            assert count <= most, "it asks for ever"
            question = search.send(answer(question))
    except StopIteration as end:
        return end.value, count


@settings(max_examples=60)
@given(size=st.integers(1, 24), seed=st.integers(0, 999), share=st.sampled_from([0.0, 0.05, 0.3, 0.7, 1.0]))
def test_isolating_packages_takes_a_square_of_them(size: int, seed: int, share: float) -> None:
    """However sets of changes behave, at most n² + 3 n are tried, none of them twice."""
    random, tried = Random(seed), Counter[frozenset[str]]()

    def turns(names: frozenset[str]) -> bool:
        tried[names] += 1
        return random.random() < share

    drive(minimal_set([f"p{number}" for number in range(size)]), RunsOracle(inquiry=inquiry_of(turns)))
    assert tried.total() <= size * size + 3 * size
    assert max(tried.values(), default=0) <= 1


NAMES = [f"f{number:02}" for number in range(16)]
BAD = "".join(f"def {name}():\n    return 0\n" for name in NAMES)
CHANGE = tree_change({"torch/m.py": BAD}, {"torch/m.py": BAD.replace("return 0", "return 1 + 1")})
CLOSURE = Closure(CHANGE)


def effects(seed: int, share: float) -> Callable[[Proposal], Trial]:
    """Return an oracle that cures now and then, and fails in new ways otherwise."""
    random = Random(seed)

    def effect(_proposal: Proposal) -> Trial:
        if random.random() < share:
            return Trial(effect=TrialEffect.CURED)
        name = random.choice(NAMES)
        exception = f"NameError: name {name!r} is not defined, {random.random()}"
        return Trial(effect=random.choice([TrialEffect.SAME, TrialEffect.UNRESOLVED]), exception=exception)

    return effect


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 16), seed=st.integers(0, 999), share=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_the_smallest_cure_takes_a_square_of_its_units(size: int, seed: int, share: float) -> None:
    """However trials contradict each other, the smallest cure is looked for no longer than stated."""
    units = list(CHANGE.units(["torch/m.py"]))[:size]
    most = 4 * size * (size + 1) + size + POLISH_TRIALS + 2
    cure, _ = asked(smallest(Proposal(units=frozenset(units)), CLOSURE, units[:1]), effects(seed, share), most)
    assert cure.units <= set(units)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 16), seed=st.integers(0, 999), share=st.sampled_from([0.0, 0.02]))
def test_the_first_cure_takes_a_few_trials_a_unit(size: int, seed: int, share: float) -> None:
    """However trials contradict each other, the windows of candidates come to their end."""
    units = list(CHANGE.units(["torch/m.py"]))[:size]
    last_windows = 2 * (2 ** (LAST_DEPTH + 1) - 1)
    most = STEPS * (2 * size + last_windows) + 1
    asked(CureSearch(CLOSURE).run(units[: size - 1], units[size - 1 :]), effects(seed, share), most)


SCRIPT = "".join(f"a{number} = {number}\nprint(a{number} + 1, [a{number}, 'x'])\n" for number in range(9))


def reduced(said: float, seed: int) -> tuple[Program, ReductionState, Callable[[Program], bool]]:
    program, random = Program(tree=ast.parse(SCRIPT)), Random(seed)
    return program, ReductionState.of(program, ()), lambda _candidate: random.random() < said


SHARES = st.sampled_from([0.0, 0.3, 0.8, 1.0])


@settings(max_examples=15, deadline=None)
@given(said=SHARES, seed=st.integers(0, 99))
def test_edits_in_halves_take_two_questions_each(said: float, seed: int) -> None:
    """However the script behaves, there are fewer than two questions an edit."""
    program, state, answer = reduced(said, seed)
    state.max_rejections = 1000
    edits = list(drop_any_statement(program, state))
    asked(in_halves(program, drop_any_statement, state), answer, 2 * len(edits) - 1)


def turned_round(program: Program, _state: ReductionState) -> Iterator[Edit]:
    """Yield an edit that another one takes back: the first statement goes to the end."""
    first, *others = program.tree.body
    yield Edit(key=ast.unparse(first), replaced={first: [], others[-1]: [others[-1], first]})


@settings(max_examples=8, deadline=None)
@given(said=SHARES, seed=st.integers(0, 99), rule=st.sampled_from([turned_round, drop_any_statement]))
def test_steps_end_where_rules_go_in_circles(
    said: float, seed: int, rule: Callable[[Program, ReductionState], Iterator[Edit]]
) -> None:
    """Rules that take each other back come to an end although every step works."""
    program, state, answer = reduced(said, seed)
    asked(step_by_step(program, [rule], state), answer, MOST_ROWS * MOST_STEPS.bit_length())


@pytest.mark.parametrize("said", [0.0, 0.5, 1.0])
def test_a_whole_reduction_ends(said: float) -> None:
    """All kinds of edits in their rounds end, whether everything, nothing or anything still fails."""
    program, state, answer = reduced(said, 1)
    asked(reduction.smallest(program, state), answer, 20_000)
