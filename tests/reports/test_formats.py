"""The formats of a report, as `whichtorch report` goes through them."""

from __future__ import annotations

import importlib
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests import results
from whichtorch.base.option import group
from whichtorch.cli import command
from whichtorch.cli.parser import PanelCommand, command_of
from whichtorch.model import Outcome
from whichtorch.reports.formats import FORMATS, ReportFormat

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.reports.cell_text import CommandPrefix
    from whichtorch.reports.run_facts import RunFacts

report = importlib.import_module("whichtorch.cli.runs")


def names(facts: RunFacts, called: CommandPrefix) -> list[str]:
    return [cell.name for cell in facts.stored.result.cells]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PanelCommand:
    """Return `report` with one more format, in a folder with a stored run."""
    where = results.environment()
    results.stored(tmp_path / "home", results.result([where], [results.cell(where, Outcome.HANG)]))
    monkeypatch.setenv("WHICHTORCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    formats = (*FORMATS, ReportFormat(name="names", help="Write the names.", file="names.txt", content=names))
    for module in (command, report):
        monkeypatch.setattr(module, "FORMATS", formats)
    files = ("files", Any, group(command.format_options(formats)))
    options = make_dataclass("MoreOptions", [files], bases=(report.ReportOptions,), frozen=True, kw_only=True)
    monkeypatch.setitem(report.report.__annotations__, "options", options)
    return command_of(report.report, "report", is_group=False)


def test_a_row_is_all_that_a_new_format_takes(app: PanelCommand, tmp_path: Path) -> None:
    """It is written by default with the others, and its option writes it alone."""
    written = CliRunner().invoke(app, [])
    assert written.exit_code == 0, written.output
    assert (tmp_path / "output" / "names.txt").read_text() == "family/case\n"
    assert {path.name for path in (tmp_path / "output").iterdir()} == {row.file for row in report.FORMATS if row.file}
    assert CliRunner().invoke(app, ["--names", "mine.txt"]).output == "wrote mine.txt\n"


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
def test_a_format_imports_nothing_until_it_is_made(row: ReportFormat) -> None:
    """Every command reads the rows for its help, so a row names no module of a format."""
    assert row.content.__module__ == "whichtorch.reports.formats"
