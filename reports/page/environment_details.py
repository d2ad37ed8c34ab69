"""What a page knows of each environment: commands for its cells, facts, and the nearest one in which a test passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.compare.factors import ABSENT, AXES, Factors
from matrix.explain.explanation import distance
from matrix.model import Cell, Outcome
from reports import cell_text
from reports.page.cuts import cost
from reports.page.grid import WHAT, GridRow, Square
from reports.shown_text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.model import Environment
    from reports.cell_text import Called
    from reports.page.page_data import Differences, EnvironmentDetails

NAME_HERE = "THE_CELL_HERE"  # stands in an environment's commands for the name of a cell
VALUE = 80  # characters of a fact: some fields hold a compiler's whole command line
NOTES = 12  # that are shown
DIFFERENCES = 12  # packages, and other facts, in which two environments differ; more are counted
PAIRS = 300  # of environments whose differences are listed; of more only the axes

_CONFIG = "config."  # begins the facts of torch.__config__
_PACKAGE = "package "  # begins a factor that is a package's version


class Strings:
    """Texts that are written once and named by their index."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def index_of(self, text: str) -> int:
        """Return the index of a text, adding it where it is new."""
        return self.texts.setdefault(text, len(self.texts))


def environment_details(
    environment: Environment, factors: Factors, strings: Strings, budget: int, called: Called
) -> EnvironmentDetails:
    """Return an environment with as many of its facts as `budget` bytes hold, each written once in a page."""
    scenario, script = (
        Cell(environment=environment.id, scenario=name, outcome=Outcome.PASS, expected=True, seconds=0)
        for name in (NAME_HERE, f"{NAME_HERE}.py")
    )
    matrix = called("matrix")
    details: EnvironmentDetails = {
        "commands": {
            "rerun": one_line(cell_text.rerun(scenario, environment, matrix), WHAT),
            "script": one_line(cell_text.rerun(script, environment, matrix), WHAT).replace(script.scenario, NAME_HERE),
            "bisect": one_line(cell_text.bisect(scenario, environment, called("bisect")), WHAT),
            "explain": one_line(cell_text.explain(scenario, called("explain")), WHAT),
        },
    }
    if environment.outcome:
        details["problem"] = f"{environment.outcome}: {one_line(environment.reason or '', WHAT)}"
    if environment.notes:
        details["notes"] = [one_line(note, WHAT) for note in environment.notes[:NOTES]]
    names = [name for name in factors if name not in AXES and not _is_kernel(name)]
    packages = [f"{name.removeprefix(_PACKAGE)} {factors[name]}" for name in names if name.startswith(_PACKAGE)]
    others = [f"{name}: {factors[name]}" for name in names if not name.startswith(_PACKAGE)]
    for title, texts in (("packages", packages), ("fingerprint", others)):
        indices: list[int] = []
        for text in texts:
            shown = one_line(text, VALUE)
            budget -= 5 if shown in strings.texts else cost(shown) + 6
            if budget < 0:
                break
            indices.append(strings.index_of(shown))
        details[title] = indices
        if len(indices) < len(texts):
            details[f"{title} left out"] = len(texts) - len(indices)
    return details


def _is_kernel(name: str) -> bool:
    """Return whether a factor is one of the hundreds of entries of dispatch tables."""
    return "'s " in name and name.endswith(" kernel")


class NearestPasses:
    """For each red cell the passing environment of the same test that differs least, and how it differs."""

    def __init__(self, factors: Sequence[Factors]) -> None:
        self._factors = factors
        self._distances: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.pairs: dict[str, Differences] = {}  # "3.1": how column 3 differs from column 1, which passes

    def of(self, square: Square, row: GridRow) -> int | None:
        """Return the column of the nearest passing cell of the row."""
        passing = [
            other.column
            for other in row.squares
            if other and other.cell.outcome is Outcome.PASS and not other.cell.is_doubted
        ]
        if not passing:
            return None
        nearest = min(passing, key=lambda column: self._distance(square.column, column))
        key = f"{square.column}.{nearest}"
        if key not in self.pairs and len(self.pairs) < PAIRS:
            self.pairs[key] = _differences(self._factors[square.column], self._factors[nearest])
        return nearest

    def _distance(self, column: int, other: int) -> tuple[int, int, int]:
        key = (min(column, other), max(column, other))
        if key not in self._distances:
            self._distances[key] = distance(self._factors[column], self._factors[other])
        return self._distances[key]


def _differences(mine: Factors, other: Factors) -> Differences:
    """Return the axes, packages and other facts in which two environments differ: name, here, there."""
    names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    kinds: dict[str, list[str]] = {"axes": [], "packages": [], "facts": []}
    for name in sorted(names, key=lambda name: (_is_kernel(name), name.startswith(_CONFIG))):  # the telling ones first
        kinds["axes" if name in AXES else "packages" if name.startswith(_PACKAGE) else "facts"].append(name)
    differences: Differences = {}
    for kind, differing in kinds.items():
        differences[kind] = [
            (
                one_line(name.removeprefix(_PACKAGE), VALUE),
                one_line(mine.get(name, ABSENT), VALUE),
                one_line(other.get(name, ABSENT), VALUE),
            )
            for name in differing[:DIFFERENCES]
        ]
        if len(differing) > DIFFERENCES:
            differences[f"more {kind}"] = len(differing) - DIFFERENCES
    return differences
