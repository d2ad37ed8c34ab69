"""Scenario x environment, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from whichtorch.base.errors import GOES_ON
from whichtorch.base.grouping import counted, grouped
from whichtorch.failures.failure import different
from whichtorch.matrix.judgement import judge_cell
from whichtorch.matrix.lab import with_answers
from whichtorch.model import NO_PATCH, Cell, Doubt, Environment, Outcome, Result
from whichtorch.records.store import MOST_SHOWN
from whichtorch.reports import cell_text
from whichtorch.reports.cell_text import next_lines
from whichtorch.reports.document import Code, Paragraph, Strong, Table, one_line, screen, short_list, shown_path
from whichtorch.source.code_owner import normalized

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.planning import Plan
    from whichtorch.records.compare.comparison import RunSide
    from whichtorch.records.line_index import Records
    from whichtorch.records.store import StoredRun
    from whichtorch.reports.cell_text import CommandPrefix
    from whichtorch.reports.document import Block, Line

_AXES = {"torch": "torch", "build": "build", "python": "Python", "config": "config"}
_RARE_AXES = {"added": "with", "patch": "patch", "hardware": "hardware"}  # only where there is one
OmittedCells = Mapping[tuple[Outcome, bool], int]  # cells that a result lacks, by outcome and whether it is expected
_NONE: OmittedCells = MappingProxyType({})
KNOWN_SHOWN = 3  # expected cells that have a line each: a suite of known bugs would bury the rest
ENVIRONMENTS_NAMED = 12  # in which a test goes wrong alike; more are counted


def cell_word(cell: Cell | RunSide, *, is_different: bool = False) -> str:
    """Return a cell in one word: capitals where red, `~` for another failure, `!` where nobody expects it."""
    is_mixed = cell.outcome is Outcome.SLOW and cell.flaky is not None
    word = cell.outcome.value.upper() if is_mixed else cell.outcome.word
    word += "~" if is_different else ""
    word += "" if cell.expected or cell.outcome.is_prevented else "!"
    return f"{word} {cell.flaky.replace(' of ', '/')}" if cell.flaky else word


def matrix_lines(result: Result, width: int, *, show_all: bool = False) -> Iterator[str]:
    """Yield the table; environments that do not fit in `width` columns continue in a table below.

    Tests of a command that end the same way everywhere, as expected, have no row unless `show_all`: they are counted.
    """
    alike = {} if show_all else _alike_everywhere(result, outcome_words(result))
    yield from screen(matrix_blocks(result, alike), width)
    if alike:
        kinds = ", ".join(f"{count} {word}" for word, count in Counter(alike.values()).most_common())
        where = "in every environment" if len(result.environments) > 1 else "here"
        yield f"{counted(len(alike), 'more test')} as expected {where} ({kinds}); -v shows each"
        yield ""


def matrix_blocks(result: Result, left_out: Container[str], rank: int = 0) -> Iterator[Block]:
    """Yield the table of a run without some of its rows; what all environments share comes first."""
    codes = {name: words for name, words in outcome_words(result).items() if name not in left_out}
    causes: dict[str, list[str | None]] = {}
    for cell in result.cells:
        causes.setdefault(cell.name, []).append(cell.signature if cell.command and cell.is_red else None)
    alike = grouped(codes, lambda name: (*codes[name], *causes[name]) if any(causes[name]) else name)
    shared, heads = column_heads(result.environments)
    if shared:
        yield Paragraph(f"Everywhere: {shared}")
    yield Table(["scenario", *heads], [[_name_of(names), *codes[names[0]]] for names in alike.values()], rank=rank)


def _name_of(names: Sequence[str]) -> Code | str:
    """Return what tests that fail alike are called in the table."""
    return Code(names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more")


def _alike_everywhere(result: Result, codes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return by name the word of each test of a command that is as expected, and the same in every environment."""
    shown = {cell.name for cell in result.cells if not (cell.command and cell.expected) or cell.is_doubted}
    return {name: words[0] for name, words in codes.items() if name not in shown and len({*words}) == 1}


