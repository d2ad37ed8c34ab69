"""Find out whether a process outside the tree could end a wait: peers of pipes and sockets, locks, shared memory.

This reads the descriptors of every process of the machine, so it is done only when everything else indicates a
deadlock. An answer that is not known counts as "from outside": no evidence. TCP
sockets are paired by their addresses, and unix sockets by what the kernel tells of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.process import kernel
from whichtorch.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.process.evidence.stall import Waiter


_SOCK_DIAG, _DIAG_BY_FAMILY = 4, 20  # linux/sock_diag.h
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_SHOWN = 1 | 4 | 8  # UDIAG_SHOW_NAME, UDIAG_SHOW_PEER, UDIAG_SHOW_ICONS
_NAME, _PEER, _PENDING = 0, 2, 3  # UNIX_DIAG_*
_NETLINK_DONE, _NETLINK_ERROR = 3, 2
_ESTABLISHED, _SYN_SENT, _CLOSE_WAIT, _LISTEN = 1, 2, 8, 10  # net/tcp_states.h, of unix sockets, too
_TCP_INFO = 2  # INET_DIAG_INFO
_CONNECTED = 1 << _ESTABLISHED | 1 << 4 | 1 << 5 | 1 << _CLOSE_WAIT  # with TCP_FIN_WAIT1 and 2: states as a mask
_TABLE_READ = 1 << 24  # bytes of a table of sockets
_MAPPED = b"\0" * 10 + b"\xff" * 2  # an IPv4 address as an IPv6 socket has it


class SocketRow(NamedTuple):
    """One socket and its other end."""

    local: str = ""  # "127.0.0.1:4242", or the path of a unix socket
    peer: str = ""
    is_listening: bool = False
    other: str = ""  # link of the socket at the other end; of the listening one until that accepts
    is_paired: bool = False  # both ends are connected and held by processes


def sockets(pid: int | str = "self") -> dict[str, SocketRow]:
    """Return the TCP sockets of the network that a process sees, and the unix sockets of ours, by their links."""
    rows: dict[str, SocketRow] = {}
    with contextlib.suppress(OSError, struct.error):
        rows.update(_unix_sockets())
    rows.update(_tcp_sockets(pid))
    return rows


def _tcp_sockets(pid: int | str) -> dict[str, SocketRow]:
    ends: dict[tuple[str, str], tuple[int, str]] = {}  # local and remote address: state, link
    listeners: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in kernel.read(f"/proc/{pid}/net/{table}", _TABLE_READ).splitlines()[1:]:
                words = line.split()
                state, link = int(words[3], 16), f"socket:[{words[9].decode()}]" if words[9] != b"0" else ""
                local, remote = _address(words[1]), _address(words[2])
                if state == _LISTEN:
                    listeners[local] = link
                else:
                    ends[local, remote] = (state, link)
    rows = {link: SocketRow(local=local, is_listening=True) for local, link in listeners.items()}
    for (local, remote), (state, link) in ends.items():
        other_state, other = ends.get((remote, local), (0, ""))
        is_paired = bool(other) and state == other_state == _ESTABLISHED
        if not other and (state == _SYN_SENT or other_state in {_ESTABLISHED, _CLOSE_WAIT}):  # nobody accepted it yet
            port = remote.rpartition(":")[2]
            places = (remote, f"0.0.0.0:{port}", f"[::]:{port}")
            other = next((listeners[place] for place in places if place in listeners), "")
        if link:
            rows[link] = SocketRow(local=local, peer=remote, other=other, is_paired=is_paired)
    return rows


def _address(text: bytes) -> str:
    """Return "127.0.0.1:80" of `0100007F:0050`: words of four bytes, as the processor stores them."""
    host, _, port = text.partition(b":")
    numbers = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    packed = struct.pack(f"={len(numbers)}I", *numbers)
    if packed.startswith(_MAPPED) and len(packed) == 16:
        packed = packed[12:]
    if len(packed) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, packed)}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]:{int(port, 16)}"


def _unix_sockets() -> dict[str, SocketRow]:
    """Ask the kernel for the pairs of unix sockets (sock_diag(7)): /proc/net/unix does not list them."""
    found = _diagnosed()
    names: dict[int, str] = {}
    listeners: dict[int, int] = {}  # of those that connected to one and are not accepted yet
    for inode, (_, attributes) in found.items():
        names[inode] = attributes.get(_NAME, b"").rstrip(b"\0").replace(b"\0", b"@").decode(errors="replace")
        pending = attributes.get(_PENDING, b"")
        listeners |= dict.fromkeys(struct.unpack(f"={len(pending) // 4}I", pending), inode)
    rows = {}
    for inode, (state, attributes) in found.items():
        (peer,) = struct.unpack_from("=I", attributes.get(_PEER, bytes(4)))
        other = peer or listeners.get(inode, 0)
        rows[f"socket:[{inode}]"] = SocketRow(
            local=names[inode],
            peer=names.get(other, ""),
            is_listening=state == _LISTEN,
            other=f"socket:[{other}]" if other else "",
            is_paired=bool(peer),
        )
    return rows


def _diagnosed() -> dict[int, tuple[int, dict[int, bytes]]]:
    """Return state and attributes of every unix socket by its inode."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOWN, 0xFFFFFFFF, 0xFFFFFFFF)
    found: dict[int, tuple[int, dict[int, bytes]]] = {}
    for answer in _answers(request):
        state, inode = struct.unpack_from("=2xBxI", answer)
        found[inode] = state, _attributes(answer[16:])
    return found


