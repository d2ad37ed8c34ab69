"""Blocks and texts of somebody else, on a screen and as Markdown, which is read back by a parser that is not ours."""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reports import reading
from whichtorch.reports.document import (
    LINE,
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
    code_span,
    escaped,
    fenced,
    markdown,
    one_line,
    plain,
    screen,
    size_of,
    table_row,
    visible,
)

if TYPE_CHECKING:
    from whichtorch.reports.document import Block, Line


COMMITS = "https://github.com/pytorch/pytorch/compare/a...b"

WORDS = ["@torvalds", "#12", "a|b", "\\|", "`", "``", "<b>", "</details>", "<!--", "&lt;", "*x*", "_y_", "~~z~~", "- "]
WORDS += ["1. ", "# ", "> ", "---", "[a](http://b)", "![a](b)", "https://x.y", "$1$", "\\", "\n", "\t", "    "]
WORDS += ["\x1b[1m", "é", "__init__"]
HOSTILE = st.one_of(
    st.text(), st.lists(st.sampled_from(WORDS)).map("".join), st.lists(st.sampled_from(WORDS)).map(" ".join)
)


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


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("as it is\n\tindented", "as it is\n\tindented"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b", "\\x1b"),
        ("a\x00b\x08c\x7f", "a\\x00b\\x08c\\x7f"),
        ("one\r\ntwo\rthree", "one\ntwo\\x0dthree"),
        ("\u202eolleh\u2066", "\\u202eolleh\\u2066"),
        ("\u2028\u200b\ufeff", "\\u2028\\u200b\\ufeff"),
        ("\x9b31m", "\\x9b31m"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
    ],
)
def test_hidden_is_written_out(given_text: str | bytes, shown: str) -> None:
    """Terminal escapes are gone, and nothing else that cannot be seen remains."""
    assert plain(given_text) == shown


def test_a_long_line_is_cut() -> None:
    """A line of 5 MB keeps both ends and says how much is missing; its neighbours stay."""
    first, long, last = plain("first\n" + "x" * 5_000_000 + "y\nlast").split("\n")
    assert (first, last) == ("first", "last")
    assert len(long) < LINE + 50
    assert f"{5_000_001 - LINE} characters cut" in long
    assert long.endswith("xy")


@given(st.text(st.characters(), max_size=200))
def test_whatever_comes_is_plain(text: str) -> None:
    """What is shown has no control, no mark of direction and no surrogate in it, and can be written to a file."""
    shown = plain(text)
    shown.encode()
    left = {letter for letter in shown if unicodedata.category(letter) in {"Cc", "Cs"}} - {"\n", "\t"}
    assert not left
    assert not {letter for letter in shown if unicodedata.bidirectional(letter) in {"RLO", "LRO", "RLE", "RLI", "PDF"}}


def test_one_line_is_bounded() -> None:
    """A name is one line, however it came."""
    assert one_line("a\nb\tc", 10) == "a b c"
    assert one_line("x" * 30, 10) == "x" * 9 + "…"


@given(HOSTILE)
@example("- - -")
@example("`a ``b` |")
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    """In a list, whatever the text: one item, one line, nothing but text and code, and every character is there."""
    expected = one_line(text, sys.maxsize)
    found = [
        token for token in reading.tokens(f"- x\n- {escaped(text)}\n\nend") if token.type not in {"text", "code_inline"}
    ]
    inside = [token for token in found if token.type == "inline"]
    assert [token.type for token in found].count("list_item_open") == 2
    assert "".join(map(reading.shown, inside)) == f"x{expected}end"
    assert {token.type for token in found} <= {
        *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
        *("paragraph_open", "paragraph_close", "inline"),
    }


@given(HOSTILE)
def test_nobody_is_mentioned_and_nothing_linked(text: str) -> None:
    """What GitHub looks for after it has read the Markdown is in code spans only."""
    assert not re.search(r"@|#|://|www\.|\$|<[a-z/!?]", reading.bare(f"- x {escaped(text)}"), re.IGNORECASE)
    assert reading.bare(f"- {code_span(text)}") == ""


@given(HOSTILE)
def test_a_code_span_is_one(text: str) -> None:
    """No text ends its code span."""
    inside = [token for token in reading.tokens(f"x{code_span(text)}") if token.type == "code_inline"]
    assert [token.content for token in inside] == ([one_line(text, sys.maxsize)] if one_line(text, sys.maxsize) else [])


@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE), min_size=1, max_size=4))
def test_a_table_is_one(rows: list[tuple[str, str, str]]) -> None:
    """No text opens or ends a cell; only between a backslash and a pipe a blank is added."""
    given_rows = [[code_span(first), escaped(other), code_span(third)] for first, other, third in rows]
    lines = map(table_row, [["a", "b", "c"], ["---"] * 3, *given_rows])
    (found,) = reading.tables("\n".join(lines))
    assert found[0] == ["a", "b", "c"]
    assert found[1:] == [[re.sub(r"\\(?=\|)", r"\\ ", one_line(text, sys.maxsize)) for text in row] for row in rows]


@given(st.lists(HOSTILE))
def test_no_text_ends_a_block(lines: list[str]) -> None:
    """Fences in the text are text."""
    (block, *rest) = reading.tokens("\n".join([*fenced(lines), "", "end"]))
    assert (block.type, block.content) == ("fence", "".join(f"{visible(line)}\n" for line in lines))
    assert "end" in [token.content for token in rest]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RuntimeError in <module> (from_numpy.py)", "RuntimeError in `<module>` (from_numpy.py)"),
        ("fails in f (a.py) < g (b.py)", "fails in f (a.py) < g (b.py)"),
        ("stuck in __init__ of aten::mm", "stuck in `__init__` of aten::mm"),
    ],
)
def test_what_needs_no_care_stays_readable(text: str, expected: str) -> None:
    """Only words that would be read otherwise become code."""
    assert escaped(text) == expected
