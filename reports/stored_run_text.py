"""Stored runs, as lines of text: listed, removed, merged, and a scenario from night to night."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pydantic import Field
from tabulate import tabulate

from matrix.compare.comparison import ChangeKind, classify, stream
from matrix.model import Model, Run
from reports.shown_text import cut
from reports.table import code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.compare.nights import NightCell
    from matrix.model import Cell
    from matrix.records.merging import Merged
    from matrix.records.stored_runs import Pruned

SCHEMA = 1
COMMAND_SHOWN = 60  # columns; who needs more finds it in run.json
_NO_NEWS = {ChangeKind.STILL_PASSING, ChangeKind.STILL_FAILING, ChangeKind.INCONCLUSIVE, ChangeKind.APPEARED}


class Runs(Model):
    """What `runs --json` writes."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    runs: tuple[Run, ...]


def run_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a line per run: id and name, when, how long, how much of it is there, its outcomes, the command."""
    if not runs:
        yield "no runs are stored; `whichtorch matrix` makes one"
        return
    headers = ["run", "name", "started (UTC)", "took", "cells", "outcomes", "command"]
    rows = [
        [
            run.id,
            run.name,
            _minute(run),
            f"{run.seconds:.0f} s",
            _cells(run),
            _outcomes(run),
            cut(shlex.join(run.command), COMMAND_SHOWN),
        ]
        for run in runs
    ]
    yield from tabulate(rows, headers=headers, disable_numparse=True).splitlines()


def _minute(run: Run) -> str:
    return run.started[:16].replace("T", " ")


def _cells(run: Run) -> str:
    if not run.ended:
        return "did not end"
    done = sum(run.outcomes.values())
    return f"{done} of {run.planned}" if done < run.planned else str(done)


def _outcomes(run: Run) -> str:
    words = [f"{count} {outcome.word}" for outcome, count in sorted(run.outcomes.items(), key=lambda pair: -pair[1])]
    return ", ".join(words) + (f"; {run.unexpected} unexpected" if run.unexpected else "")


def prune_lines(pruned: Pruned) -> Iterator[str]:
    """Yield which runs are gone, and what was kept of them."""
    yield from (f"removed {run.id}" for run in pruned.runs)
    kept = f"; {pruned.kept_attempts} attempts of theirs stay, because later runs rest on them"
    yield f"{len(pruned.runs)} runs removed, {pruned.freed / 1e6:.1f} MB freed" + (kept if pruned.kept_attempts else "")


def merge_lines(merged: Merged, run: Run) -> Iterator[str]:
    """Yield the runs that were merged, what came of it, and each cell about which they disagree."""
    twice = f", {merged.twice} of which were there twice" if merged.twice else ""
    for part in merged.parts:
        state = "" if part.ended and not part.interrupted else "; it did not come to its end"
        yield f"{part.id}: {sum(part.outcomes.values())} cells, started {part.started}{state}"
    yield (
        f"merged into {run.id}: {merged.environments} environments, {len(merged.cells)} cells, "
        f"{merged.records} records{twice}"
    )
    yield from (f"conflict  {cell.name}: {cell.conflict}" for cell in merged.conflicts)


def history_lines(history: dict[str, list[NightCell]]) -> Iterator[str]:
    """Yield for each cell a line per night and environment: when, where, what, and what changed since the last."""
    for name, nights in history.items():
        yield name
        body = tabulate(list(_night_rows(nights)), tablefmt="plain", disable_numparse=True)
        yield from (f"  {line}".rstrip() for line in body.splitlines())
        yield ""


def _night_rows(nights: Sequence[NightCell]) -> Iterator[list[str]]:
    last: dict[str, Cell] = {}
    for night in nights:
        name, cell = stream(night.environment), night.cell
        change = classify(last[name], cell)[0] if name in last else ChangeKind.APPEARED
        last[name] = cell
        yield [
            _minute(night.run),
            night.run.name or night.run.id,
            night.environment.label,
            code(cell),
            f"{cell.seconds:.1f} s",
            "" if change in _NO_NEWS else str(change),
            _known_since(night),
            cell.what or cell.reason or "",
        ]


def _known_since(night: NightCell) -> str:
    """Return since when a cell was known, where this run did not run it again."""
    started = max((attempt.started for attempt in night.cell.attempts), default="")
    is_old = bool(started) and not night.run.parts and started < night.run.started  # a merged run is younger
    return f"known since {started[:10]}" if is_old else ""
