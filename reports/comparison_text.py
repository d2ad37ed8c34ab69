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
_EACH_SHOWN = (ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT, ChangeKind.FIXED)


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
    changed = list(_changed_lines(comparison, old.result, new, called))
    if changed:
        yield ""
        yield from changed


def run_words(run: Run) -> str:
    """Return what a run is called, with when it was started."""
    name = f" {run.name}" if run.name else ""
    return f"{run.id}{name}, started {run.started}"


def environment_lines(changes: Sequence[EnvironmentChange]) -> Iterator[str]:
    """Yield how environments changed, those that changed alike in one line."""
    for group in alike(changes):
        labels = [change.old if change.old == change.new else f"{change.old} -> {change.new}" for change in group]
        commits = f"; commits {group[0].commits}" if group[0].commits else ""
        yield f"{some(labels, ENVIRONMENTS_NAMED)}: {changes_words(group[0])}{commits}"


def alike(changes: Iterable[EnvironmentChange]) -> list[list[EnvironmentChange]]:
    """Return environments that changed in the same way together."""
    groups: dict[tuple[str, str | None], list[EnvironmentChange]] = {}
    for change in changes:
        groups.setdefault((changes_words(change), change.commits), []).append(change)
    return list(groups.values())


def changes_words(change: EnvironmentChange) -> str:
    """Return which packages and facts of an environment changed."""
    # a fact may be a long list: then only its name is shown; both values are in the JSON
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


def side_of(change: CellChange) -> RunSide:
    """Return the cell as the new run left it, else as the old one did."""
    side = change.new or change.old
    assert side is not None
    return side


def _changed_lines(comparison: Comparison, old: Result, new: StoredRun, called: Called) -> Iterator[str]:
    before, after = _by_label_and_name(old), _by_label_and_name(new.result)
    days = comparison.old.started[:10], comparison.new.started[:10]
    shown = [change for kind in _EACH_SHOWN for change in comparison.of(kind)]
    shown += [change for change in comparison.of(ChangeKind.INCONCLUSIVE) if _is_news(change)]
    for change in shown:
        now = after.get((change.new.environment, change.name)) if change.new else None
        earlier = before.get((change.old.environment, change.name)) if change.old else None
        yield from _change_lines(change)
        if now and change.change is not ChangeKind.FIXED:
            cell, environment = now
            if log := log_of(new, cell):
                yield f"    log: {short(log)}"
            if cell.attempts or environment.is_usable:
                yield f"    rerun: {rerun(cell, environment, called('matrix'))}"
            if change.change is ChangeKind.REGRESSION and earlier:
                search = bisect_between(change.name, earlier[1], environment, days, called("bisect"))
                yield from [f"    bisect: {search}"] if search else []
    for kind in (ChangeKind.APPEARED, ChangeKind.DISAPPEARED):
        yield from _names(kind, comparison.of(kind))


def _is_news(change: CellChange) -> bool:
    return bool(change.why or (change.old and change.new and change.old.outcome is not change.new.outcome))


def _change_lines(change: CellChange) -> Iterator[str]:
    """Yield what a cell was and is, and what makes that doubtful."""
    side = side_of(change)
    what = f": {side.signature}" if change.change is not ChangeKind.FIXED and side.signature else ""
    yield f"{change.change}  {transition(change)}  {change.name}  {side.environment}{what}"
    if change.why:
        yield f"    {change.why}"
    if change.script_changed:
        yield "    the script is not the same as before"


def transition(change: CellChange) -> str:
    """Return what a cell was and is: "pass -> HANG!", in the words of the table."""
    return f"{word(change.old)} -> {word(change.new)}"


def word(side: RunSide | None) -> str:
    """Return a cell of one run in one word, as the table of a matrix writes it."""
    if side is None:
        return "none"
    shown = side.outcome.word
    shown += "" if side.expected or side.outcome.is_prevented else "!"
    return f"{shown} {side.flaky.replace(' of ', '/')}" if side.flaky else shown


def _names(kind: ChangeKind, changes: Sequence[CellChange]) -> Iterator[str]:
    """Yield the cells that came or went, those of one environment together."""
    by_environment: dict[str, list[str]] = {}
    for change in changes:
        side = side_of(change)
        by_environment.setdefault(side.environment, []).append(f"{change.name} ({word(side)})")
    for environment, names in by_environment.items():
        yield f"{kind}  {environment}: {some(names, CELLS_NAMED)}"


def _by_label_and_name(result: Result) -> dict[tuple[str, str], tuple[Cell, Environment]]:
    """Return the cells of a run by what a comparison calls them."""
    environments = {environment.id: environment for environment in result.environments}
    return {
        (environments[cell.environment].label, cell.name): (cell, environments[cell.environment])
        for cell in result.cells
        if cell.environment in environments
    }
