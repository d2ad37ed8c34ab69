"""Tell a tree that can never go on from one that is only idle: pure logic over the kernel's pictures of it.

The rule: every thread of every process is in a *known blocking wait without deadline* on something inside
the tree, nobody has run or done I/O, and that for WINDOW seconds. Whatever is not known to be such a wait (a
sleep, a poll with a timeout, a remote peer, a device, an unreadable thread) is no evidence: no verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.process.kernel import KernelProcess

WINDOW = 3.5  # seconds of identical pictures: with a picture each 0.4 s, a verdict within 5 s
QUIET = 0.02  # of a core: what the whole tree may use and still count as doing nothing
QUIET_GIL = 0.02  # of a core for each thread that waits for the GIL: it wakes 200 times a second (measured: 0.005)
QUIET_TICKS = 0.02  # seconds: CPU time is counted in ticks of 10 ms
SIGNALS_FROM_KERNEL = 1 << 13 | 1 << 28  # SIGALRM, SIGIO: caught, a timer that /proc does not show may wake anybody
BLINKS = 10  # pictures in a row in which a waiter for the GIL may be awake: it queues for a core then
BACK_OFF = 2.0  # times longer until the ends of pipes are searched for again: that reads every process

_FUTEX_WAITS = {0, 6, 9, 11, 13}  # WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2
_FUTEX_COMMAND, _FUTEX_PRIVATE = 0x7F, 0x80
_WNOHANG, _LOCK_NB = 1, 4
_SETLKW = 7
_P_PID = 1
_TRANSFERS = {
    "read": "pipe", "readv": "pipe", "write": "pipe", "writev": "pipe",
    "recvfrom": "socket", "recvmsg": "socket", "sendto": "socket", "sendmsg": "socket",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSnapshot:
    """One thread at one moment."""

    tid: int
    name: str
    state: str  # R, S, D, T, t, Z, X
    switches: int  # times it went to sleep by itself
    call: str | None  # name of the system call it is in; "" for none or one not known; None: may not be read
    arguments: tuple[int, ...] = ()
    channel: str = ""  # function of the kernel it sleeps in, where `call` may not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWait:
    """What a thread waits for: a wait that nothing but another thread of the tree can end."""

    word: str  # gil, futex, child, pipe, socket, poll, lock, stopped, ended
    detail: str = ""
    address: int = 0  # of a futex
    shared: bool = False  # a futex that other processes may reach
    child: int | None = None  # the only child that is waited for; 0 for any
    descriptors: tuple[int, ...] = ()  # all that it waits for


class Look(Protocol):
    """What stall detection asks the kernel. Each answer may be "not known", which is never evidence."""

    def threads(self, pid: int, first: int) -> Iterator[ThreadSnapshot]:
        """Yield the threads of a process, `first` (a tid) first: most often that one decides."""

    def io(self, pid: int) -> tuple[int, ...]:
        """Return the bytes read and written so far."""

    def expects_signals(self, pid: int) -> bool:
        """Return whether a timer or the like may wake it: POSIX timers, a handler of SIGALRM or SIGIO."""

    def is_gil(self, pid: int, address: int) -> bool:
        """Return whether a futex lies in the interpreter's runtime state, where the GIL is."""

    def polled(self, pid: int, call: str, arguments: Sequence[int]) -> tuple[int, ...] | None:
        """Return the descriptors that a poll, select or epoll waits for, None when not known."""

    def is_inside(self, waits: Sequence[tuple[int, ThreadSnapshot, KernelWait]], members: frozenset[int]) -> str:
        """Return why some wait of these may be ended from outside of the tree, "" where none can be."""


