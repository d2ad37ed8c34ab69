"""The deterministic search: exhaustive for small histories, random for the rest."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bisect.history import History, Trace, follow
from whichtorch.search.decision import decide
from whichtorch.search.search_state import (
    SETTLING_RUNS,
    AnswerKind,
    Change,
    Costs,
    Find,
    NextProbe,
    Posterior,
    ProbeRun,
    Purpose,
    SearchOptions,
    SearchState,
    SearchVerdict,
)

GOOD, BAD, UNTESTABLE = SearchVerdict.GOOD, SearchVerdict.BAD, SearchVerdict.UNTESTABLE


def _searched(trace: Trace) -> list[int]:
    return [probe.position for probe in trace.probes if probe.purpose is not Purpose.CONFIRM]


def _known(**labels: SearchVerdict) -> tuple[ProbeRun, ...]:
    return tuple(ProbeRun(position=int(name[1:]), verdict=verdict) for name, verdict in labels.items())


@pytest.mark.parametrize("change", list(Change))
def test_every_culprit_is_found_within_the_probes_promised(change: Change) -> None:
    """Each culprit is named, at most ceil(log2 n) + 2 positions are probed, and none is probed twice."""
    for size, culprit in [(count, each) for count in (*range(2, 34), 64, 65) for each in range(1, count)]:
        bad = range(culprit, size) if change is Change.REGRESSION else range(culprit)
        trace = follow(History(size=size, bad=bad))
        (found,) = trace.answer.boundaries
        assert (trace.answer.kind, found.before, found.after, found.change) == (
            AnswerKind.BOUNDARY,
            culprit - 1,
            culprit,
            change,
        )
        probes = _searched(trace)
        assert len(probes) <= math.ceil(math.log2(size)) + 2
        assert len(set(probes)) == len(probes)


@pytest.mark.parametrize("size", [5, 12])
def test_every_block_and_culprit_give_a_bracket_that_holds(size: int) -> None:
    """Whatever block cannot be tested, the bracket has testable ends, the culprit, and nothing testable inside."""
    for first in range(size):
        for last in range(first, size):
            block = range(first, last + 1)
            for culprit in range(1, size):
                trace = follow(History.regression(size, culprit, untestable=block))
                testable = [position for position in range(size) if position not in block]
                before = max((position for position in testable if position < culprit), default=None)
                after = min((position for position in testable if position >= culprit), default=None)
                if before is None or after is None:
                    assert trace.answer.kind is not AnswerKind.BOUNDARY
                    continue
                (found,) = trace.answer.boundaries
                assert (found.before, found.after) == (before, after)
                between = set(found.untestable_between) | set(found.untried_between)
                assert between == set(range(before + 1, after))


def test_a_block_of_32_in_128_is_jumped() -> None:
    """A wide untestable block costs at most 21 probes and 14.7 on average, and the culprit stays in the bracket."""
    counts = []
    for first in range(2, 96, 11):
        for culprit in range(1, 128, 7):
            trace = follow(History.regression(128, culprit, untestable=range(first, first + 32)))
            (found,) = trace.answer.boundaries
            assert found.before < culprit <= found.after
            counts.append(len(_searched(trace)))
    assert max(counts) <= 21
    assert sum(counts) / len(counts) <= 14.7


@pytest.mark.parametrize("silent", [1, -1])
def test_all_beyond_some_position_is_left_alone(silent: int) -> None:
    """If what cannot be tested is at one end, its edge or the culprit is found after 9.5 probes, also behind a hole."""
    counts = []
    for edge, culprit in [(each, other) for each in range(3, 127, 5) for other in range(1, 127, 6)]:
        hole = {edge // 2} if 10 < edge // 2 + 4 < culprit else set()
        beyond = {*hole, *range(edge, 127)}
        dead = beyond if silent > 0 else {127 - each for each in beyond}
        history = History.regression(128, culprit if silent > 0 else 128 - culprit, untestable=dead)
        trace = follow(history, SearchOptions(dead_side=silent))
        (found,) = trace.answer.boundaries
        ends = (culprit - 1, culprit) if culprit < edge else (edge - 1, 127)
        assert (found.before, found.after) == (ends if silent > 0 else (127 - ends[1], 127 - ends[0]))
        counts.append(len(_searched(trace)))
    assert sum(counts) / len(counts) < 9.5


@settings(max_examples=150)
@given(data=st.data())
def test_any_holes_leave_the_culprit_in_the_bracket(data: st.DataObject) -> None:
    """With any set of untestable and different positions the search ends, repeats nothing and loses no culprit."""
    size = data.draw(st.integers(2, 70))
    culprit = data.draw(st.integers(1, size - 1))
    positions = st.sets(st.integers(0, size - 1))
    untestable = data.draw(positions)
    different = data.draw(positions) - untestable
    options = SearchOptions(dead_side=data.draw(st.integers(-1, 1)))
    history = History(size=size, bad=range(culprit, size), untestable=untestable, different=different)
    trace = follow(history, options)
    probes = _searched(trace)
    assert len(set(probes)) == len(probes)
    for found in trace.answer.boundaries:
        assert found.before < culprit <= found.after
        assert {found.before, found.after}.isdisjoint(untestable | different)
        assert set(found.untestable_between) <= untestable
        assert set(found.different_between) <= different


@settings(max_examples=60)
@given(data=st.data())
def test_the_order_of_the_evidence_does_not_matter(data: st.DataObject) -> None:
    """Shuffled observations lead to the same decision, so that a search goes on from records alone."""
    labels = data.draw(
        st.lists(st.tuples(st.integers(0, 19), st.sampled_from(SearchVerdict), st.booleans()), max_size=14)
    )
    runs = [ProbeRun(position=p, verdict=verdict, provisional=soft) for p, verdict, soft in labels]
    shuffled = data.draw(st.permutations(runs))
    assert decide(SearchState(size=20, observations=tuple(runs))) == decide(
        SearchState(size=20, observations=tuple(shuffled))
    )


def test_a_bad_bound_is_run_three_times_and_a_good_one_once() -> None:
    """A bound's runs end with its first good one, because flakes hide in the bad bound."""
    trace = follow(History.regression(8, 3))
    first, second = trace.probes[:2]
    assert (first.position, second.position) == (0, 7)
    assert (first.runs, first.until, first.purpose) == (3, GOOD, Purpose.BOUND)
    counts = {p: sum(run.position == p for run in trace.search.observations) for p in (0, 7)}
    assert counts == {0: 1, 7: 3}


