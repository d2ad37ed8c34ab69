"""What came of one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.failures.failure import Failure
from whichtorch.failures.tracebacks import read_chain
from whichtorch.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whichtorch.failures.tracebacks import RaisedException
    from whichtorch.model import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A run's record, and what it wrote."""

    record: Record
    stderr: str
    notes: Mapping[str, str] = field(default_factory=dict)  # texts of the files in its notes folder, by path

    @property
    def failure(self) -> Failure:
        """What it shows."""
        return Failure.of(self.record, self.chain)

    @property
    def chain(self) -> tuple[RaisedException, ...]:
        """The exception that ended it, and its causes."""
        return read_chain(self.stderr) if self.record.attempt.outcome is Outcome.FAIL else ()
