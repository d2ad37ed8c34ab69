"""Tell a tree that gets on from one that does nothing: over the whole of an attempt, not by its last seconds alone.

The rule. An attempt is cut into spells of about a second. The tree *gets on* in a spell in which, all its processes
taken together,

- it used a core for a tenth of the spell, or would have worked, had it not stood in the queue for one; or one of its
  threads was ready to run when the spell began and when it ended, and did not sleep between; or
- a process came, ended, or became another program; or
- bytes came from a disk or went to one, pages of programs and files included; or data went through files, pipes and
  sockets faster than a heartbeat, with read and write or over TCP; or
- it wrote output; or
- a thread slept uninterruptibly, which is how the kernel waits for a disk and for the locks of a file system.

Anything else is a pause: it waits, it sleeps, or it polls. A thread that looks twice a second whether a file is there
does none of the above, however long it goes on, and so it is no headway.

A pause in which the clock ends is evidence of a hang only where it is long: longer than PAUSE and than PAUSE_SHARE of
the attempt, and half as long again as any pause from which this tree came back before. Anything shorter leaves it
open, and the longer look decides. That one need not run to its end: it is over with a pause as long as the whole look
before it, or once it has had its goal (`sampler.seconds_given`).
"""

from __future__ import annotations

import os
import struct
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from whichtorch.process import kernel
from whichtorch.process.evidence.peers import open_files, tcp_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SPELL = 1.0  # seconds: the kernel tells CPU time in hundredths of them
SPELLS_OF_SHORT = 12  # spells that even a short attempt has
LOOK_SHARE = 0.01  # of a core that these looks may take: a large tree has longer spells
# Of a core, used or queued for by the whole tree: below, it polls at most. A compile whose compiler waits for a
# crowded machine's disk and cores was measured at a quarter.
BUSY = 0.1
# A process that works gets at least this share of the time it asks for, even if 40 share two cores. A process that
# polls uses next to nothing, but on a crowded machine it queues for a core each time.
SHARE_OF_DEMAND = 0.05
# Of a core, that a process would use if it never queued. A poll that wakes 90 times a second queues for a tenth of the
# spell beside 20 busy processes, and was measured at 0.014. What works all the time is at 1, and the compile above at
# 0.06 if it had a core for a fifth of its quarter.
POLLS = 0.04
ENDED_THREADS = 0.03  # seconds of CPU beyond that of the living threads which show that other threads have ended
STREAM = 65_536  # bytes a second through files, pipes and sockets: heartbeats and wake-ups are far below
# Bytes a second through one TCP connection in one direction, because /proc/PID/io does not count recv and send. It is
# STREAM for who asks and is answered at the same rate. A store that is asked ten times a second moves about a kilobyte
# a second, and connections are not added up: many ranks that only poll one store do not make a flow.
FLOW = STREAM // 2
WORK_LEAST = 0.2  # seconds of CPU: with less, queueing says nothing about how crowded the machine is
PAUSE = 3.0  # seconds without headway that are no evidence yet
PAUSE_OF_SHORT = 0.5  # of a short attempt, which such a pause may be
PAUSE_SHARE = 0.2  # of the attempt
PAUSE_GROWTH = 1.5  # times the longest pause that ended by itself

CORE, PROCESSES, DISK, STREAMS, OUTPUT = "core", "processes", "disk", "streams", "output"
_CLOCK_SLEEPS = {"x86_64": 230, "aarch64": 115}.get(os.uname().machine)  # clock_nanosleep: sleep(1), time.sleep
_ABSOLUTE = 1  # TIMER_ABSTIME


def shortest_pause(timeout: float) -> float:
    """Return how many seconds without headway are evidence of a hang, where there was no pause before."""
    return max(min(PAUSE, PAUSE_OF_SHORT * timeout), PAUSE_SHARE * timeout)


class Pauses:
    """The spells of one attempt: when its tree got on, and for how long it did not. Pure: it is told the time."""

    def __init__(self, started: float, timeout: float, idle_limit: float | None = None) -> None:
        self._least = shortest_pause(timeout) if idle_limit is None else idle_limit  # seconds
        self._spell_began = started
        self._last_seen: dict[str, float] = {}  # means -> when it was seen last
        self._seconds: dict[str, float] = {}  # means -> for how long it was seen
        self.began = started  # of the pause under way, or of that which may begin now
        self.longest = 0.0  # seconds, of those that have ended

    def end_spell(self, now: float, means: Iterable[str], *, is_work: bool = False) -> None:
        """Take in a spell that ends now, by which means the tree got on in it, or that it did for sure."""
        means = list(means)
        for name in means:
            self._last_seen[name] = now
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._spell_began
        if means or is_work:
            self.longest = max(self.longest, self._spell_began - self.began)
            self.began = now
        self._spell_began = now

    @property
    def needed(self) -> float:
        """Seconds without headway that are evidence of a hang."""
        return max(self._least, PAUSE_GROWTH * self.longest)

    def evidence(self, now: float) -> dict[str, Any]:
        """Return the fields of `model.Headway` for an attempt that is over now."""
        return {
            "paused": round(now - self.began, 2),
            "needed": round(self.needed, 2),
            "seconds": {name: round(seconds, 1) for name, seconds in sorted(self._seconds.items())},
            "late": sorted(name for name, seen in self._last_seen.items() if now - seen <= self.needed),
        }


