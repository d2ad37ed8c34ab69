"""What happens during a run. One stream of these feeds every report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichtorch.model import Attempt, Cell, Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentStage:
    """An environment is being resolved, installed, probed or evicted."""

    label: str
    stage: str
    host: str = ""  # of a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReady:
    """An environment can be used, or never will be."""

    environment: Environment
    cells: int  # how many of its cells will run


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """A script has been started."""

    environment: str  # label
    cell: str  # scenario and variant
    limit: float  # seconds
    goal: float | None = None  # seconds with a core that end it before
    why: str = ""  # of a rerun
    host: str = ""  # of a cluster
    round: int | None = None  # of a measured series, from 1
    rounds: int | None = None  # how many that series has at most

    @property
    def time(self) -> str:
        """How long it may take, in words."""
        return time_words(self.limit, self.goal)


def time_words(limit: float, goal: float | None) -> str:
    """Return how long an attempt may take: "60 s", or "80 to 430 s" where it ends once it has had its goal."""
    words = f"{limit:.0f} s"
    return words if goal is None or words == f"{goal:.0f} s" else f"{goal:.0f} to {words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestsFound:
    """A command has tests in an environment; each of them is a cell."""

    environment: str  # label
    cells: int  # instead of one


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """A script has ended or was stopped, and its record is on disk."""

    environment: str  # label
    cell: str  # scenario and variant
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDone:
    """A cell has its outcome, from now or from an earlier run."""

    environment: Environment
    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeChosen:
    """A search is about to try a value."""

    number: int  # of the value: 1 for the first that was tried; a value that is run again keeps it
    value: str
    purpose: str
    runs: int  # at most
    between: tuple[str | None, str | None]  # the nearest values that are known, with their outcomes
    left: int  # values between those two
    tests: int = 0  # of a command: how many of its tests are run; 0 for all


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDropped:
    """A search has stopped what a probe was doing, and needs nothing more of it."""

    label: str  # of its environment


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersCompared:
    """What the runs so far say of a number, in an environment and in the one that it is compared with."""

    environment: str  # label
    reference: str  # label
    what: str  # in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Ctrl-C, or the end of the time: nothing new starts, and what runs is stopped."""

    why: str = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusShown:
    """Somebody asked by a signal what runs, or there has been no news for a long time."""

    lines: tuple[str, ...]  # one per running cell: what, how long, where
    why: str = ""  # it is told, where nobody asked


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksSeen:
    """Attempts that have run for a while were looked at."""

    lines: Mapping[str, str]  # by `Task.name`: the line of Python that it is at


Event = (
    EnvironmentStage
    | EnvironmentReady
    | AttemptStarted
    | TestsFound
    | AttemptEnded
    | CellDone
    | ProbeChosen
    | ProbeDropped
    | NumbersCompared
    | Interrupted
    | StatusShown
    | StacksSeen
)
Emit = Callable[[Event], None]
Show = Callable[[int | None], AbstractContextManager[Emit]]  # of so many cells, where their number is known
