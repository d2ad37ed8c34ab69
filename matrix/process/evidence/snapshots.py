"""Take pictures of the threads of a tree: what each waits for, read from /proc."""

# The supervisor must not pay for importing pathlib.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

from matrix.process import kernel
from matrix.process.evidence import peers, runtime, stall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# linux/arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
_X86_64 = {
    0: "read", 1: "write", 7: "poll", 19: "readv", 20: "writev", 23: "select", 44: "sendto", 45: "recvfrom",
    46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 202: "futex", 232: "epoll_wait",
    247: "waitid", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 441: "epoll_pwait2",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 63: "read", 64: "write", 65: "readv", 66: "writev",
    72: "pselect6", 73: "ppoll", 95: "waitid", 98: "futex", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 260: "wait4", 441: "epoll_pwait2",
}  # fmt: skip
CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(os.uname().machine, {})
LOWEST_STACK = 1 << 32  # a stack below is that of a 32-bit process, whose calls have other numbers
RETRIES = 4  # of a thread seen awake: who waits for the GIL is so for some microseconds in every 5 ms
RETRY_AFTER = 0.001  # seconds
POLLED_LIMIT = 4096  # descriptors in one poll or select


class Live:
    """Answer what stall detection asks, from /proc of this machine (see `stall.Look`)."""

    def __init__(self, tree: kernel.Tree, supervisor: int) -> None:
        self._tree = tree
        self._supervisor = supervisor
        self._runtimes: dict[int, tuple[tuple[int, int], ...]] = {}
        self._code: dict[int, bytes] = {}  # where the program of a process is: another one after exec
        self._not_gil: set[tuple[int, int]] = set()  # pid and address: no need to read the maps again

    def threads(self, pid: int, first: int) -> Iterator[stall.ThreadSnapshot]:
        """Yield the threads of a process, `first` first."""
        try:
            tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")), key=lambda tid: tid != first)
        except OSError:
            return
        for tid in tids:
            try:
                thread = read_thread(pid, tid)
                for _ in range(RETRIES):
                    if not (thread.state == "R" or thread.call == "") or not self._runtimes.get(pid):
                        break
                    time.sleep(RETRY_AFTER)
                    thread = read_thread(pid, tid)
            except (OSError, ValueError, KeyError):
                thread = stall.ThreadSnapshot(tid=tid, name="?", state="?", switches=0, call=None)
            yield thread

    def io(self, pid: int) -> tuple[int, ...]:
        """Return rchar and wchar; nothing where they may not be read (then the switches tell alone)."""
        try:
            lines = kernel.read(f"/proc/{pid}/io").split(b"\n")
            return tuple(int(line.split()[1]) for line in lines[:2])
        except (OSError, ValueError, IndexError):
            return ()

    def expects_signals(self, pid: int) -> bool:
        """Return whether it catches SIGALRM or SIGIO (setitimer shows nowhere) or has POSIX timers."""
        try:
            status = kernel.read(f"/proc/{pid}/status")
            caught = int(status.partition(b"\nSigCgt:")[2].split(None, 1)[0], 16)
        except (OSError, ValueError, IndexError):
            return True
        if caught & stall.SIGNALS_FROM_KERNEL:
            return True
        try:
            return bool(kernel.read(f"/proc/{pid}/timers"))
        except OSError:
            return False  # a kernel without CONFIG_POSIX_TIMERS or its list

    def is_gil(self, pid: int, address: int) -> bool:
        """Return whether `address` is in a `_PyRuntime` of the process."""
        code = _start_of_code(pid)
        if self._code.get(pid) != code or (not self._runtimes[pid] and (pid, address) not in self._not_gil):
            self._code[pid] = code
            self._runtimes[pid] = runtime.runtime_ranges(pid)
        inside = any(start <= address < end for start, end in self._runtimes[pid])
        if not inside:
            if len(self._not_gil) > 10_000:
                self._not_gil.clear()
            self._not_gil.add((pid, address))
        return inside

    def polled(self, pid: int, call: str, arguments: Sequence[int]) -> tuple[int, ...] | None:
        """Read from the process's memory, or its epoll instance, which descriptors it waits for."""
        try:
            if call.startswith("epoll"):
                return peers.epolled(pid, arguments[0])
            if call in {"poll", "ppoll"}:
                count = arguments[1]
                if not 0 < count <= POLLED_LIMIT:
                    return None
                entries = struct.iter_unpack("=ihh", _memory(pid, arguments[0], 8 * count))
                return tuple(descriptor for descriptor, events, _ in entries if descriptor >= 0)
            count = arguments[0]
            if not 0 < count <= POLLED_LIMIT:
                return None
            asked = 0
            for pointer in arguments[1:4]:
                if pointer:
                    words = -(-count // 64) * 8
                    asked |= int.from_bytes(_memory(pid, pointer, words), "little")
            return tuple(descriptor for descriptor in range(count) if asked >> descriptor & 1)
        except (OSError, ValueError, struct.error):
            return None

    def is_inside(
        self, waits: Sequence[tuple[int, stall.ThreadSnapshot, stall.KernelWait]], members: frozenset[int]
    ) -> str:
        """Look at everybody's descriptors and mappings, once."""
        living = frozenset(member.pid for member in self._tree.look(full=True) if member.is_alive)
        if not members >= living:
            return "new processes"
        return peers.outside(waits, living, self._supervisor)


def read_thread(pid: int, tid: int) -> stall.ThreadSnapshot:
    """Return one thread's picture; raise OSError where it has gone."""
    folder = f"/proc/{pid}/task/{tid}"
    status = kernel.read(folder + "/status").decode(errors="replace")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    call: str | None = ""
    arguments: tuple[int, ...] = ()
    channel = ""
    try:
        words = kernel.read(folder + "/syscall").split()
        if len(words) == 9 and int(words[7], 16) >= LOWEST_STACK:
            call = CALLS.get(int(words[0]), "")
            arguments = tuple(int(word, 16) for word in words[1:7])
    except OSError:
        call = None
        channel = kernel.read(folder + "/wchan").decode(errors="replace")
    return stall.ThreadSnapshot(
        tid=tid,
        name=fields["Name"].strip(),
        state=fields["State"][0],
        switches=int(fields["voluntary_ctxt_switches"]),
        call=call,
        arguments=arguments,
        channel=channel,
    )


def _start_of_code(pid: int) -> bytes:
    """Return the address of a process's code, which is another one after exec; b"" where it has gone."""
    try:
        return kernel.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[23]
    except (OSError, IndexError):
        return b""


def _memory(pid: int, address: int, size: int) -> bytes:
    """Read a piece of a process's memory; raise OSError or ValueError where it is not all there."""
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.pread(descriptor, size, address)
    except OverflowError as error:
        raise ValueError(address) from error
    finally:
        os.close(descriptor)
    if len(found) != size:
        raise ValueError(address)
    return found
