"""Things put together: by what they have in common, by what leads from one to another, in a table; and counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound="Hashable")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return items by their key; keys and the items of each keep their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def reached(start: Iterable[Item], further: Callable[[Item], Iterable[Item]]) -> set[Item]:
    """Return some items and everything that `further` leads to from them."""
    found, waiting = set[Item](), list(start)
    while waiting:
        item = waiting.pop()
        if item not in found:
            found.add(item)
            waiting += further(item)
    return found


def counted(number: int, noun: str) -> str:
    """Return a number of things: "1 cell", "2 cells"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


class RowEnum(StrEnum):
    """Base of enums whose members have a row of facts each: all that the program knows of a word, in one table.

    A member is given as `"word", row`; the enum says of which type its rows are.
    """

    row: Any

    def __new__(cls, word: str, row: object) -> Self:
        """Make the word a string, as any StrEnum's, and keep its row."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.row = row
        return member
