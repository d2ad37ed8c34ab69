"""Read from /proc what a tree's processes are to each other: who ended, who holds what another waits for.

These are the facts that no stack tells: places in a distributed job, owners of mutexes, both ends of pipes and sockets,
holders of locked files, children that ended. What may not be read is left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import struct
import time
from collections import ChainMap
from functools import cached_property
from typing import TYPE_CHECKING, Any

from whichtorch.process import kernel
from whichtorch.process.evidence import peers, snapshots
from whichtorch.process.evidence.peers import SocketRow, sockets
from whichtorch.process.evidence.stall import FUTEX_COMMAND, FUTEX_PRIVATE

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from whichtorch.process.evidence.stall import ThreadSnapshot


LONGEST = 3.0  # seconds for all of it: what comes after is left out
# Of a process's environment nothing else is kept: it may hold secrets.
KEPT_VARIABLES = frozenset({
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
    "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
})  # fmt: skip
VARIABLES = 4096  # of an environment that are read
VARIABLE = 256  # bytes of one
ENDED_THREADS = 1  # that /proc counts in a process that has ended
_STATUS_AT = 49  # of the fields after a process's name in /proc/PID/stat: how it ended
_UNREADABLE = (OSError, ValueError, KeyError, IndexError, OverflowError, struct.error)

PRELOADED = re.compile(rb"\blib(?:iomp5|omp5?)\b")  # runtimes that take the place of libgomp, too
_OPENMP = re.compile(rb"/(lib(?:gomp|iomp5?|omp5?)[-.\d][-.\w]*)\s*$")
_TRANSFERS = {
    "read", "readv", "write", "writev", "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg", "accept",
    "accept4", "connect",
}  # fmt: skip
_LOCKING = {7, 38}  # F_SETLKW, F_OFD_SETLKW
_FUTEX_WAIT, _FUTEX_WAIT_BITSET = 0, 9
_FUTEX_LOCK_PI = {6, 13}
_FUTEX_OWNER = 0x3FFFFFFF  # of a word: the thread; the other bits are flags
# glibc's pthread_mutex_t, the same on all 64-bit machines: lock, count, owner, users, kind (nptl/bits/struct_mutex.h)
_MUTEX = struct.Struct("=iIiIi")
_CONTENDED = 2  # value of a lock that somebody waits for
_KINDS, _RECURSIVE, _ROBUST = 3, 1, 16  # the type of a mutex
_KIND_FLAGS = _KINDS | _ROBUST | 32 | 64 | 128 | 256 | 512  # priority inheritance and protection, shared, elision
# glibc's pthread_rwlock_t: readers, writers, two futexes, padding, writer, shared, …, flags
_READ_WRITE = struct.Struct("=IIIIIIiI16xI")
_READ_WRITE_FUTEXES = {8: 2, 12: 3}  # where in it they are, and which field
_FUTEX_OF_WRITER = 3  # value of a futex of one that somebody waits for until a writer lets go
_HAS_WRITER = 3  # bits of `readers`
_MOST_COUNTED = 1 << 16  # of times that a recursive mutex is locked, and of users of a mutex


def write_facts(pids: Sequence[int], path: Path) -> None:
    """Write what is known of the processes of a tree, and of their children that ended, one line each."""
    rows = [json.dumps(row) for row in tree_facts(pids)]
    path.write_text('{"processes": [\n' + ",\n".join(rows) + "\n]}\n", encoding="utf-8")


def tree_facts(pids: Sequence[int]) -> list[dict[str, Any]]:
    """Return what is known of processes and of their children that ended: fields of `Process` (diagnosis/stacks.py)."""
    end = time.monotonic() + LONGEST
    threads = {pid: _threads(pid, end) for pid in pids}
    all_tids = {tid for pid in pids for tid in kernel.thread_ids(pid)}
    waits = {pid: {thread.tid: _awaited(pid, thread) for thread in own} for pid, own in threads.items()}
    awaited = {pid: dict(ChainMap(*reversed(own.values()))) for pid, own in waits.items()}
    opened = describe_awaited(awaited, end)
    rows = []
    for pid in [*pids, *_ended_children(pids)]:
        row = _process(pid)
        if time.monotonic() < end:
            row["environ"] = environment(pid)
            row["openmp"] = _openmp(pid)
        row["descriptors"] = opened.get(pid)
        row["threads"] = _thread_rows(pid, threads.get(pid, ()), waits.get(pid, {}), all_tids)
        rows.append({name: value for name, value in row.items() if value})
    return rows


def _openmp(pid: int) -> list[str]:
    """Return the OpenMP runtimes of a process; none where LD_PRELOAD has one take the place of the others."""
    with contextlib.suppress(*_UNREADABLE):
        variables = kernel.read(f"/proc/{pid}/environ").split(b"\0")
        if not any(each.startswith(b"LD_PRELOAD=") and PRELOADED.search(each) for each in variables):
            return openmp_runtimes(path for _, _, (*_, path) in kernel.mappings(pid))
    return []


def openmp_runtimes(paths: Iterable[bytes]) -> list[str]:
    """Return the names of the OpenMP runtimes among loaded libraries: "libgomp-a34b3233.so.1", "libiomp5.so"."""
    return sorted({found[1].decode() for path in paths if (found := _OPENMP.search(path))})


def _threads(pid: int, end: float) -> list[ThreadSnapshot]:
    threads = []
    for tid in kernel.thread_ids(pid):
        if time.monotonic() > end:
            break
        with contextlib.suppress(*_UNREADABLE):
            threads.append(snapshots.read_thread(pid, tid))
    return threads


def _thread_rows(
    pid: int, threads: Sequence[ThreadSnapshot], waits: dict[int, dict[int, str]], all_tids: Container[int]
) -> list[dict[str, Any]]:
    """Return the threads of which something is known; a thread with its process's name has none of its own."""
    own_tids = set(kernel.thread_ids(pid))
    inherited = next((thread.name for thread in threads if thread.tid == pid), "")
    rows = []
    for thread in threads:
        numbers = list(waits[thread.tid])
        owner = _owner(pid, thread)
        is_private = owner is not None and bool(thread.arguments[1] & FUTEX_PRIVATE)
        is_there = owner in (own_tids if is_private else all_tids)
        row = {
            "name": thread.name if thread.name != inherited else "",
            "descriptor": numbers[0] if len(numbers) == 1 else None,
            "owner": owner if is_there else None,
            "missing_owner": owner if is_private and not is_there and _is_missing(pid, owner) else None,
        }
        known = {name: value for name, value in row.items() if value not in (None, "")}
        if known:
            rows.append({"tid": thread.tid, **known})
    return rows


