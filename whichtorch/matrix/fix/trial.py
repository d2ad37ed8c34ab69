"""What came of one run of the script with a change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from whichtorch.matrix.diagnosis.tracebacks import CodeFrame  # noqa: TC001  pydantic reads it


class Effect(StrEnum):
    """What a change does to the failure that is asked about."""

    CURED = "cured"
    SAME = "same"  # the script fails as before
    UNRESOLVED = "unresolved"  # it fails in another way


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of a proposal."""

    effect: Effect
    exception: str = ""  # its type and the first line of its message, of what is unresolved
    frames: tuple[CodeFrame, ...] = ()  # innermost first
    seconds: float = 0
