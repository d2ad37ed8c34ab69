"""A number of runs in an environment, and how it compares with that of another one that took turns with it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from whichtorch.model.base import Model

ValueChange = tuple[float, float, float]  # its center and the ends of its interval: shares of the value, or in its unit


class Effect(StrEnum):
    """How a number compares with another."""

    WORSE = "worse"
    BETTER = "better"
    DIFFERENT = "different"  # in whichever direction, where that is what counts
    SAME = "same"  # the difference is smaller than what counts
    UNDECIDED = "undecided"

    @property
    def counts(self) -> bool:
        """Whether it is a change that counts."""
        return self in {Effect.WORSE, Effect.BETTER, Effect.DIFFERENT}


class MachineState(Model):
    """What else the machine did while something was measured."""

    load: float = 0.0  # tasks that ran or waited for a core, in the last minute
    pressure: float | None = None  # % of the last ten seconds in which some task waited for a core; None: not known
    steal: float = 0.0  # the share of all time that the hypervisor took
    megahertz: int | None = None


class Quantity(Model):
    """What is measured, and how its changes are told."""

    name: str  # of the measure
    unit: str = ""
    is_share: bool = True  # changes are shares of the reference's value, not differences


class Measurement(Quantity):
    """A number of a test in an environment."""

    value: float  # the median
    samples: tuple[float, ...] = ()  # of each run, in order
    start: str = ""  # how the runs began: "cold", or from what they were forked
    reference: str = ""  # label of the environment that it is compared with; "" where it is that itself
    change: ValueChange | None = None  # against the reference
    more_is_better: bool = False
    threshold: float = 0.0  # the change that counts
    either_way: bool = False  # it counts in whichever direction
    effect: Effect | None = None
    drift: ValueChange | None = None  # of the reference, from one run of its to the next
    machine: MachineState = MachineState()


class CurveStep(Model):
    """Two neighbors on an axis between which a number changes."""

    before: str
    after: str
    change: ValueChange
    effect: Effect


class Curve(Quantity):
    """A number along an axis."""

    threshold: float = 0.0
    total: ValueChange | None = None  # from the first to the last value that has the number
    steps: tuple[CurveStep, ...] = ()  # changes between neighbors that count, in order
    levels: dict[str, ValueChange] = Field(default_factory=dict)  # by value: the change from the first one
    guesses: dict[str, float] = Field(default_factory=dict)  # likewise, after too few runs for an interval
    values: dict[str, float] = Field(default_factory=dict)  # by value: the median of its runs
    missing: dict[str, str] = Field(default_factory=dict)  # values without the number: why
    alike: tuple[tuple[str, str], ...] = ()  # neighbors whose levels differ, between which no step was found
    machine: MachineState = MachineState()