def outcome_words(result: Result) -> dict[str, list[str]]:
    """Return by name each row of the table, a word for each environment of the run."""
    cells = {(cell.name, cell.environment): cell for cell in result.cells}
    others = different(result.cells)
    return {
        name: [_code(cells.get((name, environment.id)), others) for environment in result.environments]
        for name in dict.fromkeys(cell.name for cell in result.cells)
    }


def _code(cell: Cell | None, others: frozenset[tuple[str, str]], none: str = "-") -> str:
    """Return a cell in one word, marked where it is among the `others`, which fail otherwise than most of their row."""
    return cell_word(cell, is_different=(cell.name, cell.environment) in others) if cell else none


def distinguishing_axes(environments: Iterable[Environment]) -> dict[str, str]:
    """Return the fields that tell environments apart, and their titles; patch and hardware only where there is one.

    Of one release of torch there may be several builds, each in a venv of the user's: their labels tell them apart.
    """
    environments = tuple(environments)
    given = {axis for axis in _RARE_AXES for each in environments if getattr(each, axis) not in {"", NO_PATCH}}
    axes = _AXES | {axis: title for axis, title in _RARE_AXES.items() if axis in given}
    seen = {tuple(getattr(environment, axis) for axis in axes) for environment in environments}
    return axes if len(seen) == len(environments) else axes | {"label": "environment"}


def column_heads(environments: Sequence[Environment]) -> tuple[str, list[str]]:
    """Return what all environments share, and the column heads: the axes in which they differ."""
    axes = distinguishing_axes(environments)
    varying = [axis for axis in axes if len({getattr(environment, axis) for environment in environments}) > 1]
    varying = varying or ["torch"]
    first = environments[:1]
    shared = [f"{title} {getattr(first[0], axis)}" for axis, title in axes.items() if first and axis not in varying]
    heads = ["\n".join(getattr(environment, axis) for axis in varying) for environment in environments]
    return ", ".join(shared), heads


def legend_lines(result: Result, left_out: OmittedCells = _NONE) -> Iterator[str]:
    """Yield the outcomes that occur, how often, and what they mean."""
    ended = _ended(result, left_out)
    for outcome in Outcome:
        if count := ended[outcome, True] + ended[outcome, False]:
            yield f"{count:5d}  {outcome.word:<11}  {outcome.row.meaning}"
    if others := different(result.cells):
        yield f"{len(others):5d}  ~            another failure than the most common one of its row"
    if any(not expected and not outcome.is_prevented for outcome, expected in ended):
        unexpected = sum(count for (_, expected), count in ended.items() if not expected)
        yield f"{unexpected:5d}  !            unexpected"
    if total := sum(left_out.values()):
        yield f"{total} cells have no row: their tests pass everywhere as expected, or {MOST_SHOWN} cells have one"


def red_lines(stored: StoredRun, command: str) -> Iterator[str]:
    """Yield for each red, prevented or doubted cell what happened, its log and stacks, and the command that reruns it.

    Unexpected cells come first. More than KNOWN_SHOWN expected ones are one line that counts them. An environment that
    cannot be used has one line, however many cells it has. `command` is how the user calls `matrix`.
    """
    unexpected, known = wrong_cells(stored.result)
    yield from map("".join, cell_items(unexpected, stored, command))
    yield from map("".join, unusable_items(stored.result))
    if len(known) > KNOWN_SHOWN:
        yield f"{_kinds(known)} are as expected; `report` shows each"
    else:
        yield from map("".join, cell_items(known, stored, command))


