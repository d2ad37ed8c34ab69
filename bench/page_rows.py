"""What the page of ten thousand cells costs: to make, to load, to filter."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from bench.row import BenchRow, Figure
from tests.reports import pages
from whichtorch.reports.page.html import FIXED, PER_CELL

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

CELLS = 10_000
LOAD = 2.0  # seconds
FILTER = 100  # milliseconds
# Each does what a user does, makes the browser lay the page out, and returns the milliseconds that took.
_TYPE = """(text) => {
  const input = document.getElementById("text"), start = performance.now();
  input.value = text;
  input.dispatchEvent(new Event("input"));
  document.getElementById("grid").getBoundingClientRect();
  document.body.offsetHeight;
  return performance.now() - start;
}"""
_CLICK = """(element) => {
  const start = performance.now();
  element.click();
  document.getElementById("grid").getBoundingClientRect();
  document.body.offsetHeight;
  return performance.now() - start;
}"""
_DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def _made(folder: Path) -> tuple[Path, float]:
    """Write the page of a run with all that can be on it; return it with the seconds that making it took."""
    run = pages.huge(folder)
    others = pages.compared(run), pages.nights(run.result.run, 60)
    begin = time.perf_counter()
    text = pages.made(run, *others)
    seconds = time.perf_counter() - begin
    (folder / "index.html").write_text(text, encoding="utf-8")
    return folder / "index.html", seconds


def size(folder: Path) -> Figure:
    """Make the page; its size is bounded."""
    page, seconds = _made(folder)
    taken, limit = page.stat().st_size, FIXED + PER_CELL * CELLS
    return Figure(text=f"{taken / 1e6:.2f} of {limit / 1e6:.2f} MB, made in {seconds:.1f} s", met=taken <= limit)


def load(folder: Path) -> Figure:
    """Open the page three times in new contexts, until it is drawn."""
    from tests.browser.chromium import chromium

    page, _ = _made(folder)
    times = []
    with chromium() as browser:
        for _ in range(3):
            context = browser.new_context()
            opened = context.new_page()
            begin = time.perf_counter()
            opened.goto(page.as_uri())
            opened.evaluate(_DRAWN)
            times.append(time.perf_counter() - begin)
            context.close()
    return Figure(text=f"{statistics.median(times):.2f} s", met=statistics.median(times) < LOAD)


def filtering(folder: Path) -> Figure:
    """Use each filter; the slowest one's median counts."""
    from tests.browser.chromium import chromium

    page, _ = _made(folder)
    with chromium() as browser:
        opened = browser.new_page()
        opened.goto(page.as_uri())
        took = _filter_times(opened)
    slowest = max(took, key=lambda name: took[name])
    return Figure(text=f"{took[slowest]:.0f} ms ({slowest}) of {len(took)} filters", met=took[slowest] < FILTER)


def _filter_times(page: Page) -> dict[str, float]:
    """Return the median milliseconds of each filter."""
    took = {text: [page.evaluate(_TYPE, text) for _ in range(3)] for text in ("f", "family_3", "check_4", "no such")}
    for chip in page.locator(".chip").all():
        took[str(chip.get_attribute("value"))] = [chip.evaluate(_CLICK) for _ in range(4)]
    for box in page.locator(".menu input").all()[:4]:
        took[str(box.get_attribute("value"))] = [box.evaluate(_CLICK) for _ in range(4)]
    return {name: statistics.median(times) for name, times in took.items()}


ROWS = [
    BenchRow(name="page", what="the page of 10,000 cells", target="<= 1 MB + 1 kB a cell", measure=size),
    BenchRow(name="page-load", what="that page until it is drawn (Chromium)", target="< 2 s", measure=load),
    BenchRow(name="page-filter", what="its slowest filter (Chromium)", target="< 100 ms", measure=filtering),
]
