"""What happens on a worker, as it is sent to the client while it happens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from whichtorch.model import Attempt, AttemptEvidence
from whichtorch.model.events import AttemptEnded, AttemptStarted, EnvironmentStage, Event

WorkerEvent = dict[str, Any]  # an event, as JSON can hold it
GATHERED = 0.2  # seconds for which events wait for more: a message costs as much as a short cell
_SENT = {
    kind.__name__: kind for kind in (EnvironmentStage, AttemptStarted, AttemptEnded)
}  # the client makes the others


class EventSender:
    """Sends what happens in a batch, a few events at a time; what is left at the end goes with the delivery."""

    def __init__(self, send: Callable[[list[WorkerEvent]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()  # of all below
        self._gathered: list[WorkerEvent] = []
        self._timer: threading.Timer | None = None

    def __call__(self, event: Event) -> None:
        """Take in an event, from any thread."""
        if type(event).__name__ not in _SENT:
            return
        with self._lock:
            self._gathered.append(encoded(event))
            if self._timer is None:
                self._timer = threading.Timer(GATHERED, self._flush)
                self._timer.daemon = True
                self._timer.start()

    def rest(self) -> tuple[WorkerEvent, ...]:
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


def encoded(event: Event) -> WorkerEvent:
    """Return an event as JSON can hold it, without what is long and shown only at the end."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    if isinstance(event, AttemptEnded):
        brief = event.attempt.model_copy(update={"diagnosis": None, "evidence": AttemptEvidence()})
        values["attempt"] = brief.model_dump_json(by_alias=True)
    return {"kind": type(event).__name__, **values}


def decoded(sent: WorkerEvent, host: str) -> Event:
    """Return the event that a worker on `host` sent."""
    kind, values = _SENT[sent["kind"]], {name: value for name, value in sent.items() if name != "kind"}
    if kind is AttemptEnded:
        return AttemptEnded(**values | {"attempt": Attempt.model_validate_json(values["attempt"])})
    return kind(**values | {"host": host})