def classify(pid: int, thread: ThreadSnapshot, look: Look) -> KernelWait | None:
    """Return what a thread waits for, None where that is no evidence of a deadlock."""
    if thread.state in "ZX":
        return KernelWait(word="ended")
    if thread.state == "T":
        return KernelWait(word="stopped")
    if thread.state != "S":
        return None
    if thread.call is None:
        # The one function in which a thread only ever waits for a child, without deadline.
        return KernelWait(word="child", child=0) if thread.channel == "do_wait" else None
    arguments = thread.arguments
    if thread.call == "futex":
        return _futex(pid, arguments, look)
    if thread.call in {"wait4", "waitid"}:
        return _child(thread.call, arguments)
    if word := _TRANSFERS.get(thread.call):
        return KernelWait(word=word, detail=f"{thread.call} of fd {arguments[0]}", descriptors=(arguments[0],))
    if thread.call in {"flock", "fcntl"}:
        waits = not arguments[1] & _LOCK_NB if thread.call == "flock" else arguments[1] == _SETLKW
        return KernelWait(word="lock", detail=f"fd {arguments[0]}", descriptors=(arguments[0],)) if waits else None
    if _has_no_deadline(thread.call, arguments):
        descriptors = look.polled(pid, thread.call, arguments)
        if descriptors:
            words = ", ".join(map(str, descriptors[:8]))
            return KernelWait(word="poll", detail=f"{thread.call} of fd {words}", descriptors=descriptors)
    return None


def _futex(pid: int, arguments: Sequence[int], look: Look) -> KernelWait | None:
    address, operation, deadline = arguments[0], arguments[1], arguments[3]
    if operation & _FUTEX_COMMAND not in _FUTEX_WAITS:
        return None
    if look.is_gil(pid, address):
        return KernelWait(word="gil", address=address)
    if deadline:
        return None  # an Event.wait(0.005) wakes as often as a wait for the GIL does
    shared = not operation & _FUTEX_PRIVATE
    return KernelWait(word="futex", detail=hex(address), address=address, shared=shared)


def _child(call: str, arguments: Sequence[int]) -> KernelWait | None:
    options = arguments[2] if call == "wait4" else arguments[3]
    if options & _WNOHANG:
        return None
    if call == "wait4":
        pid = _signed(arguments[0])
        return KernelWait(word="child", child=max(pid, 0), detail=f"pid {pid}" if pid > 0 else "")
    only = arguments[1] if arguments[0] == _P_PID else 0
    return KernelWait(word="child", child=only, detail=f"pid {only}" if only else "")


def _has_no_deadline(call: str, arguments: Sequence[int]) -> bool:
    """Return whether a call waits for descriptors for ever."""
    match call:
        case "poll":
            return _signed(arguments[2]) < 0
        case "epoll_wait" | "epoll_pwait":
            return _signed(arguments[3]) < 0
        case "ppoll":
            return arguments[2] == 0
        case "epoll_pwait2":
            return arguments[3] == 0
        case "select" | "pselect6":
            return arguments[4] == 0
    return False


