"""What is asked of a triage: its steps, in their order, and the script that they are taken for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError

if TYPE_CHECKING:
    from whichtorch.triage.case import Case
    from whichtorch.triage.places import CasePlace, CaseTest


class Step(StrEnum):
    """A step of a triage, by the name that its command takes."""

    ENVIRONMENT = "environment"
    REPRODUCE = "reproduce"
    LAYER = "layer"
    CLASSIFY = "classify"
    GATHER = "gather"
    MINIMISE = "minimise"
    BISECT = "bisect"
    UNIT_TEST = "unit-test"
    VALIDATE = "validate"
    FIX = "fix"

    @property
    def needs(self) -> tuple[Step, ...]:
        """The steps without which it has nothing to go on, in their order, itself the last."""
        before = _NEEDS.get(self)
        return (*(before.needs if before else ()), self)


def step_named(name: str) -> Step:
    """Return the step of a name; raises UsageError."""
    if name not in set(Step):
        raise UsageError(f"no step is called {name!r}", hint=f"they are {', '.join(Step)}")
    return Step(name)


_NEEDS = {
    Step.REPRODUCE: Step.ENVIRONMENT,
    Step.LAYER: Step.REPRODUCE,
    Step.CLASSIFY: Step.LAYER,
    Step.GATHER: Step.CLASSIFY,
    Step.MINIMISE: Step.LAYER,
    Step.BISECT: Step.REPRODUCE,
    Step.UNIT_TEST: Step.CLASSIFY,
    Step.VALIDATE: Step.REPRODUCE,
    Step.FIX: Step.BISECT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageRequest:
    """Which script is to become a case, where it fails, and what it may cost."""

    place: CasePlace
    test: CaseTest
    folder: Path  # of the case
    steps: tuple[Step, ...] = tuple(Step)  # that are taken, in their order
    fresh: bool = False  # what the folder holds does not count
    max_seconds: float | None = None
    tell: Callable[[str], None] = print
    shown: Callable[[Case], object] = lambda _: None  # takes the case after each step
