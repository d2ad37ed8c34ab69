"""Things that are put together or counted."""

import pytest

from whichtorch.base.grouping import counted


@pytest.mark.parametrize(("number", "words"), [(0, "0 cells"), (1, "1 cell"), (2, "2 cells"), (1234, "1234 cells")])
def test_a_number_of_things(number: int, words: str) -> None:
    """A noun is in the plural unless there is one of it."""
    assert counted(number, "cell") == words
    assert counted(2, "doubted pass") == "2 doubted passes"
