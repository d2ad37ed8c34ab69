"""The logic of stalls, with snapshots fed in: facts as measured on deadlocked and on idle processes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from whichtorch.process import kernel
from whichtorch.process.evidence import polls, stall
from whichtorch.process.evidence.waiting import Waiting
from whichtorch.process.kernel import KernelProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

GIL = 0x7F680FF4E6F0  # as in a process whose main thread joins a C++ thread with the GIL held
HEAP = 0x5584AC41830C


def thread(tid: int, call: str | None = "futex", *arguments: int, **fields: Any) -> stall.ThreadSnapshot:
    """Return a sleeping thread; without arguments it waits for a lock for ever."""
    padded = (arguments or (HEAP + tid, 0x80, 0, 0)) + (0,) * 6
    base = stall.ThreadSnapshot(tid=tid, name="python", state="S", switches=9, call=call, arguments=padded[:6])
    return replace(base, **fields)


def process(pid: int, parent: int = 1, cpu: float = 5.0, state: str = "S", **stopped: int) -> KernelProcess:
    """Return a process as /proc/PID/stat has it; of a stopped one with its terminal and the signal."""
    fields = ["0"] * 50
    fields[:3] = [state, str(parent), str(pid)]
    fields[4], fields[49] = str(stopped.get("terminal", 0)), str(stopped.get("stop", 19))
    fields[11] = str(round(cpu * 100))
    fields[17] = "3"
    return KernelProcess(pid, f"{pid} (python) {' '.join(fields)}".encode())


@dataclass
class Kernel:
    """A kernel whose answers a test sets."""

    by_pid: dict[int, list[stall.ThreadSnapshot]]
    fds: tuple[int, ...] | None = (5,)
    outside: bool = False
    signals: bool = False
    bytes: int = 0
    of_packages: bool = True
    left: float = 0.0
    limit: float | None = 60.0
    endless: bool = False
    threads_read: list[int] = field(default_factory=list)

    def threads(self, pid: int, first: int) -> Iterator[stall.ThreadSnapshot]:
        for snapshot in sorted(self.by_pid[pid], key=lambda thread: thread.tid != first):
            self.threads_read.append(snapshot.tid)
            yield snapshot

    def io(self, pid: int) -> tuple[int, ...]:
        return (self.bytes, 0)

    def expects_signals(self, pid: int) -> bool:
        return self.signals

    def is_gil(self, pid: int, address: int) -> bool:
        return address == GIL

    def polled(self, pid: int, call: str, arguments: Sequence[int]) -> tuple[int, ...] | None:
        return self.fds

    def seconds_left(self, pid: int, thread: stall.ThreadSnapshot) -> float:
        return self.left

    def go_on_for_ever(self, waiters: Sequence[stall.Waiter], rounds: Mapping[int, int]) -> bool:
        return all(self.of_packages if waiter.wait.is_beside_stopped else self.endless for waiter in waiters)

    def is_inside(self, waiters: Sequence[stall.Waiter], members: frozenset[int]) -> bool:
        return not self.outside


def watch(kernel: Kernel, members: list[KernelProcess], seconds: float = 6.0) -> float | None:
    """Watch a tree that does not change; return after how many seconds there is a verdict."""
    watching = stall.Watch(kernel)
    for step in range(int(seconds * 2) + 1):
        if watching.observe(100 + step / 2, members):
            return step / 2
    return None


def test_locks_without_deadline_are_a_deadlock() -> None:
    """All threads in futex waits without deadline: a verdict when the window is full, not before."""
    assert watch(Kernel({7: [thread(7), thread(8)]}), [process(7)]) == stall.WINDOW


def test_gil_deadlock_as_measured() -> None:
    """A thread joins (FUTEX_WAIT_BITSET, no timeout), another idles, and a third asks for the GIL every 5 ms."""
    threads = [
        thread(26947, "futex", 0x7F6753D14990, 0x109, 0x6946, 0, 0, 0xFFFFFFFF, switches=1283),
        thread(26949, "futex", 0x7F675DFE5AE0, 0x189, 0, 0, 0, 0xFFFFFFFF),
        thread(26950, "futex", GIL, 0x89, 0, 0x7F6753D13450, 0, 0xFFFFFFFF, switches=836),
    ]
    kernel = Kernel({26947: threads})
    watching = stall.Watch(kernel)
    evidence = None
    for step in range(9):
        threads[2] = replace(threads[2], switches=836 + 99 * step)
        evidence = watching.observe(step / 2, [process(26947, cpu=5.33 + 0.005 * step)])
    assert evidence is not None
    assert [entry["wait"] for entry in evidence] == ["futex", "futex", "gil"]
    assert evidence[2]["tid"] == 26950


def test_fork_after_openmp_as_measured() -> None:
    """A parent in wait4 for a child in libgomp's futex, while its own pool is idle."""
    parent = [
        thread(27049, "wait4", 0x69AE, 0x7FFDF6CC8A5C, 0, 0),
        thread(27052, "futex", HEAP, 0x80, 0, 0),
        thread(27053, "futex", 0x5584ACB2E2B4, 0x80, 0x28, 0, 0xCA, 0x2BF20),
    ]
    child = [thread(27054, "futex", 0x5584A6159564, 0x80, 0x28, 0, 0xCA, 0x2BF20)]
    members = [process(27049), process(27054, parent=27049)]
    assert watch(Kernel({27049: parent, 27054: child}), members) == stall.WINDOW


