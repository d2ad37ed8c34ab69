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
from typing import TYPE_CHECKING, Any

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


class _OpenFile:
    """A descriptor of a process, as other processes see it."""

    def __init__(self, pid: int, number: int, link: str) -> None:
        self.pid, self.number, self.link = pid, number, link

    @cached_property
    def info(self) -> bytes:
        """What /proc says of it; b"" where it may not be read."""
        with contextlib.suppress(OSError):
            return b"\n" + kernel.read(f"/proc/{self.pid}/fdinfo/{self.number}")
        return b""

    @cached_property
    def mode(self) -> int | None:
        """How it was opened: 0 to read, 1 to write, 2 for both; None where it is not known."""
        flags = re.search(rb"\nflags:\s*(\d+)", self.info)
        return int(flags[1], 8) & 3 if flags else None

    @property
    def has_locked(self) -> bool:
        """True where its file is locked through it."""
        return b"\nlock:" in self.info

    @property
    def is_socket(self) -> bool:
        """True for any kind of socket."""
        return self.link.startswith("socket:[")

    def is_awaited_by(self, other: _OpenFile) -> bool:
        """Return whether it is the other end of a pipe."""
        if self.mode is None or other.mode is None:
            return False
        return _BOTH in (self.mode, other.mode) or self.mode != other.mode


def describe_awaited(awaited: Mapping[int, Mapping[int, str]], end: float) -> dict[int, list[dict[str, Any]]]:
    """Return what is known of the awaited descriptors of processes, and of the files they have locked.

    `awaited` says of each what it is: the "end" of a pipe or socket, the "lock" of a file, "" for anything else. The
    descriptors of all other processes of the machine are read once, until the time `end`.
    """
    links = {pid: peers.open_files(pid) if time.monotonic() < end else {} for pid in awaited}
    wanted = {pid: _wanted(pid, links[pid], awaited[pid], end) for pid in awaited}
    rows = _socket_rows(file for own in wanted.values() for file in own)
    openers = _openers({file.link for own in wanted.values() for file in own}, rows.values(), links, end)
    return {
        pid: [_describe(file, kind, rows.get(file, SocketRow()), openers) for file, kind in own.items()]
        for pid, own in wanted.items()
    }


def _wanted(pid: int, links: Mapping[int, str], awaited: Mapping[int, str], end: float) -> dict[_OpenFile, str]:
    """Return the awaited descriptors of a process and its locked files, with what each is."""
    wanted = {_OpenFile(pid, number, links[number]): kind for number, kind in awaited.items() if number in links}
    for number, link in links.items():
        if time.monotonic() > end:
            break
        if _FILES.match(link) and number not in awaited and (file := _OpenFile(pid, number, link)).has_locked:
            wanted[file] = "lock"
    return dict(list(wanted.items())[:MOST])


def _socket_rows(files: Iterable[_OpenFile]) -> dict[_OpenFile, SocketRow]:
    """Return what is known of sockets; each network is read once."""
    networks: dict[str, dict[str, SocketRow]] = {}
    rows: dict[_OpenFile, SocketRow] = {}
    for file in files:
        if not file.is_socket:
            continue
        network = kernel.link(f"/proc/{file.pid}/ns/net")
        if network not in networks:
            networks[network] = sockets(file.pid)
        if file.link in networks[network]:
            rows[file] = networks[network][file.link]
    return rows


def _openers(
    wanted: set[str], rows: Iterable[SocketRow], links: Mapping[int, Mapping[int, str]], end: float
) -> dict[str, list[_OpenFile]]:
    """Return which descriptors lead to the wanted files and other ends, those of the tree first."""
    openers: dict[str, list[_OpenFile]] = {link: [] for link in wanted | {row.other for row in rows} - {""}}
    pids = [*links, *sorted(kernel.pids() - links.keys())] if openers else []
    for pid in pids:
        if time.monotonic() > end:
            break
        for number, link in (links[pid] if pid in links else peers.open_files(pid)).items():
            if link in openers:
                openers[link].append(_OpenFile(pid, number, link))
    return openers


def _describe(file: _OpenFile, kind: str, row: SocketRow, openers: Mapping[str, list[_OpenFile]]) -> dict[str, Any]:
    """Return the fields of a `Descriptor` (diagnosis/stacks.py) that are known."""
    is_pipe = file.link.startswith("pipe:[") or (kind == "end" and _FILES.match(file.link) is not None)
    holders: Iterable[int] = ()
    if file.is_socket:
        holders = (other.pid for other in openers.get(row.other, ()))
    elif is_pipe:
        holders = (other.pid for other in openers[file.link] if other.is_awaited_by(file))
    elif kind == "lock":
        holders = _lock_holders(file, openers[file.link])
    elif file.link == _PIDFD:
        holders = filter(None, [int(kernel.field(f"/proc/{file.pid}/fdinfo/{file.number}", b"Pid:") or b"0")])
    fields = {
        "link": os.fsencode(file.link).decode(errors="replace")[:LINK],
        "is_written": file.mode == _WRITES_ONLY,
        "local": row.local,
        "peer": row.peer,
        "is_listening": row.is_listening,
        "holders": list(dict.fromkeys(holders))[:HOLDERS],
    }
    unread = _unread(file) if is_pipe or file.is_socket else None
    counted = {"number": file.number} | ({"unread": unread} if unread is not None else {})
    return counted | {name: value for name, value in fields.items() if value}


def _lock_holders(file: _OpenFile, openers: Iterable[_OpenFile]) -> list[int]:
    """Return which processes have locked a file. Processes that inherited a descriptor share its flock(2) lock."""
    if holders := [other.pid for other in openers if other.has_locked]:
        return holders
    return sorted(holder for holder in peers.lock_holders(file.pid, file.number) if kernel.process(holder))


def _unread(file: _OpenFile) -> int | None:
    """Return how many bytes wait in a pipe, or in the queue of a socket."""
    with contextlib.suppress(OSError, struct.error), peers.duplicate(file.pid, file.number) as copy:
        return int(struct.unpack("=i", fcntl.ioctl(copy, termios.FIONREAD, b"\0" * 4))[0])
    return None