def test_the_runs_of_one_environment_count_once() -> None:
    """Days that resolve to the same packages are no evidence for each other, only for the side that they are on."""
    runs = [ProbeRun(position=position, verdict=GOOD if position < 5 else BAD) for position in range(8)]
    twins = (frozenset({1, 2, 3, 4}), frozenset({5, 6, 7}))

    def confidence(runs: list[ProbeRun], twins: tuple[frozenset[int], ...] = ()) -> float:
        search = SearchState(size=8, observations=tuple(runs), twins=twins)
        return Posterior.of(search, Change.REGRESSION, 0, 7, flaky=False).between(4, 5)

    alone = [run for run in runs if run.position in {0, 4, 5}]
    assert confidence(runs, twins) == pytest.approx(confidence(alone))
    assert confidence(runs, twins) < confidence(runs)
    assert SearchState(size=8, observations=tuple(runs), twins=twins).runs_of(range(8)) == 3


def test_the_final_pair_is_confirmed() -> None:
    """The bad one is run twice, the good one five times, and the claim meets the confidence."""
    trace = follow(History.regression(40, 17))
    for position, runs in ((16, 5), (17, 2)):
        assert sum(run.position == position for run in trace.search.observations) == runs
    assert trace.answer.boundaries[0].confidence >= 0.95


@pytest.mark.parametrize(("find", "low", "high"), [(Find.REGRESSION, 30, 35), (Find.REGRESSION, 2, 6)])
def test_a_wrong_bound_is_repaired_outwards(find: Find, low: int, high: int) -> None:
    """Where both bounds are bad, or both good, the search looks further out by doubling."""
    trace = follow(History.regression(64, 12), SearchOptions(find=find, low=low, high=high))
    assert trace.culprit == 12
    assert any(probe.purpose is Purpose.WIDEN for probe in trace.probes)


def test_swapped_bounds_are_put_in_order() -> None:
    """Bounds given the wrong way round are the same bounds."""
    assert follow(History.regression(20, 12), SearchOptions(low=19, high=0)).culprit == 12


def test_the_other_change_is_reported_where_the_one_asked_for_is_not_there() -> None:
    """Asked for a regression where there is only a fix, the answer is the fix, and says so."""
    answer = follow(History(size=20, bad=range(9)), SearchOptions(find=Find.REGRESSION)).answer
    assert (answer.boundaries[0].after, answer.boundaries[0].change) == (9, Change.FIX)
    assert answer.reasons == ("no regression was found; the bounds show a fix instead",)


