"""Tell a tree that can never go on from one that is only idle: pure logic over snapshots of its threads.

The rule: for WINDOW seconds every thread of every process is in a *known blocking wait without deadline* on
something inside the tree, and none has run or done I/O. Any other wait (a sleep, a remote peer, a device, an unreadable
thread) is no evidence, and there is no verdict.

A wait with a timeout counts where it is certain to be begun again and again (`polls`), and one whose deadline is far
beyond all looks. A thread that accepts connections counts where only the tree's own processes would connect.

A process that a signal has stopped waits for SIGCONT, which a thread that sleeps might send. Beside a stopped process
one kind of sleep is let pass, too: that of a package's own thread, which is no main one, and runs no code of the
user's. Packages have such threads to see once in a while whether another process is still there.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass, replace
from signal import SIGSTOP
from typing import TYPE_CHECKING, Any, Protocol

from whichtorch.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from whichtorch.process.kernel import KernelProcess

WINDOW = 3.5  # seconds of identical snapshots: with one each 0.4 s, a verdict within 5 s
QUIET = 0.02  # of a core: what the whole tree may use and still count as doing nothing
QUIET_GIL = 0.02  # of a core for each thread that waits for the GIL: it wakes 200 times a second (measured: 0.005)
QUIET_TICKS = 0.02  # seconds: CPU time is counted in ticks of 10 ms
SLEEPERS_WINDOW = 7.0  # seconds, instead of WINDOW, beside a thread that sleeps: what it looks for may still come
BLINKS = 20  # snapshots in a row in which a thread that wakes may be awake, because it queues for a core
FAR = 600.0  # seconds: a deadline further away, and beyond the limit, is as good as none
STORE = "pt_tcpstore"  # begins the name of the thread in which a store of torch answers its clients
GLOO = "pt_gloo"  # begins the names of threads of gloo, beside one without a name that polls its connections
LIKELY = 10.0  # seconds without movement after which it is likely that nothing will move, although it is not certain
BACK_OFF = 2.0  # factor on the time until peers are searched for again: the search reads every process

_FUTEX_WAITS = {0, 6, 9, 11, 13}  # WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2
FUTEX_COMMAND, FUTEX_PRIVATE = 0x7F, 0x80
_WNOHANG, _LOCK_NB = 1, 4
_SETLKW = 7
_P_PID = 1
MILLISECONDS_AT = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}  # argument: negative for no deadline
TIMEOUT_AT = {"ppoll": 2, "epoll_pwait2": 3, "select": 4, "pselect6": 4}  # argument: a pointer, null for no deadline
_POLLS = {*MILLISECONDS_AT, *TIMEOUT_AT}
_TRANSFERS = dict.fromkeys(("read", "readv", "write", "writev"), Waiting.PIPE) | dict.fromkeys(
    ("recvfrom", "recvmsg", "sendto", "sendmsg"), Waiting.SOCKET
)


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
class BlockedCall:
    """A wait that only another thread of the tree can end."""

    waiting: Waiting
    detail: str = ""
    address: int = 0  # of a futex
    shared: bool = False  # a futex that other processes may reach
    child: int | None = None  # process id of the child it waits for; 0 for any
    descriptors: tuple[int, ...] = ()
    is_open: bool = False  # it ends, or may be ended from outside: only its frames tell whether it then goes on
    is_far: bool = False  # it ends so late that a library may only give up then
    is_beside_stopped: bool = False  # a sleep that a package's own thread may be in
    is_service: bool = False  # it serves connections, and does nothing by itself

    @property
    def wakes(self) -> bool:
        """True for a thread that wakes again and again, and waits on."""
        return self.is_open or self.is_service or self.waiting is Waiting.GIL


@dataclass(frozen=True, slots=True)
class Waiter:
    """A thread of a process in such a wait."""

    process: KernelProcess
    thread: ThreadSnapshot
    wait: BlockedCall


class KernelView(Protocol):
    """What stall detection asks the kernel; an answer that is not known is never evidence."""

    def threads(self, pid: int, first: int) -> Iterator[ThreadSnapshot]:
        """Yield the threads of a process, `first` (a tid) first: most often it decides."""

    def io(self, pid: int) -> tuple[int, ...]:
        """Return the bytes read and written so far."""

    def expects_signals(self, pid: int) -> bool:
        """Return whether a signal of the kernel may wake a process: POSIX timers, a handler of SIGALRM or SIGIO."""

    def is_gil(self, pid: int, address: int) -> bool:
        """Return whether a futex lies in the interpreter's runtime state, where the GIL is."""

    def polled(self, pid: int, call: str, arguments: Sequence[int]) -> tuple[int, ...] | None:
        """Return the descriptors that a poll, select or epoll waits for, None when not known."""

    limit: float | None  # seconds that the tree is given

    def seconds_left(self, pid: int, thread: ThreadSnapshot) -> float:
        """Return for how many seconds more a wait with a deadline lasts at least; 0 where that is not known."""

    def go_on_for_ever(self, waiters: Sequence[Waiter], rounds: Mapping[int, int]) -> bool:
        """Return whether it is certain that open waits are begun anew for ever, by the `rounds` that were seen."""

    def is_inside(self, waiters: Sequence[Waiter], members: frozenset[int]) -> bool:
        """Return whether it is certain that nothing outside the tree can end one of the waits."""