class TreeClock:
    """Measures how one tree gets on; `look` is called again and again and never waits."""

    def __init__(self, started: float, timeout: float, idle_limit: float | None = None) -> None:
        self.pauses = Pauses(started, timeout, idle_limit)
        self._spell = min(SPELL, timeout / SPELLS_OF_SHORT)  # seconds
        self._began, self._next = started, started + self._spell
        self._totals: dict[tuple[int, int, bytes], Totals] | None = None  # at the spell's beginning, by process
        self._delivered: dict[str, tuple[int, int]] | None = None  # by TCP socket, if the last spell had nothing else
        self._output = 0  # bytes
        self._saw_disk = False  # in this spell, a main thread waited for it
        # the threads that were ready to run when a spell without headway ended, with how often each had gone to sleep
        self._runnable: set[tuple[int, int]] = set()
        self._switches: dict[int, int] = {}  # of the main threads, at the beginning of the pause
        self._slept = False  # since the pause began, by its own will, when it was last looked at
        self._woke = 0.0  # when it was seen to have woken from that, on the clock of `look`
        self._on_core, self._in_queue = 0.0, 0.0  # seconds, of all threads, over the attempt

    def look(self, now: float, members: Sequence[kernel.KernelProcess], output: int) -> None:
        """Take in the tree and how many bytes it has written as output."""
        living = [member for member in members if member.is_alive]
        self._saw_disk = self._saw_disk or any(member.state == "D" for member in living)
        if now < self._next:
            return
        began = time.monotonic()
        is_first = self._totals is None  # an attempt begins with work
        means = self._means(now - self._began, living, output)
        self.pauses.end_spell(now, means, is_work=is_first)
        if means or is_first:
            self._switches, self._slept, self._woke = {}, False, 0.0
        else:
            self._switches = self._switches or {member.pid: switches(member.pid) for member in living}
            was_asleep, self._slept = self._slept, self._wakes_in(living) is not None
            if was_asleep and not self._slept and all(sleeps_for(member.pid) is None for member in living):
                self._woke = now  # and sleeps not again, as a poll does
        self._began, self._saw_disk = now, False
        self._next = now + max(self._spell, (time.monotonic() - began) / LOOK_SHARE)

    def _means(self, seconds: float, living: Sequence[kernel.KernelProcess], output: int) -> set[str]:
        """Return by which means the tree got on in a spell of so many seconds; the first only begins the count."""
        before, self._totals = self._totals, {(each.pid, each.started, each.code): Totals(each) for each in living}
        written, self._output = output - self._output, output
        if before is None:
            return set()
        means = {OUTPUT} if written else set()
        if before.keys() != self._totals.keys():
            means.add(PROCESSES)
        grown = [totals.since(before[key]) for key, totals in self._totals.items() if key in before]
        self._on_core += sum(growth.on_core for growth in grown)
        self._in_queue += sum(growth.queued for growth in grown)
        if is_work(grown, seconds):
            means.add(CORE)
        if sum(growth.moved for growth in grown) >= STREAM * seconds:
            means.add(STREAMS)
        if self._saw_disk or any(growth.stored or growth.faults for growth in grown):
            means.add(DISK)
        threads = [] if means else [(member.pid, thread) for member in living for thread in kernel.threads(member.pid)]
        if any(thread.state == "D" for _, thread in threads):  # it sleeps uninterruptibly
            means.add(DISK)
        runnable = {(thread.pid, switches(pid, thread.pid)) for pid, thread in threads if thread.state == "R"}
        if runnable & self._runnable:  # the kernel counts the time in a queue only when it is over
            means.add(CORE)
        self._runnable = runnable
        if self._flows(seconds, living, is_idle=not means):
            means.add(STREAMS)
        return means

    def _flows(self, seconds: float, living: Iterable[kernel.KernelProcess], *, is_idle: bool) -> bool:
        """Return whether a TCP connection delivered data; looked at only where the tree is otherwise idle."""
        before, self._delivered = self._delivered, tree_bytes(living) if is_idle else None
        return before is not None and any(
            now - earlier >= FLOW * seconds
            for link, counts in (self._delivered or {}).items()
            for now, earlier in zip(counts, before.get(link, (0, 0)), strict=True)
        )

    @property
    def stretch(self) -> float | None:
        """Times as long as with a core for each of its threads, so far; None where it has hardly worked."""
        return 1 + self._in_queue / self._on_core if self._on_core >= WORK_LEAST else None

    def is_hung(self, now: float, members: Iterable[kernel.KernelProcess]) -> bool:
        """Return whether the tree has done nothing for so long that it is a hang, and does not just sleep."""
        if self._slept or now - max(self.pauses.began, self._woke) < self.pauses.needed:
            return False
        return self._wakes_in(members) is None

    def is_idle(self, now: float) -> bool:
        """Return whether a pause has lasted long enough to show that it is not one sleep, which ends by itself."""
        return not self._slept and now - self.pauses.began > 2 * self._spell

    def is_paused(self, since: float, free: float) -> bool:
        """Return whether a pause from before `since` goes on, although a whole spell began with the tree `free`."""
        return self.pauses.began <= since and free <= self._began - self._spell

    def evidence(self, now: float, members: Iterable[kernel.KernelProcess]) -> dict[str, Any]:
        """Return the fields of `model.Headway` for an attempt that is over now."""
        is_pause = now - self.pauses.began >= self.pauses.needed
        wakes_in = self._wakes_in(members) if is_pause else None
        if wakes_in is None and is_pause and (self._slept or now - self._woke < self.pauses.needed):
            wakes_in = 0.0  # it has just woken
        return self.pauses.evidence(now) | {"stretch": round(self.stretch or 1.0, 2), "wakes_in": wakes_in}

    def _wakes_in(self, members: Iterable[kernel.KernelProcess]) -> float | None:
        """Return in how many seconds a main thread wakes that has been in a single sleep since the pause began."""
        ends = [
            seconds
            for member in members
            if member.is_alive
            and member.pid in self._switches
            and (seconds := sleeps_for(member.pid)) is not None
            and switches(member.pid) == self._switches[member.pid]
        ]
        return round(min(ends), 2) if ends else None


