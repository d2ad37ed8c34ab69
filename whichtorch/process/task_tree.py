"""Start a task's tree, reap it, keep what it writes, measure what it uses, and compare that with the task's limits.

The processes append straight to their output files, so nothing can hold them up. The middle of a file is given back
to the disk while they run, and taken out when they have ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import select
import signal
import time

from whichtorch.process import kernel, spawning
from whichtorch.process import sandbox_layout as layout

TYPE_CHECKING = False  # typing takes 3 ms to import, and a supervisor starts in 20
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h
OWN_CHILDREN = 0x20000000  # __WNOTHREAD, linux/wait.h: of the calling thread only
RSS_UNIT = 1024  # bytes in a unit of ru_maxrss
LOOK_SHORTEST = 0.03  # seconds between two looks at a tree that is growing fast
LOOK_LONGEST = 0.25  # seconds between two looks at a quiet one
LOOK_SHARE = 0.004  # of a core that looking at a quiet tree may take
LOOK_SHARE_GROWING = 0.2  # of a core, for a tree that grows: it must not take the machine down
SHARED_SHARE = 0.02  # of a core that counting the pages which processes share may take, below the limit
SHARED_GROWTH = 1.25  # times what the processes had when they were counted last: then they are counted anew
HEAD = 1_000_000  # bytes kept from the beginning: the first error is there
TAIL = 1_000_000  # bytes kept from the end: the last words are there
PUNCH_EVERY = 32_000_000  # bytes of growth after which the middle is given back to the disk
UNPUNCHED_LIMIT = 256_000_000  # bytes, where the filesystem cannot make holes: then the writer is stopped
FILES_LIMIT = 50_000  # in the folders that may be written in a sandbox
BLOCK = 4096  # bytes; holes start and end at whole blocks
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
# UTF-8: the first byte says how many of 0x80 to 0xBF follow.
_BEGINNING_OF_CHARACTER = re.compile(rb"(?:[\xC0-\xFF]|[\xE0-\xFF][\x80-\xBF]|[\xF0-\xFF][\x80-\xBF]{2})\Z")
_REST_OF_CHARACTER = re.compile(rb"\A[\x80-\xBF]{1,3}")


class Children:
    """The supervisor's children: the leader of the task's tree, adopted orphans, and helpers such as py-spy."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes
        self.leader = 0  # pid
        self.started = 0.0  # when the leader started, seconds, monotonic
        self.ended = 0.0  # when it was reaped
        self.exit_code: int | None = None  # of the leader; minus the signal that ended it; None while it runs
        self.helpers: dict[int, int | None] = {}  # pid -> status as waitpid gives it, None while it runs
        self.cpu = 0.0  # seconds, of all that were reaped
        self.largest = 0  # bytes, of any single process reaped
        self.interrupted = False  # the tool asks for the end, or has gone
        self.spared: frozenset[int] = frozenset()  # the fork server, which is no member of the tree
        self.started_by = "cold"
        self.cold_because = ""  # why it was not forked, though a server was there

    def start_leader(self, task: dict[str, Any], fork: Callable[[dict[str, Any], Children], None] | None) -> None:
        """Start a task's program in a session of its own; raise OSError where it cannot be started.

        Its stdin is empty, and its outputs append to files that exist. Where there is a fork server, `fork` has
        the leader forked from it; where that fails, it is started as any other.
        """
        _wakeup_descriptor()  # from here on, a signal asks the supervisor to stop, and does not kill it
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)  # it becomes the parent of descendants whose own parent ends
        if fork is not None:
            try:
                fork(task, self)
            except OSError as error:
                if self.interrupted:
                    raise
                self.cold_because = str(error)
        if not self.leader:
            self.started = time.monotonic()
            self.leader = spawning.start_leader(task)
        spawning.raise_priority()

    def sleep(self, seconds: float) -> None:
        """Sleep until a child ends, the tool interrupts, or `seconds` have passed; then reap."""
        self.listen(seconds)
        self.reap()

    def listen(self, seconds: float, *descriptors: int) -> bool:
        """Sleep the same, or until one of some descriptors can be read; return whether one can."""
        wakeup = _wakeup_descriptor()
        sources = [wakeup] if self.interrupted else [0, wakeup]
        ready: list[int] = []
        with contextlib.suppress(InterruptedError):
            ready = select.select([*sources, *descriptors], [], [], seconds)[0]
            if 0 in ready:
                os.read(0, 4096)  # an empty line asks for the end of this task, the end of the file for that of all
                self.interrupted = True
            if wakeup in ready and set(os.read(wakeup, 4096)) - {signal.SIGCHLD}:
                self.interrupted = True
                self.notes.append("the supervisor was asked to end by a signal")
        return not set(descriptors).isdisjoint(ready)

    def reap(self) -> bool:
        """Reap all children that have ended; return whether any are left, a fork server not counted."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | OWN_CHILDREN)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if os.WIFSTOPPED(status):  # it has let itself be traced, and waits for a tracer
                continue
            if pid in self.helpers:
                self.helpers[pid] = status
                continue
            self.cpu += usage.ru_utime + usage.ru_stime
            self.largest = max(self.largest, usage.ru_maxrss * RSS_UNIT)
            if pid == self.leader:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self.ended = time.monotonic()


class OutputFile:
    """One output file of a task."""

    def __init__(self, path: str) -> None:
        """Create or empty the file; raise OSError where that fails."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._punched = HEAD  # bytes: up to here the middle was given back to the disk
        self._can_punch = True

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return os.fstat(self._descriptor).st_size

    def trim(self) -> bool:
        """Give the middle back to the disk; return False if the filesystem cannot and the file is too large."""
        size = self.size
        if size - self._punched < PUNCH_EVERY + TAIL:
            return True
        if self._can_punch:
            start = -(-HEAD // BLOCK) * BLOCK
            end = (size - TAIL) // BLOCK * BLOCK
            self._can_punch = _punch(self._descriptor, start, end - start)
            self._punched = end
        return self._can_punch or size < UNPUNCHED_LIMIT

    def finish(self) -> int:
        """Reduce the file to head, a line that says how much is cut, and tail; return the bytes written."""
        size = self.size
        if size > HEAD + TAIL + BLOCK:
            head = whole_characters(os.pread(self._descriptor, HEAD, 0), at_end=True)
            tail = whole_characters(os.pread(self._descriptor, TAIL, size - TAIL), at_end=False)
            cut = size - len(head) - len(tail)
            os.ftruncate(self._descriptor, len(head))
            rest = b"\n[... %d bytes cut here ...]\n" % cut + tail
            with contextlib.suppress(OSError):  # a full disk costs the tail, not the ending
                while rest:
                    rest = rest[os.pwrite(self._descriptor, rest, self.size) :]
        os.close(self._descriptor)
        return size


class TreeUsage:
    """Memory, processes and output of one task's tree."""

    def __init__(self, task: dict[str, Any], children: Children) -> None:
        self.tree = kernel.Tree(os.getpid())
        self.files: list[OutputFile] = []
        self.members: list[kernel.KernelProcess] = []  # at the last look
        self.peak_rss = 0  # bytes
        self.next_look = 0.0  # seconds, monotonic
        self._processes: int = task["processes"]
        self._is_measured: bool = task.get("is_measured", False)
        self._sandbox: dict[str, Any] | None = task.get("sandbox")
        self._memory = task["memory_mb"] * 1_000_000 if task.get("memory_mb") else 1 << 60  # bytes
        self._children = children
        self._rss = 0  # bytes, at the last look; an upper bound, where shared pages were not counted once
        self._counted = 0.0  # bytes of that bound when they were
        self._next_count = 0.0  # seconds, monotonic: when they are counted again
        self.peak_threads = 0
        self.queued: dict[int, float] = {}  # seconds for which a process waited for a core, by its id, if that counts
        self.written = 0  # bytes of output, at the last look
        self._last_look = time.monotonic()

    def passed_limit(self) -> str | None:
        """Return the first limit that output or tree has passed, and plan the next look."""
        if not all(file.trim() for file in self.files):
            return "output"
        if self._sandbox:
            pids, most_bytes = [member.pid for member in self.members], self._sandbox["room_mb"] * 1_000_000
            if layout.holds_more(self._sandbox["writable"], FILES_LIMIT, most_bytes, pids):
                return "output"
        return self.passed_tree_limit()

    def passed_tree_limit(self) -> str | None:
        """Return the first limit that the tree has passed, and plan the next look."""
        began = time.monotonic()
        rss, written = self._rss, self.written
        self.written = sum(file.size for file in self.files)
        self.members = self._look()
        self._rss = sum(member.rss for member in self.members if member.is_alive)
        self.peak_threads = max(self.peak_threads, sum(member.threads for member in self.members))
        if self._is_measured:
            self.queued |= {each.pid: kernel.core_times(each.pid)[1] for each in self.members if each.is_alive}
        if sum(member.is_alive for member in self.members) > self._processes:
            return "processes"
        if len(self.members) < 2:
            self.peak_rss = max(self.peak_rss, self._rss)
        elif self._rss > self._memory or self._rss > SHARED_GROWTH * self._counted or began > self._next_count:
            self._counted = max(self._counted, self._rss)
            # what a fork server shares with them would be in the leader alone, had it been started cold
            total = kernel.proportional_rss([*self.members, *filter(None, map(kernel.process, self._children.spared))])
            self._next_count = began + (time.monotonic() - began) / SHARED_SHARE
            self.peak_rss = max(self.peak_rss, total)
            self._rss = total if self._rss > self._memory else self._rss
        if self._rss > self._memory:
            return "memory"
        now = time.monotonic()
        passed = max(now - self._last_look, 1e-3)
        self._last_look = now
        # The next look comes before half of what is left can be used up at the present pace.
        pace = (self._rss - rss) / passed
        wait = (self._memory - self._rss) / pace / 2 if pace > 0 else LOOK_LONGEST
        if (self.written - written) / passed * LOOK_LONGEST > PUNCH_EVERY:
            wait = LOOK_SHORTEST
        cost = (now - began) / (LOOK_SHARE if wait >= LOOK_LONGEST else LOOK_SHARE_GROWING)
        self.next_look = now + max(LOOK_SHORTEST, min(wait, LOOK_LONGEST), min(cost, 2 * LOOK_LONGEST))
        return None

    def living(self) -> list[int]:
        """Return the ids of the tree's living processes, read again, parents first."""
        return [member.pid for member in self._look(full=True) if member.is_alive]

    def _look(self, *, full: bool = False) -> list[kernel.KernelProcess]:
        return [member for member in self.tree.look(full=full) if member.pid not in self._children.helpers]


@functools.cache
def _wakeup_descriptor() -> int:
    """Return a descriptor that becomes readable when a signal comes, so that nothing polls."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return readable


def whole_characters(part: bytes, *, at_end: bool) -> bytes:
    """Drop the piece of a UTF-8 character that a cut left at the end or the beginning of `part`."""
    if at_end:
        return part[:-3] + _BEGINNING_OF_CHARACTER.sub(b"", part[-3:])
    return _REST_OF_CHARACTER.sub(b"", part)


def _punch(descriptor: int, start: int, length: int) -> bool:
    """Free a range of a file without changing its size; False where the filesystem cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    # A libc whose off_t is 64 bits wide everywhere has no fallocate64.
    fallocate = getattr(library, "fallocate64", None) or library.fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, start, length) == 0)
