"""What happens during a run, as JSON Lines for programs."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from pydantic import Field

from whichtorch.base.redaction import Redactor
from whichtorch.model import Model, Outcome, events

SCHEMA = 1
NAMES = {
    events.EnvironmentStage: "stage",
    events.EnvironmentReady: "environment",
    events.AttemptStarted: "attempt-started",
    events.TestsFound: "tests",
    events.AttemptEnded: "attempt-ended",
    events.CellDone: "cell",
    events.ProbeChosen: "probe",
    events.ProbeDropped: "probe-dropped",
    events.NumbersCompared: "compared",
    events.Interrupted: "interrupted",
    events.StatusShown: "status",
    events.StacksSeen: "seen",
}


class EventLine(Model):
    """A line of --events. A field that does not apply to an event is left out."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    event: str
    time: str
    environment: str = ""
    cell: str = ""
    stage: str = ""
    host: str = ""
    outcome: Outcome | None = None
    expected: bool | None = None
    reused: bool | None = None
    seconds: float | None = None
    limit: float | None = None
    round: int | None = None
    rounds: int | None = None
    reference: str = ""
    what: str = ""
    log: str = ""
    cells: int | None = None
    value: str = ""
    why: str = ""
    lines: tuple[str, ...] = ()


def event_line(event: events.Event) -> EventLine:
    """Return the line of an event: its fields of the same names, and the main facts of its environment and cell."""
    fields: dict[str, Any] = {name: getattr(event, name, None) for name in EventLine.model_fields}
    fields["environment"] = getattr(event, "label", fields["environment"])
    match event:
        case events.EnvironmentReady(environment=made):
            fields |= {"environment": made.label, "outcome": made.outcome, "why": made.reason}
            fields |= {"log": str(made.log) if made.log else ""}
        case events.AttemptEnded(attempt=attempt):
            fields |= {"outcome": attempt.outcome, "seconds": attempt.seconds, "log": attempt.stderr}
        case events.CellDone(cell=cell):
            fields |= {name: getattr(cell, name) for name in ("outcome", "expected", "seconds", "what")}
            fields |= {"environment": event.environment.label, "cell": cell.name}
            fields["reused"] = 0 < cell.reused == len(cell.attempts)
        case events.ProbeChosen():
            fields["why"] = event.purpose
        case events.StacksSeen():
            fields["lines"] = tuple(f"{attempt}  at {line}" for attempt, line in event.lines.items())
    known = {name: value for name, value in fields.items() if value not in {None, "", ()}}
    return EventLine(
        **known | {"event": NAMES[type(event)], "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
    )


class EventLog:
    """Writes each event as a line at once, from any thread. A run goes on if its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock, self._redactor = stream, threading.Lock(), Redactor.of_this_machine()

    def __call__(self, event: events.Event) -> None:
        """Write the line of an event."""
        text = event_line(event).model_dump_json(by_alias=True, exclude_defaults=True)
        fields = f'{{"schema":{SCHEMA},{text[1:]}\n'
        with self._lock, suppress(BrokenPipeError):
            self._stream.write(self._redactor.json_line(fields))
            self._stream.flush()