def classify(pid: int, thread: ThreadSnapshot, view: KernelView) -> BlockedCall | None:
    """Return what a thread waits for, None where that is no evidence of a deadlock."""
    if thread.state in "ZX":
        return BlockedCall(waiting=Waiting.ENDED)
    if thread.state == "T":
        return BlockedCall(waiting=Waiting.STOPPED)
    if thread.state != "S":
        return None
    if thread.call is None:
        # The one function in which a thread only ever waits for a child, without deadline.
        return BlockedCall(waiting=Waiting.CHILD, child=0) if thread.channel == "do_wait" else None
    arguments = thread.arguments
    if thread.call == "futex":
        return _futex(pid, thread, view)
    if thread.call in {"wait4", "waitid"}:
        return _child(thread.call, arguments)
    if waiting := _TRANSFERS.get(thread.call):
        return BlockedCall(waiting=waiting, detail=f"{thread.call} of fd {arguments[0]}", descriptors=(arguments[0],))
    if thread.call in {"flock", "fcntl"}:
        waits = not arguments[1] & _LOCK_NB if thread.call == "flock" else arguments[1] == _SETLKW
        fd = arguments[0]
        return BlockedCall(waiting=Waiting.LOCK, detail=f"fd {fd}", descriptors=(fd,)) if waits else None
    if thread.call in {"accept", "accept4"}:
        detail = f"{thread.call} of fd {arguments[0]}"
        door = (arguments[0],)
        return BlockedCall(waiting=Waiting.SOCKET, detail=detail, descriptors=door, is_open=True, is_service=True)
    if thread.call == "clock_nanosleep":
        return _timed(Waiting.SLEEP, pid, thread, view)
    if thread.call in _POLLS and (descriptors := view.polled(pid, thread.call, arguments)):
        words = ", ".join(map(str, descriptors[:8]))
        fields: dict[str, Any] = {"detail": f"{thread.call} of fd {words}", "descriptors": descriptors}
        if _has_no_deadline(thread.call, arguments):
            return BlockedCall(waiting=Waiting.POLL, is_service=thread.name.startswith(STORE), **fields)
        return _timed(Waiting.POLL, pid, thread, view, **fields)
    return None


def _timed(waiting: Waiting, pid: int, thread: ThreadSnapshot, view: KernelView, **fields: Any) -> BlockedCall:
    left, limit = view.seconds_left(pid, thread), view.limit
    if limit is not None and left > max(FAR, limit):
        return BlockedCall(waiting=waiting, **fields)
    return BlockedCall(waiting=waiting, is_open=True, is_far=left > FAR, **fields)


def _futex(pid: int, thread: ThreadSnapshot, view: KernelView) -> BlockedCall | None:
    arguments = thread.arguments
    address, operation, deadline = arguments[0], arguments[1], arguments[3]
    if operation & FUTEX_COMMAND not in _FUTEX_WAITS:
        return None
    if view.is_gil(pid, address):
        return BlockedCall(waiting=Waiting.GIL, address=address)
    shared = not operation & FUTEX_PRIVATE
    fields: dict[str, Any] = {"detail": hex(address), "address": address, "shared": shared}
    if deadline:
        return _timed(Waiting.FUTEX, pid, thread, view, **fields)
    return BlockedCall(waiting=Waiting.FUTEX, **fields)


