"""Runs to make pages of: a real one, trimmed, a huge one, and a hostile one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from whichtorch.bisect.bisection import Bisection, Boundary, Probe
from whichtorch.bisect.search_request import AxisName
from whichtorch.model import (
    Attempt,
    Cell,
    Condition,
    ConditionResult,
    Environment,
    Outcome,
    Result,
    Run,
    Scenario,
    StoppedBy,
)
from whichtorch.records import stored_runs
from whichtorch.records.compare.comparison import Comparison, compare
from whichtorch.records.compare.nights import Night
from whichtorch.records.store import StoredRun
from whichtorch.reports.page.html import page
from whichtorch.reports.run_facts import RunFacts
from whichtorch.search.search_state import AnswerKind, Change, Find, Purpose, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

REAL = Path(__file__).parent / "runs"  # `matrix --torch 2.11.0,2.15.0`, with the outputs and stacks of its red cells
HOSTILE = (
    "</script><script>document.title = 'broken'</script><img src=x onerror=\"document.title = 'broken'\">"
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00\x08\x7f \u202eright-to-left\u202c \u2028 {{ 7 * 7 }} <!-- details -->"
)
RED = (Outcome.HANG, Outcome.FAIL, Outcome.CRASH, Outcome.OOM)
DAY = datetime(2026, 11, 1, 3, tzinfo=UTC)


def called(command: str) -> str:
    """Return how these tests call a command."""
    return f"nox -s {command} --"


def real() -> StoredRun:
    """Return the real run."""
    return stored_runs.runs_below(REAL)[-1].read()


def made(
    stored: StoredRun,
    comparison: Comparison | None = None,
    nights: Sequence[Night] = (),
    bisections: Sequence[Bisection] = (),
) -> str:
    """Return the page of a run."""
    before = earlier(stored) if comparison else None
    facts = RunFacts(
        stored=stored, comparison=comparison, before=before, nights=tuple(nights), bisections=tuple(bisections)
    )
    return page(facts, called)


def environment(torch: str, config: str = "default", **fields: Any) -> Environment:
    given: dict[str, Any] = {
        "id": f"{torch}-{config}",
        "label": f"torch-{torch}-cpu" + (f"-{config}" if config != "default" else ""),
        "torch": torch,
        "python": "3.11.7",
        "build": "cpu",
        "config": config,
        "packages": {"torch": torch, "numpy": "2.4.6", "triton": f"3.{torch.split('.')[1]}.0"},
        "fingerprint": {"git_version": f"{crc32(torch.encode()):040x}", "cpu": {"count": 2}},
        "options": ("--torch", torch, "--build", "cpu", *(("--config", config) if config != "default" else ())),
    }
    return Environment(**given | fields)


def attempt(outcome: Outcome, **fields: Any) -> Attempt:
    given: dict[str, Any] = {"seconds": 3.2, "stopped_by": StoppedBy.EXIT, "cpu_seconds": 2.9, "peak_rss_mb": 412.5}
    return Attempt(outcome=outcome, **given | fields)


def cell(where: Environment, outcome: Outcome, name: str = "family/case", **fields: Any) -> Cell:
    given: dict[str, Any] = {"expected": True, "seconds": 3.2, "attempts": (attempt(outcome),)}
    return Cell(environment=where.id, scenario=name, outcome=outcome, **given | fields)


def stored(
    environments: Sequence[Environment], cells: Sequence[Cell], folder: Path, scenarios: Sequence[Scenario] = ()
) -> StoredRun:
    """Return a run that lies in a folder of a state folder, where attempts' files may be."""
    run = Run(id="r", started=DAY.isoformat(), seconds=4321, command=("matrix",), planned=len(cells), ended=True)
    result = Result(run=run, environments=tuple(environments), cells=tuple(cells), scenarios=tuple(scenarios))
    (folder / "runs" / "r").mkdir(parents=True, exist_ok=True)
    return StoredRun(folder=folder / "runs" / "r", result=result)