def wrong_cells(result: Result) -> tuple[list[Cell], list[Cell]]:
    """Return unexpected cells, hangs and the worst first, and expected ones that are red, prevented or doubted."""
    usable = {environment.id for environment in result.environments if environment.is_usable}
    cells = [cell for cell in result.cells if cell.environment in usable]
    unexpected = (cell for cell in cells if not cell.expected)
    known = [cell for cell in cells if cell.expected and (cell.is_red or cell.outcome.is_prevented or cell.doubt)]
    return sorted(unexpected, key=lambda cell: (cell.outcome is not Outcome.HANG, -cell.outcome.row.severity)), known


def unusable_items(result: Result) -> Iterator[Line]:
    """Yield why environments that have cells cannot be used."""
    wanted = {cell.environment for cell in result.cells}
    for environment in result.environments:
        if environment.id in wanted and not environment.is_usable:
            reason = one_line(environment.reason or "-")
            log = ("; log ", Code(shown_path(environment.log))) if environment.log else ()
            yield Strong(environment.outcome), "  ", Code(environment.label), f": {reason}", *log


def cell_items(cells: Iterable[Cell], stored: StoredRun, command: str = "") -> Iterator[Line]:
    """Yield what happened to tests, those that went wrong alike in several environments together.

    With a command, which is how the user calls `matrix`, each has its files and is told how to run it again. Without
    one, it has the reason why it is expected.
    """
    others = different(stored.result.cells)
    environments = {environment.id: environment for environment in stored.result.environments}
    spread: dict[tuple[str, str | None], list[str]] = {}  # where each test fails so
    for cell in (cells := list(cells)):
        spread.setdefault((cell.name, cell.signature), []).append(cell.environment)

    def what_happened(cell: Cell) -> tuple[object, ...]:
        chain = cell.chain.words if cell.chain else ""
        remarks = (_code(cell, others), str(cell.expected), cell_text.conditions_of(cell), chain)
        cause = normalized(cell.signature or cell_text.summary(cell)), normalized(cell.message)
        if cell.command and cell.signature:  # tests that fail alike wherever any of them does
            return *remarks, cell.signature, *spread[cell.name, cell.signature]
        return *remarks, cell.name, *cause

    for alike in grouped(cells, what_happened).values():
        cell, places = alike[0], dict.fromkeys(each.environment for each in alike)
        where, more = [environments[place] for place in places], len({each.name for each in alike}) - 1
        remarks = f" ({'expected' if command else cell.known or 'expected'})" if cell.expected else ""
        remarks += " (different)" if (cell.name, cell.environment) in others else ""
        what = "; ".join(filter(None, (one_line(cell_text.summary(cell)), cell_text.conditions_of(cell))))
        labels = Code(short_list([environment.label for environment in where], ENVIRONMENTS_NAMED))
        name = (Code(cell.name), f" and {counted(more, 'more test')}" if more else "")
        item = Strong(_code(cell, others)), f"{remarks}  ", *name, "  ", labels, f": {what}"
        yield item + (_files(cell, where, stored, command) if command else ())


def _files(cell: Cell, environments: Sequence[Environment], stored: StoredRun, command: str) -> tuple[str, ...]:
    """Return the files of a cell, and the command that runs it again in several environments."""
    log, stacks = cell_text.log_of(stored, cell), cell_text.stacks_of(stored, cell)
    read = ("; stacks ", Code(shown_path(stacks))) if stacks else ()
    return (
        "; log ",
        Code(shown_path(log)) if log else "none",
        *read,
        "; rerun: ",
        Code(cell_text.run_command(cell, environments, command, "--fresh")),
    )


def _ended(result: Result, left_out: OmittedCells) -> Counter[tuple[Outcome, bool]]:
    """Return how many cells have each outcome, expected or not."""
    return Counter((cell.outcome, cell.expected) for cell in result.cells) + Counter(left_out)


