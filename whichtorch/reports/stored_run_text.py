"""Stored runs, as lines of text: listed, removed, merged, compared, and a scenario from night to night."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field
from tabulate import tabulate

from whichtorch.base.grouping import counted, grouped
from whichtorch.model import Cell, Environment, Model, Result, Run
from whichtorch.records.compare.comparison import ChangeKind, classify, stream
from whichtorch.reports.cell_text import CommandPrefix, bisect_between_command, log_of, rerun_command
from whichtorch.reports.document import Code, Link, Strong, cut, short_list, shown_path
from whichtorch.reports.numbers_text import number_change_words, number_night_lines, number_words
from whichtorch.reports.table import cell_word

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from whichtorch.records.compare.comparison import CellChange, Comparison, EnvironmentChange, RunSide
    from whichtorch.records.compare.nights import Histories, NightCell
    from whichtorch.records.store import StoredRun
    from whichtorch.records.stored_runs import Merged, Pruned
    from whichtorch.reports.document import Line

    _Cells = dict[tuple[str, str], tuple[Cell, Environment]]  # by what a comparison calls them

SCHEMA = 1
COMMAND_SHOWN = 60  # columns; who needs more finds it in run.json
ENVIRONMENTS_NAMED = 3  # that changed alike; more are counted
PACKAGES_NAMED = 6  # of an environment that changed; more are counted
FACT_SHOWN = 100  # characters of a fact in both environments
CELLS_NAMED = 10  # that merely came or went; more are counted
MEANING = {
    ChangeKind.REGRESSION: "passed, and does not any more",
    ChangeKind.NEW_FAILURE: "fails, and this script had no verdict before",
    ChangeKind.DIFFERENT: "fails in another way than before",
    ChangeKind.WORSE_NUMBER: "passes, and is slower, bigger or otherwise worse than it was, by what counts",
    ChangeKind.FIXED: "failed, and passes",
    ChangeKind.BETTER_NUMBER: "passes, and is faster, smaller or otherwise better than it was",
    ChangeKind.INCONCLUSIVE: "no verdict now, or none before",
    ChangeKind.STILL_FAILING: "fails as before",
    ChangeKind.DISAPPEARED: "only in the old run",
    ChangeKind.APPEARED: "only in the new run",
    ChangeKind.STILL_PASSING: "passes as before",
}
WORSE = (ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT, ChangeKind.WORSE_NUMBER)
_GOOD = (ChangeKind.FIXED, ChangeKind.BETTER_NUMBER)
CHANGED = (*WORSE, *_GOOD)
_NO_NEWS = {ChangeKind.STILL_PASSING, ChangeKind.STILL_FAILING, ChangeKind.INCONCLUSIVE, ChangeKind.APPEARED}


class Runs(Model):
    """What `runs --json` writes."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    runs: tuple[Run, ...]


def run_lines(runs: Sequence[Run], running: Container[str]) -> Iterator[str]:
    """Yield a line per run: id and name, when, how long, how much of it is there, its outcomes, the command.

    `running` has the ids of those in progress.
    """
    if not runs:
        yield "no runs are stored; `whichtorch matrix` makes one"
        return
    headers = ["run", "name", "started (UTC)", "took", "cells", "outcomes", "command"]
    rows = (_run_row(run, "running" if run.id in running else "did not end") for run in runs)
    yield from tabulate(rows, headers=headers, disable_numparse=True).splitlines()


def _run_row(run: Run, without_end: str) -> list[str]:
    done = sum(run.outcomes.values())
    cells = f"{done} of {run.planned}" if done < run.planned else str(done)
    counts = sorted(run.outcomes.items(), key=lambda pair: -pair[1])
    outcomes = ", ".join(f"{count} {outcome.word}" for outcome, count in counts)
    outcomes += f"; {run.unexpected} unexpected" if run.unexpected else ""
    command = cut(shlex.join(run.command), COMMAND_SHOWN)
    cells = cells if run.ended else without_end
    return [run.id, run.name, _minute(run), f"{run.seconds:.0f} s", cells, outcomes, command]


def _minute(run: Run) -> str:
    return run.started[:16].replace("T", " ")


def prune_lines(pruned: Pruned) -> Iterator[str]:
    """Yield which runs are gone, and what was kept of them."""
    yield from (f"removed {run.id}" for run in pruned.runs)
    kept = f"; {counted(pruned.kept_attempts, 'attempt')} of theirs stay, because later runs rest on them"
    freed = f"{counted(len(pruned.runs), 'run')} removed, {pruned.freed / 1e6:.1f} MB freed"
    yield freed + (kept if pruned.kept_attempts else "")


