"""What a thread can wait for, by one name from the supervisor's look at the kernel to the sentence about a hang."""

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
