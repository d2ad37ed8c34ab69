"""Blocks, lopsided brackets and parallel probes."""

import pytest

from whichtorch.search.bracket import bad_share, blocks, next_check, next_probe, step_away, widest_gap
from whichtorch.search.decision import decide, decide_parallel
from whichtorch.search.search_state import ProbeRun, SearchAnswer, SearchState, SearchVerdict


@pytest.mark.parametrize(
    ("dead", "expected"),
    [
        ([], []),
        ([5], [(5, 5)]),
        ([5, 7], [(5, 5), (7, 7)]),  # a hole each, perhaps: 6 is still to be tried
        ([5, 6, 8], [(5, 8)]),
        ([5, 6, 8, 12], [(5, 12)]),
        ([5, 20], [(5, 5), (20, 20)]),
        ([2, 10, 11, 12, 13], [(2, 2), (10, 13)]),
    ],
)
def test_positions_a_jump_apart_make_a_block(dead: list[int], expected: list[tuple[int, int]]) -> None:
    """Dead positions as far apart as a jump by doubling goes are one block."""
    assert blocks(dead) == expected


def test_a_block_is_left_by_doubling() -> None:
    """Each jump from a growing block goes as far as the block is long."""
    dead: list[int] = []
    for _ in range(5):
        position = next_probe(0, 1000, sorted(dead))
        assert position is not None
        dead.append(position)
    assert max(dead) - min(dead) == 15
    assert len(blocks(sorted(dead))) == 1


@pytest.mark.parametrize(("good", "bad", "share"), [(1, 1, 0.5), (1, 1.9, 0.5), (1, 2, 0.382), (1, 10, 0.165)])
def test_the_share_staked_on_a_bad_result(good: float, bad: float, share: float) -> None:
    """The dearer a bad run, the less of the bracket is staked on it; at 2 to 1 it is the golden section."""
    assert bad_share(good, bad, 1000) == pytest.approx(share, abs=1e-3)
    assert bad_share(good, bad, 50) == pytest.approx(share, abs=0.05)


def test_wide_gaps_in_a_block_are_checked() -> None:
    """A gap is tried where it is wide for its block, and left where the block is dense."""
    assert next_check([10, 11, 13, 17]) == 15
    assert next_check([10, 11, 12, 13]) is None


def test_a_position_near_a_block_moves_away() -> None:
    """What is next to a block of four moves to four away, and no farther than half of what is free."""
    assert step_away(14, 0, 100, [10, 11, 12, 13]) == 17
    assert step_away(9, 0, 100, [10, 11, 12, 13]) == 6
    assert step_away(14, 0, 17, [10, 11, 12, 13]) == 15
    assert step_away(40, 0, 100, [10, 11, 12, 13]) == 40


def test_the_widest_gap() -> None:
    """The middle of the widest untried stretch is sampled, until there is none."""
    assert widest_gap([0, 10, 30], 0, 30) == 20
    assert widest_gap(range(5), 0, 4) is None


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
