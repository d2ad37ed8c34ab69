"""The kinds of hang."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from whichtorch.matrix.process.evidence.waiting import Waiting


class HangKind(StrEnum):
    """What kind of hang it is."""

    GIL_CYCLE = "GIL cycle"
    GIL = "wait for the GIL", Waiting.GIL
    LOCK_CYCLE = "lock cycle"
    FORK_AFTER_THREADS = "fork after threads"
    FORKED_LOCK = "lock copied by fork"
    COLLECTIVE = "wait for other ranks", Waiting.COLLECTIVE
    RENDEZVOUS = "wait at the rendezvous", Waiting.RENDEZVOUS
    CHILD = "wait for a child", Waiting.CHILD
    THREAD = "wait for a thread", Waiting.THREAD
    LOCK = "wait for a lock", Waiting.LOCK
    SEMAPHORE = "wait for a semaphore", Waiting.SEMAPHORE
    CONDITION = "wait for a condition", Waiting.CONDITION
    EVENT = "wait for an event", Waiting.EVENT
    BARRIER = "wait at a barrier", Waiting.BARRIER
    QUEUE = "wait for a queue", Waiting.QUEUE
    FUTURE = "wait for a future", Waiting.FUTURE
    EVENT_LOOP = "idle event loop", Waiting.EVENT_LOOP
    PIPE = "wait for a pipe", Waiting.PIPE
    SOCKET = "wait for a socket", Waiting.SOCKET
    FILE = "wait for a file", Waiting.FILE
    FILE_LOCK = "wait for a file lock", Waiting.FILE_LOCK
    SPIN_PYTHON = "spin in Python"
    SPIN_NATIVE = "spin in native code"
    ENDLESS_LOOP = "endless loop"  # in Python: it came back to the same state
    SLOW_COMPILE = "slow compile"
    SLEEP = "sleep", Waiting.SLEEP
    ENDLESS_COMPILE = "endless compile"  # a slow compile that the longer look, or a stall, shows to be a hang
    IO = "wait for I/O", Waiting.IO
    DEVICE = "wait for the GPU", Waiting.DEVICE
    STOPPED = "stopped", Waiting.STOPPED
    UNKNOWN = "unknown", Waiting.OPENMP, Waiting.FUTEX, Waiting.POLL, Waiting.ENDED, None

    waits: tuple[Waiting | None, ...]  # a chain of waits that ends in one of these is of this kind

    def __new__(cls, value: str, *waits: Waiting | None) -> Self:
        """Make the value a string, as in any StrEnum, and keep the waits."""
        member = str.__new__(cls, value)
        member._value_, member.waits = value, waits
        return member

    @classmethod
    def of(cls, waiting: Waiting | None) -> HangKind:
        """Return the kind of a hang whose chain of waits ends in this one."""
        return next(kind for kind in cls if waiting in kind.waits)


# what to do about each kind; docs/my-script-hangs.md has the same words, and what each kind means
REMEDIES = {
    HangKind.LOCK_CYCLE: "Take locks in one order. Use an `RLock` where a callback takes the lock again.",
    HangKind.FORKED_LOCK: "Start children with `spawn` or `forkserver`, or fork before you start threads.",
    HangKind.FORK_AFTER_THREADS: "Start children with `spawn`, or do not use OpenMP before the fork.",
    HangKind.GIL_CYCLE: "Release the GIL around the wait, or do not wait while holding it.",
    HangKind.GIL: "Release the GIL around the wait, or do not wait while holding it.",
    HangKind.LOCK: "Release locks with `with`, so that an exception releases them too.",
    HangKind.SEMAPHORE: "Release locks with `with`, so that an exception releases them too.",
    HangKind.EVENT: "Look for the thread that should do it: it has ended, waits itself, or came too early.",
    HangKind.CONDITION: "Look for the thread that should do it: it has ended, waits itself, or came too early.",
    HangKind.BARRIER: "Look for the thread that should do it: it has ended, waits itself, or came too early.",
    HangKind.QUEUE: "Put an end mark for each consumer, in a `finally`.",
    HangKind.FUTURE: "Do not wait for a task inside a task of the same pool, or inside the event loop's own thread.",
    HangKind.THREAD: "Tell the thread to end before you join it.",
    HangKind.EVENT_LOOP: "Look for the task that should release, set or put what the others await.",
    HangKind.CHILD: "Empty a queue before you join the process that writes to it.",
    HangKind.PIPE: "Read stdout and stderr of a child together: `communicate()`.",
    HangKind.SOCKET: "Set a timeout, and look at the peer: the sentence names it and, on this machine, its process.",
    HangKind.FILE: "Remove a lock file that was left behind, or end the process that holds the lock.",
    HangKind.FILE_LOCK: "Remove a lock file that was left behind, or end the process that holds the lock.",
    HangKind.IO: "Look at what should write to the other side, or read from it.",
    HangKind.STOPPED: "`kill -CONT PID` lets it go on. Find out who stopped it.",
    HangKind.COLLECTIVE: "Let all ranks make the same calls in the same order. The sentence says which rank is where.",
    HangKind.RENDEZVOUS: "Start as many processes as `world_size` says, with the same address.",
    HangKind.ENDLESS_LOOP: "Look at what the loop should change: the sentence names what has not changed.",
    HangKind.SPIN_PYTHON: "Look for a loop that does not end at the named line.",
    HangKind.SPIN_NATIVE: "Look for a loop that does not end at the named line.",
    HangKind.SLEEP: "Look at what should make the loop's condition true, or at how long it sleeps.",
    HangKind.SLOW_COMPILE: "This is no deadlock. Give it more time: `--timeout`.",
    HangKind.ENDLESS_COMPILE: "Look at the first stack for what is compiled. Try it smaller, or with another backend.",
    HangKind.DEVICE: "Look at the work that was given to the GPU last.",
    HangKind.UNKNOWN: "Read the raw stacks.",
}