def _is_missing(pid: int, tid: int | None) -> bool:
    """Return whether no thread of a process has a number that it wrote itself: in a container, it has another one."""
    numbers = kernel.read(f"/proc/{pid}/status").partition(b"NSpid:")[2].partition(b"\n")[0].split()
    return len(numbers) == 1 and tid not in kernel.thread_ids(pid)


def _ended_children(pids: Sequence[int]) -> list[int]:
    """Return the children that nobody has reaped."""
    known = set(pids)
    others = (kernel.process(pid) for pid in sorted(kernel.pids() - known))
    return [other.pid for other in others if other and other.parent in known and not other.is_alive]


def _process(pid: int) -> dict[str, Any]:
    """Return the parent and the command of a process, and how it ended."""
    process = kernel.process(pid)
    if process is None:
        return {"pid": pid}
    row: dict[str, Any] = {"pid": pid, "parent": process.parent, "command": kernel.command_line(pid) or process.name}
    if not process.is_alive and process.threads <= ENDED_THREADS:
        with contextlib.suppress(*_UNREADABLE):
            row["ended"] = _ended(pid)
    return row


def _ended(pid: int) -> str:
    """Return "exit code 1" or "SIGKILL"; "" where the kernel does not say."""
    fields = kernel.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    status = int(fields[_STATUS_AT])
    if not status and os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
        return ""  # the kernel shows 0 to users who may not know the status
    exit_code = os.waitstatus_to_exitcode(status)
    return kernel.signal_of(exit_code) or f"exit code {exit_code}"


def environment(pid: int) -> dict[str, str]:
    """Return a process's place in a distributed job: from its variables as they are now, not as it was started."""
    entries = None
    with contextlib.suppress(*_UNREADABLE):
        entries = _variables_now(pid)
    if entries is None:
        try:
            entries = kernel.read(f"/proc/{pid}/environ").split(b"\0")
        except OSError:
            return {}
    found: dict[str, str] = {}
    for entry in entries:
        name, is_set, value = entry.decode(errors="replace").partition("=")
        if is_set and name in KEPT_VARIABLES:
            found.setdefault(name, value)
    return found


