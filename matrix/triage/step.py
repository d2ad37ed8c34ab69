"""What is asked of a triage: its steps, in their order, and the script that they are taken for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.triage.case import Case
    from matrix.triage.places import CasePlace, CaseTest


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageOrder:
    """Which script is to become a case, where it fails, and what it may cost."""

    place: CasePlace
    test: CaseTest
    folder: Path  # of the case
    last: Step = list(Step)[-1]  # that is taken; all before it are what it needs
    fresh: bool = False  # what the folder holds does not count
    max_seconds: float | None = None
    tell: Callable[[str], None] = print
    shown: Callable[[Case], object] = lambda _: None  # takes the case after each step
