"""Find out whether a process outside the tree could end a wait: peers of pipes and sockets, locks, shared memory.

This reads the descriptors of every process of the machine, so it is done only when everything else indicates a
deadlock. An answer that is not known counts as "from outside": no evidence.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from typing import TYPE_CHECKING

from whichtorch.matrix.process import kernel
from whichtorch.matrix.process.evidence.sockets import sockets as all_sockets
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.process.evidence.stall import Waiter

_PIDFD_GETFD = 438  # the same number on all architectures


def may_end_from_outside(waiters: Sequence[Waiter], members: frozenset[int], supervisor: int) -> bool:
    """Return whether a process that is no member could end one of the waits."""
    links: set[str] = set()  # "pipe:[123]" for each descriptor waited for
    for waiter in waiters:
        pid = waiter.process.pid
        for descriptor in waiter.wait.descriptors:
            if waiter.wait.waiting is Waiting.LOCK:
                holders = lock_holders(pid, descriptor)
                if not holders or not holders <= members:
                    return True
                continue
            inner_links = _links(pid, descriptor, members, waiter.thread.call or "")
            if inner_links is None:
                return True
            links |= inner_links
    sockets = {link for link in links if link.startswith("socket:")}
    if sockets:
        rows = all_sockets()
        if not all(link in rows and rows[link].is_paired for link in sockets):
            return True
        links |= {rows[link].other for link in sockets}
    files = _shared_files(waiters)
    if files is None:
        return True
    if not links and not files:
        return False
    for pid in kernel.pids() - members - {supervisor}:
        if (links and not links.isdisjoint(open_files(pid).values())) or (files and _maps_any(pid, files)):
            return True
    # A peer must be open somewhere in the tree. Otherwise it is being sent in a message, or only the kernel holds it.
    return not links <= {link for pid in members for link in open_files(pid).values()}


def _links(pid: int, descriptor: int, members: frozenset[int], call: str) -> set[str] | None:
    """Return the pipes and sockets that a descriptor leads to, None where that is no evidence.

    A pidfd of a member leads to none.
    """
    link = kernel.link(f"/proc/{pid}/fd/{descriptor}")
    if link.startswith("pipe:["):
        return {link}
    if link.startswith("socket:["):
        return {link} if _waits_for_ever(pid, descriptor, call) else None
    if link == "anon_inode:[eventpoll]":
        targets = epoll_targets(pid, descriptor)
        links = [_links(pid, target, members, "epoll") for target in targets or ()]
        if targets is None or None in links:
            return None
        return {link for target_links in links if target_links for link in target_links}
    if link == "anon_inode:[pidfd]":
        owner = kernel.field(f"/proc/{pid}/fdinfo/{descriptor}", b"Pid:")
        return set() if owner in {b"%d" % member for member in members} else None
    return None  # a terminal, a device, a timer, inotify, an eventfd that a driver may write to


def epoll_targets(pid: int, descriptor: int) -> tuple[int, ...] | None:
    """Return the descriptors that an epoll instance watches; None where one of them was opened anew since."""
    targets = []
    for line in kernel.read(f"/proc/{pid}/fdinfo/{descriptor}").splitlines():
        words = line.split()
        if line.startswith(b"tfd:"):
            target = int(words[1])
            inode = next((int(word[4:], 16) for word in words if word.startswith(b"ino:") and len(word) > 4), None)
            if inode is not None and os.stat(f"/proc/{pid}/fd/{target}").st_ino != inode:
                return None
            targets.append(target)
    return tuple(targets)


@contextlib.contextmanager
def duplicate(pid: int, descriptor: int) -> Iterator[int]:
    """Lend a copy of a process's descriptor; raise OSError where it may not be taken."""
    process = os.pidfd_open(pid)
    copy = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, descriptor, 0)
    os.close(process)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    try:
        yield copy
    finally:
        os.close(copy)


def _waits_for_ever(pid: int, descriptor: int, call: str) -> bool:
    """Return whether a socket has no timeout set on it, which the arguments of the call do not show."""
    options = [] if "poll" in call or "select" in call else [socket.SO_RCVTIMEO, socket.SO_SNDTIMEO]
    try:
        with duplicate(pid, descriptor) as copy, socket.socket(fileno=os.dup(copy)) as own:
            timeouts = [own.getsockopt(socket.SOL_SOCKET, option, 16) for option in options]
            return not any(any(struct.unpack("@ll", timeout)) for timeout in timeouts)
    except (OSError, struct.error):
        return False


def lock_holders(pid: int, descriptor: int) -> set[int]:
    """Return the processes that have locked a file (/proc/locks), none where they are not known."""
    try:
        inode = os.stat(f"/proc/{pid}/fd/{descriptor}").st_ino
        locks = kernel.read("/proc/locks").splitlines()
    except OSError:
        return set()
    # A row with an arrow is a process that waits for the lock.
    rows = [words for words in map(bytes.split, locks) if b"->" not in words]
    return {int(words[4]) for words in rows if len(words) >= 6 and words[5].rpartition(b":")[2] == b"%d" % inode}


def _shared_files(waiters: Sequence[Waiter]) -> set[tuple[bytes, bytes]] | None:
    """Return device and inode of the shared memory that futexes lie in; None where one is not mapped."""
    files = set()
    for waiter in waiters:
        if not waiter.wait.shared:
            continue
        rows = kernel.mappings(waiter.process.pid)
        fields = next((fields for start, end, fields in rows if start <= waiter.wait.address < end), None)
        if fields is None:
            return None
        if fields[1].endswith(b"s"):
            files.add((fields[3], fields[4]))
    return files


def _maps_any(pid: int, files: set[tuple[bytes, bytes]]) -> bool:
    return any(fields[1].endswith(b"s") and (fields[3], fields[4]) in files for _, _, fields in kernel.mappings(pid))


def open_files(pid: int) -> dict[int, str]:
    """Return the links of a process's descriptors by their numbers.

    A process of another user cannot be read, and need not be: it gets pipes and socket pairs of the tree by
    inheritance, which makes it a member, or in a message over a socket, which is not followed.
    """
    links: dict[int, str] = {}
    with contextlib.suppress(OSError):
        links = {int(name): kernel.link(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    return {number: link for number, link in links.items() if link}