def _variables_now(pid: int) -> list[bytes] | None:
    """Follow the variable `environ` of the C library, which setenv(3) changes; None where it is not found."""
    program = os.fsencode(os.readlink(f"/proc/{pid}/exe"))
    # A program that uses the variable itself holds it, and the library then uses the program's.
    for is_wanted in (lambda path: path == program, _is_c_library):
        for address, _ in snapshots.symbol_ranges(pid, is_wanted, b"environ", b"__environ"):
            (array,) = struct.unpack("=Q", kernel.memory(pid, address, 8))
            return _strings_at(pid, array) if array else None
    return None


def _is_c_library(path: bytes) -> bool:
    return os.path.basename(path).startswith((b"libc.so", b"libc-", b"ld-musl"))


def _strings_at(pid: int, array: int) -> list[bytes]:
    """Return the strings that the pointers of an array point to, up to the first that is null."""
    pointers = kernel.memory(pid, array, 8 * VARIABLES)
    strings = []
    for (pointer,) in struct.iter_unpack("=Q", pointers[: len(pointers) // 8 * 8]):
        if not pointer:
            break
        with contextlib.suppress(OSError, OverflowError):
            string, is_whole, _ = kernel.memory(pid, pointer, VARIABLE).partition(b"\0")
            if is_whole:
                strings.append(string)
    return strings


def _awaited(pid: int, thread: ThreadSnapshot) -> dict[int, str]:
    """Return the descriptors that a thread's system call waits for, and what they are: see `describe_awaited`."""
    call, arguments = thread.call or "", thread.arguments
    kind = "end" if thread.state == "S" else ""
    if call in _TRANSFERS:
        return {ctypes.c_int(arguments[0]).value: kind}
    if call == "flock" or (call == "fcntl" and arguments[1] in _LOCKING):
        return {ctypes.c_int(arguments[0]).value: "lock"}
    if "poll" in call or "select" in call:
        return dict.fromkeys(snapshots.polled(pid, call, arguments) or (), kind)
    return {}


def _owner(pid: int, thread: ThreadSnapshot) -> int | None:
    """Return the thread that holds the mutex a thread waits for, None where the futex is none or it is not known.

    Locks of Python are semaphores, and their memory means something else: everything must fit.
    """
    if thread.call != "futex" or thread.state != "S":
        return None
    address, operation, expected = thread.arguments[:3]
    command = operation & FUTEX_COMMAND
    owner = 0
    with contextlib.suppress(*_UNREADABLE):
        if command in _FUTEX_LOCK_PI:
            (word,) = struct.unpack("=I", kernel.memory(pid, address, 4))
            owner = word & _FUTEX_OWNER
        elif command in (_FUTEX_WAIT, _FUTEX_WAIT_BITSET):
            owner = _mutex_owner(kernel.memory(pid, address, _MUTEX.size), expected)
            owner = owner or (_writer(pid, address) if expected == _FUTEX_OF_WRITER else 0)
    return owner or None


def _mutex_owner(content: bytes, expected: int) -> int:
    """Return the owner of a mutex that somebody waits for; 0 where the memory is no such mutex."""
    lock, count, owner, users, kind = _MUTEX.unpack(content)
    if kind & ~_KIND_FLAGS or not 0 < users < _MOST_COUNTED:
        return 0
    if kind & _ROBUST:
        return owner if owner == lock & _FUTEX_OWNER else 0
    is_counted = 0 < count < _MOST_COUNTED if kind & _KINDS == _RECURSIVE else count == 0
    return owner if lock == expected == _CONTENDED and is_counted else 0


def _writer(pid: int, address: int) -> int:
    """Return the writer that holds the read-write lock with a futex at an address; 0 where the memory is none."""
    for distance, position in _READ_WRITE_FUTEXES.items():
        fields = _READ_WRITE.unpack(kernel.memory(pid, address - distance, _READ_WRITE.size))
        readers, *_, pad_3, pad_4, writer, shared, flags = fields
        is_one = not pad_3 and not pad_4 and shared in (0, 1) and flags <= 2
        if is_one and fields[position] == _FUTEX_OF_WRITER and readers & _HAS_WRITER == _HAS_WRITER:
            return int(writer)
    return 0


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
    return {"number": file.number} | {name: value for name, value in fields.items() if value}


def _lock_holders(file: _OpenFile, openers: Iterable[_OpenFile]) -> list[int]:
    """Return which processes have locked a file. Processes that inherited a descriptor share its flock(2) lock."""
    if holders := [other.pid for other in openers if other.has_locked]:
        return holders
    return sorted(holder for holder in peers.lock_holders(file.pid, file.number) if kernel.process(holder))
