"""Read the kernel's view of a process tree from /proc, and signal it.

Nothing here imports more than os and signal: the supervisor starts with this module, and what it imports is
paid for by every cell (dataclasses alone cost 7 ms).
"""

# The supervisor must not pay for importing pathlib.
# ruff: noqa: PTH112, PTH208

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HAS_PROC = os.path.isdir("/proc/self/task")
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
TICK = os.sysconf("SC_CLK_TCK")  # units of CPU time per second in /proc/PID/stat
FULL_SCAN = 10.0  # seconds between scans that trust nothing known: heals a process id that was used again
COMMAND_READ = 4096  # bytes of a command line that are looked at
KILL_PATIENCE = 15.0  # seconds: a process in uninterruptible sleep cannot be killed, and must not hold us


class KernelProcess:
    """One line of /proc/PID/stat."""

    __slots__ = ("cpu", "group", "name", "parent", "pid", "rss", "started", "state", "threads")

    def __init__(self, pid: int, text: bytes) -> None:
        head, _, tail = text.rpartition(b")")  # a name may hold spaces and parentheses
        fields = tail.split()
        self.pid = pid
        self.name = head.partition(b"(")[2].decode(errors="replace")
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.cpu = (int(fields[11]) + int(fields[12])) / TICK  # seconds, its dead threads included
        self.threads = int(fields[17])
        self.started = int(fields[19])  # ticks since boot: with the pid, names a process for good
        self.rss = int(fields[21]) * PAGE  # bytes

    @property
    def is_alive(self) -> bool:
        """False for a zombie: it has ended, its parent has not asked yet."""
        return self.state not in "ZX"


def read(path: str, limit: int = 1 << 20) -> bytes:
    """Return up to `limit` bytes of a file of /proc; raise OSError when its process has gone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while limit > 0 and (part := os.read(descriptor, min(limit, 1 << 16))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def process(pid: int) -> KernelProcess | None:
    """Return what /proc says of `pid`, None when it has gone."""
    try:
        return KernelProcess(pid, read(f"/proc/{pid}/stat"))
    except (OSError, IndexError, ValueError):
        return None


def pids() -> set[int]:
    """Return all process ids of this machine (of this pid namespace)."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


class Tree:
    """The descendants of a subreaper, orphans included, found at a cost that does not grow with the machine.

    Parents are read rather than /proc/PID/task/*/children, which many kernels do not have and which misses
    children while others exit. Who is once known to be no descendant never becomes one, so later looks
    read only new processes; and while the kernel has handed out no new process id there are none to look for.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._outside: set[int] = set()
        self._candidates: set[int] = set()  # descendants, and who may turn out to be one
        self._last_pid = b""
        self._full = 0.0  # when everything was last read afresh

    def look(self, *, full: bool = False) -> list[KernelProcess]:
        """Return the living and dead descendants, parents first; `full` reads every process anew."""
        now = time.monotonic()
        last_pid = read("/proc/loadavg").rpartition(b" ")[2]
        if full or now - self._full > FULL_SCAN:
            self._outside.clear()
            self._full = now
        elif last_pid == self._last_pid:
            return self._sort(self._candidates)
        listed = pids()
        self._outside &= listed
        self._last_pid = last_pid
        return self._sort(listed - self._outside)

    def look_for_new(self, known: set[int]) -> list[KernelProcess]:
        """Return the descendants that are not `known`: fast enough to overtake a fork bomb."""
        listed = pids()
        self._outside &= listed
        return self._sort(listed - self._outside - known, known)

    def _sort(self, candidates: set[int], known: Iterable[int] = ()) -> list[KernelProcess]:
        """Return the descendants among the candidates; part the outsiders from those not known yet."""
        children: dict[int, list[KernelProcess]] = {}
        for pid in candidates:
            if found := process(pid):
                children.setdefault(found.parent, []).append(found)
        members: list[KernelProcess] = []
        for parent in (self._root, *known):
            members.extend(children.get(parent, ()))
        for member in members:  # grows as it goes
            members.extend(children.get(member.pid, ()))
        inside = {member.pid for member in members}
        # An orphan read just before it was given to the root has a parent that is nowhere: it stays a
        # candidate. Only who descends from the idle task or a known outsider is an outsider.
        rest = [0, *self._outside]
        for parent in rest:
            for child in children.get(parent, ()):
                if child.pid not in inside and child.pid not in self._outside:
                    self._outside.add(child.pid)
                    rest.append(child.pid)
        self._candidates = candidates - self._outside
        return members


def proportional_rss(members: list[KernelProcess]) -> int:
    """Return the bytes really resident: what forked children share counts once (slow: walks all pages)."""
    total = 0
    for member in members:
        try:
            for line in read(f"/proc/{member.pid}/smaps_rollup").splitlines():
                if line.startswith(b"Pss:"):
                    total += int(line.split()[1]) * 1024
                    break
            else:
                total += member.rss if member.is_alive else 0
        except (OSError, ValueError):
            total += member.rss if member.is_alive else 0
    return total


def describe(pid: int) -> str:
    """Return "name (pid): command line" of a process, as survivors are named."""
    try:
        name = read(f"/proc/{pid}/comm").decode(errors="replace").strip()
        command = command_line(pid)
    except OSError:
        return f"? ({pid}): has gone"
    return f"{name} ({pid}): {command or '[no command line]'}"


def command_line(pid: int) -> str:
    """Return the command line of a process; of a very long one the first arguments, each of them whole.

    Half a secret would not be known for one when the line is stored. Raises OSError where there is no such process.
    """
    words = read(f"/proc/{pid}/cmdline", COMMAND_READ)
    if len(words) == COMMAND_READ:
        words = words.rpartition(b"\0")[0]
    line = words.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return line.replace("\n", "\\n").replace("\r", "\\r")


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may have gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def send_group(group: int, number: int) -> None:
    """Send a signal to a process group that may have gone."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def freeze(tree: Tree) -> set[int]:
    """Stop every descendant, until a look finds nobody new: then none is left that could fork.

    By group first, where the kernel stops all at once: a fork bomb grows faster than anybody can read.
    """
    own = os.getpgid(0)
    frozen: set[int] = set()
    fresh = [member for member in tree.look(full=True) if member.is_alive]
    while fresh:
        for group in {member.group for member in fresh} - {own, 0}:
            send_group(group, signal.SIGSTOP)
        for member in fresh:
            send(member.pid, signal.SIGSTOP)
        frozen.update(member.pid for member in fresh)
        fresh = [member for member in tree.look_for_new(frozen) if member.is_alive]
    return frozen


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed for want of memory since boot."""
    try:
        for line in read("/proc/vmstat").splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None