def test_an_untestable_bound_is_replaced() -> None:
    """Bounds that cannot be tested are replaced by the nearest that can."""
    trace = follow(History.regression(32, 12, untestable={0, 1, 30, 31}))
    assert trace.culprit == 12
    inner = follow(History.regression(32, 12, untestable={8, 20}), SearchOptions(low=8, high=20))
    assert [probe.position for probe in inner.probes[:4]] == [8, 7, 20, 21]
    assert inner.culprit == 12


def test_two_boundaries_are_found_between_bounds_that_agree() -> None:
    """Good, bad, good between two good bounds shows by sampling, with both of its boundaries."""
    answer = follow(History(size=30, bad=range(4, 16))).answer
    assert [(b.before, b.after, b.change) for b in answer.boundaries] == [
        (3, 4, Change.REGRESSION),
        (15, 16, Change.FIX),
    ]
    assert answer.reasons == ("more than one change: a regression between 3 and 4, a fix between 15 and 16",)


def test_known_positions_close_together_do_not_pass_for_samples() -> None:
    """Where a dozen neighbours are known, the rest of the range is sampled all the same."""
    known = tuple(ProbeRun(position=position, verdict=GOOD) for position in [*range(12), 59] * 3)
    step = decide(SearchState(size=60, observations=known))
    assert step == NextProbe(position=35, purpose=Purpose.SAMPLE)


def test_only_the_change_asked_for_is_narrowed() -> None:
    """With a question the other boundaries are named as contradictions, not searched."""
    answer = follow(History(size=30, bad=range(4, 16)), SearchOptions(find=Find.FIX)).answer
    assert [(b.before, b.after) for b in answer.boundaries] == [(15, 16)]
    assert "a regression between" in answer.reasons[0]


def test_all_finds_every_boundary_that_sampling_shows() -> None:
    """`all` samples the range although the bounds differ."""
    bad = {*range(10, 30), *range(50, 64)}
    answer = follow(History(size=64, bad=bad), SearchOptions(find=Find.ALL)).answer
    assert [b.after for b in answer.boundaries] == [10, 30, 50]


def test_known_cells_that_contradict_are_rerun_then_reported() -> None:
    """A lone contradicting cell is run again before it counts, and once certain it is reported."""
    known = _known(p0=GOOD, p4=BAD, p8=GOOD, p15=BAD)
    search = SearchState(size=16, observations=known)
    probe = decide(search)
    assert isinstance(probe, NextProbe)
    steps = follow(History(size=16, bad={3, 4, 5, 12, 13, 14, 15}), SearchOptions(find=Find.ALL, samples=8)).answer
    assert [b.after for b in steps.boundaries] == [3, 6, 12]
    solid = SearchState(size=16, observations=known + known[:1] * 2 + known[1:3] * 2 + known[3:] * 2)
    probe = decide(solid)
    assert isinstance(probe, NextProbe)
    assert probe.purpose is Purpose.NARROW


@pytest.mark.parametrize(("bad", "positions", "runs"), [(range(30), 2 + 5, 11), (range(0), 30, 34)])
def test_none_is_the_answer_where_nothing_changes(bad: range, positions: int, runs: int) -> None:
    """Where all fail the answer is none after sampling; where all pass, after a run of every position."""
    trace = follow(History(size=30, bad=bad))
    assert trace.answer.kind is AnswerKind.NONE
    assert (trace.positions, trace.runs) == (positions, runs)


def test_nothing_testable_is_inconclusive() -> None:
    """Where nothing can be tested the search ends and says so."""
    answer = follow(History(size=20, bad=(), untestable=range(20))).answer
    assert (answer.kind, answer.reasons) == (AnswerKind.INCONCLUSIVE, ("no two positions could be tested",))


@pytest.mark.parametrize("size", [0, 1])
def test_fewer_than_two_positions_are_inconclusive(size: int) -> None:
    """With nothing to compare, nothing is probed."""
    assert follow(History(size=size, bad=())).answer.kind is AnswerKind.INCONCLUSIVE


def test_a_budget_gives_the_bracket_and_blames_nobody() -> None:
    """When the runs allowed are used up, the answer is an inconclusive bracket that holds the culprit."""
    trace = follow(History.regression(100, 70), SearchOptions(max_runs=7))
    assert (trace.answer.kind, trace.positions) == (AnswerKind.INCONCLUSIVE, 5)
    (found,) = trace.answer.boundaries
    assert found.before < 70 <= found.after
    assert found.after > found.before + 1
    assert len(found.untried_between) == found.after - found.before - 1


