"""A run as GitHub annotations: a pull request shows an error at the line where each script failed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.grouping import grouped
from whichtorch.base.redaction import restored
from whichtorch.reports import cell_text
from whichtorch.reports.document import one_line, short_list
from whichtorch.reports.table import cell_word

if TYPE_CHECKING:
    from whichtorch.model import Cell, Scenario
    from whichtorch.records.store import StoredRun

MOST = 10  # errors of one step that GitHub shows
ENVIRONMENTS_NAMED = 6
_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY_ESCAPES = str.maketrans({"%": "%25", ":": "%3A", ",": "%2C"})


def annotation_lines(stored: StoredRun) -> Iterator[str]:
    """Yield an error for each unexpected failure, the worst first, with the environments that have it."""
    result = stored.result
    labels = {environment.id: environment.label for environment in result.environments}
    scenarios = {scenario.name: scenario for scenario in result.scenarios}
    red = [cell for cell in result.cells if cell.has_failed]
    failures = list(grouped(red, lambda cell: (cell.name, cell.outcome, cell.signature)).values())
    failures.sort(key=lambda cells: -cells[0].outcome.row.severity)
    for cells in failures[:MOST]:
        first = cells[0]
        where = {"file": "", "line": ""} | _place(first, scenarios.get(first.scenario))
        where["title"] = one_line(f"{cell_word(first)} {first.name}")
        properties = ",".join(f"{name}={text.translate(_PROPERTY_ESCAPES)}" for name, text in where.items() if text)
        environments = short_list([labels[cell.environment] for cell in cells], ENVIRONMENTS_NAMED)
        message = f"{one_line(cell_text.summary(first))}\nin {environments}"
        yield f"::error {properties}::{message.translate(_ESCAPES)}"
    if len(failures) > MOST:
        yield f"::notice::the report shows {len(failures) - MOST} more"


def _place(cell: Cell, scenario: Scenario | None) -> dict[str, str]:
    """Return the script's path in the repository, and its innermost line in the signature."""
    if scenario is None:
        return {}
    path = restored(scenario.path)
    top = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    file = path.relative_to(top) if path.is_relative_to(top) else Path(cell.scenario)
    line = re.search(rf"(?<![\w.-]){re.escape(path.name)}:(\d+)", cell.signature or "")
    return {"file": str(file), "line": line[1] if line else "1"}