def _child(call: str, arguments: Sequence[int]) -> BlockedCall | None:
    if call == "wait4":
        child, options = max(ctypes.c_int(arguments[0]).value, 0), arguments[2]
    else:
        child, options = arguments[1] if arguments[0] == _P_PID else 0, arguments[3]
    if options & _WNOHANG:
        return None
    return BlockedCall(waiting=Waiting.CHILD, child=child, detail=f"pid {child}" if child else "")


def _has_no_deadline(call: str, arguments: Sequence[int]) -> bool:
    if call in MILLISECONDS_AT:
        return ctypes.c_int(arguments[MILLISECONDS_AT[call]]).value < 0
    return call in TIMEOUT_AT and arguments[TIMEOUT_AT[call]] == 0


@dataclass(frozen=True, slots=True)
class _TreeSnapshot:
    """A moment in which all threads were waiting."""

    time: float  # seconds, monotonic
    cpu: float  # seconds, whole tree
    key: tuple[object, ...]  # what must not change
    waiters: tuple[Waiter, ...]


class Watch:
    """Watch a tree for a deadlock, snapshot by snapshot."""

    def __init__(self, view: KernelView) -> None:
        self._view = view
        self._first: _TreeSnapshot | None = None  # of a series of identical ones
        self._suspect = (0, 0)  # pid and tid of the thread that was no evidence last time: it is read first
        self._asleep: dict[int, Waiter] = {}  # of a series: threads that wake, as they waited last
        self._blinks: Counter[int] = Counter()  # snapshots in a row in which such a thread was awake
        self._rounds: Counter[int] = Counter()  # of a series: how often such a thread has come back to its wait
        self._is_closed = False  # when last judged: nothing outside the tree, and no hidden thread, could end a wait
        self._patience = 0.0  # seconds of back-off
        self._not_before = 0.0
        self._last_cpu: tuple[float, float] | None = None  # time and CPU seconds of the last look

    def observe(self, now: float, members: Sequence[KernelProcess]) -> list[dict[str, Any]] | None:
        """Take a snapshot; return the evidence once it proves a deadlock, one entry per waiting thread."""
        cpu = sum(member.cpu for member in members)
        last, self._last_cpu = self._last_cpu, (now, cpu)
        # A busy tree shows at a glance, before any thread is read.
        threads = sum(member.threads for member in members)
        if last and _is_busy(cpu - last[1], now - last[0], threads):
            self._first = None
            return None
        if now < self._not_before:
            return None
        snapshot = self._take(now, cpu, members)
        if snapshot is None:
            self._first = None
            return None
        if self._first is None or self._first.key != snapshot.key:
            self._first = snapshot
            self._asleep, self._rounds, self._patience = {}, Counter(), 0.0
        for waiter in snapshot.waiters:
            if waiter.wait.wakes:
                tid = waiter.thread.tid
                self._rounds[tid] += waiter.thread.switches != self._asleep.get(tid, waiter).thread.switches
                self._asleep[tid] = waiter
        span = now - self._first.time
        if _is_busy(cpu - self._first.cpu, span, len(self._asleep)):
            self._first = None
            return None
        sleeps = any(waiter.wait.is_beside_stopped for waiter in snapshot.waiters)
        return self._judge(now, snapshot.waiters) if span >= (SLEEPERS_WINDOW if sleeps else WINDOW) else None

    def is_likely(self, now: float) -> bool:
        """Return whether nothing has moved for LIKELY seconds but loops that may or may not go on for ever."""
        if self._first is None or now - self._first.time < LIKELY:
            return False
        loops = [tid for tid, waiter in self._asleep.items() if waiter.wait.is_open and not waiter.wait.is_far]
        return self._is_closed and all(self._rounds[tid] for tid in loops)

    def _is_blink(self, tid: int) -> bool:
        """Return whether a thread that wakes again and again was caught in a moment in which it is awake."""
        self._blinks[tid] += 1
        return self._first is not None and tid in self._asleep and self._blinks[tid] <= BLINKS

    def _take(self, now: float, cpu: float, members: Sequence[KernelProcess]) -> _TreeSnapshot | None:
        """Return a snapshot, None as soon as one thread is no evidence."""
        waiters: list[Waiter] = []
        key: list[object] = []
        stopped = [member for member in members if member.state == "T"]
        if any(member.has_terminal and member.stop != SIGSTOP for member in stopped):
            return None  # by the terminal, whose user may let it go on
        for member in sorted(members, key=lambda member: member.pid != self._suspect[0]):
            key.append((member.pid, member.started, member.is_alive))
            if not member.is_alive:
                continue  # all threads of a zombie have ended
            before = len(waiters)
            for thread in self._view.threads(member.pid, self._suspect[1]):
                wait = classify(member.pid, thread, self._view)
                if stopped and thread.tid != member.pid and _sleeps(thread):
                    wait = BlockedCall(waiting=Waiting.SLEEP, is_open=True, is_beside_stopped=True)
                if wait is None and (thread.state == "R" or thread.call == "") and self._is_blink(thread.tid):
                    thread, wait = self._asleep[thread.tid].thread, self._asleep[thread.tid].wait
                elif wait is None:
                    self._suspect = (member.pid, thread.tid)
                    return None
                else:
                    self._blinks[thread.tid] = 0
                waiters.append(Waiter(member, thread, wait))
                facts = (thread.call, thread.arguments, wait, thread.switches)
                key.append((thread.tid, wait.waiting if wait.wakes else facts))
            own = waiters[before:]
            if any(waiter.thread.name.startswith(GLOO) for waiter in own):
                waiters[before:] = map(_as_service, own)
            if len(waiters) == before:
                return None  # no thread can be read
            if self._view.expects_signals(member.pid):
                self._suspect = (member.pid, 0)
                return None
            if not any(waiter.thread.name.startswith(STORE) for waiter in own):  # those who poll ask it, too
                key.append(self._view.io(member.pid))
        key.sort(key=repr)  # the order in which threads were read does not count
        return _TreeSnapshot(now, cpu, tuple(key), tuple(waiters)) if waiters else None

    def _judge(self, now: float, waiters: tuple[Waiter, ...]) -> list[dict[str, Any]] | None:
        """Return the evidence if nothing outside the tree, and no thread that is not shown, can end the waits."""
        members = frozenset(waiter.process.pid for waiter in waiters)
        is_closed = _all_children_exist(waiters) and _is_gil_held(waiters)
        is_open = [waiter for waiter in waiters if waiter.wait.is_open]
        # what only sleeps may do its work in the handler of a signal
        is_closed = is_closed and not all(each.wait.is_open and each.wait.waiting is Waiting.SLEEP for each in waiters)
        is_closed = self._is_closed = is_closed and self._view.is_inside(waiters, members)
        if not is_closed or (is_open and not self._view.go_on_for_ever(is_open, self._rounds)):
            self._patience = max(1.0, self._patience * BACK_OFF)
            self._not_before = now + self._patience
            return None
        return [
            {
                "pid": waiter.process.pid,
                "tid": waiter.thread.tid,
                "name": waiter.thread.name,
                "state": waiter.thread.state,
                "wait": waiter.wait.waiting.word,
                "detail": waiter.wait.detail,
            }
            for waiter in waiters
        ]