def merge_lines(merged: Merged, run: Run) -> Iterator[str]:
    """Yield the runs that were merged, what came of it, and each cell about which they disagree."""
    twice = f", {merged.twice} of which were there twice" if merged.twice else ""
    for part in merged.parts:
        state = "" if part.ended and not part.interrupted else "; it did not come to its end"
        yield f"{part.id}: {counted(sum(part.outcomes.values()), 'cell')}, started {part.started}{state}"
    yield (
        f"merged into {run.id}: {counted(merged.environments, 'environment')}, {counted(len(merged.cells), 'cell')}, "
        f"{counted(merged.records, 'record')}{twice}"
    )
    yield from (f"conflict  {cell.name}: {cell.conflict}" for cell in merged.conflicts)


def history_lines(told: Histories) -> Iterator[str]:
    """Yield for each cell a line per night and environment: when, where, what, and what changed since the last.

    Below are the numbers of all nights with the changes of their level, and how often it fails if it comes and goes.
    """
    for name, nights in told.histories.items():
        yield name
        body = tabulate(list(_night_rows(nights)), tablefmt="plain", disable_numparse=True)
        yield from (f"  {line}".rstrip() for line in body.splitlines())
        for flake in (each for each in told.flakes if each.test == name):
            rate, low, high = (100 * share for share in (flake.failures / flake.attempts, flake.low, flake.high))
            yield (
                f"  comes and goes in {flake.environment}: fails in {flake.failures} of {flake.attempts} runs, "
                f"{rate:.0f} % [{low:.0f}, {high:.0f}]"
            )
        for streak in (each for each in told.hosts if each.test == name):
            yield (
                f"  only on {streak.host}: the last {counted(streak.failures, 'run')} there fail in "
                f"{streak.environment}; since {streak.since[:10]}, {counted(streak.passes, 'run')} elsewhere passed"
            )
        for numbers in (each for each in told.numbers if each.test == name):
            yield from number_night_lines(numbers)
        yield ""


def _night_rows(nights: Sequence[NightCell]) -> Iterator[list[str]]:
    last: dict[str, Cell] = {}
    for night in nights:
        name, cell = stream(night.environment), night.cell
        change = classify(last[name], cell)[0] if name in last else ChangeKind.APPEARED
        last[name] = cell
        yield [
            _minute(night.run),
            night.run.name or night.run.id,
            night.environment.label,
            cell_word(cell),
            f"{cell.seconds:.1f} s",
            "" if change in _NO_NEWS else str(change),
            _known_since(night),
            cell.what or cell.reason or ", ".join(map(number_words, cell.numbers)),
        ]


def _known_since(night: NightCell) -> str:
    """Return since when a cell was known, where this run did not run it again."""
    started = max((attempt.started for attempt in night.cell.attempts), default="")
    is_old = bool(started) and not night.run.parts and started < night.run.started  # a merged run is younger
    return f"known since {started[:10]}" if is_old else ""


def comparison_lines(comparison: Comparison, old: StoredRun, new: StoredRun, called: CommandPrefix) -> Iterator[str]:
    """Yield which runs were compared, what changed in their environments, the counts, and each cell that changed."""
    for word, run in (("from", comparison.old), ("  to", comparison.new)):
        name = f" {run.name}" if run.name else ""
        yield f"{word} {run.id}{name}, started {run.started}"
    for id_ in comparison.incomplete:
        yield f"note: {id_} did not come to its end: cells that it lacks are no evidence"
    if comparison.environments:
        yield from ("", *map("".join, environment_items(comparison)))
    yield from ("", *count_lines(comparison))
    sides = _by_label_and_name(old.result), _by_label_and_name(new.result)
    if changed := list(change_items(comparison, partial(_commands, comparison, *sides, new, called))):
        yield from ("", *map("".join, changed))


def environment_items(comparison: Comparison) -> Iterator[Line]:
    """Yield what changed in environments, those that changed alike in one line."""
    alike = grouped(comparison.environments, lambda each: (_changes_words(each), each.commits))
    for (words, link), group in alike.items():
        commits = ("; commits ", Link(link)) if link else ()
        yield f"{short_list([*map(_labels, group)], ENVIRONMENTS_NAMED)}: {words}", *commits


def count_lines(comparison: Comparison) -> Iterator[str]:
    """Yield how many cells changed in which way."""
    for kind in ChangeKind:
        if cells := comparison.of(kind):
            hanging = sum(cell.new is not None and cell.new.outcome == "hang" for cell in cells)
            hangs = f", {hanging} HANG" if hanging else ""
            yield f"{len(cells):5d}  {kind:<17}  {MEANING[kind]}{hangs}"


def _labels(change: EnvironmentChange) -> str:
    """Return what an environment is called, in both runs where that differs."""
    return change.old if change.old == change.new else f"{change.old} -> {change.new}"


