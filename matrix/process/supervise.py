"""One process tree: start it, watch it, stop it, account for it. (Interface; being written.)"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to run and what it may use."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]  # the whole environment
    stdout: str  # path of a file; the same path as stderr merges them
    stderr: str
    timeout: float  # seconds, wall clock
    memory_mb: int | None = None  # resident, whole tree
    processes: int = 512  # alive at once, whole tree
    stall: bool = False  # stop early on evidence that nothing in the tree can go on
    sample: bool = False  # over the last seconds of a busy process, sample its stacks: is it still moving?
    mark: str = ""  # value of WHICHTORCH_ATTEMPT in the environment: finds survivors of a killed tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How it ended."""

    stopped_by: str  # a value of model.StoppedBy
    exit_code: int | None  # of the leader; None where a signal ended it or it had to be killed
    signal: str | None  # "SIGSEGV", as the leader died by itself
    seconds: float  # from start to end or to the decision to stop it; diagnosis not counted
    cpu_seconds: float = 0  # user + system, whole tree
    peak_rss_mb: float = 0  # whole tree
    survivors: tuple[str, ...] = ()  # what was alive when the leader had ended: "name (pid): command line"
    stdout_bytes: int = 0  # as written
    stderr_bytes: int = 0
    moving: bool | None = None  # a busy process at its timeout: did its innermost frames change? None: not known
    note: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)  # kernel waits of a stall, sampled frames


class Supervised:
    """A running task, seen from the tool (thread-safe)."""

    def wait(self) -> Ending:
        """Return how it ended; never hangs for longer than the task's timeout and a grace."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Stop it now; `wait` then returns an Ending stopped by "interrupt" within 3 s."""
        raise NotImplementedError


def start(task: Task) -> Supervised:
    """Start a task under a supervisor process of its own."""
    raise NotImplementedError
