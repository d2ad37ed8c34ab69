"""What runs came to: from records to a sighting, and from a sighting to a line of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.bisect.bisection import Probe
from matrix.bisect.sightings import Sighting
from matrix.bisect.strategy.evidence import SearchVerdict
from matrix.model import combine, judging_records
from matrix.plan.judging import judged_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.bisect.strategy.evidence import Purpose
    from matrix.model import Cell, Environment, Record
    from matrix.plan.planning import PlannedCell


def sighting_of(
    position: int,
    planned: PlannedCell,
    environment: Environment,
    records: Sequence[Record],
    *,
    cell: Cell | None = None,
    reused: int = 0,
) -> Sighting:
    """Return what is known of a position; `cell` says why where nothing could be recorded."""
    return Sighting(
        position=position,
        environment=environment,
        cell=judged_cell(planned, environment, records) if records or cell is None else cell,
        records=judging_records(records),
        reused=reused,
    )


def probe_of(
    one: Sighting, value: str, label: SearchVerdict | None, *, purpose: Purpose | None = None, title: str = ""
) -> Probe:
    """Return what came of a value that was tried."""
    speaker = combine([record.attempt for record in one.records])
    ended_so = sum(record.attempt.outcome is (speaker.outcome if speaker else None) for record in one.telling)
    return Probe(
        value=value,
        title=title,
        outcome=one.cell.outcome,
        signature=one.cell.signature,
        k=ended_so,
        n=len(one.telling),
        reused=min(one.reused, len(one.telling)),  # a longer look stands for the run before it
        verdict=label if label is not None else SearchVerdict.UNTESTABLE,
        purpose=purpose,
        message=speaker.message if speaker and speaker.message else one.cell.reason or "",
        seconds=one.cell.seconds,
        environment=one.environment,
        cell=one.cell,
    )


def shown(probe: Probe) -> str:
    """Return what a value showed, k of n, in words for a reason."""
    what = probe.signature or probe.message
    return f"{probe.value}: {probe.outcome}, {probe.k} of {probe.n} runs" + (f": {what}" if what else "")
