"""Enums whose members have a row of facts each: all that the program knows of a word, in one table."""

from enum import StrEnum
from typing import Any, Self


class RowEnum(StrEnum):
    """Base of such enums. A member is given as `"word", row`; the enum says of which type its rows are."""

    row: Any

    def __new__(cls, word: str, row: object) -> Self:
        """Make the word a string, as any StrEnum's, and keep its row."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.row = row
        return member
