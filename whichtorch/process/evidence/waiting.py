"""What a thread can wait for, and the kinds of hang that come of it, with what to do about each.

A wait has one name from the supervisor's look at the kernel to the sentence about a hang. docs/my-script-hangs.md has
the same words for the kinds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Waiting(StrEnum):
    """What a thread can wait for. The value is how sentences and stored edges say it."""

    GIL = "the GIL", "gil"
    LOCK = "a lock", "lock"
    SEMAPHORE = "a semaphore"
    CONDITION = "a condition"
    EVENT = "an event"
    BARRIER = "a barrier"
    QUEUE = "a queue"
    FUTURE = "a future"
    EVENT_LOOP = "the event loop"
    THREAD = "the end of a thread"
    CHILD = "a child", "child"
    COLLECTIVE = "the other ranks"
    RENDEZVOUS = "the rendezvous of the ranks"
    PIPE = "a pipe", "pipe"
    SOCKET = "a socket", "socket"
    FILE = "a file"
    FILE_LOCK = "the lock of a file"
    OPENMP = "OpenMP"
    IO = "I/O"
    DEVICE = "the GPU"
    SLEEP = "time to pass", "sleep"
    STOPPED = "SIGCONT", "stopped"
    # what the kernel shows, where no frame says what it stands for
    FUTEX = "a futex", "futex"
    POLL = "one of several descriptors", "poll"
    ENDED = "its parent", "ended"  # of a zombie

    word: str  # in the supervisor's evidence of a stall; "" for what it cannot see

    def __new__(cls, value: str, word: str = "") -> Self:
        """Make the value a string, as any StrEnum's, and keep the word."""
        member = str.__new__(cls, value)
        member._value_, member.word = value, word
        return member

    @classmethod
    def of_word(cls, word: str) -> Waiting | None:
        """Return what a word of the supervisor's evidence means; None for one of another version."""
        return next((waiting for waiting in cls if word and waiting.word == word), None)


# what to do: about several kinds, or in too many words for the kind's own line
_FREE_GIL = "Release the GIL around the wait, or do not wait while holding it."
_FREE_LOCK = "Release locks with `with`, so that an exception releases them too."
_MISSED = "Look for the thread that should do it: it has ended, is waiting itself, or came too early."
_LOCK_FILE = "Remove a lock file that was left behind, end the process that holds the lock, or take it only once."
_RANKS = "Let all ranks make the same calls in the same order, and each `send` meet a `recv`."
_COME = "Start `world_size` processes, with the same address; for a key, look at who should set it."
_LOCKS = "Take locks in the same order. Use an `RLock`, or a recursive mutex, where a thread takes its lock again."
_JOIN = "Before you join a child, empty a queue that it writes to, and close a pipe that it reads."
_PIPE = "Let one end write while the other reads. Read a child's stdout and stderr together: `communicate()`."
_LOOP = "Look for a loop that does not end at the named line."


class HangKind(StrEnum):
    """What kind of hang it is."""

    GIL_CYCLE = "GIL cycle", _FREE_GIL
    GIL = "wait for the GIL", _FREE_GIL, Waiting.GIL
    LOCK_CYCLE = "lock cycle", _LOCKS
    FORK_AFTER_THREADS = "fork after threads", "Start children with `spawn`, or do not use OpenMP before the fork."
    FORKED_LOCK = "lock copied by fork", "Start children with `spawn` or `forkserver`, or fork before starting threads."
    COLLECTIVE = "wait for other ranks", _RANKS, Waiting.COLLECTIVE
    RENDEZVOUS = "wait at the rendezvous", _COME, Waiting.RENDEZVOUS
    CHILD = "wait for a child", _JOIN, Waiting.CHILD
    THREAD = "wait for a thread", "Tell the thread to end before you join it.", Waiting.THREAD
    LOCK = "wait for a lock", _FREE_LOCK, Waiting.LOCK
    SEMAPHORE = "wait for a semaphore", _FREE_LOCK, Waiting.SEMAPHORE
    CONDITION = "wait for a condition", _MISSED, Waiting.CONDITION
    EVENT = "wait for an event", _MISSED, Waiting.EVENT
    BARRIER = "wait at a barrier", _MISSED, Waiting.BARRIER
    QUEUE = "wait for a queue", "Put an end mark for each consumer, in a `finally`.", Waiting.QUEUE
    FUTURE = "wait for a future", "Do not wait for a task in a task of its pool, or in its event loop.", Waiting.FUTURE
    EVENT_LOOP = "idle event loop", "Look for the task that should do what the others await.", Waiting.EVENT_LOOP
    PIPE = "wait for a pipe", _PIPE, Waiting.PIPE
    SOCKET = "wait for a socket", "Set a timeout, and look at the peer that the sentence names.", Waiting.SOCKET
    FILE = "wait for a file", _LOCK_FILE, Waiting.FILE
    FILE_LOCK = "wait for a file lock", _LOCK_FILE, Waiting.FILE_LOCK
    SPIN_PYTHON = "spin in Python", _LOOP
    SPIN_NATIVE = "spin in native code", _LOOP
    # in Python: it came back to the same state
    ENDLESS_LOOP = "endless loop", "Look at what the loop should change: the sentence names what has not changed."
    SLOW_COMPILE = "slow compile", "This is not a deadlock. Give it more time: `--timeout`."
    SLEEP = "sleep", "Look at what should make the loop's condition true, or at how long it sleeps.", Waiting.SLEEP
    # a slow compile that the longer look, or a stall, shows to be a hang
    ENDLESS_COMPILE = "endless compile", "Try what the first stack compiles, smaller or with another backend."
    IO = "wait for I/O", "Look at what should write to the other side, or read from it.", Waiting.IO
    DEVICE = "wait for the GPU", "Look at the work that was given to the GPU last.", Waiting.DEVICE
    STOPPED = "stopped", "`kill -CONT PID` lets it continue. Find out who stopped it.", Waiting.STOPPED
    UNKNOWN = "unknown", "Read the raw stacks.", Waiting.OPENMP, Waiting.FUTEX, Waiting.POLL, Waiting.ENDED, None

    remedy: str
    waits: tuple[Waiting | None, ...]  # a chain of waits that ends in one of these is of this kind

    def __new__(cls, value: str, remedy: str, *waits: Waiting | None) -> Self:
        """Make the value a string, as in any StrEnum, and keep the rest."""
        member = str.__new__(cls, value)
        member._value_, member.remedy, member.waits = value, remedy, waits
        return member

    @classmethod
    def of(cls, waiting: Waiting | None) -> HangKind:
        """Return the kind of a hang whose chain of waits ends in this one."""
        return next(kind for kind in cls if waiting in kind.waits)
