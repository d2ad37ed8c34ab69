"""Find out who else could end a wait: the other ends of pipes and sockets, holders of locks, memory.

This reads the descriptors of every process of the machine, so it is done only where all else speaks for a
deadlock already. What cannot be told is answered as "from outside": no evidence.
"""

# The supervisor must not pay for importing pathlib.
# ruff: noqa: PTH115, PTH116, PTH208

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

    from matrix.process.evidence import stall

_PIDFD_GETFD = 438  # the same number on all architectures
_SOCK_DIAG, _DIAG_BY_FAMILY, _UNIX_DIAG_PEER = 4, 20, 2  # linux/sock_diag.h, unix_diag.h
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_SHOW_PEER = 4  # UDIAG_SHOW_PEER
_NETLINK_DONE, _NETLINK_ERROR = 3, 2
_ESTABLISHED = b"01"  # /proc/net/tcp


def outside(
    waits: Sequence[tuple[int, stall.ThreadSnapshot, stall.KernelWait]], members: frozenset[int], supervisor: int
) -> str:
    """Return why one of the waits may be ended by who is not a member, "" where none can be."""
    ends: dict[str, int] = {}  # "pipe:[123]" -> tid of who waits for it
    for pid, thread, wait in waits:
        for descriptor in wait.descriptors:
            if wait.word == "lock":
                if not _lock_holder_is_member(pid, descriptor, members):
                    return f"{thread.tid}: a file lock held by who knows"
                continue
            for link in _links(pid, descriptor, members, thread.call or ""):
                if not link:
                    return f"{thread.tid}: fd {descriptor} may be served from outside"
                ends[link] = thread.tid
    sockets = {link for link in ends if link.startswith("socket:")}
    if sockets:
        peers = _peers()
        for link in sockets:
            peer = peers.get(link)
            if peer is None:
                return f"{ends[link]}: {link} has a peer that is not known"
            ends[peer] = ends[link]
    files = _shared_files(waits)
    if files is None:
        return "a shared futex whose memory is not known"
    if not ends and not files:
        return ""
    for pid in kernel.pids() - members:
        if pid == supervisor:
            continue
        held = set(_open_files(pid)) & ends.keys() if ends else set()
        if held:
            return f"{held.pop()} is open in process {pid}"
        if files and _maps_any(pid, files):
            return f"memory of a futex is shared with process {pid}"
    # A peer must be open somewhere in the tree: else it is on its way in a message, or in the kernel's hands.
    everything = {link for pid in members for link in _open_files(pid)}
    for link, tid in ends.items():
        if link not in everything:
            return f"{tid}: {link} is nobody's"
    return ""


def _links(pid: int, descriptor: int, members: frozenset[int], call: str) -> list[str]:
    """Return what a descriptor leads to, "" for what is no evidence; none for a member's own end (pidfd)."""
    try:
        link = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return [""]
    if link.startswith("pipe:["):
        return [link]
    if link.startswith("socket:["):
        return [link] if _waits_for_ever(pid, descriptor, call) else [""]
    if link == "anon_inode:[eventpoll]":
        inner = epolled(pid, descriptor)
        if inner is None:
            return [""]
        return [found for entry in inner for found in _links(pid, entry, members, "epoll")]
    if link == "anon_inode:[pidfd]":
        return [] if _pid_of(pid, descriptor) in members else [""]
    return [""]  # a terminal, a device, a timer, inotify, an eventfd that a driver may write to


def epolled(pid: int, descriptor: int) -> tuple[int, ...] | None:
    """Return the descriptors that an epoll instance watches; None where one of them is not what it was."""
    found = []
    for line in kernel.read(f"/proc/{pid}/fdinfo/{descriptor}").splitlines():
        words = line.split()
        if line.startswith(b"tfd:"):
            target = int(words[1])
            inode = next((int(word[4:], 16) for word in words if word.startswith(b"ino:") and len(word) > 4), None)
            if inode is not None and os.stat(f"/proc/{pid}/fd/{target}").st_ino != inode:
                return None
            found.append(target)
    return tuple(found)


