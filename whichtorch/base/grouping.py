"""Things put together: by what they have in common, by what leads from one to another; and counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

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
