"""What is said of real programs that hang, each of a kind that the library's rows know."""

from __future__ import annotations

from functools import cache

import pytest

from matrix.diagnosis.hang.activity import ThreadState
from matrix.diagnosis.hang.causes import HangKind
from matrix.diagnosis.hang.library import NATIVE_CALLS, ROWS, LibraryCall, NativeCall
from tests.diagnosis.expected_torch import EXPECTED_OF_TORCH
from tests.diagnosis.recorded import PROGRAMS, RECORDINGS, diagnosed, picture

NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))
# Program: the kind, and what the sentence must say: the user's lines, what is waited for, why nobody ends it.
EXPECTED: dict[str, tuple[HangKind, tuple[str, ...]]] = {
    "queue_without_producer": (
        HangKind.QUEUE,
        ("Queue.get (queue_without_producer.py:16)", "`numbers`, which is empty", "nobody is left that could put one"),
    ),
}


EXPECTED |= EXPECTED_OF_TORCH


@pytest.mark.parametrize("name", NAMES)
def test_the_sentence_says_where_what_and_why(name: str) -> None:
    """Each program's hang has its kind, and the sentence names the user's lines, the thing and the reason."""
    kind, fragments = EXPECTED[name]
    found = diagnosed(name)
    assert found.kind is kind
    assert [fragment for fragment in fragments if fragment not in found.summary] == [], found.summary


def test_every_program_is_recorded_and_expected() -> None:
    """No program lies about without a recording, no recording without its program and what is expected of it."""
    assert NAMES == sorted(path.stem for path in PROGRAMS.glob("*.py")) == sorted(EXPECTED)


@pytest.mark.parametrize("row", [*ROWS, *NATIVE_CALLS], ids=lambda row: f"{row.name or row.what}-{row.function}"[:60])
def test_every_row_of_the_library_is_met_in_a_real_run(row: LibraryCall | NativeCall) -> None:
    """What a row claims of a library has been seen in a real program that hangs there."""
    assert row in _met()


@cache
def _met() -> set[LibraryCall | NativeCall]:
    met = set[LibraryCall | NativeCall]()
    for name in NAMES:
        for process in picture(name)[0]:
            for thread in process.threads:
                user = ThreadState(process, thread).user
                met.update(filter(None, (user.call, user.native)))
    return met