def test_gil_waiter_caught_awake_does_not_start_the_window_again() -> None:
    """On a busy machine a waiter for the GIL queues for a core now and then, and there is still a verdict."""
    waiting = thread(8, "futex", GIL, 0x89, 0, 1)
    kernel = Kernel({7: [thread(7), waiting]})
    watching = stall.Watch(kernel)
    verdicts = []
    for step in range(9):
        kernel.by_pid[7][1] = replace(waiting, state="R", call="") if step == 5 else waiting
        verdicts.append(watching.observe(step / 2, [process(7)]) is not None)
    assert verdicts == [False] * 7 + [True] * 2


@pytest.mark.parametrize(("rounds", "outside", "since"), [(1, False, stall.LIKELY), (0, False, None), (1, True, None)])
def test_a_loop_of_unknown_purpose_is_probably_stuck(rounds: int, outside: bool, since: float | None) -> None:
    """It is where it begins its wait anew and no other wait can be ended from outside; a single sleep is not."""
    kernel = Kernel({7: [thread(7), thread(8, "clock_nanosleep", 1)]}, outside=outside)
    watching = stall.Watch(kernel)
    likely = []
    for step in range(60):
        kernel.by_pid[7][1] = replace(kernel.by_pid[7][1], switches=rounds * step)
        assert watching.observe(step / 2, [process(7)]) is None
        likely += [step / 2] if watching.is_likely(step / 2) else []
    assert min(likely, default=None) == since


def test_gil_passed_round_is_no_deadlock() -> None:
    """Where all threads of a process wait for the GIL, none holds it: they take turns."""
    waiting = [thread(tid, "futex", GIL, 0x89, 0, 1) for tid in (7, 8)]
    assert watch(Kernel({7: waiting}), [process(7)]) is None


NO_EVIDENCE = {
    "lock with a deadline": thread(8, "futex", HEAP, 0x189, 0, 0x7F0000000000),
    "futex that wakes": thread(8, "futex", HEAP, 0x81, 1, 0),
    "sleep": thread(8, ""),
    "pause": thread(8, "", state="S"),
    "running": thread(8, "", state="R"),
    "disk": thread(8, "read", 3, state="D"),
    "traced": thread(8, state="t"),
    "unreadable": thread(8, None, channel="futex_do_wait"),
    "poll with a timeout": thread(8, "poll", 0x7F00, 1, 5000),
    "ppoll with a timeout": thread(8, "ppoll", 0x7F00, 1, 0x7F10),
    "select with a timeout": thread(8, "pselect6", 4, 0x7F00, 0, 0, 0x7F10),
    "epoll with a timeout": thread(8, "epoll_wait", 4, 0x7F00, 10, 100),
    "child, without waiting": thread(8, "wait4", 9, 0, 1),
    "child that is not there": thread(8, "wait4", 9, 0, 0),
    "lock, without waiting": thread(8, "flock", 3, 2 | 4),
    "fcntl of another kind": thread(8, "fcntl", 3, 1),
}


@pytest.mark.parametrize("name", NO_EVIDENCE)
def test_a_single_thread_without_evidence_is_enough(name: str) -> None:
    """A single thread that may go on by itself, or whose wait is not known, prevents a verdict."""
    assert watch(Kernel({7: [thread(7), NO_EVIDENCE[name]]}), [process(7)]) is None


