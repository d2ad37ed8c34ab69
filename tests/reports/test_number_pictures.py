"""The page's lines of numbers."""

import math
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

from tests.records.compare.synthetic_nights import Year, measurement, night_of
from tests.reports import pages, reading
from tests.reports.test_html import Page
from tests.results import PASS, cell, environment, result, stored
from whichtorch.model import Effect
from whichtorch.records.store import StoredRun
from whichtorch.reports.markdown import markdown_lines
from whichtorch.reports.page.grid import grid_of
from whichtorch.reports.page.html import page
from whichtorch.reports.page.pictures import BASE, MOST_LINES, TOP, over_environments, over_nights
from whichtorch.reports.run_facts import gather

RELEASES = [environment(torch) for torch in ("2.9.1", "2.10.0", "2.11.0")]


def test_a_line_has_a_point_for_each_environment_and_says_which_counts() -> None:
    """The whisker is the middle half of the runs; a number that is infinite has no place."""
    numbers = [
        measurement(0.0, ""),
        measurement(0.2, "torch-2.9.1-pypi", effect=Effect.WORSE),
        measurement(0.0, "torch-2.9.1-pypi", value=math.inf),
    ]
    cells = [cell(where, PASS, numbers=(number,)) for where, number in zip(RELEASES, numbers, strict=True)]
    (line,), left_out = over_environments(grid_of(result(RELEASES, cells)))
    assert (line["title"], line["small"], left_out) == ("wall of family/case", "2 environments", 0)
    assert [effect for _, _, effect, _ in line["dots"]] == ["", "worse"]
    assert line["whiskers"].count("M") == 2
    assert all(TOP <= y <= BASE for y, _ in line["lines"])
    assert line["dots"][0][1] > line["dots"][1][1]  # more is above
    assert "torch-2.10.0-pypi: 0.2443 s, +22.1 % [+21.1, +23.1], 6 runs" in line["dots"][1][3]


def test_an_opened_cell_and_the_markdown_have_the_numbers(tmp_path: Path) -> None:
    """Each with its value, and its change from the first environment with the interval."""
    numbers = [measurement(0.0, ""), measurement(0.2, "torch-2.9.1-pypi", effect=Effect.WORSE)]
    cells = [cell(where, PASS, numbers=(number,)) for where, number in zip(RELEASES[:2], numbers, strict=True)]
    run = StoredRun(folder=tmp_path, result=result(RELEASES[:2], cells))
    (row,) = Page(pages.made(run)).details
    assert row["cells"]["0"]["numbers"] == [["wall", "0.2 s", "", "", "", "6 runs"]]
    assert row["cells"]["1"]["numbers"] == [
        ["wall", "0.2443 s", "+22.1 % [+21.1, +23.1]", "worse", "torch-2.9.1-pypi", "6 runs"]
    ]
    table, _ = reading.tables("\n".join(markdown_lines(run, "whichtorch matrix")))
    assert table == [["family/case", "wall"], ["2.9.1", "0.2 s"], ["2.10.0", "0.2443 s +22.1 % [+21.1, +23.1] worse"]]


def test_the_page_draws_the_nights_with_their_steps_first(tmp_path: Path) -> None:
    """More than fit are counted; those without a change are left out first."""
    year = Year(seed=3, nights=24, cells=MOST_LINES + 2, steps=0)
    year.numbers[-1] = [0.001 * at + 0.3 * (at >= 12) for at in range(24)]
    heads = [
        stored(tmp_path, night_of(year, at), day=str(date(2026, 11, 1) + timedelta(at)), id=f"night{at:02}")
        for at in range(year.nights)
    ]
    facts = gather(heads[-1], tmp_path)
    lines, left_out = over_nights(facts.numbers)
    assert (len(lines), left_out) == (MOST_LINES, 2)
    assert lines[0]["title"] == f"wall of family{(MOST_LINES + 1) // 10}/case{MOST_LINES + 1}"
    assert [effect for _, effect in lines[0]["marks"]] == ["worse"]
    text = page(facts, pages.called)
    assert "Numbers over nights" in text
    assert lines[0]["changes"][0].startswith("worse from 2026-11-13 on, night12: +")
    assert lines[0]["changes"][0] in text


def test_a_name_cannot_break_out_of_a_line(tmp_path: Path) -> None:
    """Labels, units and names of measures are texts of users."""
    where = environment("2.9.1", label=pages.HOSTILE)
    number = measurement(0.0, pages.HOSTILE, name=pages.HOSTILE, unit=pages.HOSTILE)
    run = StoredRun(folder=tmp_path, result=result([where], [cell(where, PASS, numbers=(number,))]))
    facts = gather(stored(tmp_path, run.result), tmp_path)
    text = page(replace(facts, stored=run), pages.called)
    assert "<img" not in text
    assert "Numbers, by environment" in text


def test_a_page_without_numbers_has_no_lines() -> None:
    """Most runs measure nothing."""
    assert "Numbers" not in pages.made(pages.real()).partition('<script type="application/json"')[0]