def _pid_of(pid: int, descriptor: int) -> int | None:
    """Return the process that a pidfd stands for."""
    try:
        for line in kernel.read(f"/proc/{pid}/fdinfo/{descriptor}").splitlines():
            if line.startswith(b"Pid:"):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def _waits_for_ever(pid: int, descriptor: int, call: str) -> bool:
    """Return whether a socket has no timeout of its own, which no argument of the call shows."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, descriptor, 0)
        if copy < 0:
            return False
        with socket.socket(fileno=copy) as taken:
            options = [] if "poll" in call or "select" in call else [socket.SO_RCVTIMEO, socket.SO_SNDTIMEO]
            return not any(
                any(struct.unpack("@ll", taken.getsockopt(socket.SOL_SOCKET, option, 16))) for option in options
            )
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
        by_address: dict[tuple[bytes, bytes], bytes] = {}
        for line in lines:
            words = line.split()
            if words[3] == _ESTABLISHED and words[9] != b"0":
                by_address[words[1], words[2]] = words[9]
        for (local, remote), inode in by_address.items():
            if other := by_address.get((remote, local)):
                peers[f"socket:[{inode.decode()}]"] = f"socket:[{other.decode()}]"
    return peers


def _unix_peers() -> dict[str, str]:
    """Ask the kernel for the pairs of unix sockets (sock_diag(7)): /proc/net/unix does not tell."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF)
    peers: dict[str, str] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
        netlink.settimeout(1.0)
        netlink.send(struct.pack("=IHHII", 16 + len(request), _DIAG_BY_FAMILY, _DUMP, 1, 0) + request)
        while True:
            data = netlink.recv(1 << 17)
            at = 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind in (_NETLINK_DONE, _NETLINK_ERROR) or length < 16:
                    return peers
                inode = struct.unpack_from("=I", data, at + 20)[0]
                inner, end = at + 32, at + length
                while inner + 4 <= end:
                    size, name = struct.unpack_from("=HH", data, inner)
                    if name == _UNIX_DIAG_PEER and size >= 8:
                        peer = struct.unpack_from("=I", data, inner + 4)[0]
                        peers[f"socket:[{inode}]"] = f"socket:[{peer}]"
                    inner += max(4, -(-size // 4) * 4)
                at += -(-length // 4) * 4


def _lock_holder_is_member(pid: int, descriptor: int, members: frozenset[int]) -> bool:
    """Return whether members alone hold the locks of a file that is waited for (/proc/locks)."""
    try:
        entry = os.stat(f"/proc/{pid}/fd/{descriptor}")
        lines = kernel.read("/proc/locks").splitlines()
    except OSError:
        return False
    holders = []
    for line in lines:
        words = line.split()
        if b"->" in words or len(words) < 6:
            continue  # who waits
        if words[5].rpartition(b":")[2] == b"%d" % entry.st_ino:
            holders.append(int(words[4]))
    return bool(holders) and all(holder in members for holder in holders)


def _shared_files(
    waits: Sequence[tuple[int, stall.ThreadSnapshot, stall.KernelWait]],
) -> set[tuple[bytes, bytes]] | None:
    """Return device and inode of the shared memory that futexes lie in; None where one is not mapped."""
    files = set()
    for pid, _, wait in waits:
        if not wait.shared:
            continue
        for start, end, sharing, file in _mappings(pid):
            if start <= wait.address < end:
                if sharing == b"s":
                    files.add(file)
                break
        else:
            return None
    return files


def _maps_any(pid: int, files: set[tuple[bytes, bytes]]) -> bool:
    return any(sharing == b"s" and file in files for _, _, sharing, file in _mappings(pid))


def _mappings(pid: int) -> list[tuple[int, int, bytes, tuple[bytes, bytes]]]:
    """Return start, end, b"s" or b"p", and (device, inode) of the mappings of a process."""
    found = []
    try:
        for line in kernel.read(f"/proc/{pid}/maps", 1 << 24).splitlines():
            fields = line.split(None, 5)
            start, _, end = fields[0].partition(b"-")
            found.append((int(start, 16), int(end, 16), fields[1][3:4], (fields[3], fields[4])))
    except (OSError, ValueError, IndexError):
        pass
    return found


def _open_files(pid: int) -> list[str]:
    """Return what the descriptors of a process lead to.

    A process of another user cannot be read, and need not be: pipes and socket pairs of the tree reach it by
    inheritance, which makes it a member, or in a message over a socket, which is not followed.
    """
    links = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                continue
    except OSError:
        pass
    return links