def _signed(value: int) -> int:
    """Read a C int from a register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@dataclass(frozen=True, slots=True)
class _Picture:
    """A moment in which all were waiting."""

    time: float  # seconds, monotonic
    cpu: float  # seconds, whole tree
    key: tuple[object, ...]  # what must not change
    waits: tuple[tuple[KernelProcess, ThreadSnapshot, KernelWait], ...]


class Watch:
    """Watch a tree for a deadlock, picture by picture."""

    def __init__(self, look: Look, window: float = WINDOW) -> None:
        self._look = look
        self._window = window
        self._first: _Picture | None = None  # of a series of identical ones
        self._suspect = (0, 0)  # pid and tid of who was no evidence last time: asked first next time
        self._is_awake = False  # the suspect was running, rather than in a wait that is no evidence
        self._blinks = 0  # pictures in a row that were of no use for that
        self._patience = 0.0  # seconds of back-off
        self._not_before = 0.0
        self._cpu: tuple[float, float] | None = None
        self.why_not = ""  # why there is no verdict, for tests and for the curious

    def observe(self, now: float, members: Iterable[KernelProcess]) -> list[dict[str, Any]] | None:
        """Take a picture; return the evidence once it proves a deadlock, one entry per waiting thread."""
        members = list(members)
        cpu = sum(member.cpu for member in members)
        before, self._cpu = self._cpu, (now, cpu)
        # Before reading any thread: at a glance, is it busy?
        threads = sum(member.threads for member in members)
        if before and cpu - before[1] > (QUIET + QUIET_GIL * threads) * (now - before[0]) + QUIET_TICKS:
            self._reset("busy")
            return None
        if now < self._not_before:
            return None
        picture = self._take(now, cpu, members)
        if picture is None:
            if not self._is_blink():
                self._first = None
            return None
        self._blinks = 0
        if self._first is None or self._first.key != picture.key:
            self._first = picture
            self.why_not = "a change"
            return None
        span = now - self._first.time
        waiters = sum(wait.word == "gil" for _, _, wait in picture.waits)
        if cpu - self._first.cpu > (QUIET + QUIET_GIL * waiters) * span + QUIET_TICKS:
            self._reset("busy")
            return None
        if span < self._window:
            return None
        return self._judge(now, picture)

    def _reset(self, why: str) -> None:
        self._first = None
        self.why_not = why

    def _is_blink(self) -> bool:
        """Return whether the suspect is one who waits for the GIL, caught in the moment of asking for it."""
        if self._first is None or not self._is_awake:
            return False
        self._blinks += 1
        waiting = {thread.tid for _, thread, wait in self._first.waits if wait.word == "gil"}
        return self._suspect[1] in waiting and self._blinks <= BLINKS

    def _take(self, now: float, cpu: float, members: Sequence[KernelProcess]) -> _Picture | None:
        """Return a picture, None as soon as one thread is no evidence."""
        self._is_awake = False
        waits: list[tuple[KernelProcess, ThreadSnapshot, KernelWait]] = []
        key: list[object] = []
        for member in sorted(members, key=lambda member: member.pid != self._suspect[0]):
            key.append((member.pid, member.started, member.state))
            if not member.is_alive:
                continue  # a zombie: all its threads have ended
            found = 0
            for thread in self._look.threads(member.pid, self._suspect[1]):
                found += 1
                wait = classify(member.pid, thread, self._look)
                if wait is None:
                    self._suspect = (member.pid, thread.tid)
                    self._is_awake = thread.state == "R" or thread.call == ""
                    self.why_not = f"{thread.name} ({thread.tid}): {thread.state} {thread.call}"
                    return None
                waits.append((member, thread, wait))
                if wait.word == "gil":
                    key.append((thread.tid, "gil"))  # wakes every 5 ms to ask for it, and goes on waiting
                else:
                    key.append((thread.tid, thread.call, thread.arguments, wait, thread.switches))
            if not found:
                self.why_not = f"{member.name} ({member.pid}): no thread can be read"
                return None
            if self._look.expects_signals(member.pid):
                self._suspect = (member.pid, 0)
                self._is_awake = False
                self.why_not = f"{member.name} ({member.pid}): a timer may wake it"
                return None
            key.append(self._look.io(member.pid))
        if not waits:
            self.why_not = "nobody is alive"
            return None
        key.sort(key=repr)  # whoever was asked first
        return _Picture(now, cpu, tuple(key), tuple(waits))

    def _judge(self, now: float, picture: _Picture) -> list[dict[str, Any]] | None:
        """Look at what the waits are for, now that they have lasted."""
        why = _child_is_missing(picture.waits)
        if not why:
            members = frozenset(process.pid for process, _, _ in picture.waits)
            why = self._look.is_inside(
                [(process.pid, thread, wait) for process, thread, wait in picture.waits], members
            )
        why = why or _gil_is_free(picture.waits)
        if why:
            self._patience = max(1.0, self._patience * BACK_OFF)
            self._not_before = now + self._patience
            self.why_not = why
            return None
        return [
            {
                "pid": process.pid,
                "tid": thread.tid,
                "name": thread.name,
                "state": thread.state,
                "wait": wait.word,
                "detail": wait.detail,
            }
            for process, thread, wait in picture.waits
        ]


def _gil_is_free(waits: Sequence[tuple[KernelProcess, ThreadSnapshot, KernelWait]]) -> str:
    """Return who waits for a GIL that nobody holds, so that it is passed round; "" where there is none."""
    holders = {process.pid for process, _, wait in waits if wait.word != "gil"}
    for process, thread, wait in waits:
        if wait.word == "gil" and process.pid not in holders:
            return f"{thread.name} ({thread.tid}): nobody holds the GIL it waits for"
    return ""


def _child_is_missing(waits: Sequence[tuple[KernelProcess, ThreadSnapshot, KernelWait]]) -> str:
    """Return who waits for a child that is not a living process of the tree, "" where nobody does."""
    parents = {process.pid: process.parent for process, _, _ in waits}
    for process, thread, wait in waits:
        if wait.child is None:
            continue
        children = {pid for pid, parent in parents.items() if parent == process.pid}
        if not children or (wait.child and wait.child not in children):
            return f"{thread.name} ({thread.tid}): waits for a child that is not there"
    return ""
