"""What attempts wrote and their stacks, cut to what fits into a page: head and tail, and how much is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.process.task_tree import whole_characters
from whichtorch.reports.shown_text import plain, read_ends

if TYPE_CHECKING:
    from whichtorch.model import Attempt
    from whichtorch.records.store import StoredRun

    TextLine = tuple[str, str, int]  # title, text, 1 where it is folded

Position = tuple[int, int]  # row and column of the grid

HEAD = 1 / 3  # share of an output's budget for its head: the first error is there, but the last words say more
SMALLEST = 400  # bytes below which an excerpt says nothing
OVERHEAD = 60  # bytes that a text takes besides itself: title, brackets, its share of the list's name


class Rank(IntEnum):
    """How much the texts of a cell matter."""

    URGENT = 0
    RED = 1
    DOUBTED = 2
    REST = 3


EACH = {Rank.URGENT: 48_000, Rank.RED: 16_000, Rank.DOUBTED: 6_000, Rank.REST: 1_500}  # bytes for the texts of a cell
ALL_REST = 300_000  # bytes for the texts of all cells of the last rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A text that may be shown in part."""

    title: str
    head: bytes
    tail: bytes = b""
    cut: int = 0  # bytes between the two that were never read
    is_folded: bool = False

    def text(self, length: int | None = None) -> str:
        """Return `length` bytes, or all there are, with a line that says how much is left out."""
        head, tail, cut = self.head, self.tail, self.cut
        if length is not None and length < self.length:
            whole, rest = (head, tail) if cut else (head + tail, head + tail)
            # of a stack only the beginning matters: the innermost frames
            at_head = int(length * HEAD) if self.title.startswith("std") else length
            at_tail = length - at_head
            cut += self.length
            head = whole_characters(whole[:at_head], at_end=True)
            tail = whole_characters(rest[max(0, len(rest) - at_tail) :], at_end=False) if at_tail else b""
            cut -= len(head) + len(tail)
        if not cut:
            return plain(head + tail)
        return "\n".join(part for part in (plain(head), f"… {cut:,} bytes cut …", plain(tail)) if part)

    @property
    def length(self) -> int:
        """How many bytes there are to show."""
        return len(self.head) + len(self.tail)

    def fitting(self, budget: int) -> str:
        """Return as much of it as takes `budget` bytes of a page; "" where that says nothing."""
        length = min(self.length, max(0, budget))
        text = self.text(length)
        while (taken := cost(text)) > budget and length > 0:
            length = int(length * budget / taken * 0.97)
            text = self.text(length)
        return text if length == self.length or budget >= SMALLEST else ""


def encoded(value: object) -> str:
    """Return JSON that can stand in a script element of a page: nothing in it ends the element or a line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def cost(text: str) -> int:
    """Return the bytes that a text takes in a page."""
    return len(encoded(text).encode())


def fitted(
    texts: Mapping[Position, list[Excerpt]], ranks: Mapping[Position, Rank], budget: int
) -> dict[Position, list[TextLine]]:
    """Return as much of the cells' texts as takes `budget` bytes of a page, in the order of their ranks.

    Cells of a rank share what there is; what one does not need goes to those after it.
    """
    lines: dict[Position, list[TextLine]] = {}
    waiting = sum(ranks[position] is not Rank.REST for position in texts)
    for rank in Rank:
        positions = [position for position in texts if ranks[position] is rank]
        waiting -= len(positions) if rank is not Rank.REST else 0
        kept = min(budget // 2, waiting * (SMALLEST + 2 * OVERHEAD))  # so that no red cell goes without
        budget = min(budget, ALL_REST) if rank is Rank.REST else budget
        for number, position in enumerate(positions):
            parts = list(_parts(texts[position], min(EACH[rank], (budget - kept) // (len(positions) - number))))
            if parts:
                lines[position] = parts
                budget -= len(encoded({"texts": parts}).encode())
    return lines


def _parts(excerpts: Sequence[Excerpt], left: int) -> Iterator[TextLine]:
    """Yield as much of the texts of a cell as takes `left` bytes, the first ones first where there is little room."""
    for number, excerpt in enumerate(excerpts):
        room = max(min(left, SMALLEST + OVERHEAD), left // (len(excerpts) - number)) - OVERHEAD
        if text := excerpt.fitting(room):
            yield excerpt.title, text, int(excerpt.is_folded)
            left -= cost(text) + OVERHEAD


def excerpts(stored: StoredRun, attempt: Attempt, end: int) -> Iterator[Excerpt]:
    """Yield what an attempt left in files: where it is stuck, what it wrote, then the other threads.

    `end` is how many bytes of each end of an output are read.
    """
    stacks = list(_stacks(stored, attempt)) if attempt.stacks else []
    yield from stacks[:1]
    for name, path, written in (
        ("stderr", attempt.stderr, attempt.stderr_bytes),
        ("stdout", attempt.stdout, attempt.stdout_bytes),
    ):
        file = _file(stored, path)
        if file is not None:
            yield from _ends(name, file, end)
        elif path and written:
            yield Excerpt(title=name, head=f"({written:,} bytes were written; {path} is not there any more)".encode())
    yield from stacks[1:]


def _file(stored: StoredRun, path: str) -> Path | None:
    """Return a file or folder of the run; None where it is gone, or none of the run's."""
    file = stored.file(path)
    return file if file is not None and file.exists() else None


def _ends(name: str, path: Path, end: int) -> Iterator[Excerpt]:
    try:
        head, tail, size = read_ends(path, end)
    except OSError:
        return
    if size > len(head) + len(tail):
        head, tail = whole_characters(head, at_end=True), whole_characters(tail, at_end=False)
    if size:
        yield Excerpt(title=name, head=head, tail=tail, cut=max(0, size - len(head) - len(tail)))


def _stacks(stored: StoredRun, attempt: Attempt) -> Iterator[Excerpt]:
    """Yield the stuck thread, the path in the dispatcher, and the other threads, as the diagnosis has them."""
    folder = _file(stored, attempt.stacks)
    if folder is None:
        yield Excerpt(title="stacks", head=f"{attempt.stacks} is not there any more".encode())
        return
    diagnosis = attempt.diagnosis
    if diagnosis is None or not (diagnosis.stacks or diagnosis.left_out):
        names = ", ".join(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ""
        yield Excerpt(title="stacks", head=f"nobody made sense of them; {attempt.stacks} holds {names}".encode())
        return
    first, *others = *diagnosis.stacks, *([diagnosis.left_out] if diagnosis.left_out else [])
    yield Excerpt(title="stuck thread" if diagnosis.stuck else "a thread", head=first.encode())
    if diagnosis.path:
        yield Excerpt(title="path in the dispatcher", head=diagnosis.path.encode())
    if others:
        count = len(diagnosis.stacks[1:])
        title = f"{count} other thread{'s' if count != 1 else ''}"
        yield Excerpt(title=title, head="\n\n".join(others).encode(), is_folded=True)
