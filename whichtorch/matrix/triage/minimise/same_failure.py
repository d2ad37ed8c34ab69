"""What every smaller script is asked: whether it fails in the same way, and for no other reason."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.diagnosis.failure import Changed
from whichtorch.matrix.model import Outcome
from whichtorch.matrix.run.variation import Variation
from whichtorch.matrix.triage.compile_variations import OFF, at_rung

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whichtorch.matrix.diagnosis.failure import Failure
    from whichtorch.matrix.trial.runner import Runner

COMPARED = "are not close!"  # torch.testing.assert_close


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where the script passes, and so must all that becomes of it."""

    runs: Runner
    rung: Mapping[str, Any]
    words: str  # for where that is

    @property
    def is_release(self) -> bool:
        """Whether it is another release, rather than another way to run the script."""
        return self.rung != OFF

    def start(self, limit: float, variation: Variation) -> Callable[[], bool]:
        """Begin a run there; return what waits for it, and tells whether it passes."""
        ended = self.runs.start(limit, at_rung(self.rung, variation))
        return lambda: ended().record.attempt.outcome is Outcome.PASS


@dataclass(slots=True, kw_only=True)
class SameFailure:
    """The question, and how often it was put."""

    runs: Runner
    failure: Failure
    limit: float  # seconds
    brief_limit: float  # for candidates; less where the failure is a hang
    reference: Reference | None  # None: nothing else tells the failure from others
    asked: int = 0
    error: str = ""  # stderr of the last script that was verified
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, source: str) -> bool:
        """Return whether a candidate shows the failure. It may be called from several threads."""
        with self._guard:
            self.asked += 1
        variation = self._forked(source, {})  # with the hook that the other layer needs, too
        reference = self.reference
        if reference is None:
            return self._is_shown(variation, self.brief_limit)
        # side by side: what fails is nearly always healthy, and waiting for the one first would take twice the time
        is_healthy = reference.start(self.brief_limit, variation)
        is_shown = self._is_shown(variation, self.brief_limit)
        return is_healthy() and is_shown

    def of_wrong_result(self, source: str) -> SameFailure | None:
        """Return the question whether a candidate's result is wrong like that of a script that compares its own.

        None where that script's comparison does not fail.
        """
        failure = self.runs.run(self.brief_limit, self._forked(source, {})).failure
        is_wrong = failure.exceptions[-1:] == ("AssertionError",) and COMPARED in failure.words
        return replace(self, failure=failure) if is_wrong else None

    def passes_with(self, source: str, rung: Mapping[str, Any]) -> bool:
        """Return whether a script passes at a rung."""
        record = self.runs.run(self.limit, self._forked(source, rung)).record
        return record.attempt.outcome is Outcome.PASS

    def is_verified(self, source: str) -> bool:
        """Return the same, in processes that import torch themselves, with caches of their own."""
        variation = Variation(source=source)
        run = self.runs.run(self.limit, variation)
        self.error = run.stderr
        return self.failure.compare(run.failure, Changed.SCRIPT).is_same and (
            self.reference is None or self.reference.start(self.limit, variation)()
        )

    def noted(self, name: str, source: str, rung: Mapping[str, Any]) -> str:
        """Run a source that writes a file of this name into NOTES, and return its text, "" where it wrote none."""
        return self.runs.run(self.brief_limit, self._forked(source, rung)).notes.get(name, "")

    def _forked(self, source: str, rung: Mapping[str, Any]) -> Variation:
        """Return how a source is run: all alike, so that one fork server serves them."""
        is_brief = self.failure.outcome is Outcome.FAIL  # what is raised is raised before the end
        return at_rung(rung, Variation(source=source, may_fork=True, is_brief=is_brief))

    def _is_shown(self, variation: Variation, limit: float) -> bool:
        return self.failure.compare(self.runs.run(limit, variation).failure, Changed.SCRIPT).is_same
