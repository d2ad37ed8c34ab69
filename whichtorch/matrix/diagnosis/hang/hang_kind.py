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