def _kinds(cells: Sequence[Cell]) -> str:
    """Return how many of expected cells are failures, doubted passes and prevented: "4 known failures"."""
    doubted = sum(cell.doubt is not None for cell in cells)
    red = sum(cell.is_red for cell in cells)
    counts = {"known failure": red, "doubted pass": doubted, "prevented cell": len(cells) - red - doubted}
    return ", ".join(counted(count, noun) for noun, count in counts.items() if count)


def summary_lines(result: Result, command: CommandPrefix, left_out: OmittedCells = _NONE) -> Iterator[str]:
    """Yield what came of a run in one line, and what to do next."""
    yield run_sentence(result, left_out)
    missing = result.run.planned > _ended(result, left_out).total()
    steps = [GOES_ON] if missing or result.run.interrupted else next_lines(result, command)
    yield from (f"next: {step}" for step in steps)


def run_sentence(result: Result, left_out: OmittedCells = _NONE) -> str:
    """Return what came of a run."""
    ended = _ended(result, left_out)
    red = Counter({outcome: count for (outcome, expected), count in ended.items() if not expected})
    unexpected = sum(count for outcome, count in red.items() if not outcome.is_prevented)
    hangs = red[Outcome.HANG]
    prevented = sum(count for (outcome, _), count in ended.items() if outcome.is_prevented)
    doubted = sum(cell.expected and cell.is_doubted for cell in result.cells)
    missing = max(0, result.run.planned - ended.total())
    parts = [("interrupted after " if result.run.interrupted else "") + counted(ended.total(), "cell")]
    parts += [f"{unexpected} not as expected"] if unexpected else []
    parts += [f"{prevented} kept from running"] if prevented else []
    if ended and not unexpected and ended.total() > prevented:
        parts += ["all as expected" if len(parts) == 1 else "the others as expected"]
    parts += [f"{missing} of {result.run.planned} not run"] if missing else []
    is_clean = not (unexpected or prevented or missing or result.run.interrupted)
    hanging = "no unexpected hangs" if is_clean else counted(hangs, "unexpected hang") if hangs else ""
    doubts = counted(doubted, "doubted pass") if doubted else ""
    unused = sum(cell.doubt is Doubt.UNUSED for cell in result.cells)
    without = f"{unused} never imported torch" if unused else ""
    return "; ".join(filter(None, (", ".join(parts), hanging, doubts, without)))


def incomplete(result: Result) -> str:
    """Return why cells are missing, if they are."""
    run, missing = result.run, result.run.planned - len(result.cells)
    if result.is_complete:
        return ""
    why = "it was interrupted" if run.interrupted else "" if run.ended else "it has not come to its end"
    how_many = f"{missing} of {run.planned} planned cells are missing" if missing > 0 else "cells may be missing"
    return ": ".join(filter(None, (why, how_many)))


def plan_lines(planned: Plan, environments: Environments, records: Records) -> Iterator[str]:
    """Yield what would run and what is known: the table with known outcomes, `run` for the rest."""
    rows: dict[str, dict[str, Cell | None]] = {}
    runs: Counter[str] = Counter()
    for _, cell, environment, answer in with_answers(planned, environments, records):
        judged = judge_cell(cell, environment, answer.records) if environment and answer else None
        rows.setdefault(cell.name, {})[cell.request.label] = judged
        runs[cell.request.label] += judged is None
    others = different(cell for row in rows.values() for cell in row.values() if cell)
    labels = list(dict.fromkeys(request.label for request in planned.requests))
    body = [
        [name, *(_code(row.get(label), others, "run" if label in row else "-") for label in labels)]
        for name, row in rows.items()
    ]
    yield from screen([Table(["scenario", *(label.replace("-", "\n", 1) for label in labels)], body)])
    for request in {request.label: request for request in planned.requests}.values():
        installed = request.problem or ("installed" if environments.is_installed(request) else "to be installed")
        cells = counted(sum(request.label in row for row in rows.values()), "cell")
        yield f"{request.label}: {installed}; {runs[request.label]} of {cells} to run"
