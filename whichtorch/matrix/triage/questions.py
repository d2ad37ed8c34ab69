"""A search asks questions: a generator that yields each one, is sent yes or no, and returns what it has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

Question = TypeVar("Question")
Found = TypeVar("Found")


def drive(search: Generator[Question, bool, Found], answer: Callable[[Question], bool]) -> Found:
    """Return what a search finds where its questions are answered one after another."""
    try:
        question = next(search)
        while True:
            question = search.send(answer(question))
    except StopIteration as end:
        found: Found = end.value
        return found


def lowest(
    holds: Callable[[int], Generator[Question, bool, bool]], low: int, high: int
) -> Generator[Question, bool, int]:
    """Return the lowest number from `low` on for which something holds, as it is known to do for `high`."""
    while low < high:
        middle = (low + high) // 2
        if (yield from holds(middle)):
            high = middle
        else:
            low = middle + 1
    return high
