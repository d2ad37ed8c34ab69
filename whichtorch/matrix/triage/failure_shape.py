"""What must stay the same of a failure while its script becomes smaller, or runs elsewhere.

A signature names the script's own functions, which go away when a script is cut down, and a message names sizes. What
stays is the outcome, the exceptions, the library's frames, and the rest of the message.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from pathlib import PurePath
from typing import TYPE_CHECKING

from whichtorch.matrix.model import Model, Outcome
from whichtorch.matrix.triage.signs import Owner, owner_of

if TYPE_CHECKING:
    from whichtorch.matrix.trial.observation import Observation

ALIKE = 0.7  # of the characters of two messages, without numbers and what stands in quotes
FRAMES = 2  # innermost ones of libraries that must be the same
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^)]*\)|0x[0-9a-f]+|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_PASSING_ON = ("torch/nn/modules/module.py", "torch/_dynamo/eval_frame.py")  # calls: of a module, of what is compiled
_SPACE = re.compile(r"\s+")


class FailureShape(Model):
    """What a failure is, whatever the script around it."""

    outcome: Outcome
    signal: str = ""
    exceptions: tuple[str, ...] = ()  # types of the chain, the effect first
    place: tuple[str, ...] = ()  # innermost frames outside the script, of the first cause
    words: str = ""  # of the first cause, without what varies
    hang: str = ""  # a HangKind

    def is_seen_in(self, other: FailureShape) -> bool:
        """Return whether another run shows this failure."""
        if self.outcome is Outcome.HANG and other.outcome is Outcome.SLOW:
            return True  # its limit was that of a pass, many times over
        if (self.outcome, self.signal) != (other.outcome, other.signal):
            return False
        if self.outcome is Outcome.HANG:
            return self.hang == other.hang
        if (self.exceptions, self.place) != (other.exceptions, other.place):
            return False
        return self._says(other)

    def is_seen_elsewhere_in(self, other: FailureShape) -> bool:
        """Return the same of a run in another release or on another machine, whose frames may have other names."""
        if self.outcome is not Outcome.FAIL or other.outcome is not Outcome.FAIL:
            return self.is_seen_in(other)
        return self.exceptions[-1:] == other.exceptions[-1:] and self._says(other)

    def _says(self, other: FailureShape) -> bool:
        return SequenceMatcher(None, self.words, other.words, autojunk=False).ratio() >= ALIKE


def shape_of(run: Observation) -> FailureShape:
    """Return what a run shows."""
    attempt = run.record.attempt
    chain = run.chain
    cause = chain[-1] if chain else None
    frames = cause.frames if cause else ()
    outside = [
        frame for frame in frames if owner_of(frame) is not Owner.SCRIPT and not frame.file.endswith(_PASSING_ON)
    ]
    if not frames or not frames[0].source.startswith(("raise ", "assert ")):
        outside = []  # an operator raised it: which wrapper of torch called that one is no part of the failure
    return FailureShape(
        outcome=attempt.outcome,
        signal=attempt.signal or "",
        exceptions=tuple(link.name for link in chain),
        place=tuple(f"{frame.function} ({PurePath(frame.file).name})" for frame in outside[:FRAMES]),
        words=_stable(cause.message) if cause else "",
        hang=attempt.diagnosis.kind if attempt.diagnosis else "",
    )


def _stable(message: str) -> str:
    """Return the first lines of a message, up to what torch adds for people, without what varies."""
    first = message.strip().partition("\n\n")[0][:400]
    return _SPACE.sub(" ", _VARYING.sub("", first)).strip()
