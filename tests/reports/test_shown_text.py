"""Text made fit to be shown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.shown_text import LINE, one_line, plain


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
