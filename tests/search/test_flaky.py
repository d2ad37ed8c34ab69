"""The flaky search: right, sure and cheap enough, by simulation."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bisect.history import History, follow
from whichtorch.search.decision import decide
from whichtorch.search.search_state import (
    AnswerKind,
    Change,
    Costs,
    NextProbe,
    ProbeRun,
    SearchOptions,
    SearchState,
    SearchVerdict,
)

SIZE = 32
PRICE = Costs(install=(30.0,) * SIZE, good=5.0, bad=20.0)
FLAKY = SearchOptions(flaky=True)


@pytest.mark.parametrize(("rate", "runs"), [(0.9, 25), (0.5, 40), (0.3, 65)])
def test_the_culprit_of_a_flaky_failure_is_found(rate: float, runs: int) -> None:
    """Of 15 culprits at least 13 are named, with 5 installs beside the bounds and few runs."""
    traces = []
    right = 0
    for trial in range(15):
        culprit = 2 + 2 * trial
        traces.append(follow(History.regression(SIZE, culprit, rate=rate), FLAKY, costs=PRICE, random=Random(trial)))
        right += traces[-1].culprit == culprit
    assert right >= 13
    assert sum(trace.positions - 2 for trace in traces) / 15 <= 5.7
    assert sum(trace.runs for trace in traces) / 15 <= runs


@pytest.mark.thorough
@pytest.mark.parametrize("flaky", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_no_culprit_is_named_where_there_is_none(rate: float, flaky: bool) -> None:
    """Where nothing fails, or all fail at the same rate, at most one of 12 searches names a culprit."""
    history = History(size=SIZE, bad=range(SIZE), rate=rate)
    kinds = [
        follow(history, SearchOptions(flaky=flaky), costs=PRICE, random=Random(trial)).answer.kind
        for trial in range(20)
    ]
    assert kinds.count(AnswerKind.BOUNDARY) <= 1


@settings(max_examples=30)
@given(
    culprit=st.integers(1, 15),
    rate=st.floats(0.05, 1),
    false_rate=st.sampled_from([0.0, 0.0, 0.05]),
    confidence=st.sampled_from([0.8, 0.95, 0.99]),
    flaky=st.booleans(),
    seed=st.integers(0, 1000),
    untestable=st.sets(st.integers(1, 14), max_size=6),
)
def test_nothing_is_blamed_below_the_confidence(
    culprit: int, rate: float, false_rate: float, confidence: float, flaky: bool, seed: int, untestable: set[int]
) -> None:
    """However the runs fall, the search ends within its runs, and what it blames it is sure of."""
    history = History(size=16, bad=range(culprit, 16), untestable=untestable, rate=rate, false_rate=false_rate)
    options = SearchOptions(flaky=flaky, confidence=confidence, max_runs=300)
    trace = follow(history, options, random=Random(seed))
    assert trace.runs <= 300 + 21 + len(untestable)
    for found in trace.answer.boundaries:
        assert untestable.isdisjoint({found.before, found.after})
        assert found.confidence >= confidence or trace.answer.kind is not AnswerKind.BOUNDARY


def test_a_mixed_result_switches_to_the_flaky_model_and_keeps_the_evidence() -> None:
    """One position that passed and failed is enough; what was seen before still counts."""
    labels = {0: "g", 15: "bbb", 8: "bg", 4: "g"}
    runs = tuple(
        ProbeRun(position=p, verdict=SearchVerdict.BAD if letter == "b" else SearchVerdict.GOOD)
        for p, letters in labels.items()
        for letter in letters
    )
    step = decide(SearchState(size=16, observations=runs))
    assert isinstance(step, NextProbe)
    assert step.until is SearchVerdict.BAD
    assert 0 <= step.position < 8  # 8 failed, so that no later position can tell anything


def test_a_fix_is_searched_as_a_regression_is() -> None:
    """A mirrored history has the mirrored answer."""
    for trial in range(8):
        fix = follow(History(size=SIZE, bad=range(20), rate=0.6), FLAKY, costs=PRICE, random=Random(trial)).answer
        assert fix.kind is AnswerKind.BOUNDARY
        assert fix.boundaries[0].change is Change.FIX
        assert abs(fix.boundaries[0].after - 20) <= 1


def test_the_budget_gives_the_best_bracket_with_its_probability() -> None:
    """When the runs allowed are used up, no version is blamed and the bracket says how likely it is."""
    options = SearchOptions(flaky=True, max_runs=14)
    trace = follow(History.regression(SIZE, 20, rate=0.6), options, costs=PRICE, random=Random(3))
    assert trace.answer.kind is AnswerKind.INCONCLUSIVE
    (found,) = trace.answer.boundaries
    assert found.before < 20 <= found.after
    assert 0 < found.confidence < 1
    assert "the confidence asked for was not reached" in trace.answer.reasons[0]


def test_a_second_change_is_not_taken_for_luck() -> None:
    """Where a later version passes far too often for a flaky one, nothing is blamed and the version is named."""
    runs = {0: (20, 0), 9: (20, 0), 10: (2, 9), 20: (30, 0), 31: (1, 9)}
    observations = [
        ProbeRun(position=position, verdict=verdict)
        for position, counts in runs.items()
        for verdict, count in zip((SearchVerdict.GOOD, SearchVerdict.BAD), counts, strict=True)
        for _ in range(count)
    ]
    answer = decide(SearchState(size=SIZE, observations=tuple(observations), options=FLAKY))
    assert not isinstance(answer, NextProbe)
    assert answer.kind is AnswerKind.INCONCLUSIVE
    assert answer.reasons == ("not a single change: 20 passed too often for versions that are bad now and then",)


def test_a_flaky_search_jumps_untestable_blocks() -> None:
    """With a block in the way the culprit stays in the bracket and the block is not tried one by one."""
    for trial in range(6):
        block = range(8, 20)
        history = History(size=SIZE, bad=range(14, SIZE), untestable=block, rate=0.7)
        trace = follow(history, FLAKY, costs=PRICE, random=Random(trial))
        assert [(b.before, b.after) for b in trace.answer.boundaries] == [(7, 20)]
        assert sum(probe.position in block for probe in trace.probes) < len(block)
