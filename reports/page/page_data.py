"""The JSON in a page, as templates/page.js reads it: keys that say nothing are left out.

`FilterIndex` is one JSON text, read at once. The details are lines: `SharedDetails`, then `RowDetails` for each row of
the grid, read when a cell of the row is opened. A string that many cells share is a number: its index in a list.
"""

from __future__ import annotations

import json
from typing import Literal, NotRequired, TypedDict

TextLine = tuple[str, str, int]  # title, text, 1 where it is folded
ConditionLine = tuple[bool | None, str, str]  # whether it was met, what was asked, what was seen
DifferenceLine = tuple[str, str, str]  # name, value here, value there
Differences = dict[str, list[DifferenceLine] | int]  # axes, packages and facts; "more axes" and so on count others
# commands, problem, notes; indices of packages and of the fingerprint, and how many were left out
EnvironmentDetails = dict[str, str | int | list[str] | list[int] | dict[str, str]]
SharedText = Literal["reason", "message", "signature", "known", "conflict"]


class FilterRow(TypedDict):
    """A row of the grid; of its cells, by column."""

    name: str
    letters: str  # of outcomes; "-" where there is no cell
    seconds: float  # of the slowest cell
    summary: NotRequired[int]
    tags: NotRequired[list[str]]
    flags: NotRequired[str]  # a digit to the base 32 for each cell
    what: NotRequired[dict[int, int]]
    flaky: NotRequired[dict[int, str]]


class FilterIndex(TypedDict):
    """What filters need to know of every cell."""

    columns: list[dict[str, str | int]]  # label, axes, and the number of its version of torch
    rows: list[FilterRow]
    what: list[str]
    outcomes: dict[str, str]  # by letter
    red: str  # letters
    total: int


class OddAttempt(TypedDict, total=False):
    """What is out of the ordinary of an attempt."""

    stopped: str
    limit: float
    exit: int
    signal: str
    note: str
    survivors: list[str]


AttemptLine = tuple[str | float | OddAttempt, ...]  # outcome, seconds, CPU seconds, MB, and what is odd


class HangDetails(TypedDict, total=False):
    """What kind of hang it is, at which stage, and who waits for whom with the evidence."""

    kind: str
    summary: str
    place: str
    cycle: list[tuple[str, str]]
    closed: bool


class CellDetails(TypedDict):
    """A cell."""

    attempts: list[AttemptLine]
    more: NotRequired[int]  # attempts
    reason: NotRequired[int]
    message: NotRequired[int]
    signature: NotRequired[int]
    known: NotRequired[int]
    conflict: NotRequired[int]
    conditions: NotRequired[list[ConditionLine]]
    hang: NotRequired[HangDetails]
    change: NotRequired[dict[str, str | None]]  # kind, was, signature, why, script
    near: NotRequired[int]  # column of the nearest environment in which it passes
    texts: NotRequired[list[TextLine]]


class RowDetails(TypedDict):
    """A row of the grid."""

    quoted: NotRequired[str]  # the name as a shell wants it, where single quotes are not enough
    turning: NotRequired[str]
    cells: dict[int, CellDetails]


class SharedDetails(TypedDict):
    """What cells share."""

    environments: list[EnvironmentDetails]
    strings: list[str]
    pairs: dict[str, Differences]  # "3.1": how column 3 differs from column 1, which passes
    here: str  # the placeholder in commands


def encoded(value: object) -> str:
    """Return JSON that can stand in a script element of a page: nothing in it ends the element or a line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
