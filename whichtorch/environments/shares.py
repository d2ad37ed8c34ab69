"""Share out the environments of a matrix among the jobs of a CI service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from whichtorch.base.errors import UsageError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Share:
    """One of several nearly equal parts of a sequence. Neighbors stay together, because they share downloads."""

    number: int
    count: int

    @classmethod
    def named(cls, text: str) -> Self:
        """Return the share that "2/4" names."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 0 < int(number) <= int(count)):
            raise UsageError(f"{text!r} is not a share", hint="write it as 2/4: the second of four")
        return cls(int(number), int(count))

    def of(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items of this share; all shares together have each item once, in order."""
        return items[(self.number - 1) * len(items) // self.count : self.number * len(items) // self.count]

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