class Totals:
    """What a process has used and moved so far; or what that grew by."""

    __slots__ = ("counted", "faults", "moved", "queued", "stored", "used")

    def __init__(self, member: kernel.KernelProcess) -> None:
        self.counted = member.cpu  # seconds of CPU in hundredths, of all its threads
        self.used, self.queued = kernel.core_times(member.pid)  # seconds, of its living threads
        self.faults = member.faults  # pages that had to be read from a disk
        moved = defaultdict(int, kernel.transfers(member.pid))
        self.moved = moved[b"rchar"] + moved[b"wchar"]  # bytes, through calls
        self.stored = moved[b"read_bytes"] + moved[b"write_bytes"]  # bytes, to or from disks

    def since(self, earlier: Totals) -> Totals:
        """Return the growth since an earlier look at the same process."""
        growth = object.__new__(Totals)
        for name in Totals.__slots__:
            setattr(growth, name, max(0, getattr(self, name) - getattr(earlier, name)))
        return growth

    @property
    def on_core(self) -> float:
        """Seconds of CPU used; the living threads' are exact, those that others used are counted in hundredths."""
        return self.counted if self.counted - self.used > ENDED_THREADS else self.used

    @property
    def demand(self) -> float:
        """Seconds of CPU used or queued for; if next to nothing was used, queueing does not count."""
        return min(self.on_core + self.queued, self.on_core / SHARE_OF_DEMAND)

    def unqueued(self, seconds: float) -> float:
        """Return the share of a core that it would have used in so many seconds, had it never queued for one."""
        idle = max(0.0, seconds - self.on_core - self.queued)
        return self.on_core / (self.on_core + idle) if self.on_core else 0.0


def is_work(grown: Sequence[Totals], seconds: float) -> bool:
    """Return whether processes that grew so in so many seconds worked: they did not just poll, and queue for that."""
    unqueued = sum(growth.unqueued(seconds) for growth in grown)
    return sum(growth.demand for growth in grown) >= BUSY * seconds and unqueued >= POLLS


def tree_bytes(living: Iterable[kernel.KernelProcess]) -> dict[str, tuple[int, int]]:
    """Return how many bytes each connected TCP socket of processes has delivered, by its link (`tcp_bytes`)."""
    links = {link for member in living for link in open_files(member.pid).values() if link.startswith("socket:")}
    return {link: counts for link, counts in tcp_bytes().items() if link in links} if links else {}


def switches(pid: int, tid: int = 0) -> int:
    """Return how often a thread, the main one by default, went to sleep by itself, -1 where that is not known."""
    return int(kernel.field(f"/proc/{pid}/task/{tid or pid}/status", b"voluntary_ctxt_switches:") or b"-1")


def sleeps_for(pid: int) -> float | None:
    """Return how long a process's main thread is going to sleep for; None where it does not just sleep."""
    try:
        number, clock, flags, request, *_ = kernel.system_call(pid, pid)
        if number != _CLOCK_SLEEPS:
            return None
        seconds, nanoseconds = struct.unpack("=qq", kernel.memory(pid, request, 16))
        until = seconds + nanoseconds / 1e9
        return float(until - time.clock_gettime(clock) if flags & _ABSOLUTE else until)
    except (OSError, ValueError, OverflowError, struct.error):
        return None