def tcp_bytes() -> dict[str, tuple[int, int]]:
    """Return how many bytes each connected TCP socket of our network has delivered, by its link.

    The first number is what its owner has taken out of it, and the second is what the other end has acknowledged. What
    lies in the socket unread does not count. The dictionary is empty where the kernel does not tell.
    """
    delivered = {}
    with contextlib.suppress(OSError, struct.error):
        for family in (socket.AF_INET, socket.AF_INET6):
            request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (_TCP_INFO - 1), _CONNECTED)
            for answer in _answers(request):
                unread, inode = struct.unpack_from("=56xI8xI", answer)
                acknowledged, received = struct.unpack_from("=120xQQ", _attributes(answer[72:]).get(_TCP_INFO, b""))
                delivered[f"socket:[{inode}]"] = (received - unread, acknowledged)
    return delivered


def _answers(request: bytes) -> Iterator[bytes]:
    """Ask the kernel about sockets (sock_diag(7)), and yield what it says of each."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
        netlink.settimeout(1.0)
        netlink.send(struct.pack("=IHHII", 16 + len(request), _DIAG_BY_FAMILY, _DUMP, 1, 0) + request)
        while True:
            data = netlink.recv(1 << 17)
            start = 0
            while start + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, start)
                if kind in (_NETLINK_DONE, _NETLINK_ERROR) or length < 16:
                    return
                yield data[start + 16 : start + length]
                start += -(-length // 4) * 4


def _attributes(data: bytes) -> dict[int, bytes]:
    """Return the attributes of a message by their kinds."""
    attributes = {}
    position = 0
    while position + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, position)
        attributes[kind] = data[position + 4 : position + size]
        position += max(4, -(-size // 4) * 4)
    return attributes


_OWN_DOOR = "/pymp-"  # in the path of a socket of multiprocessing, which only the tree's own processes are told
_NAMES = "/dev/shm"  # noqa: S108  where named semaphores and shared memory are files
_OWN_NAMES = ("sem.mp-", "sem.loky-")  # how the names of semaphores of multiprocessing and loky begin
_PIDFD_GETFD = 438  # the same number on all architectures


def may_end_from_outside(waiters: Sequence[Waiter], members: frozenset[int], supervisor: int) -> bool:
    """Return whether a process that is no member could end one of the waits."""
    links: set[str] = set()  # "pipe:[123]" for each descriptor waited for
    served: set[str] = set()  # of services: who waits for one waits for whoever may come to it
    doors: set[str] = set()  # of threads that do nothing but accept connections
    for waiter in waiters:
        pid = waiter.process.pid
        if waiter.wait.is_service:
            links_of_service = {kernel.link(f"/proc/{pid}/fd/{descriptor}") for descriptor in waiter.wait.descriptors}
            served |= links_of_service
            doors |= links_of_service if waiter.wait.waiting is Waiting.SOCKET else set()
            continue
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
    own = {link for link in links | served if link.startswith("socket:")}
    if own:
        rows = sockets()
        if not all(link in rows and _OWN_DOOR in rows[link].local for link in doors):
            return True
        own -= {link for link in served - links if link in rows and rows[link].is_listening}
        if not all(link in rows and rows[link].is_paired for link in own):
            return True
        if any(rows[link].other in served for link in own - served):
            return True
        links |= own | {rows[link].other for link in own}
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
    """Return device and inode of the shared memory that futexes lie in; None where a later program may open it."""
    files = set()
    for waiter in waiters:
        if not waiter.wait.shared:
            continue
        rows = kernel.mappings(waiter.process.pid)
        fields = next((fields for start, end, fields in rows if start <= waiter.wait.address < end), None)
        if fields is None:
            return None
        if fields[1].endswith(b"s"):
            if _has_name(fields):
                return None  # who opens it may come later
            files.add((fields[3], fields[4]))
    return files


def _has_name(fields: Sequence[bytes]) -> bool:
    """Return whether a program that starts later may open a mapping by a name: `fields` as in proc_pid_maps(5)."""
    if fields[5].startswith(tuple(f"{_NAMES}/{name}".encode() for name in _OWN_NAMES)):
        return False  # only its own tree is told of it
    if not fields[5].endswith(b" (deleted)") or fields[5].startswith(b"/SYSV"):
        return True
    with contextlib.suppress(OSError), os.scandir(_NAMES) as files:  # that of a new semaphore was another
        return any(file.inode() == int(fields[4]) and not file.name.startswith(_OWN_NAMES) for file in files)
    return False


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
