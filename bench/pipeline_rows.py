"""What planning, storing and knowing cost, without running a script."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.row import BenchRow, Figure
from tests.fakes import PASSED, FakeCache, FakeExecutor
from whichtorch.matrix.model import Build, Config, Request, Scenario
from whichtorch.matrix.plan import planning
from whichtorch.matrix.records.store import new_run, read_records
from whichtorch.matrix.run.cell_scheduler import CellScheduler
from whichtorch.matrix.run.pipeline import MatrixRun
from whichtorch.matrix.run.site import LocalSite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PLANNED_CELLS = 10_000
ENVIRONMENTS = 50


def _run(home: Path, planned: Sequence[planning.PlannedCell], *, store_again: bool = False) -> MatrixRun:
    """Run planned cells with a fake executor; `store_again` appends every record on disk to the new run, too."""
    records = read_records(home)
    with new_run(home, ()) as store:
        site = LocalSite(FakeCache(home), records, store, lambda _: None, FakeExecutor(lambda _: PASSED), jobs=2)
        run = MatrixRun(planned, CellScheduler(site))
        run.run()
        if store_again:
            for cell in planned:
                for record in records.of(cell.key(FakeCache(home).environment(cell.request))):
                    store.add_record(record)
    return run


def planning_costs(folder: Path) -> Figure:
    """Read, plan, judge and store ever more cells, running none; seconds per cell may not grow."""
    times = {}
    for cells in (PLANNED_CELLS // 4, PLANNED_CELLS // 2, PLANNED_CELLS):
        home = folder / str(cells)
        home.mkdir()
        suite = [
            Scenario(name=f"family/case{number}", path=home / "case.py", source_hash=str(number))
            for number in range(cells // ENVIRONMENTS)
        ]
        requests = [
            Request(torch=f"9.{minor}.0", python="3.11", build=Build(name="pypi"), config=Config(name="default"))
            for minor in range(ENVIRONMENTS)
        ]
        _run(
            home, planning.plan(requests, suite, planning.RunOptions())
        )  # makes the records, attempt by attempt: not timed
        begin = time.perf_counter()
        planned = planning.plan(requests, suite, planning.RunOptions())
        run = _run(home, planned, store_again=True)
        times[cells] = time.perf_counter() - begin
        assert len(run.cells) == cells
        assert all(cell.reused for cell in run.cells)
    seconds, quarter = times[PLANNED_CELLS], times[PLANNED_CELLS // 4]
    growth = seconds / quarter / 4
    text = f"{seconds:.1f} s; a cell costs {growth:.2f} x what it costs among {PLANNED_CELLS // 4}"
    return Figure(text=text, met=seconds <= 5 and growth < 1.5)


ROWS = [
    BenchRow(
        name="planning", what="planning and storing 10,000 cells", target="<= 5 s, linear", measure=planning_costs
    ),
]
