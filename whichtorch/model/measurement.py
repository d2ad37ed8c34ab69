"""A number of runs in an environment, and how it compares with that of another one that took turns with it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from whichtorch.model.base import Model, OpenModel

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


class Basis(StrEnum):
    """What decides how a number compares."""

    ASKED = ""
    ONE_THREAD = "one thread"  # of OpenMP and the BLAS
    CPU = "CPU time"  # of the same part of the same runs
    CPU_OF_ONE_THREAD = "CPU time of one thread"


class MachineState(OpenModel):
    """What else the machine did while something was measured."""

    load: float = 0.0  # tasks that ran or waited for a core, in the last minute
    others: float = 0.0  # how many cores others used, on average
    waited: float = 0.0  # the share of what was measured in which a core was missing, because others had it
    stolen: float = 0.0  # the share of all time that the hypervisor took
    throttled: float = 0.0  # likewise, a control group's limit
    megahertz: float = 0.0  # 0: not known


class Quantity(OpenModel):
    """What is measured, and how its changes are told."""

    name: str  # of the measure
    unit: str = ""
    is_share: bool = True  # changes are shares of the reference's value, not differences
    basis: Basis = Basis.ASKED
    because: str = ""  # why that is not what was asked for


class Measurement(Quantity):
    """A number of a test in an environment."""

    value: float  # the median of the runs that count
    samples: tuple[float, ...] = ()  # of each run that counts, in order
    disturbed: int = 0  # runs that waited for a core, and do not count
    reference: str = ""  # label of the environment that it is compared with; "" where it is that itself
    change: ValueChange | None = None  # against the reference
    more_is_better: bool = False
    threshold: float = 0.0  # the change that counts
    either_way: bool = False  # it counts in whichever direction
    effect: Effect | None = None
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
    values: dict[str, float] = Field(default_factory=dict)  # by value: the median of its runs
    missing: dict[str, str] = Field(default_factory=dict)  # values without the number: why
    alike: tuple[tuple[str, str], ...] = ()  # neighbors whose levels differ, between which no step was found
    machine: MachineState = MachineState()
