"""Cut a long report to a size: it has sections of pieces, and the least interesting pieces are left out first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Interest(StrEnum):
    """What pieces hold, the most interesting first, in the words of the note on what is left out."""

    WORSE = "changes for the worse"
    HANGS = "hangs that nobody expects"
    UNEXPECTED = "other failures that nobody expects"
    PREVENTED = "reasons why nothing was learnt"
    CHANGES = "other changes"
    RED_ROWS = "rows with what nobody expects"
    SURPRISES = "passes that nobody expects"
    ROWS = "other rows that do not just pass"
    DOUBTED = "doubted passes"
    KNOWN = "known failures"
    PASSING_ROWS = "rows of passes and skips"
    OUTPUT = "excerpts of output"
    ENVIRONMENTS = "environments"


NOTE = 50 + sum(len(f"1,000,000 {interest}, ") for interest in Interest)  # bytes of a note on what is left out, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Lines that are shown together or not at all."""

    interest: Interest
    lines: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of its lines in a file."""
        return size_of(self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Pieces, between lines that are always there."""

    head: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()
    tail: tuple[str, ...] = ("",)


def size_of(lines: Iterable[str]) -> int:
    """Return how many bytes lines take in a file."""
    return sum(len(line.encode()) + 1 for line in lines)


def fitted(sections: Sequence[Section], limit: int) -> Iterator[str]:
    """Yield the lines of sections in at most `limit` bytes; where pieces had to go, a note says which and how many."""
    kept = _kept(sections, limit)
    for number, section in enumerate(sections):
        yield from section.head
        left_out: Counter[Interest] = Counter()
        for index, piece in enumerate(section.pieces):
            if (number, index) in kept:
                yield from piece.lines
            else:
                left_out[piece.interest] += 1
        if left_out:
            what = ", ".join(f"{count:,} {interest}" for interest, count in left_out.items())
            yield from ("", f"*Left out to stay below {limit // 1000} kB: {what}.*")  # the blank line ends a table
        yield from section.tail


def _kept(sections: Sequence[Section], limit: int) -> frozenset[tuple[int, int]]:
    """Return section and index of the pieces that fit: the most interesting, of equals the first in the report."""
    pieces = {(at, index): piece for at, section in enumerate(sections) for index, piece in enumerate(section.pieces)}
    budget = limit - sum(size_of((*section.head, *section.tail)) for section in sections)
    if sum(piece.size for piece in pieces.values()) > budget:
        budget -= NOTE * len(sections)
    order = list(Interest)
    kept = []
    for position, piece in sorted(pieces.items(), key=lambda item: order.index(item[1].interest)):
        budget -= piece.size
        if budget < 0:
            break
        kept.append(position)
    return frozenset(kept)
