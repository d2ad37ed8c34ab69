"""What happens on a worker, as it is sent to the client while it happens."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.events import AttemptEnded, AttemptStarted, EnvironmentStage, Event
from whichtorch.matrix.model import Attempt, AttemptEvidence

if TYPE_CHECKING:
    from collections.abc import Callable

News = dict[str, Any]  # an event, as JSON can hold it
GATHERED = 0.2  # seconds for which news waits for more: a message costs as much as a short cell


class Bulletin:
    """Sends what happens in a unit, a few events at a time; what is left at the end goes with the delivery."""

    def __init__(self, send: Callable[[list[News]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()  # of all below
        self._gathered: list[News] = []
        self._timer: threading.Timer | None = None

    def __call__(self, event: Event) -> None:
        """Take in an event, from any thread."""
        if (news := told(event)) is None:
            return
        with self._lock:
            self._gathered.append(news)
            if self._timer is None:
                self._timer = threading.Timer(GATHERED, self._flush)
                self._timer.daemon = True
                self._timer.start()

    def rest(self) -> tuple[News, ...]:
        """Return what was not sent, and send no more."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            left, self._gathered = tuple(self._gathered), []
            return left

    def _flush(self) -> None:
        with self._lock:
            gathered, self._gathered, self._timer = self._gathered, [], None
            if gathered:
                self._send(gathered)


def told(event: Event) -> News | None:
    """Return an event as JSON can hold it; None for one that the client makes itself."""
    match event:
        case EnvironmentStage():
            return {"kind": "stage", "label": event.label, "stage": event.stage}
        case AttemptStarted():
            started = {"environment": event.environment, "cell": event.cell, "limit": event.limit}
            return {"kind": "started", **started, "goal": event.goal, "why": event.why}
        case AttemptEnded():
            # what is long is shown only at the end
            brief = event.attempt.model_copy(update={"diagnosis": None, "evidence": AttemptEvidence()})
            attempt = brief.model_dump_json(by_alias=True)
            return {"kind": "ended", "environment": event.environment, "cell": event.cell, "attempt": attempt}
        case _:
            return None


def heard(news: News, host: str) -> Event | None:
    """Return the event that a worker on `host` told; None for one that this version does not know."""
    match news:
        case {"kind": "stage", "label": label, "stage": stage}:
            return EnvironmentStage(label=label, stage=stage, host=host)
        case {"kind": "started", "environment": environment, "cell": cell, "limit": limit, "goal": goal, "why": why}:
            return AttemptStarted(environment=environment, cell=cell, limit=limit, goal=goal, why=why, host=host)
        case {"kind": "ended", "environment": environment, "cell": cell, "attempt": attempt}:
            parsed = Attempt.model_validate_json(attempt)
            return AttemptEnded(environment=environment, cell=cell, attempt=parsed)
        case _:
            return None
