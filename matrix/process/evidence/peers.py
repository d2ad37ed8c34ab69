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

from matrix.process import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.process.evidence.stall import Waiter

_PIDFD_GETFD = 438  # the same number on all architectures
_SOCK_DIAG, _DIAG_BY_FAMILY, _UNIX_DIAG_PEER = 4, 20, 2  # linux/sock_diag.h, unix_diag.h
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_SHOW_PEER = 4  # UDIAG_SHOW_PEER
_NETLINK_DONE, _NETLINK_ERROR = 3, 2
_ESTABLISHED = b"01"  # /proc/net/tcp


def may_end_from_outside(waiters: Sequence[Waiter], members: frozenset[int], supervisor: int) -> bool:
    """Return whether a process that is no member could end one of the waits."""
    links: set[str] = set()  # "pipe:[123]" for each descriptor waited for
    for waiter in waiters:
        pid = waiter.process.pid
        for descriptor in waiter.wait.descriptors:
            if waiter.wait.word == "lock":
                if not _lock_holder_is_member(pid, descriptor, members):
                    return True
                continue
            inner_links = _links(pid, descriptor, members, waiter.thread.call or "")
            if inner_links is None:
                return True
            links |= inner_links
    sockets = {link for link in links if link.startswith("socket:")}
    if sockets:
        peers = _peers()
        if not sockets <= peers.keys():
            return True
        links |= {peers[link] for link in sockets}
    files = _shared_files(waiters)
    if files is None:
        return True
    if not links and not files:
        return False
    for pid in kernel.pids() - members - {supervisor}:
        if (links and not links.isdisjoint(_open_files(pid))) or (files and _maps_any(pid, files)):
            return True
    # A peer must be open somewhere in the tree: else it is on its way in a message, or in the kernel's hands.
    return not links <= {link for pid in members for link in _open_files(pid)}


def _links(pid: int, descriptor: int, members: frozenset[int], call: str) -> set[str] | None:
    """Return the pipes and sockets that a descriptor leads to, None where that is no evidence.

    A pidfd of a member leads to none.
    """
    try:
        link = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return None
    if link.startswith("pipe:["):
        return {link}
    if link.startswith("socket:["):
        return {link} if _waits_for_ever(pid, descriptor, call) else None
    if link == "anon_inode:[eventpoll]":
        targets = epolled(pid, descriptor)
        links = [_links(pid, target, members, "epoll") for target in targets or ()]
        if targets is None or None in links:
            return None
        return {link for target_links in links if target_links for link in target_links}
    if link == "anon_inode:[pidfd]":
        owner = kernel.field(f"/proc/{pid}/fdinfo/{descriptor}", b"Pid:")
        return set() if owner in {b"%d" % member for member in members} else None
    return None  # a terminal, a device, a timer, inotify, an eventfd that a driver may write to


def epolled(pid: int, descriptor: int) -> tuple[int, ...] | None:
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


def _waits_for_ever(pid: int, descriptor: int, call: str) -> bool:
    """Return whether a socket has no timeout set on it, which the arguments of the call do not show."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, descriptor, 0)
        if copy < 0:
            return False
        with socket.socket(fileno=copy) as duplicate:
            options = [] if "poll" in call or "select" in call else [socket.SO_RCVTIMEO, socket.SO_SNDTIMEO]
            timeouts = [duplicate.getsockopt(socket.SOL_SOCKET, option, 16) for option in options]
            return not any(any(struct.unpack("@ll", timeout)) for timeout in timeouts)
    except (OSError, struct.error):
        return False
    finally:
        os.close(process)


def _peers() -> dict[str, str]:
    """Return the other end of every connected local socket: unix, and TCP within this machine."""
    peers: dict[str, str] = {}
    with contextlib.suppress(OSError):
        peers.update(_unix_peers())
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = kernel.read(table, 1 << 24).splitlines()[1:]
        except OSError:
            continue
        rows = [line.split() for line in lines]
        by_address = {(row[1], row[2]): row[9] for row in rows if row[3] == _ESTABLISHED and row[9] != b"0"}
        for (local, remote), inode in by_address.items():
            if peer := by_address.get((remote, local)):
                peers[f"socket:[{inode.decode()}]"] = f"socket:[{peer.decode()}]"
    return peers


def _unix_peers() -> dict[str, str]:
    """Ask the kernel for the pairs of unix sockets (sock_diag(7)): /proc/net/unix does not list them."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF)
    peers: dict[str, str] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
        netlink.settimeout(1.0)
        netlink.send(struct.pack("=IHHII", 16 + len(request), _DIAG_BY_FAMILY, _DUMP, 1, 0) + request)
        while True:
            data = netlink.recv(1 << 17)
            start = 0
            while start + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, start)
                if kind in (_NETLINK_DONE, _NETLINK_ERROR) or length < 16:
                    return peers
                inode = struct.unpack_from("=I", data, start + 20)[0]
                position, end = start + 32, start + length
                while position + 4 <= end:
                    size, name = struct.unpack_from("=HH", data, position)
                    if name == _UNIX_DIAG_PEER and size >= 8:
                        peer = struct.unpack_from("=I", data, position + 4)[0]
                        peers[f"socket:[{inode}]"] = f"socket:[{peer}]"
                    position += max(4, -(-size // 4) * 4)
                start += -(-length // 4) * 4


def _lock_holder_is_member(pid: int, descriptor: int, members: frozenset[int]) -> bool:
    """Return whether only members hold the locks of a file (/proc/locks)."""
    try:
        entry = os.stat(f"/proc/{pid}/fd/{descriptor}")
        lines = kernel.read("/proc/locks").splitlines()
    except OSError:
        return False
    # A row with an arrow is a process that waits for the lock.
    rows = [words for words in map(bytes.split, lines) if b"->" not in words and len(words) >= 6]
    holders = {int(words[4]) for words in rows if words[5].rpartition(b":")[2] == b"%d" % entry.st_ino}
    return bool(holders) and holders <= members


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


def _open_files(pid: int) -> list[str]:
    """Return the links of a process's descriptors.

    A process of another user cannot be read, and need not be: it gets pipes and socket pairs of the tree by
    inheritance, which makes it a member, or in a message over a socket, which is not followed.
    """
    links = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return links