def huge(folder: Path, rows: int = 200, columns: int = 50, red: float = 0.1, output: int = 20_000) -> StoredRun:
    """Return a run of many cells, of which a share is red and wrote much."""
    environments = [
        environment(f"2.{4 + place // 4}.{place // 2 % 2}", ("default", "single-thread")[place % 2])
        for place in range(columns)
    ]
    names = [f"family_{row // 20}/case_of_some_length[op=mm,grad={row % 7},dims={row % 20}]" for row in range(rows)]
    text = "Traceback (most recent call last): <module> & more\n" * (output // 51)
    attempts = folder / "runs" / "r" / "attempts"
    attempts.mkdir(parents=True)
    (attempts / "out.txt").write_text(text)
    edge = {"pid": 1, "tid": 2, "function": "take", "waiting": "the GIL", "partner": 1}
    place = "boxed kernel, Python-registered Meta kernel of aten::mm, waiting for the GIL"
    diagnosis = {"kind": "GIL cycle", "summary": f"{place}; thread 2 waits", "place": place, "cycle": [edge]}
    cells = []
    every = max(1, round(1 / red))
    for row, name in enumerate(names):
        for at, where in enumerate(environments):
            number = row * columns + at
            outcome = RED[number // every % 4] if number % every == 0 else Outcome.PASS
            files = {"stdout": "runs/r/attempts/out.txt", "stderr": "runs/r/attempts/out.txt"}
            made_attempt = attempt(
                outcome,
                seconds=1 + number % 97 / 7,
                **(files if outcome.is_red else {}),
                diagnosis=diagnosis if outcome is Outcome.HANG else None,
            )
            cells.append(
                cell(
                    where,
                    outcome,
                    name,
                    expected=number % 3 != 0 or not outcome.is_red,
                    seconds=made_attempt.seconds,
                    attempts=(made_attempt,),
                    signature=f"RuntimeError in check_{number % 9} (shape.py) < <module>" if outcome.is_red else None,
                )
            )
    return stored(environments, cells, folder)


def hostile(folder: Path) -> StoredRun:
    """Return a run in which every text tries to break out of a page."""
    attempts = folder / "runs" / "r" / "attempts"
    (attempts / "stacks").mkdir(parents=True)
    (attempts / "err.txt").write_bytes(HOSTILE.encode() + b"\n\xff\xfe\xc3(\n" + b"</script>" * 10)
    (attempts / "out.txt").write_bytes(b"x" * 5_000_000)
    (attempts / "stacks" / "diagnosis.txt").write_text(f"unknown: {HOSTILE}\n\nthread 1 ({HOSTILE})\n    {HOSTILE}\n")
    where = environment("2.11.0", label=HOSTILE, reason=HOSTILE, notes=(HOSTILE,), packages={HOSTILE: HOSTILE})
    other = environment("2.12.0", fingerprint={HOSTILE: {HOSTILE: HOSTILE}})
    edge = {"pid": 1, "tid": 2, "function": HOSTILE, "waiting": "a lock", "evidence": HOSTILE}
    diagnosis = {
        "kind": HOSTILE,
        "summary": HOSTILE,
        "place": HOSTILE,
        "cycle": [edge, "nonsense"],
        "stuck": {"pid": 1},
    }
    hung = attempt(
        Outcome.HANG,
        stderr="runs/r/attempts/err.txt",
        stdout="runs/r/attempts/out.txt",
        stacks="runs/r/attempts/stacks",
        diagnosis=diagnosis,
        note=HOSTILE,
        message=HOSTILE,
        survivors=(HOSTILE,),
        stopped_by=StoppedBy.TIMEOUT,
    )
    fields: dict[str, Any] = {"name": f"family/{HOSTILE}", "signature": HOSTILE, "known": HOSTILE, "reason": HOSTILE}
    conditions = (ConditionResult(condition=Condition(op=HOSTILE), met=False, seen=HOSTILE),)
    cells = [
        cell(where, Outcome.HANG, **fields, attempts=(hung,), conditions=conditions),
        cell(other, Outcome.PASS, name=fields["name"]),
        cell(where, Outcome.FAIL, name="family/outside", attempts=(attempt(Outcome.FAIL, stderr="/etc/passwd"),)),
        cell(other, Outcome.FAIL, name="family/outside", attempts=(attempt(Outcome.FAIL, stderr="../../etc/passwd"),)),
    ]
    scenario = Scenario(
        name=fields["name"],
        path=Path("x.py"),
        source_hash="",
        summary=HOSTILE,
        tags=(HOSTILE,),
        links=("javascript:document.title='broken'", f"https://example.org/{HOSTILE}", "https://example.org/fine"),
    )
    return stored([where, other], cells, folder, [scenario])


def compared(new: StoredRun) -> Comparison:
    """Return a run compared with one of the night before, in which some of its cells came out otherwise."""
    return compare(earlier(new), new.result)


def earlier(new: StoredRun) -> Result:
    """Return that run."""
    flipped = {Outcome.HANG: Outcome.PASS, Outcome.PASS: Outcome.FAIL}
    cells = []
    for place, old_cell in enumerate(new.result.cells):
        outcome = flipped.get(old_cell.outcome, old_cell.outcome) if place % 9 == 0 else old_cell.outcome
        attempts = old_cell.attempts if outcome is old_cell.outcome else (attempt(outcome),)
        signature = old_cell.signature if outcome.is_red else None
        cells.append(old_cell.model_copy(update={"outcome": outcome, "attempts": attempts, "signature": signature}))
    older = [
        where.model_copy(
            update={
                "id": f"{where.id}-old",
                "packages": {**where.packages, "numpy": "2.4.5"},
                "fingerprint": where.fingerprint.model_copy(update={"git_version": "a" * 40}),
            }
        )
        for where in new.result.environments
    ]
    run = new.result.run.model_copy(update={"id": "before", "started": (DAY - timedelta(days=1)).isoformat()})
    renamed = (each.model_copy(update={"environment": f"{each.environment}-old"}) for each in cells)
    return new.result.model_copy(update={"run": run, "environments": tuple(older), "cells": tuple(renamed)})


def nights(run: Run, count: int = 20) -> list[Night]:
    """Return the nights before a run, in which hangs came and went."""
    return [
        Night(
            run=run.model_copy(
                update={"id": f"n{number}", "started": (DAY - timedelta(days=count - number)).isoformat()}
            ),
            cells=58,
            outcomes={Outcome.HANG: 16 if number > 8 else number % 3, Outcome.FAIL: 6, Outcome.PASS: 30},
        )
        for number in range(count)
    ]


@dataclass(frozen=True, kw_only=True)
class TriedValue:
    """A value of a bisection."""

    value: str
    outcome: Outcome
    verdict: SearchVerdict
    purpose: Purpose | None = Purpose.NARROW


def bisection() -> Bisection:
    """Return the search for what fixed a failure of tracing, as it was once made."""
    minors = [f"2.{minor}.0" for minor in range(12)]
    values = ("1.13.0", "1.13.1", *minors, "2.11.1", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0")
    values_in_order = (
        TriedValue(value="1.13.0", outcome=Outcome.SKIP, verdict=SearchVerdict.UNTESTABLE, purpose=Purpose.BOUND),
        TriedValue(value="2.15.0", outcome=Outcome.PASS, verdict=SearchVerdict.GOOD, purpose=Purpose.BOUND),
        TriedValue(value="2.5.0", outcome=Outcome.FAIL, verdict=SearchVerdict.BAD, purpose=Purpose.WIDEN),
        TriedValue(value="2.9.0", outcome=Outcome.FAIL, verdict=SearchVerdict.BAD),
        TriedValue(value="2.13.0", outcome=Outcome.PASS, verdict=SearchVerdict.GOOD),
        TriedValue(value="2.11.0", outcome=Outcome.FAIL, verdict=SearchVerdict.BAD),
        TriedValue(value="2.12.0", outcome=Outcome.PASS, verdict=SearchVerdict.GOOD),
        TriedValue(value="2.11.1", outcome=Outcome.FAIL, verdict=SearchVerdict.BAD),
    )
    name = "fake_tensor/add_meta[level=fake]"
    probes = [
        Probe(
            value=row.value,
            outcome=row.outcome,
            k=1,
            n=1,
            reused=0,
            verdict=row.verdict,
            purpose=row.purpose,
            environment=environment(row.value),
            cell=cell(environment(row.value), row.outcome, name),
        )
        for row in values_in_order
    ]
    boundary: dict[str, Any] = {"from": "2.11.1", "to": "2.12.0", "change": Change.FIX, "confidence": 0.9991}
    return Bisection(
        scenario=name,
        question=Find.ANY,
        axis=AxisName.VERSION,
        values=values,
        common={"build": "cpu", "python": "3.11", "config": "default"},
        reference=(Outcome.FAIL, "RuntimeError in merge_devices (fake_tensor.py)"),
        boundaries=(Boundary(**boundary, commits="https://github.com/pytorch/pytorch/compare/a...b"),),
        probes=tuple(sorted(probes, key=lambda probe: values.index(probe.value))),
        order=tuple(row.value for row in values_in_order),
        installs=7,
        runs=11,
        seconds=397,
        answer=AnswerKind.BOUNDARY,
        reasons=("1.13.0 could not be tested",),
        command=f"nox -s bisect -- '{name}'",
    )
