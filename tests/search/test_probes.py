"""Gaps in blocks, and parallel probes."""

from whichtorch.search.decision import decide, decide_parallel
from whichtorch.search.probes import next_check
from whichtorch.search.search_state import ProbeRun, SearchAnswer, SearchState, SearchVerdict


def test_wide_gaps_in_a_block_are_checked() -> None:
    """A gap is tried where it is wide for its block, and left where the block is dense."""
    assert next_check([10, 11, 13, 17]) == 15
    assert next_check([10, 11, 12, 13]) is None


def _bounds_known() -> SearchState:
    bounds = [ProbeRun(position=0, verdict=SearchVerdict.GOOD)] + [ProbeRun(position=32, verdict=SearchVerdict.BAD)] * 3
    return SearchState(size=33, observations=tuple(bounds))


def test_parallel_probes_are_the_midpoint_and_the_next_two() -> None:
    """Three jobs get the midpoint and both possible next ones; seven get the eighths."""
    for jobs, expected in ((1, [16]), (2, [16, 8]), (3, [16, 8, 24]), (7, [16, 8, 24, 4, 12, 20, 28])):
        probes = decide_parallel(_bounds_known(), jobs)
        assert not isinstance(probes, SearchAnswer)
        assert [probe.position for probe in probes] == expected


def test_both_bounds_are_probed_at_once() -> None:
    """Two jobs start with the two bounds, and the first is the one that a single job would get."""
    probes = decide_parallel(SearchState(size=33), 2)
    assert not isinstance(probes, SearchAnswer)
    assert [probe.position for probe in probes] == [0, 32]
    assert probes[0] == decide(SearchState(size=33))
