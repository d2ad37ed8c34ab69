"""The kinds of hang, who waits for whom, and what is made of one thread on the way to a diagnosis."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from matrix.diagnosis.hang.activity import Activity, activity
from matrix.diagnosis.hang.waits import Wait, Waiting, classify, is_idle_worker, outside
from matrix.model import Model

if TYPE_CHECKING:
    from matrix.diagnosis.stacks import Process, Thread


class HangKind(StrEnum):
    """What kind of hang it is."""

    GIL_CYCLE = "GIL cycle"
    LOCK_CYCLE = "lock cycle"
    FORK_AFTER_THREADS = "fork after threads"
    CHILD = "wait for a child"
    PIPE = "wait for a pipe"
    CONDITION = "wait for a condition"
    SPIN_PYTHON = "spin in Python"
    SPIN_NATIVE = "spin in native code"
    SLOW_COMPILE = "slow compile"
    IO = "wait for I/O"
    DEVICE = "wait for the GPU"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class Edge(Model):
    """One thread waits for something, and for whom, where that is known."""

    pid: int
    tid: int
    function: str = ""  # where it waits, or that asked for it
    waiting: Waiting
    partner: int | None = None  # tid of the thread, or pid of the child, that it waits for
    holds: Waiting | None = None  # what others wait for
    evidence: str = ""  # how the partner is known

    def words(self, before: Edge | None = None) -> str:
        """Return the edge as a sentence; "for it" is the thread of the edge before."""
        holds = f"holds {self.holds} and " if self.holds else ""
        place = f" in {self.function}" if self.function else ""
        if self.waiting is Waiting.CHILD:
            child = f" for child {self.partner}" if self.partner else " for a child"
            return f"process {self.pid} {holds}waits{place}{child}"
        if self.waiting is Waiting.THREAD or (self.holds and self.partner):
            target = "it" if before and self.partner == before.tid else f"thread {self.partner}"
            target = target if self.partner else "another thread"
            return f"thread {self.tid} {holds}waits{place} for {target}"
        if self.holds:
            return f"thread {self.tid} {holds}waits{place} for {self.waiting}"
        return f"thread {self.tid}{place} waits for {self.waiting}"


class HangAnswer(Model):
    """A kind with its evidence."""

    kind: HangKind
    pid: int
    tid: int
    cycle: tuple[Edge, ...] = ()
    closed: bool = False
    words: str = ""  # instead of the cycle's


class ThreadFinding:
    """One thread with what was made of it."""

    __slots__ = ("activity", "idle", "process", "thread", "wait")

    def __init__(self, process: Process, thread: Thread) -> None:
        self.process = process
        self.thread = thread
        self.wait: Wait | None = classify(thread)
        self.idle = is_idle_worker(thread)
        self.activity: Activity | None = activity(thread)

    @property
    def waiting(self) -> Waiting | None:
        """What it waits for, where that is known."""
        return self.wait.waiting if self.wait else None

    @property
    def is_main(self) -> bool:
        """True for the thread that runs the program."""
        frames = self.thread.frames
        return self.thread.tid == self.process.pid or bool(frames and frames[-1].function == "<module>")

    def edge(self, partner: int | None = None, *, holds: Waiting | None = None, evidence: str = "") -> Edge:
        """Return its wait for `partner`; it must be known to wait."""
        assert self.wait is not None
        return Edge(
            pid=self.process.pid,
            tid=self.thread.tid,
            function=_function(self.thread, self.wait),
            waiting=self.wait.waiting,
            partner=partner,
            holds=holds,
            evidence=evidence,
        )


def _function(thread: Thread, wait: Wait) -> str:
    """Return where a thread waits, as people name it: `PythonKernelHolder`, `std::thread::join`, `take (a.py:17)`."""
    if wait.waiting is Waiting.THREAD and wait.frame and not wait.frame.is_python:
        return wait.frame.function.replace("__pthread_clockjoin_ex", "pthread_join")
    frame = outside(thread, wait)
    if frame is None:
        return ""
    return frame.words if frame.is_python else short(frame.function)


def short(function: str) -> str:
    """Return a class for its call operator: `torch::impl::dispatch::PythonKernelHolder::operator()`."""
    holder = function.removesuffix("::operator()").rpartition("::")[2]
    return holder if function.endswith("::operator()") and holder[:1].isupper() else function
