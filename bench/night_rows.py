"""A year of nights with numbers: what is found of planted steps, and how soon the page of it is there."""

from __future__ import annotations

import time
from datetime import date, timedelta
from typing import TYPE_CHECKING

from bench.row import BenchRow, Figure
from tests.compare.synthetic_nights import Year, found_in, night_of
from tests.results import stored
from whichtorch.matrix.compare.change_points import change_points
from whichtorch.reports.page.html import page
from whichtorch.reports.run_facts import gather

if TYPE_CHECKING:
    from pathlib import Path

YEARS = 20
PRECISION, RECALL, PAGE = 0.99, 0.95, 2.0


def steps(folder: Path) -> Figure:
    """Look for the steps of years with 150 cells, a twentieth of them flaky, of which 12 have a step."""
    begin = time.perf_counter()
    years = [Year(seed=seed) for seed in range(YEARS)]
    counts = [found_in(year, change_points) for year in years]
    seconds = (time.perf_counter() - begin) / YEARS
    right, wrong = (sum(column) for column in zip(*counts, strict=True))
    precision, recall = right / (right + wrong), right / sum(year.steps for year in years)
    return Figure(
        text=f"precision {precision:.1%}, recall {recall:.1%}, {seconds:.1f} s a year",
        met=precision >= PRECISION and recall >= RECALL,
    )


def nights_page(folder: Path) -> Figure:
    """Store such a year, then make the page of its last night: once to take the year in, once as every night."""
    year = Year(seed=1)
    heads = [
        stored(folder, night_of(year, at), day=str(date(2026, 1, 1) + timedelta(at)), id=f"night{at:03}")
        for at in range(year.nights)
    ]
    took = []
    for _ in range(2):
        begin = time.perf_counter()
        text = page(gather(heads[-1], folder), lambda command: command)
        took.append(time.perf_counter() - begin)
    (folder / "index.html").write_text(text, encoding="utf-8")
    return Figure(
        text=f"{took[1]:.1f} s ({took[0]:.1f} s with an index that knows nothing), {len(text) / 1e6:.2f} MB",
        met=took[1] < PAGE,
    )


ROWS = [
    BenchRow(
        name="nights", what="12 steps in 365 nights x 150 cells", target="precision 99 %, recall 95 %", measure=steps
    ),
    BenchRow(name="nights-page", what="the page of these nights", target="< 2 s", measure=nights_page),
]
