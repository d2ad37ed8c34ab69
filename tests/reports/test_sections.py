"""What is left out of a report that is too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reports.markdown import NOTE, Interest, Piece, Section, fitted, size_of

PIECES = st.builds(
    Piece, interest=st.sampled_from(Interest), lines=st.lists(st.text("aé\U0001f525"), min_size=1).map(tuple)
)
SECTIONS = st.lists(st.builds(Section, head=st.just(("# head",)), pieces=st.lists(PIECES).map(tuple)), max_size=4)


def piece(interest: Interest, text: str) -> Piece:
    return Piece(interest=interest, lines=(text,))


@given(SECTIONS, st.integers(0, 3000))
def test_it_fits_and_cuts_nothing_without_need(sections: list[Section], more: int) -> None:
    """Whatever there is, the limit holds; and what fits is there whole, without a note."""
    frame = sum(size_of((*section.head, *section.tail)) + NOTE for section in sections)
    assert size_of(fitted(sections, frame + more)) <= frame + more
    whole = [
        line
        for section in sections
        for part in (section.head, *(it.lines for it in section.pieces), section.tail)
        for line in part
    ]
    assert list(fitted(sections, size_of(whole))) == whole


def test_the_least_interesting_goes_first_and_is_counted() -> None:
    """The less interesting pieces are left out, wherever they stand, and of equals the last."""
    sections = [
        Section(head=("a",), pieces=tuple(piece(Interest.PASSING_ROWS, f"{number:0500}") for number in range(4))),
        Section(head=("b",), pieces=(piece(Interest.ENVIRONMENTS, "x" * 500), piece(Interest.HANGS, "y" * 500))),
    ]
    lines = list(fitted(sections, 1600 + 2 * NOTE))
    assert lines == [
        "a",
        f"{0:0500}",
        f"{1:0500}",
        "",
        "*Left out to stay below 2 kB: 2 rows of passes and skips.*",
        "",
        "b",
        "y" * 500,
        "",
        "*Left out to stay below 2 kB: 1 environments.*",
        "",
    ]
