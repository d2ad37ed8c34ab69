"""Read from /proc what each thread of a tree waits for.

A thread that waits for the GIL looks like any other with a deadline: take_gil waits 5 ms, again and again. Only the
address of the futex tells. CPython keeps the GIL in the static `_PyRuntime` (3.7 and later; from 3.12 on inside its
main interpreter), while the locks of `threading` are on the heap.
"""

from __future__ import annotations

import os
import re
import struct
import time
from typing import TYPE_CHECKING

from whichtorch.process import kernel
from whichtorch.process.evidence import peers, stall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


# linux/arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
_X86_64 = {
    0: "read", 1: "write", 7: "poll", 19: "readv", 20: "writev", 23: "select", 42: "connect", 43: "accept",
    44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 202: "futex",
    230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait",
    288: "accept4", 299: "recvmmsg", 307: "sendmmsg", 441: "epoll_pwait2",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 63: "read", 64: "write", 65: "readv", 66: "writev",
    72: "pselect6", 73: "ppoll", 95: "waitid", 98: "futex", 115: "clock_nanosleep", 202: "accept", 203: "connect",
    206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 242: "accept4", 243: "recvmmsg", 260: "wait4",
    269: "sendmmsg", 441: "epoll_pwait2",
}  # fmt: skip
CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(os.uname().machine, {})
LOWEST_STACK = 1 << 32  # a lower stack is that of a 32-bit process, whose calls have other numbers
RETRIES = 4  # of a thread seen awake: a waiter for the GIL is awake for some microseconds in every 5 ms
RETRY_AFTER = 0.001  # seconds
POLLED_LIMIT = 4096  # descriptors in one poll or select
SIGNALS_FROM_KERNEL = 1 << 13 | 1 << 28  # SIGALRM, SIGIO: their timers are not listed in /proc
# SIGHUP, SIGUSR1, SIGUSR2, SIGTERM; Python itself handles SIGINT
SIGNALS_OF_OTHERS = 1 << 0 | 1 << 9 | 1 << 11 | 1 << 14
_FUTEX_LOCK_PI, _FUTEX_REALTIME = 6, 0x100  # the first has always a time of the clock of the second
NOT_GIL_LIMIT = 10_000  # addresses remembered
SYMBOL = b"_PyRuntime"


class ProcView:
    """Answer what stall detection asks, from /proc of this machine (see `stall.KernelView`)."""

    def __init__(self, tree: kernel.Tree, supervisor: int, limit: float | None = None) -> None:
        """Look at a tree that is given so many seconds."""
        self._tree, self.limit = tree, limit
        self._supervisor = supervisor
        self._runtimes: dict[int, tuple[tuple[int, int], ...]] = {}
        self._code: dict[int, bytes] = {}  # address of each process's code: exec changes it
        self._not_gil: set[tuple[int, int]] = set()  # pid and address: no need to read the maps again

    def threads(self, pid: int, first: int) -> Iterator[stall.ThreadSnapshot]:
        """Yield the threads of a process, `first` first."""
        for tid in sorted(kernel.thread_ids(pid), key=lambda tid: tid != first):
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
        """Return rchar and wchar; nothing where they may not be read (then the switches alone tell)."""
        return tuple(kernel.transfers(pid).values())[:2]

    def expects_signals(self, pid: int) -> bool:
        """Return whether a process has POSIX timers, or catches SIGALRM or SIGIO (setitimer shows nowhere)."""
        if _catches(pid, SIGNALS_FROM_KERNEL):
            return True
        try:
            return bool(kernel.read(f"/proc/{pid}/timers"))
        except OSError:
            return False  # a kernel without CONFIG_POSIX_TIMERS or its list

    def is_gil(self, pid: int, address: int) -> bool:
        """Return whether `address` is in a `_PyRuntime` of the process."""
        process = kernel.process(pid)
        code = process.code if process else b""
        if self._code.get(pid) != code or (not self._runtimes[pid] and (pid, address) not in self._not_gil):
            self._code[pid] = code
            self._runtimes[pid] = runtime_ranges(pid)
        if any(start <= address < end for start, end in self._runtimes[pid]):
            return True
        if len(self._not_gil) > NOT_GIL_LIMIT:
            self._not_gil.clear()
        self._not_gil.add((pid, address))
        return False

    def polled(self, pid: int, call: str, arguments: Sequence[int]) -> tuple[int, ...] | None:
        """Read from a process's memory, or from its epoll instance, which descriptors it waits for."""
        return polled(pid, call, arguments)

    def is_inside(self, waiters: Sequence[stall.Waiter], members: frozenset[int]) -> bool:
        """Search the descriptors, mappings and handlers of every process once; new processes leave it uncertain."""
        living = frozenset(member.pid for member in self._tree.look(full=True) if member.is_alive)
        if not living <= members or peers.may_end_from_outside(waiters, living, self._supervisor):
            return False
        leaders = [waiter for waiter in waiters if waiter.thread.tid == waiter.process.pid]
        handlers = [waiter for waiter in leaders if _catches(waiter.process.pid, SIGNALS_OF_OTHERS)]
        if not handlers:
            return True
        from whichtorch.process.evidence import polls  # here: few trees have such handlers, or poll

        return not polls.may_end_by_signal(handlers)

    def seconds_left(self, pid: int, thread: stall.ThreadSnapshot) -> float:
        """Read a deadline from a process's memory; a span may have begun when the process did."""
        try:
            return _seconds_left(pid, thread)
        except (OSError, ValueError, OverflowError, struct.error):
            return 0.0

    def go_on_for_ever(self, waiters: Sequence[stall.Waiter], rounds: Mapping[int, int]) -> bool:
        """Read the stacks of threads with py-spy, and the source of what they run."""
        from whichtorch.process.evidence import polls

        return polls.go_on_for_ever(waiters, rounds)


