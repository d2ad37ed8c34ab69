"""Stored runs, as lines of text."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pydantic import Field
from tabulate import tabulate

from matrix.model import Model, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.records.stored_runs import Pruned

SCHEMA = 1
COMMAND_SHOWN = 60  # columns; who needs more finds it in run.json


class Runs(Model):
    """What `runs --json` writes."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    runs: tuple[Run, ...]


def run_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a line per run: id and name, when, how long, how much of it is there, what came of it, the command."""
    if not runs:
        yield "no runs are stored; `whichtorch matrix` makes one"
        return
    headers = ["run", "name", "started (UTC)", "took", "cells", "outcomes", "command"]
    rows = [
        [
            run.id,
            run.name,
            run.started[:16].replace("T", " "),
            f"{run.seconds:.0f} s",
            _cells(run),
            _outcomes(run),
            _command(run),
        ]
        for run in runs
    ]
    yield from tabulate(rows, headers=headers, disable_numparse=True).splitlines()


def _cells(run: Run) -> str:
    if not run.ended:
        return "did not end"
    done = sum(run.outcomes.values())
    return f"{done} of {run.planned}" if done < run.planned else str(done)


def _outcomes(run: Run) -> str:
    words = [f"{count} {outcome.word}" for outcome, count in sorted(run.outcomes.items(), key=lambda pair: -pair[1])]
    return ", ".join(words) + (f"; {run.unexpected} unexpected" if run.unexpected else "")


def _command(run: Run) -> str:
    text = shlex.join(run.command)
    return text if len(text) <= COMMAND_SHOWN else text[: COMMAND_SHOWN - 1] + "…"


def prune_lines(pruned: Pruned) -> Iterator[str]:
    """Yield which runs are gone, and what was kept of them."""
    yield from (f"removed {run.id}" for run in pruned.runs)
    kept = f"; {pruned.kept_attempts} attempts of theirs stay, because later runs rest on them"
    yield f"{len(pruned.runs)} runs removed, {pruned.freed / 1e6:.1f} MB freed" + (kept if pruned.kept_attempts else "")
