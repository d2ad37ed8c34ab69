"""Read the kernel's view of processes from /proc, and send signals to them.

The supervisor starts with this module, and every cell pays for what it imports (dataclasses alone cost 7 ms).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing takes 3 ms to import, and a supervisor starts in 20
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HAS_PROC = os.path.isdir("/proc/self/task")
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
TICK = os.sysconf("SC_CLK_TCK")  # units of CPU time per second in /proc/PID/stat
FULL_SCAN = 10.0  # seconds between scans that read everything anew: a process id may have been used again
COMMAND_READ = 4096  # bytes of a command line that are read
SURVIVORS_NAMED = 20  # of a fork bomb, more tell nothing
KILL_PATIENCE = 15.0  # seconds: a process in uninterruptible sleep cannot be killed, and must not hold us
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, linux/prctl.h
MAPS_READ = 1 << 24  # bytes of a list of mappings that are read


class KernelProcess:
    """One line of /proc/PID/stat, or of a thread's stat."""

    __slots__ = (
        "code", "cpu", "faults", "group", "has_terminal", "name", "parent", "pid", "rss", "started", "state", "stop",
        "threads",
    )  # fmt: skip

    def __init__(self, pid: int, text: bytes) -> None:
        head, _, tail = text.rpartition(b")")  # a name may hold spaces and parentheses
        fields = tail.split()
        self.pid = pid
        self.name = head.partition(b"(")[2].decode(errors="replace")
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.has_terminal = fields[4] != b"0"
        self.faults = int(fields[9])  # pages that had to be read from a disk
        self.cpu = (int(fields[11]) + int(fields[12])) / TICK  # seconds, its dead threads included
        self.threads = int(fields[17])
        self.started = int(fields[19])  # ticks since boot: with the pid, names a process for good
        self.rss = int(fields[21]) * PAGE  # bytes
        self.code = fields[23]  # address of the program's code: exec changes it
        self.stop = int(fields[49])  # of a stopped process, the signal that stopped it; 0 for kernels before 5.18

    @property
    def is_alive(self) -> bool:
        """False for a zombie, which has ended without being reaped."""
        return self.state not in "ZX"


def read(path: str, limit: int = 1 << 20) -> bytes:
    """Return up to `limit` bytes of a file of /proc; raise OSError when its process has gone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = bytearray()
        while len(content) < limit and (part := os.read(descriptor, min(limit - len(content), 1 << 16))):
            content += part
        return bytes(content)
    finally:
        os.close(descriptor)


def link(path: str) -> str:
    """Return the target of a link in /proc, "" where it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def process(pid: int, tid: int | None = None) -> KernelProcess | None:
    """Return what /proc says of a process or of its thread `tid`, None when it has gone."""
    try:
        return KernelProcess(tid or pid, read(f"/proc/{pid}/task/{tid}/stat" if tid else f"/proc/{pid}/stat"))
    except (OSError, IndexError, ValueError):
        return None


def thread_ids(pid: int) -> list[int]:
    """Return the ids of a process's threads in ascending order, none when it has gone."""
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []


def threads(pid: int) -> list[KernelProcess]:
    """Return what /proc says of each thread of a process."""
    return [thread for tid in thread_ids(pid) if (thread := process(pid, tid))]


def state(pid: int) -> str:
    """Return the state of a process, "" when it has gone."""
    found = process(pid)
    return found.state if found else ""


def field(path: str, name: bytes) -> bytes:
    """Return the word after `name` at the start of a line of a file of /proc, b"" where it cannot be read."""
    with contextlib.suppress(OSError, IndexError):
        return (b"\n" + read(path)).partition(b"\n" + name)[2].split(None, 1)[0]
    return b""


