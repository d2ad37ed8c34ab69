"""What came of a test is known by its name, in each environment as it was seen last."""

from __future__ import annotations

from whichtorch.matrix.model import Cell, Outcome
from whichtorch.matrix.records.latest_cells import LatestCells


def cell(environment: str, outcome: Outcome) -> Cell:
    return Cell(environment=environment, scenario="a", outcome=outcome, expected=True, seconds=1)


def test_a_later_cell_takes_the_place_of_an_earlier_one_in_its_environment() -> None:
    """Other environments and other tests keep theirs."""
    cells = LatestCells()
    cells.add("a", cell("e", Outcome.FAIL), ["old"])
    cells.add("a", cell("f", Outcome.HANG))
    cells.add("b", cell("e", Outcome.CRASH))
    cells.add("a", cell("e", Outcome.PASS), ["new", "newer"])
    assert {each.environment: (each.outcome, keys) for each, keys in cells.of("a")} == {
        "e": (Outcome.PASS, {"new", "newer"}),
        "f": (Outcome.HANG, frozenset()),
    }
    assert cells.of("c") == []