def test_a_provisional_verdict_is_settled_only_in_the_final_pair() -> None:
    """A run that the clock ended is made again, firmly, once it is one of the final pair."""
    runs = _known(p0=GOOD, p7=BAD, p3=GOOD) + _known(p7=BAD) * 2
    soft = (ProbeRun(position=4, verdict=BAD, provisional=True),)
    assert decide(SearchState(size=8, observations=runs + soft)) == NextProbe(
        position=4, purpose=Purpose.SETTLE, firm=True
    )


def test_a_run_that_always_times_out_is_not_settled_for_ever() -> None:
    """Where no longer look is allowed, each run ends like the one before; the search says what it knows instead."""
    runs = _known(p0=GOOD, p7=BAD, p3=GOOD) + _known(p7=BAD) * 2 + _known(p3=GOOD) * 4
    soft = (ProbeRun(position=4, verdict=BAD, provisional=True),)
    search = SearchState(size=8, observations=runs + soft)
    made = 0
    while isinstance(probe := decide(search), NextProbe) and made < 30:
        assert probe.position == 4
        made += probe.runs
        search = SearchState(size=8, observations=(*search.observations, *soft * probe.runs))
    assert made <= SETTLING_RUNS


def test_a_refuted_provisional_verdict_takes_the_search_back() -> None:
    """Once a firm run refutes a provisional one, the search goes on where it had turned wrongly."""
    runs = _known(p0=GOOD, p7=BAD, p3=GOOD, p4=GOOD) + _known(p7=BAD) * 2
    soft = (ProbeRun(position=4, verdict=BAD, provisional=True),)
    assert decide(SearchState(size=8, observations=runs + soft)) == NextProbe(position=5, purpose=Purpose.NARROW)


def test_a_dear_hang_moves_the_probes_to_the_good_side() -> None:
    """With hangs at 30 times a pass midpoints would cost 1.7 times what is spent between the bounds."""
    price = Costs(good=1, bad=30)
    options = SearchOptions(bound_runs=1, confirm_runs=1, pass_runs=1, confidence=0)
    histories = [History.regression(128, culprit) for culprit in range(1, 128, 3)]
    lopsided = [follow(history, options, costs=price) for history in histories]
    bounds = len(histories) * 31
    assert all(trace.culprit == history.bad[0] for trace, history in zip(lopsided, histories, strict=True))  # type: ignore[index]
    even = sum(follow(history, options).seconds(price) for history in histories)
    assert (even - bounds) / (sum(trace.seconds(price) for trace in lopsided) - bounds) >= 1.7


@pytest.mark.parametrize("bad", [range(20), range(0)])
def test_none_is_not_claimed_beyond_what_could_be_tested(bad: range) -> None:
    """Where the newest cannot be tested a change may hide there; where the oldest cannot, that is said."""
    answer = follow(History(size=20, bad=bad, untestable=range(15, 20))).answer
    assert answer.kind is AnswerKind.INCONCLUSIVE
    assert "none of them newer than 14" in answer.reasons[0]
    answer = follow(History(size=20, bad=bad, untestable=range(5))).answer
    assert answer.kind is AnswerKind.NONE
    assert "none of them older than 5" in answer.reasons[0]


def test_all_looks_up_to_the_edge_of_a_bound_that_cannot_be_tested() -> None:
    """Untestable, good, bad, good: asked for all changes, the older one is found, too; by default it is left open."""
    history = History(size=30, bad=range(8, 16), untestable=range(5))
    found = follow(history, SearchOptions(find=Find.ALL)).answer
    assert [(bracket.before, bracket.after) for bracket in found.boundaries] == [(7, 8), (15, 16)]
    found = follow(history).answer
    assert [(bracket.before, bracket.after) for bracket in found.boundaries] == [(15, 16)]
    assert found.reasons[0].startswith("0 could not be tested, and what is before")


def test_the_newest_change_is_not_hidden_by_a_newest_position_that_cannot_be_tested() -> None:
    """What is tested in its place lies far from it; an older change that shows there is not the one that matters."""
    history = History(size=30, bad=(*range(8), *range(20, 25)), untestable=range(25, 30))
    answer = follow(history).answer
    assert (answer.boundaries[-1].before, answer.boundaries[-1].after) == (19, 20)
