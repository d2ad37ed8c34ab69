"""Head and tail of an output file are kept, whatever is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtorch.process import task_tree

if TYPE_CHECKING:
    from pathlib import Path


@given(st.text(max_size=30), st.integers(0, 60))
def test_cuts_fall_between_characters(text: str, cut: int) -> None:
    """Both sides of a cut are still UTF-8, and lose at most a character."""
    data = text.encode()
    head = task_tree.whole_characters(data[:cut], at_end=True)
    tail = task_tree.whole_characters(data[cut:], at_end=False)
    assert text.startswith(head.decode())
    assert text.endswith(tail.decode())
    assert len(data) - len(head) - len(tail) <= 4


@given(st.binary(max_size=20))
def test_any_bytes_can_be_cut(data: bytes) -> None:
    """Bytes that are not text lose at most three at a cut."""
    for at_end in (True, False):
        kept = task_tree.whole_characters(data, at_end=at_end)
        assert len(data) - len(kept) <= 3
        assert data.startswith(kept) if at_end else data.endswith(kept)


def test_small_file_is_kept_whole(tmp_path: Path) -> None:
    """Nothing is cut from a file that is not large."""
    file = task_tree.OutputFile(str(tmp_path / "out"))
    (tmp_path / "out").write_bytes(b"all of it")
    assert (file.trim(), file.finish()) == (True, 9)
    assert (tmp_path / "out").read_bytes() == b"all of it"


def test_size_is_limited_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the filesystem cannot make holes, a file may grow to the limit and no further."""
    monkeypatch.setattr(task_tree, "_punch", lambda *_: False)
    file = task_tree.OutputFile(str(tmp_path / "out"))
    with (tmp_path / "out").open("r+b") as writer:
        writer.truncate(task_tree.PUNCH_EVERY * 2)
        assert file.trim()
        writer.truncate(task_tree.UNPUNCHED_LIMIT + 1)
        assert not file.trim()
    file.finish()
