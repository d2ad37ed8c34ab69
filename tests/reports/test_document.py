"""Blocks of text on a screen and as Markdown, which is read back by a parser that is not ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from tests.reports import reading
from tests.reports.test_shown_text import HOSTILE
from whichtorch.reports.document import (
    NOTE,
    Code,
    Fold,
    Heading,
    Items,
    Link,
    Listing,
    Paragraph,
    Strong,
    Table,
    markdown,
    screen,
    size_of,
)

if TYPE_CHECKING:
    from whichtorch.reports.document import Block, Line

COMMITS = "https://github.com/pytorch/pytorch/compare/a...b"


def test_a_line_has_parts() -> None:
    """Code, links and what stands out are markup in Markdown, and text on a screen."""
    line = (
        Strong("FAIL"),
        "  ",
        Code("a/_b_"),
        ": it is `_x_`, not _y_; commits ",
        Link(COMMITS),
        " (",
        Link("#12"),
        ")",
    )
    assert list(screen([Items([line])])) == [f"FAIL  a/_b_: it is `_x_`, not _y_; commits {COMMITS} (#12)", ""]
    pull = "https://github.com/pytorch/pytorch/pull/12"
    shown = f"**FAIL** `a/_b_`: it is `_x_`, not `_y_`; commits <{COMMITS}> ([#12]({pull}))"
    assert markdown([Items(["head", ("  ", *line)])]) == ["- head", f"  - {shown}"]


def test_what_is_folded_is_not_on_a_screen() -> None:
    """Its title is text, not HTML."""
    blocks: list[Block] = [Paragraph("x"), Fold("numpy<2 <b>", [Listing(["a"])])]
    assert list(screen(blocks)) == ["x", ""]
    folded = ["<details>", "<summary>numpy&lt;2 &lt;b&gt;</summary>", "", "```text\na\n```", "", "</details>"]
    assert markdown(blocks) == ["x", "", *folded]


@given(st.lists(st.one_of(HOSTILE, HOSTILE.map(Code)), min_size=1).map(tuple))
@example(("  ",))
def test_no_text_is_markup(line: Line) -> None:
    """Whatever stands in the parts of a line, it is text or code."""
    text = "\n".join(markdown([Items(["x", line]), Paragraph("end")]))
    kinds = {"text", "code_inline", "inline", "code_block"}
    kinds |= {f"{kind}_{end}" for kind in ("bullet_list", "list_item", "paragraph") for end in ("open", "close")}
    assert reading.kinds(text) <= kinds
    assert not {"@", "#", "$"} & {*reading.bare(text)}


BLOCKS = st.one_of(
    st.just(Heading("head")),
    st.builds(Items, st.lists(st.text("aé\U0001f525")), st.integers(0, 3)),
    st.builds(Listing, st.lists(st.text("aé\U0001f525")), rank=st.integers(0, 3)),
    st.lists(st.tuples(st.text(), st.text())).map(lambda rows: Table(["a", "b"], rows, rank=1)),
)


@given(st.lists(BLOCKS, max_size=4), st.integers(0, 3000))
def test_it_fits_and_cuts_nothing_without_need(blocks: list[Block], more: int) -> None:
    """Whatever there is, the limit holds; and what fits is there whole, without a note."""
    frame = 5 * (NOTE + 60) * (1 + len(blocks))
    assert size_of(markdown(blocks, frame + more)) <= frame + more
    whole = list(markdown(blocks))
    assert list(markdown(blocks, size_of(whole))) == whole


def test_the_least_interesting_goes_first_and_is_counted() -> None:
    """The less interesting blocks are left out, wherever they stand, and of one the last lines."""
    blocks = [Items([f"{number:0500}" for number in range(4)], 1), Items(["x" * 490], 2), Items(["y" * 490])]
    assert list(markdown(blocks, 1600 + 3 * NOTE)) == [
        f"- {0:0500}",
        f"- {1:0500}",
        "",
        "*2 more are left out, to stay below 1 kB.*",
        "",
        "",
        "*1 more are left out, to stay below 1 kB.*",
        "",
        "- " + "y" * 490,
    ]
