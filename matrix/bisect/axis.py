"""What can be searched: one table of the axes, and the one type that all of them are.

A new axis is a module in `matrix/bisect/axes` with a function `search`, and a row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from matrix.errors import UsageError

if TYPE_CHECKING:
    from matrix.model import Request


@dataclass(frozen=True, slots=True)
class AxisRow:
    """How an axis is chosen and searched."""

    module: str  # in matrix.bisect.axes; its function `search` takes what `request.search` takes
    is_ordered: bool = True  # False: no value lies between two others, so every value is tried
    options: tuple[str, ...] = ()  # any of these chooses the axis; () for one that `--axis` names


class AxisName(StrEnum):
    """What was searched."""

    VERSION = "version", AxisRow("versions")
    DATE = "date", AxisRow("days")
    COMMIT = "commit", AxisRow("commits", options=("--git",))
    LOCK = "lock", AxisRow("packages", options=("--good-lock", "--bad-lock", "--good-env", "--bad-env"))
    CONFIG = "config", AxisRow("values", is_ordered=False)
    PYTHON = "python", AxisRow("values", is_ordered=False)
    BUILD = "build", AxisRow("values", is_ordered=False)

    row: AxisRow

    def __new__(cls, name: str, row: AxisRow) -> Self:
        """Make the name a string, as any StrEnum's, and keep its row."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.row = row
        return member


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Environments in a row, oldest first where they have an order."""

    name: AxisName
    values: tuple[str, ...]  # what people call the positions
    requests: tuple[Request, ...] = ()
    subjects: tuple[str, ...] = ()  # what else they are called: the first line of a commit's message

    def request(self, position: int) -> Request:
        """Return the request for a position; it may ask an index, and has a problem where that refuses."""
        return self.requests[position]

    def known_request(self, position: int) -> Request | None:
        """Return the same, None where an index would have to be asked first."""
        return self.requests[position]

    def nearest(self, value: str) -> int:
        """Return the position of a value, or of the nearest one that exists; raises UsageError for no value."""
        if value not in self.values:
            raise UsageError(f"{value!r} is none of {', '.join(self.values)}")
        return self.values.index(value)

    def subject(self, position: int) -> str:
        """Return what else a position is called, "" for nothing."""
        return self.subjects[position] if self.subjects else ""
