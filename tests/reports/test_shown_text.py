"""Text of somebody else: in one line, in plain words, and in Markdown, read back by a parser that is not ours."""

import re
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reports import reading
from whichtorch.reports.shown_text import LINE, code_span, escaped, fenced, one_line, plain, table_row, visible


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


WORDS = ["@torvalds", "#12", "a|b", "\\|", "`", "``", "<b>", "</details>", "<!--", "&lt;", "*x*", "_y_", "~~z~~", "- "]
WORDS += ["1. ", "# ", "> ", "---", "[a](http://b)", "![a](b)", "https://x.y", "$1$", "\\", "\n", "\t", "    "]
WORDS += ["\x1b[1m", "é", "__init__"]
HOSTILE = st.one_of(
    st.text(), st.lists(st.sampled_from(WORDS)).map("".join), st.lists(st.sampled_from(WORDS)).map(" ".join)
)


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
