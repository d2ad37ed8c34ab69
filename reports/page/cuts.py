"""What attempts wrote, and their stacks, cut to what a page has room for: head and tail, and how much is missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from matrix.diagnosis.hang.stack_folder import READABLE
from matrix.process.output import whole_characters
from reports.excerpts import read_ends
from reports.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matrix.model import Attempt
    from matrix.records.stored_runs import StoredRun

HEAD = 1 / 3  # of an output's room: the first error is there, but the last words tell more
STACKS = 2**18  # bytes of a readable diagnosis that are looked at
SHORT = 2**11  # bytes of a text that is made fit to be shown twice, to know what it takes
USUAL_COST = 1.1  # bytes that a byte of output takes in a page: line ends and quotes take two
SMALLEST = 400  # bytes of room below which an excerpt tells nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A text that may be shown in part."""

    title: str
    head: bytes
    tail: bytes = b""
    cut: int = 0  # bytes between the two that were never read
    is_folded: bool = False

    def text(self, length: int | None = None) -> str:
        """Return `length` bytes of it, or all that there is, with a line that says how much is left out."""
        head, tail, cut = self.head, self.tail, self.cut
        if length is not None and length < len(head) + len(tail):
            whole = head + tail if not cut else head
            at_head = length if self.is_stack else int(length * HEAD)
            at_tail = length - at_head
            rest = tail if cut else whole
            cut += len(head) + len(tail)
            head = whole_characters(whole[:at_head], at_end=True)
            tail = whole_characters(rest[max(0, len(rest) - at_tail) :], at_end=False) if at_tail else b""
            cut -= len(head) + len(tail)
        if not cut:
            return plain(head + tail)
        return "\n".join(part for part in (plain(head), f"… {cut:,} bytes cut …", plain(tail)) if part)

    @property
    def is_stack(self) -> bool:
        """True where only the beginning matters: the innermost frames."""
        return not self.title.startswith("std")

    @property
    def length(self) -> int:
        """How many bytes of it are there to be shown."""
        return len(self.head) + len(self.tail)

    @property
    def wanted(self) -> int:
        """How many bytes of a page all of it takes; of a long text about that, for it would have to be read twice."""
        return cost(self.text()) if self.length <= SHORT else int(self.length * USUAL_COST)

    def fitting(self, room: int) -> str:
        """Return as much of it as takes `room` bytes of a page; "" where that tells nothing."""
        if room < min(SMALLEST, self.wanted):
            return ""
        length = min(self.length, room)
        text = self.text(length)
        while (taken := cost(text)) > room and length > 0:
            length = int(length * room / taken * 0.97)
            text = self.text(length)
        return text


def encoded(value: object) -> str:
    """Return JSON that can stand in a script element of a page: nothing in it ends the element or a line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def cost(text: str) -> int:
    """Return the bytes that a text takes in a page."""
    return len(encoded(text).encode())


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Divide room so that nobody gets more than is wanted, and whoever gets less gets as much as any other."""
    given = [0] * len(wanted)
    left = room
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    for done, place in enumerate(order):
        given[place] = max(0, min(wanted[place], left // (len(order) - done)))
        left -= given[place]
    return given


def excerpts(stored: StoredRun, attempt: Attempt, end: int) -> Iterator[Excerpt]:
    """Yield what is known of an attempt in files, what matters most first: where it is stuck, then what it wrote.

    Of an output `end` bytes of each end are read.
    """
    first, *others = _stacks(stored, attempt) if attempt.stacks else (None,)
    if first is not None:
        yield first
    for name, path, written in (
        ("stderr", attempt.stderr, attempt.stderr_bytes),
        ("stdout", attempt.stdout, attempt.stdout_bytes),
    ):
        file = _file(stored, path)
        if file is not None:
            yield from _ends(name, file, end)
        elif path and written:
            yield Excerpt(title=name, head=f"({written:,} bytes were written; {path} is not there any more)".encode())
    yield from others


def _file(stored: StoredRun, path: str) -> Path | None:
    """Return a file of the run; None where it is gone, and where a run names what is not a run's."""
    if not path:
        return None
    try:
        file = stored.file(path).resolve()
        is_ours = any(file.is_relative_to(folder) for folder in _folders(stored.folder))
        return file if is_ours and (file.is_file() or file.is_dir()) else None
    except (OSError, ValueError, RuntimeError):  # a loop of links, a null in a name
        return None


@cache
def _folders(folder: Path) -> tuple[Path, Path]:
    """Return where the files of a run may lie: in its folder, or in one of the runs beside it."""
    return folder.resolve(), folder.parent.parent.resolve() / "runs"


def _ends(name: str, path: Path, end: int) -> Iterator[Excerpt]:
    try:
        head, tail, size = read_ends(path, end)
    except OSError:
        return
    cut = size - len(head) - len(tail)
    if cut > 0:
        short_head, short_tail = whole_characters(head, at_end=True), whole_characters(tail, at_end=False)
        cut += len(head) + len(tail) - len(short_head) - len(short_tail)
        head, tail = short_head, short_tail
    if size:
        yield Excerpt(title=name, head=head, tail=tail, cut=max(0, cut))


def _stacks(stored: StoredRun, attempt: Attempt) -> Iterator[Excerpt]:
    """Yield the stuck thread, the path in the dispatcher, and the other threads, as the diagnosis has them."""
    folder = _file(stored, attempt.stacks)
    if folder is None:
        yield Excerpt(title="stacks", head=f"{attempt.stacks} is not there any more".encode())
        return
    diagnosis = attempt.diagnosis
    if diagnosis is None or not (diagnosis.stacks or diagnosis.left_out):  # of an older version of the tool
        yield _readable(attempt, folder)
        return
    first, *others = *diagnosis.stacks, *([diagnosis.left_out] if diagnosis.left_out else [])
    yield Excerpt(title="stuck thread" if diagnosis.stuck else "a thread", head=first.encode())
    if diagnosis.path:
        yield Excerpt(title="path in the dispatcher", head=diagnosis.path.encode())
    if others:
        count = len(diagnosis.stacks[1:])
        title = f"{count} other thread{'s' if count != 1 else ''}"
        yield Excerpt(title=title, head="\n\n".join(others).encode(), is_folded=True)


def _readable(attempt: Attempt, folder: Path) -> Excerpt:
    """Return the diagnosis that was written for people, as it is."""
    try:
        with (folder / READABLE).open("rb") as file:
            return Excerpt(title="stacks", head=file.read(STACKS))
    except OSError:
        names = ", ".join(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ""
        return Excerpt(title="stacks", head=f"nobody made sense of them; {attempt.stacks} holds {names}".encode())