def _changes_words(change: EnvironmentChange) -> str:
    """Return which packages and facts of an environment changed."""
    # a fact may be a long list: then only its name is shown; both values are in the JSON
    both = change.packages | {name: pair for name, pair in change.facts.items() if len(str(pair)) <= FACT_SHOWN}
    changes = [f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in both.items()]
    changes += [name for name in change.facts if name not in both]
    return short_list(changes, PACKAGES_NAMED) or "another build of the same packages"


def shown_side(change: CellChange) -> RunSide:
    """Return the cell as the new run left it, else as the old one did."""
    side = change.new or change.old
    assert side is not None
    return side


def change_items(
    comparison: Comparison, commands: Callable[[CellChange], Iterable[str]] = lambda _change: ()
) -> Iterator[Line]:
    """Yield each cell that changed, the worst first, with what changed besides and what `commands` has for it.

    Cells that changed for one cause are one item, with the first of them as the example.
    """
    shown = [change for kind in CHANGED for change in comparison.of(kind)]
    shown += [
        change
        for change in comparison.of(ChangeKind.INCONCLUSIVE)
        if change.why or (change.old and change.new and change.old.outcome is not change.new.outcome)
    ]
    for (kind, was, now, environment, cause, remarks), (change, *others) in grouped(shown, _cause).items():
        what = f": {cause}" if cause and kind is not ChangeKind.FIXED else ""
        yield Strong(kind), f"  {was} -> {now}  ", Code(change.name), "  ", Code(environment), what
        yield from (f"    {remark}" for remark in (*remarks, *commands(change)))
        if others:
            yield f"    and {len(others)} more like it: {short_list([each.name for each in others], CELLS_NAMED)}"
    for kind in (ChangeKind.APPEARED, ChangeKind.DISAPPEARED):
        yield from _names(kind, comparison.of(kind))


def _cause(change: CellChange) -> tuple[ChangeKind, str, str, str, str, tuple[str, ...]]:
    """Return what cells that changed for one cause share: how, where, the failure, and what changed besides."""
    side = shown_side(change)
    failed = change.old if change.change is ChangeKind.FIXED and change.old else side
    words = _word(change.old), _word(change.new), side.environment, failed.what
    return change.change, *words, tuple(remarks_of(change))


def _commands(
    comparison: Comparison, before: _Cells, after: _Cells, new: StoredRun, called: CommandPrefix, change: CellChange
) -> Iterator[str]:
    """Yield the log of a cell that got worse, and the commands that go on from it."""
    now = after.get((change.new.environment, change.name)) if change.new else None
    if not now or change.change in {*_GOOD, ChangeKind.WORSE_NUMBER}:  # a plain run does not measure
        return
    cell, environment = now
    if log := log_of(new, cell):
        yield f"log: {shown_path(log)}"
    if cell.attempts or environment.is_usable:
        yield f"rerun: {rerun_command(cell, environment, called('matrix'))}"
    earlier = before.get((change.old.environment, change.name)) if change.old else None
    if change.change is ChangeKind.REGRESSION and earlier:
        days = comparison.old.started[:10], comparison.new.started[:10]
        search = bisect_between_command(cell.runnable, earlier[1], environment, days, called("bisect"))
        yield from [f"bisect: {search}"] if search else []


def remarks_of(change: CellChange) -> list[str]:
    """Return what changed besides, the test itself first, and what makes a change doubtful."""
    return [*causes_of(change), *filter(None, [change.why, *map(number_change_words, change.numbers)])]


def causes_of(change: CellChange) -> list[str]:
    """Return what changed beside a cell, each kind apart."""
    return [
        f"the {kind}{' itself' * (kind == 'test')} changed: {short_list([*map(cut, files)], PACKAGES_NAMED)}"
        for kind, files in change.changed.items()
    ]


def _word(side: RunSide | None) -> str:
    """Return a cell of one run in one word, as the table of a matrix writes it."""
    return cell_word(side) if side else "none"


def _names(kind: ChangeKind, changes: Sequence[CellChange]) -> Iterator[str]:
    """Yield the cells that came or went, those of one environment together."""
    for environment, own in grouped(changes, lambda change: shown_side(change).environment).items():
        names = [f"{change.name} ({_word(shown_side(change))})" for change in own]
        yield f"{kind}  {environment}: {short_list(names, CELLS_NAMED)}"


def _by_label_and_name(result: Result) -> _Cells:
    """Return the cells of a run by what a comparison calls them."""
    environments = {environment.id: environment for environment in result.environments}
    pairs = ((cell, environments[cell.environment]) for cell in result.cells)
    return {(environment.label, cell.name): (cell, environment) for cell, environment in pairs}
