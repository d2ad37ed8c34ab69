"""What became of the cells from one run to another, as lines of text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from matrix.compare.comparison import ChangeKind
from reports.cell_text import bisect_between, log_of, rerun
from reports.shown_text import some
from reports.table import short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.compare.comparison import CellChange, Comparison, EnvironmentChange, RunSide
    from matrix.model import Cell, Environment, Result, Run
    from matrix.records.stored_runs import StoredRun
    from reports.cell_text import Called

ENVIRONMENTS_NAMED = 3  # that changed alike; more are counted
PACKAGES_NAMED = 6  # of an environment that changed; more are counted
FACT_SHOWN = 100  # characters of a fact in both environments
CELLS_NAMED = 10  # that merely came or went; more are counted
MEANING = {
    ChangeKind.REGRESSION: "passed, and does not any more",
    ChangeKind.NEW_FAILURE: "fails, and no verdict was there before",
    ChangeKind.DIFFERENT: "fails in another way than before",
    ChangeKind.FIXED: "failed, and passes",
    ChangeKind.INCONCLUSIVE: "no verdict now, or none before",
    ChangeKind.STILL_FAILING: "fails as before",
    ChangeKind.DISAPPEARED: "only in the old run",
    ChangeKind.APPEARED: "only in the new run",
    ChangeKind.STILL_PASSING: "passes as before",
}
_TOLD_ONE_BY_ONE = (ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT, ChangeKind.FIXED)


def comparison_lines(comparison: Comparison, old: StoredRun, new: StoredRun, called: Called) -> Iterator[str]:
    """Yield which runs were compared, what changed in their environments, the counts, and each cell that changed."""
    yield f"from {run_words(comparison.old)}"
    yield f"  to {run_words(comparison.new)}"
    for id_ in comparison.incomplete:
        yield f"note: {id_} did not come to its end: cells that it lacks are no evidence"
    environments = list(environment_lines(comparison.environments))
    if environments:
        yield ""
        yield from environments
    yield ""
    yield from count_lines(comparison)
    told = list(_changed_lines(comparison, old.result, new, called))
    if told:
        yield ""
        yield from told


def run_words(run: Run) -> str:
    """Return what a run is called, with when it was started."""
    name = f" {run.name}" if run.name else ""
    return f"{run.id}{name}, started {run.started}"


def environment_lines(changes: Sequence[EnvironmentChange]) -> Iterator[str]:
    """Yield how environments changed, those that changed alike in one line."""
    for group in alike(changes):
        places = [one.old if one.old == one.new else f"{one.old} -> {one.new}" for one in group]
        commits = f"; commits {group[0].commits}" if group[0].commits else ""
        yield f"{some(places, ENVIRONMENTS_NAMED)}: {changes_words(group[0])}{commits}"


def alike(changes: Iterable[EnvironmentChange]) -> list[list[EnvironmentChange]]:
    """Return environments that changed in the same way together."""
    groups: dict[tuple[str, str | None], list[EnvironmentChange]] = {}
    for change in changes:
        groups.setdefault((changes_words(change), change.commits), []).append(change)
    return list(groups.values())


def changes_words(change: EnvironmentChange) -> str:
    """Return which packages and facts of an environment changed."""
    # a fact may be a long list: that it changed is said, the two are in the JSON
    both = change.packages | {name: pair for name, pair in change.facts.items() if len(str(pair)) <= FACT_SHOWN}
    changes = [f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in both.items()]
    changes += [name for name in change.facts if name not in both]
    return some(changes, PACKAGES_NAMED) or "another build of the same packages"


def count_lines(comparison: Comparison) -> Iterator[str]:
    """Yield how many cells there are of each kind, and how many of them hang now."""
    counts = Counter(cell.change for cell in comparison.cells)
    for change in ChangeKind:
        if counts[change]:
            hanging = sum(cell.new is not None and cell.new.outcome == "hang" for cell in comparison.of(change))
            hangs = f", {hanging} HANG" if hanging else ""
            yield f"{counts[change]:5d}  {change:<17}  {MEANING[change]}{hangs}"


def _changed_lines(comparison: Comparison, old: Result, new: StoredRun, called: Called) -> Iterator[str]:
    before, after = _Index(old), _Index(new.result)
    days = comparison.old.started[:10], comparison.new.started[:10]
    for change in _TOLD_ONE_BY_ONE:
        for one in comparison.of(change):
            yield from _cell_lines(one, before, after, new, days, called)
    for one in comparison.of(ChangeKind.INCONCLUSIVE):
        if (one.old and one.new and one.old.outcome is not one.new.outcome) or one.why:
            yield from _cell_lines(one, before, after, new, days, called)
    for change in (ChangeKind.APPEARED, ChangeKind.DISAPPEARED):
        yield from _names(change, comparison.of(change))


def _cell_lines(
    one: CellChange, before: _Index, after: _Index, new: StoredRun, days: tuple[str, str], called: Called
) -> Iterator[str]:
    """Yield what became of a cell, what it shows now, and the commands that go on from here."""
    side = one.new or one.old
    assert side is not None
    what = f": {side.signature}" if one.change is not ChangeKind.FIXED and side.signature else ""
    yield f"{one.change}  {transition(one)}  {one.name}  {side.environment}{what}"
    if one.why:
        yield f"    {one.why}"
    if one.script_changed:
        yield "    the script is not the same as before"
    found, earlier = after.of(one.new, one.name), before.of(one.old, one.name)
    if found and one.change is not ChangeKind.FIXED:
        cell, environment = found
        if log := log_of(new, cell):
            yield f"    log: {short(log)}"
        if cell.attempts or environment.is_usable:
            yield f"    rerun: {rerun(cell, environment, called('matrix'))}"
        if one.change is ChangeKind.REGRESSION and earlier:
            search = bisect_between(one.name, earlier[1], environment, days, called("bisect"))
            yield from [f"    bisect: {search}"] if search else []


def transition(one: CellChange) -> str:
    """Return what a cell was and is: "pass -> HANG!", in the words of the table."""
    return f"{word(one.old)} -> {word(one.new)}"


def word(side: RunSide | None) -> str:
    """Return a cell of one run in one word, as the table of a matrix writes it."""
    if side is None:
        return "none"
    shown = side.outcome.word
    shown += "" if side.expected or side.outcome.is_prevented else "!"
    return f"{shown} {side.flaky.replace(' of ', '/')}" if side.flaky else shown


def _names(change: ChangeKind, cells: Sequence[CellChange]) -> Iterator[str]:
    """Yield the cells that came or went, those of one environment together."""
    by_environment: dict[str, list[str]] = {}
    for one in cells:
        side = one.new or one.old
        assert side is not None
        by_environment.setdefault(side.environment, []).append(f"{one.name} ({word(side)})")
    for environment, names in by_environment.items():
        yield f"{change}  {environment}: {some(names, CELLS_NAMED)}"


class _Index:
    """The cells of a run by what a comparison calls them."""

    def __init__(self, result: Result) -> None:
        environments = {environment.id: environment for environment in result.environments}
        self._cells: dict[tuple[str, str], tuple[Cell, Environment]] = {
            (environments[cell.environment].label, cell.name): (cell, environments[cell.environment])
            for cell in result.cells
            if cell.environment in environments
        }

    def of(self, side: RunSide | None, name: str) -> tuple[Cell, Environment] | None:
        return self._cells.get((side.environment, name)) if side else None
