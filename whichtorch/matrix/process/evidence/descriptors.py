"""Say where the descriptors that threads wait on lead, and which processes have the other end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import termios
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from whichtorch.matrix.process import kernel
from whichtorch.matrix.process.evidence import peers
from whichtorch.matrix.process.evidence.sockets import SocketRow, sockets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST = 64  # descriptors of a process that are described
HOLDERS = 32  # processes that are named for one descriptor
LINK = 512  # characters of a link
_FILES = re.compile(r"/(?!(dev|proc|sys)/|memfd:)|/dev/shm/")  # links to files and FIFOs, not to devices
_WRITES_ONLY, _BOTH = 1, 2  # O_WRONLY, O_RDWR
_PIDFD = "anon_inode:[pidfd]"


class AwaitedFiles(NamedTuple):
    """The descriptors that a system call waits for."""

    numbers: tuple[int, ...]
    kind: str = ""  # "end" of a pipe or socket, "lock" of a file; "" where it is none of these


class _OpenFile:
    """A descriptor of a process, as other processes see it."""

    def __init__(self, pid: int, number: int) -> None:
        self.pid, self.number = pid, number

    @cached_property
    def info(self) -> bytes:
        """What /proc says of it; b"" where it may not be read."""
        with contextlib.suppress(OSError):
            return b"\n" + kernel.read(f"/proc/{self.pid}/fdinfo/{self.number}")
        return b""

    @cached_property
    def mode(self) -> int | None:
        """How it was opened: 0 to read, 1 to write, 2 for both; None where it is not known."""
        with contextlib.suppress(ValueError, IndexError):
            return int(self.info.partition(b"\nflags:")[2].split(None, 1)[0], 8) & 3
        return None

    @property
    def has_locked(self) -> bool:
        """True where its file is locked through it."""
        return b"\nlock:" in self.info

    def is_awaited_by(self, other: _OpenFile) -> bool:
        """Return whether it is the other end of a pipe."""
        if self.mode is None or other.mode is None:
            return False
        return _BOTH in (self.mode, other.mode) or self.mode != other.mode


def describe_awaited(awaited: Mapping[int, Mapping[int, str]], end: float) -> dict[int, list[dict[str, Any]]]:
    """Return what is known of the awaited descriptors of processes, and of the files they have locked.

    The descriptors of all other processes of the machine are read once, until the time `end`.
    """
    links = {pid: peers.open_files(pid) if time.monotonic() < end else {} for pid in awaited}
    wanted = {pid: _wanted(pid, links[pid], awaited[pid], end) for pid in awaited}
    rows = _socket_rows(wanted, links)
    ends = {links[pid][number] for pid, own in wanted.items() for number in own}
    ends |= {row.other for pid, own in wanted.items() for number in own if (row := rows.get((pid, links[pid][number])))}
    openers = _openers(ends, links, end)
    return {
        pid: [
            _describe(_OpenFile(pid, number), links[pid][number], kind, rows.get((pid, links[pid][number])), openers)
            for number, kind in own.items()
        ]
        for pid, own in wanted.items()
    }


def _wanted(pid: int, links: Mapping[int, str], awaited: Mapping[int, str], end: float) -> dict[int, str]:
    """Return the awaited descriptors of a process and its locked files, with what is asked of them."""
    wanted = {number: kind for number, kind in awaited.items() if number in links}
    for number, link in links.items():
        if time.monotonic() > end:
            break
        is_file = _FILES.match(link) and number not in wanted
        if is_file and _OpenFile(pid, number).has_locked:
            wanted[number] = "lock"
    return dict(list(wanted.items())[:MOST])


def _socket_rows(
    wanted: Mapping[int, Iterable[int]], links: Mapping[int, Mapping[int, str]]
) -> dict[tuple[int, str], SocketRow]:
    """Return the wanted sockets by process and link; each network is read once."""
    networks: dict[str, dict[str, SocketRow]] = {}
    rows: dict[tuple[int, str], SocketRow] = {}
    for pid, numbers in wanted.items():
        own = {link for number in numbers if (link := links[pid][number]).startswith("socket:[")}
        if not own:
            continue
        network = ""
        with contextlib.suppress(OSError):
            network = os.readlink(f"/proc/{pid}/ns/net")
        if network not in networks:
            networks[network] = sockets(pid)
        rows |= {(pid, link): networks[network][link] for link in own if link in networks[network]}
    return rows


def _openers(wanted: set[str], links: Mapping[int, Mapping[int, str]], end: float) -> dict[str, list[_OpenFile]]:
    """Return who has the wanted files open, of all processes of the machine, members first."""
    openers: dict[str, list[_OpenFile]] = {link: [] for link in wanted if link}
    if not openers:
        return openers
    for pid in [*links, *sorted(kernel.pids() - links.keys())]:
        if time.monotonic() > end:
            break
        for number, link in (links[pid] if pid in links else peers.open_files(pid)).items():
            if link in openers:
                openers[link].append(_OpenFile(pid, number))
    return openers


def _describe(
    file: _OpenFile, link: str, kind: str, row: SocketRow | None, openers: Mapping[str, list[_OpenFile]]
) -> dict[str, Any]:
    """Return the fields of a `Descriptor` (diagnosis/stacks.py) that are known."""
    is_pipe = link.startswith("pipe:[") or (kind == "end" and _FILES.match(link) is not None)
    holders: Iterable[int] = ()
    if row:
        holders = (other.pid for other in openers.get(row.other, ()))
    elif is_pipe:
        holders = (other.pid for other in openers.get(link, ()) if other.is_awaited_by(file))
    elif kind == "lock":
        holders = _lock_holders(file, openers.get(link, ()))
    elif link == _PIDFD:
        holders = filter(None, [int(kernel.field(f"/proc/{file.pid}/fdinfo/{file.number}", b"Pid:") or b"0")])
    fields = {
        "number": file.number,
        "link": os.fsencode(link).decode(errors="replace")[:LINK],
        "is_written": file.mode == _WRITES_ONLY,
        "local": row.local if row else "",
        "peer": row.peer if row else "",
        "is_listening": row.is_listening if row else False,
        "unread": _unread(file) if is_pipe or link.startswith("socket:[") else None,
        "holders": list(dict.fromkeys(holders))[:HOLDERS],
    }
    is_known = {name: value is not None if name in {"number", "unread"} else value for name, value in fields.items()}
    return {name: value for name, value in fields.items() if is_known[name]}


def _lock_holders(file: _OpenFile, openers: Iterable[_OpenFile]) -> list[int]:
    """Return who has locked a file: a lock of flock(2) is that of every process that inherited the descriptor."""
    if holders := [other.pid for other in openers if other.has_locked]:
        return holders
    with contextlib.suppress(OSError, ValueError):
        return sorted(holder for holder in peers.lock_holders(file.pid, file.number) if kernel.process(holder))
    return []


def _unread(file: _OpenFile) -> int | None:
    """Return how many bytes wait in a pipe, or in the queue of a socket."""
    with contextlib.suppress(OSError, struct.error), peers.duplicate(file.pid, file.number) as copy:
        return int(struct.unpack("=i", fcntl.ioctl(copy, termios.FIONREAD, b"\0" * 4))[0])
    return None