def _catches(pid: int, signals: int) -> bool:
    """Return whether a process has a handler of one of these signals; True where that is not known."""
    caught = kernel.caught(pid)
    return caught is None or bool(caught & signals)


def read_thread(pid: int, tid: int) -> stall.ThreadSnapshot:
    """Return the snapshot of a thread; raise OSError where it has gone."""
    folder = f"/proc/{pid}/task/{tid}"
    status = kernel.read(folder + "/status").decode(errors="replace")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    call: str | None = ""
    arguments: tuple[int, ...] = ()
    channel = ""
    try:
        words = kernel.system_call(pid, tid)
        if words and words[7] >= LOWEST_STACK:
            call, arguments = CALLS.get(words[0], ""), tuple(words[1:7])
    except OSError:
        call = None
        channel = kernel.read(folder + "/wchan").decode(errors="replace")
    name, state, switches = fields["Name"].strip(), fields["State"][0], int(fields["voluntary_ctxt_switches"])
    return stall.ThreadSnapshot(
        tid=tid, name=name, state=state, switches=switches, call=call, arguments=arguments, channel=channel
    )


def polled(pid: int, call: str, arguments: Sequence[int]) -> tuple[int, ...] | None:
    """Return which descriptors a poll, select or epoll waits for: they are in the process's memory."""
    is_poll = call in {"poll", "ppoll"}
    count = arguments[1] if is_poll else arguments[0]
    try:
        if call.startswith("epoll"):
            return peers.epoll_targets(pid, arguments[0])
        if not 0 < count <= POLLED_LIMIT:
            return None
        if is_poll:
            entries = struct.iter_unpack("=ihh", _memory(pid, arguments[0], 8 * count))
            return tuple(descriptor for descriptor, _events, _returned in entries if descriptor >= 0)
        size = -(-count // 64) * 8  # of a set of descriptors, one bit each
        mask = 0
        for pointer in filter(None, arguments[1:4]):
            mask |= int.from_bytes(_memory(pid, pointer, size), "little")
        return tuple(descriptor for descriptor in range(count) if mask >> descriptor & 1)
    except (OSError, ValueError, OverflowError, struct.error):
        return None


def _seconds_left(pid: int, thread: stall.ThreadSnapshot) -> float:
    """Return for how long a wait with a deadline lasts at least."""
    call, arguments = thread.call or "", thread.arguments
    if call in stall.MILLISECONDS_AT:
        seconds, since = arguments[stall.MILLISECONDS_AT[call]] / 1000, _age(pid)
    else:
        at = {"futex": 3, "clock_nanosleep": 2, **stall.TIMEOUT_AT}[call]
        whole, parts = struct.unpack("=qq", _memory(pid, arguments[at], 16))
        seconds, since = whole + parts / (1e6 if call == "select" else 1e9), _age(pid)
        if call == "futex" and arguments[1] & stall.FUTEX_COMMAND:  # FUTEX_WAIT alone has a span
            is_real = arguments[1] & _FUTEX_REALTIME or arguments[1] & stall.FUTEX_COMMAND == _FUTEX_LOCK_PI
            clock = time.CLOCK_REALTIME if is_real else time.CLOCK_MONOTONIC
            since = time.clock_gettime(clock)
        elif call == "clock_nanosleep" and arguments[1] & 1:
            since = time.clock_gettime(arguments[0])
    return seconds - since


def _age(pid: int) -> float:
    process = kernel.process(pid)
    started = process.started / kernel.TICK if process else 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def _memory(pid: int, address: int, size: int) -> bytes:
    """Read a piece of a process's memory; raise OSError, ValueError or OverflowError where it is not all there."""
    content = kernel.memory(pid, address, size)
    if len(content) != size:
        raise ValueError(address)
    return content


def runtime_ranges(pid: int) -> tuple[tuple[int, int], ...]:
    """Return the addresses [start, end) of all `_PyRuntime` in a process; empty where it may not be read."""
    return tuple(symbol_ranges(pid, lambda path: b"python" in os.path.basename(path).lower(), SYMBOL))


SYMBOLS_LIMIT = 1 << 26  # bytes of a symbol table: torch's are larger, that of a Python or a libc is not
_DYNAMIC_SYMBOLS, _LOAD = 11, b"\1\0\0\0"  # SHT_DYNSYM, PT_LOAD
_POSITION_FREE = 3  # ET_DYN

_known: dict[tuple[int, int, int, bytes], tuple[int, int, bool] | None] = {}  # device, inode, time, symbol


def symbol_ranges(pid: int, is_wanted: Callable[[bytes], bool], *symbols: bytes) -> Iterator[tuple[int, int]]:
    """Yield the addresses [start, end) of variables in the mapped files of a process whose paths are wanted."""
    for start, _, fields in kernel.mappings(pid):
        if len(fields) < 6 or int(fields[2], 16) or not is_wanted(fields[5]):
            continue  # not the first page of a file
        # The mapped file itself, also where it has been deleted or is in another mount namespace.
        paths = (f"/proc/{pid}/map_files/{fields[0].decode()}", os.fsdecode(b"/proc/%d/root" % pid + fields[5]))
        for symbol in symbols:
            if found := _symbol(paths[0], symbol) or _symbol(paths[1], symbol):
                address, size, is_relative = found
                first = start + address if is_relative else address
                yield first, first + size


def _symbol(path: str, symbol: bytes) -> tuple[int, int, bool] | None:
    """Return what `find_symbol` says of the file at `path`, None where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino, status.st_mtime_ns, symbol)
            if key not in _known:
                _known[key] = None
                _known[key] = find_symbol(file.fileno(), symbol)
            return _known[key]
    except (OSError, struct.error, IndexError, ValueError):
        return None


def find_symbol(descriptor: int, symbol: bytes) -> tuple[int, int, bool] | None:
    """Find a variable in the dynamic symbols of a 64-bit little-endian ELF file.

    Return its address, its size, and whether the address is relative to where the file is mapped.
    """
    header = os.pread(descriptor, 64, 0)
    if header[:6] != b"\x7fELF\x02\x01":
        return None
    kind = struct.unpack_from("<H", header, 16)[0]
    programs, sections = struct.unpack_from("<QQ", header, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", header, 54)
    table = os.pread(descriptor, section_size * section_count, sections)
    for index in range(section_count):
        fields = struct.unpack_from("<IIQQQQIIQQ", table, index * section_size)
        if fields[1] != _DYNAMIC_SYMBOLS or fields[5] > SYMBOLS_LIMIT:
            continue
        names_at, names_size = struct.unpack_from("<QQ", table, fields[6] * section_size + 24)
        if names_size > SYMBOLS_LIMIT:
            continue
        names = os.pread(descriptor, names_size, names_at)
        # A linker keeps `environ` as the end of `__environ`.
        wanted = {match.start() for match in re.finditer(re.escape(symbol) + b"\0", names)}
        if not wanted:
            continue
        symbols = os.pread(descriptor, fields[5], fields[4])
        for name, _info, _other, section, value, size in struct.iter_unpack("<IBBHQQ", symbols):
            if name in wanted and section != 0 and size:
                is_relative = kind == _POSITION_FREE
                table = os.pread(descriptor, program_size * program_count, programs)
                loads = [table[at : at + program_size] for at in range(0, len(table), program_size)]
                lowest = min(struct.unpack_from("<Q", load, 16)[0] for load in loads if load[:4] == _LOAD)
                return value - (lowest // kernel.PAGE * kernel.PAGE if is_relative else 0), size, is_relative
    return None