def _as_service(waiter: Waiter) -> Waiter:
    """Return a thread of a process with gloo as one that serves its connections, where it polls some."""
    is_loop = waiter.wait.is_open and waiter.wait.waiting is Waiting.POLL
    return replace(waiter, wait=replace(waiter.wait, is_service=True)) if is_loop else waiter


def _sleeps(thread: ThreadSnapshot) -> bool:
    """Return whether a thread is in a plain sleep: before Python 3.11 that is a select of nothing."""
    is_select = thread.call in {"select", "pselect6"} and not thread.arguments[0]
    return thread.state == "S" and (thread.call == "clock_nanosleep" or is_select)


def _is_busy(cpu: float, seconds: float, gil_waiters: int) -> bool:
    """Return whether so many CPU seconds are more than a waiting tree uses."""
    return cpu > (QUIET + QUIET_GIL * gil_waiters) * seconds + QUIET_TICKS


def _is_gil_held(waiters: Sequence[Waiter]) -> bool:
    """Return False where all threads of a process wait for the GIL, or will soon: they pass it round."""
    holders = {waiter.process.pid for waiter in waiters if not waiter.wait.wakes}
    return all(waiter.process.pid in holders for waiter in waiters if waiter.wait.waiting is Waiting.GIL)


def _all_children_exist(waiters: Sequence[Waiter]) -> bool:
    """Return False where a thread waits for a child that is no living process of the tree."""
    parents = {waiter.process.pid: waiter.process.parent for waiter in waiters}
    for waiter in waiters:
        children = {pid for pid, parent in parents.items() if parent == waiter.process.pid}
        child = waiter.wait.child
        if child is not None and (not children or (child and child not in children)):
            return False
    return True