POLLS = [name for name in NO_EVIDENCE if "with a" in name] + ["sleep of a second"]
NO_EVIDENCE["sleep of a second"] = thread(8, "clock_nanosleep", 1, 1, 0x7F10)


@pytest.mark.parametrize("name", POLLS)
def test_a_wait_with_a_deadline_is_evidence_where_it_is_begun_for_ever_or_outlasts_all_looks(name: str) -> None:
    """A thread that wakes again and again counts if it goes on for ever, and a deadline if it is far away."""
    threads = [thread(7), NO_EVIDENCE[name]]
    assert watch(Kernel({7: threads}, endless=True), [process(7)]) == stall.WINDOW
    assert watch(Kernel({7: threads}, left=1700.0), [process(7)]) == stall.WINDOW
    assert watch(Kernel({7: threads}, left=1700.0, limit=None), [process(7)]) is None
    assert watch(Kernel({7: threads}, left=1700.0, limit=1800.0), [process(7)]) is None
    assert watch(Kernel({7: threads}, endless=True, outside=True), [process(7)]) is None


EVIDENCE = {
    "poll": thread(8, "poll", 0x7F00, 1, 0xFFFFFFFF),
    "poll, as 64 bits": thread(8, "poll", 0x7F00, 1, 0xFFFFFFFFFFFFFFFF),
    "ppoll": thread(8, "ppoll", 0x7F00, 1, 0),
    "select": thread(8, "select", 4, 0x7F00, 0, 0, 0),
    "epoll": thread(8, "epoll_pwait", 4, 0x7F00, 10, 0xFFFFFFFF),
    "read": thread(8, "read", 3),
    "send": thread(8, "sendto", 3),
    "flock": thread(8, "flock", 3, 2),
    "fcntl": thread(8, "fcntl", 3, 7),
    "stopped": thread(8, "", state="T"),
    "ended": thread(8, "", state="Z"),
    "child, by wchan": thread(8, None, channel="do_wait"),
    "any child": thread(8, "waitid", 0, 0, 0, 4),
    "one child": thread(8, "waitid", 1, 9, 0, 4),
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_waits_without_deadline_are_evidence(name: str) -> None:
    """Known waits without deadline, on something inside the tree, are evidence."""
    kernel = Kernel({7: [thread(7), EVIDENCE[name]], 9: [thread(9)]})
    assert watch(kernel, [process(7), process(9, parent=7)]) == stall.WINDOW


def test_descriptors_that_are_not_known_are_no_evidence() -> None:
    """A poll that cannot be read may be waiting for anything."""
    kernel = Kernel({7: [EVIDENCE["poll"]]}, fds=None)
    assert watch(kernel, [process(7)]) is None


def test_other_ends_outside_are_no_evidence() -> None:
    """A peer outside the tree may speak at any time."""
    kernel = Kernel({7: [thread(7, "read", 3)]}, outside=True)
    assert watch(kernel, [process(7)], seconds=60) is None


def test_timers_are_no_evidence() -> None:
    """A process that catches SIGALRM may be waiting for it in a lock."""
    assert watch(Kernel({7: [thread(7)]}, signals=True), [process(7)]) is None


@pytest.mark.parametrize("change", ["switches", "arguments", "bytes", "new thread", "new process", "cpu"])
def test_any_change_starts_the_window_again(change: str) -> None:
    """Any change within the window prevents the verdict."""
    kernel = Kernel({7: [thread(7), thread(8)], 9: [thread(9)]})
    watching = stall.Watch(kernel)
    for step in range(9):
        if step >= 5:
            match change:
                case "switches":
                    kernel.by_pid[7][1] = replace(thread(8), switches=10)
                case "arguments":
                    kernel.by_pid[7][1] = thread(8, "futex", HEAP, 0x80, 1, 0)
                case "bytes":
                    kernel.bytes = 1
                case "new thread":
                    kernel.by_pid[7] = [thread(7), thread(8), thread(10)]
        cpu = 5.2 if step >= 5 and change == "cpu" else 5.0
        members = [process(7, cpu=cpu)] + [process(9, 7)] * (change == "new process" and step >= 5)
        assert watching.observe(step / 2, members) is None


def test_busy_tree_is_not_read_thread_by_thread() -> None:
    """While a tree uses CPU time, its threads are not read again."""
    kernel = Kernel({7: [thread(7)]})
    watching = stall.Watch(kernel)
    for step in range(20):
        watching.observe(step / 2, [process(7, cpu=step / 2)])
    assert kernel.threads_read == [7]  # once, at the first look


def test_thread_that_was_no_evidence_is_read_first() -> None:
    """Of a hundred threads, the one that prevented a verdict is read first at the next snapshot."""
    threads = [thread(tid) for tid in range(7, 100)]
    kernel = Kernel({7: [*threads, thread(100, "")]})
    watching = stall.Watch(kernel)
    watching.observe(0, [process(7)])
    kernel.threads_read.clear()
    watching.observe(0.5, [process(7)])
    assert kernel.threads_read == [100]


def test_what_only_sleeps_may_work_in_the_handler_of_a_signal() -> None:
    """A long sleep in an endless loop is evidence beside another wait, but not alone."""
    sleeper, kernel = thread(7, "clock_nanosleep"), Kernel({}, left=3600, limit=None, endless=True)
    kernel.by_pid = {7: [sleeper]}
    assert watch(kernel, [process(7)]) is None
    kernel.by_pid = {7: [sleeper], 8: [thread(8)]}
    assert watch(kernel, [process(7), process(8, parent=7)]) == stall.WINDOW


@pytest.mark.parametrize(("caught", "may_end"), [(1 << 14, False), (1 << 14 | 1 << 9, True)])
def test_torch_handles_sigterm_in_a_loaders_worker(monkeypatch: pytest.MonkeyPatch, caught: int, may_end: bool) -> None:
    """No handler of Python's then sets the event that the worker waits for."""
    files = ("/lib/threading.py", "/lib/torch/utils/data/_utils/worker.py")
    frames = {7: {7: [{"filename": file, "name": "wait"} for file in files]}}
    monkeypatch.setattr(polls, "read_frames", lambda _: frames)
    monkeypatch.setattr(kernel, "caught", lambda _: caught)
    call = stall.BlockedCall(waiting=Waiting.FUTEX)
    assert polls.may_end_by_signal([stall.Waiter(process(7), thread(7), call)]) is may_end


def test_zombies_do_not_count() -> None:
    """Zombies do not prevent a verdict, and a tree of zombies alone is no deadlock."""
    kernel = Kernel({7: [thread(7)]})
    assert watch(kernel, [process(7), process(9, 7, state="Z")]) == stall.WINDOW
    assert watch(kernel, [process(9, 7, state="Z")]) is None


def beside_stopped(sleeper: stall.ThreadSnapshot, *, of_packages: bool = True) -> float | None:
    """Watch a process that waits for a stopped child, and has a thread that wakes before each look."""
    kernel = Kernel({7: [thread(7), sleeper], 9: [thread(9, "", state="T")]}, of_packages=of_packages)
    watching = stall.Watch(kernel)
    for step in range(60):
        kernel.by_pid[7][1] = replace(sleeper, switches=step)
        if watching.observe(step / 2, [process(7), process(9, parent=7, state="T")]):
            return step / 2
    return None


SLEEPS = {"sleep": thread(8, "clock_nanosleep", 1, 1, 0x7F10), "select": thread(8, "select", 0, 0, 0, 0, 0x7F10)}


@pytest.mark.parametrize("name", SLEEPS)
def test_a_packages_thread_that_sleeps_does_not_hide_a_stopped_process(name: str) -> None:
    """A verdict takes longer beside it; a main thread, the user's code, and a tree that is not stopped prevent one."""
    assert beside_stopped(SLEEPS[name]) == stall.SLEEPERS_WINDOW
    assert beside_stopped(replace(SLEEPS[name], tid=7)) is None
    assert beside_stopped(SLEEPS[name], of_packages=False) is None
    assert beside_stopped(thread(8, "poll", 0x7F00, 1, 5000)) is None
    assert watch(Kernel({7: [thread(7), SLEEPS[name]]}), [process(7)], seconds=30) is None


@pytest.mark.parametrize(("terminal", "stop", "verdict"), [(0, 20, 3.5), (5, 20, None), (5, 0, None), (5, 19, 3.5)])
def test_what_a_terminal_stopped_its_user_may_let_go_on(terminal: int, stop: int, verdict: float | None) -> None:
    """A process that job control has stopped (SIGTSTP, SIGTTIN), or whose signal is not known, is no evidence."""
    kernel = Kernel({7: [thread(7, "wait4", 9)], 9: [thread(9, "", state="T")]})
    assert watch(kernel, [process(7), process(9, 7, state="T", terminal=terminal, stop=stop)]) == verdict