def caught(pid: int) -> int | None:
    """Return the signals that a process has handlers for, as a mask; None where that is not known."""
    mask = field(f"/proc/{pid}/status", b"SigCgt:")
    return int(mask, 16) if mask else None


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal; most signals end one that has none."""
    return bool((caught(pid) or 0) >> (number - 1) & 1)


def system_call(pid: int, tid: int) -> list[int]:
    """Return the call in which a thread sleeps: its number, six arguments, stack pointer and program counter.

    The list is empty where the thread is in no call. Raises OSError where it may not be read.
    """
    words = read(f"/proc/{pid}/task/{tid}/syscall").split()
    return [int(words[0]), *(int(word, 16) for word in words[1:])] if len(words) == 9 else []


def core_time(pid: int, tid: int) -> tuple[float, float] | None:
    """Return the seconds of a thread on a core and in the queue for one; None where the kernel does not count them."""
    try:
        words = read(f"/proc/{pid}/task/{tid}/schedstat").split()
        return int(words[0]) / 1e9, int(words[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def core_times(pid: int) -> tuple[float, float]:
    """Return the seconds for which a process's living threads have been on a core, and in the queue for one."""
    times = [each for tid in thread_ids(pid) if (each := core_time(pid, tid))]
    return sum(used for used, _ in times), sum(queued for _, queued in times)


def transfers(pid: int) -> dict[bytes, int]:
    """Return the bytes that a process has moved, as proc_pid_io(5) names them; empty where they may not be read."""
    try:
        rows = (line.partition(b": ") for line in read(f"/proc/{pid}/io").splitlines())
        return {name: int(count) for name, _, count in rows}
    except (OSError, ValueError):
        return {}


def mappings(pid: int) -> list[tuple[int, int, list[bytes]]]:
    """Return the mappings of a process: start, end, and the fields of the line (proc_pid_maps(5)).

    The list is empty where it may not be read.
    """
    try:
        rows = [line.split(None, 5) for line in read(f"/proc/{pid}/maps", MAPS_READ).split(b"\n") if line]
        return [(int(row[0].partition(b"-")[0], 16), int(row[0].partition(b"-")[2], 16), row) for row in rows]
    except (OSError, ValueError):
        return []


def memory(pid: int, address: int, size: int) -> bytes:
    """Return up to `size` bytes of a process's memory; raise OSError or OverflowError where there is none."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        return os.pread(file.fileno(), size, address)


def pids() -> set[int]:
    """Return all process ids of this machine (of this pid namespace)."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


