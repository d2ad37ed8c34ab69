"""What planning, storing and knowing cost, without running a script."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.row import BenchRow, Figure
from tests.fakes import PASSED, FakeCache, FakeExecutor
from tests.wheels import build_companion, build_wheel
from whichtorch.matrix.model import Build, Config, Request, Scenario
from whichtorch.matrix.plan import planning
from whichtorch.matrix.records.store import new_run, read_records
from whichtorch.matrix.run.cell_scheduler import CellScheduler
from whichtorch.matrix.run.pipeline import MatrixRun
from whichtorch.matrix.run.site import LocalSite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KNOWN_CELLS = 1000
PLANNED_CELLS = 10_000
ENVIRONMENTS = 50


def known_cells(folder: Path) -> Figure:
    """Run 1,000 cells of a stand-in torch for real, then give the same command again."""
    wheels = folder / "wheels"
    wheels.mkdir()
    build_wheel(wheels, "9.1.0")
    build_companion(wheels, "numpy", "2.2.0")
    numbers = ", ".join(f'"{number}"' for number in range(KNOWN_CELLS))
    script = folder / "thousand.py"
    script.write_text(f"# /// scenario\n# [variants]\n# n = [{numbers}]\n# ///\n")
    file = folder / "matrix.toml"
    file.write_text(f'[axes]\ntorch = ["9.1.0"]\nbuild = ["stand-in"]\n[build.stand-in]\nfind-links = "{wheels}"\n')
    command = [sys.executable, "-m", "whichtorch", "matrix", "--matrix", str(file), "--script", str(script)]
    environ = dict(os.environ) | {"WHICHTORCH_HOME": str(folder / "state"), "UV_NO_INDEX": "1"}
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
    begin = time.perf_counter()
    again = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    assert f"{KNOWN_CELLS} cells; all known" in again.stdout, again.stdout[-2000:]
    return Figure(text=f"{seconds:.2f} s", met=seconds <= 1)


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
    BenchRow(name="known", what="whichtorch matrix again, 1,000 known cells", target="<= 1 s", measure=known_cells),
    BenchRow(
        name="planning", what="planning and storing 10,000 cells", target="<= 5 s, linear", measure=planning_costs
    ),
]