class Tree:
    """The descendants of a subreaper, orphans included; the cost of finding them does not grow with the machine.

    The parent of each process is read, not /proc/PID/task/*/children: many kernels lack that file, and it misses
    children while others exit. A process that is no descendant never becomes one, so later looks read only new
    processes. While the kernel has handed out no new process id, there are none.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self.spared: frozenset[int] = frozenset()  # a descendant that does not count, and is not looked at: a server
        self._outsiders: set[int] = set()
        self._candidates: set[int] = set()  # descendants, and processes that may turn out to be descendants
        self._last_pid = b""
        self._full_scan_at = 0.0

    def look(self, *, full: bool = False) -> list[KernelProcess]:
        """Return the living and dead descendants, parents first; `full` reads every process anew."""
        now = time.monotonic()
        last_pid = read("/proc/loadavg").rpartition(b" ")[2]
        if full or now - self._full_scan_at > FULL_SCAN:
            self._outsiders.clear()
            self._full_scan_at = now
        elif last_pid == self._last_pid:
            return self._select(self._candidates)
        self._last_pid = last_pid
        return self.look_for_new(set())

    def look_for_new(self, known: set[int]) -> list[KernelProcess]:
        """Return the descendants that are not `known`: this is faster than a fork bomb grows."""
        listed = pids()
        self._outsiders &= listed
        return self._select(listed - self._outsiders - known, known)

    def _select(self, candidates: set[int], known: Iterable[int] = ()) -> list[KernelProcess]:
        """Return the descendants among the candidates, and remember which candidates are outsiders."""
        children: dict[int, list[KernelProcess]] = {}
        candidates = candidates - self.spared
        for pid in candidates:
            if candidate := process(pid):
                children.setdefault(candidate.parent, []).append(candidate)
        members: list[KernelProcess] = []
        for parent in (self._root, *known):
            members.extend(children.get(parent, ()))
        for member in members:  # grows as it goes
            members.extend(children.get(member.pid, ()))
        inside = {member.pid for member in members}
        # An orphan that is read just before the root adopts it has a parent that is not listed: it stays a
        # candidate. Only a descendant of the idle task or of a known outsider is an outsider.
        parents = [0, *self._outsiders]
        for parent in parents:  # grows as it goes
            for child in children.get(parent, ()):
                if child.pid not in inside and child.pid not in self._outsiders:
                    self._outsiders.add(child.pid)
                    parents.append(child.pid)
        self._candidates = candidates - self._outsiders
        return members


def proportional_rss(members: list[KernelProcess]) -> int:
    """Return the resident bytes of processes; shared pages count once (slow: the kernel walks all pages)."""
    total = 0
    for member in members:
        kilobytes = field(f"/proc/{member.pid}/smaps_rollup", b"Pss:")
        total += int(kilobytes) * 1024 if kilobytes else member.rss if member.is_alive else 0
    return total


def describe(pid: int) -> str:
    """Return "name (pid): command line" of a process, as survivors are named."""
    found = process(pid)
    name, command = (found.name, command_line(pid) or "[no command line]") if found else ("?", "has gone")
    return f"{name} ({pid}): {command}"


def command_line(pid: int) -> str:
    """Return the command line of a process, "" when it has gone.

    A very long one is cut between two arguments: half a secret would not be recognized when the line is stored.
    """
    words = b""
    with contextlib.suppress(OSError):
        words = read(f"/proc/{pid}/cmdline", COMMAND_READ)
    if len(words) == COMMAND_READ:
        words = words.rpartition(b"\0")[0]
    line = words.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return line.replace("\n", "\\n").replace("\r", "\\r")


def send(pid: int, number: int) -> None:
    """Send a signal to a process, or with a negative id to a process group, that may have gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def end_with_parent(parent: int) -> None:
    """Have this process sent SIGTERM when its parent ends, however that ends."""
    import ctypes

    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGTERM)


def signal_of(exit_code: int | None) -> str | None:
    """Return the signal that ended a process, None if it runs or has ended by itself; one without a name is "SIG35"."""
    if exit_code is None or exit_code >= 0:
        return None
    return {number.value: number.name for number in signal.Signals}.get(-exit_code, f"SIG{-exit_code}")


def freeze(tree: Tree) -> set[int]:
    """Stop every descendant until a look finds no new one: then none is left that could fork.

    Groups come first, because the kernel stops a group at once: a fork bomb grows faster than it can be read.
    """
    own = os.getpgid(0)
    frozen: set[int] = set()
    fresh = [member for member in tree.look(full=True) if member.is_alive]
    while fresh:
        for group in {member.group for member in fresh} - {own, 0}:
            send(-group, signal.SIGSTOP)
        for member in fresh:
            send(member.pid, signal.SIGSTOP)
        frozen.update(member.pid for member in fresh)
        fresh = [member for member in tree.look_for_new(frozen) if member.is_alive]
    return frozen


def kill(tree: Tree, is_left: Callable[[], bool], pause: Callable[[], object]) -> None:
    """SIGKILL every descendant while one is left, with a pause after each round.

    Thousands of them take their time to end; patience ends where they do not become fewer.
    """
    fewest, end = sys.maxsize, 0.0
    while is_left():
        living = freeze(tree)
        if len(living) < fewest:
            fewest, end = len(living), time.monotonic() + KILL_PATIENCE
        if time.monotonic() > end:
            return
        for pid in living:
            send(pid, signal.SIGKILL)
        pause()


def oom_kills() -> int:
    """Return how many processes the kernel has killed because memory ran out; 0 if it does not count them.

    These are processes of this process's control group, or of the whole machine where that is not told.
    """
    group = os.fsdecode(field("/proc/self/cgroup", b"0::"))
    return int(field(f"/sys/fs/cgroup{group}/memory.events", b"oom_kill ") or field("/proc/vmstat", b"oom_kill ") or 0)
