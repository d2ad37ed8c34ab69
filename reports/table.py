"""Scenario x environment, as lines of text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from matrix.diagnosis.sameness import different
from matrix.model import Outcome
from matrix.plan.judging import judged_cell
from matrix.run.pipeline import with_answers
from reports import cell_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.environments.cache import EnvironmentCache
    from matrix.model import Cell, Environment, Result
    from matrix.plan.planning import PlannedCell
    from matrix.records.store import Records
    from matrix.records.stored_runs import StoredRun
    from reports.cell_text import Called

AXES = {"torch": "torch", "build": "build", "python": "Python", "config": "config"}  # fields, and what they are called
KNOWN_SHOWN = 3  # expected cells that have a line each: a suite of known bugs would bury the rest
_NO_CELL = "-"


def code(cell: Cell, *, is_different: bool = False) -> str:
    """Return a cell in one word: capitals where red, `~` for another failure, `!` where nobody expects it."""
    word = cell.outcome.word
    word += "~" if is_different else ""
    word += "" if cell.expected or cell.outcome.is_prevented else "!"
    return f"{word} {cell.flaky.replace(' of ', '/')}" if cell.flaky else word


def matrix_lines(result: Result, width: int) -> Iterator[str]:
    """Yield the table; environments that do not fit in `width` columns continue in a table below."""
    cells = {(cell.name, cell.environment): cell for cell in result.cells}
    names = list(dict.fromkeys(cell.name for cell in result.cells))
    others = different(result.cells)
    shared, heads = heads_of(result.environments)
    if shared:
        yield f"Everywhere: {shared}"
        yield ""
    columns = {
        environment.id: [_code(cells.get((name, environment.id)), others) for name in names]
        for environment in result.environments
    }
    left = width - max((len(name) for name in names), default=0)
    for block in _blocks(result.environments, heads, columns, left):
        rows = [[name, *(columns[environment.id][row] for environment in block)] for row, name in enumerate(names)]
        headers = ["scenario", *(heads[environment.id] for environment in block)]
        yield from tabulate(rows, headers=headers, disable_numparse=True).splitlines()
        yield ""


def _code(cell: Cell | None, others: frozenset[tuple[str, str]]) -> str:
    return code(cell, is_different=(cell.name, cell.environment) in others) if cell else _NO_CELL


def heads_of(environments: Sequence[Environment]) -> tuple[str, dict[str, str]]:
    """Return what all environments share, and by id the column heads: the axes in which they differ."""
    varying = [axis for axis in AXES if len({getattr(environment, axis) for environment in environments}) > 1]
    varying = varying or ["torch"]
    first = environments[:1]
    shared = [f"{title} {getattr(first[0], axis)}" for axis, title in AXES.items() if first and axis not in varying]
    heads = {environment.id: "\n".join(getattr(environment, axis) for axis in varying) for environment in environments}
    return ", ".join(shared), heads


def _blocks(
    environments: Sequence[Environment], heads: dict[str, str], columns: dict[str, list[str]], width: int
) -> Iterator[list[Environment]]:
    block: list[Environment] = []
    used = 0
    for environment in environments:
        texts = [*heads[environment.id].split("\n"), *columns[environment.id]]
        needed = max(map(len, texts)) + 4  # the gap between columns, and what tabulate adds to heads
        if block and used + needed > width:
            yield block
            block, used = [], 0
        block.append(environment)
        used += needed
    if block:
        yield block


def legend_lines(result: Result) -> Iterator[str]:
    """Yield the outcomes that occur, how often, and what they mean."""
    counts = Counter(cell.outcome for cell in result.cells)
    for outcome in Outcome:
        if counts[outcome]:
            yield f"{counts[outcome]:5d}  {outcome.word:<11}  {outcome.row.meaning}"
    if others := different(result.cells):
        yield f"{len(others):5d}  ~            another failure than the most common one of its row"
    unexpected = sum(not cell.expected for cell in result.cells)
    if any(not cell.expected and not cell.outcome.is_prevented for cell in result.cells):
        yield f"{unexpected:5d}  !            not what the scenario's header expects"


def red_lines(stored: StoredRun, command: str) -> Iterator[str]:
    """Yield for each red, prevented or doubted cell what happened, its log and stacks, and the command that reruns it.

    Unexpected cells come first. More than KNOWN_SHOWN expected ones are one line that counts them. An environment that
    cannot be used has one line, however many cells it has. `command` is how the user calls `matrix`.
    """
    result = stored.result
    environments = {environment.id: environment for environment in result.environments}
    others = different(result.cells)
    cells = [cell for cell in result.cells if environments[cell.environment].is_usable]
    known = [cell for cell in cells if cell.expected and _is_remarkable(cell)]
    unexpected = [cell for cell in cells if not cell.expected]
    yield from (_red_line(cell, environments[cell.environment], stored, others, command) for cell in unexpected)
    for environment in environments.values():
        if not environment.is_usable and any(cell.environment == environment.id for cell in result.cells):
            log = f"; log {short(environment.log)}" if environment.log else ""
            yield f"{environment.outcome}  {environment.label}: {environment.reason}{log}"
    if len(known) > KNOWN_SHOWN:
        yield f"{_kinds(known)} are as expected; `report` shows each"
    else:
        yield from (_red_line(cell, environments[cell.environment], stored, others, command) for cell in known)


def _is_remarkable(cell: Cell) -> bool:
    return cell.outcome.is_red or cell.outcome.is_prevented or cell.is_doubted


def _red_line(
    cell: Cell, environment: Environment, stored: StoredRun, others: frozenset[tuple[str, str]], command: str
) -> str:
    remarks = " (expected)" if cell.expected else ""
    remarks += " (different)" if (cell.name, cell.environment) in others else ""
    what = "; ".join(filter(None, (cell_text.what(cell), cell_text.conditions_of(cell))))
    log, stacks = cell_text.log_of(stored, cell), cell_text.stacks_of(stored, cell)
    files = f"log {short(log) if log else 'none'}" + (f"; stacks {short(stacks)}" if stacks else "")
    again = cell_text.rerun(cell, environment, command)
    return f"{_code(cell, others)}{remarks}  {cell.name}  {environment.label}: {what}; {files}; rerun: {again}"


def _kinds(cells: Sequence[Cell]) -> str:
    """Return how many of expected cells are failures, doubted passes and prevented: "4 known failures"."""
    doubted = sum(cell.is_doubted for cell in cells)
    red = sum(cell.outcome.is_red for cell in cells)
    counts = {"known failure": red, "doubted pass": doubted, "prevented cell": len(cells) - red - doubted}
    return ", ".join(_count(count, noun) for noun, count in counts.items() if count)


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def summary_lines(result: Result, command: Called) -> Iterator[str]:
    """Yield what came of a run in one line, and the command to go on with in another.

    `command` says how the user calls a command.
    """
    unexpected = [cell for cell in result.cells if not cell.expected and not cell.outcome.is_prevented]
    hangs = sum(cell.outcome is Outcome.HANG for cell in unexpected)
    prevented = sum(cell.outcome.is_prevented for cell in result.cells)
    doubted = sum(cell.expected and cell.is_doubted for cell in result.cells)
    missing = max(0, result.run.planned - len(result.cells))
    parts = [_count(len(result.cells), "cell")]
    parts += [f"{len(unexpected)} not as expected"] if unexpected else []
    parts += [f"{prevented} kept from running"] if prevented else []
    parts += ["all as expected" if len(parts) == 1 else "the others as expected"] if not unexpected else []
    parts += [f"{missing} of {result.run.planned} not run"] if missing else []
    hanging = f"{_count(hangs, 'hang')} that should not" if hangs else "nothing hangs that should not"
    doubts = f"; {_count(doubted, 'doubted pass')}" if doubted else ""
    yield f"{', '.join(parts)}; {hanging}{doubts}"
    yield f"next: {_next_command(result, unexpected, command)}"


def _next_command(result: Result, unexpected: Sequence[Cell], command: Called) -> str:
    """Return the command that says most about a run, with a shell comment that says what for."""
    worst = max(unexpected, key=lambda cell: cell.outcome.row.severity, default=None)
    if worst is None:
        return f"{command('report').removesuffix(' --')}  # makes a page that shows each cell"
    environment = next(known for known in result.environments if known.id == worst.environment)
    search = cell_text.bisect(worst, environment, command("bisect")) if worst.outcome.is_red else ""
    if search:
        return f"{search}  # finds the release that changed it"
    return f"{cell_text.rerun(worst, environment, command('matrix'))}  # runs it again"


def plan_lines(planned: Sequence[PlannedCell], cache: EnvironmentCache, records: Records) -> Iterator[str]:
    """Yield what would run and what is known: the table with known outcomes, `run` for the rest."""
    rows: dict[str, dict[str, Cell | None]] = {}
    runs: Counter[str] = Counter()
    for cell, environment, answers in with_answers(planned, cache, records):
        judged = judged_cell(cell, environment, answers) if environment and answers else None
        rows.setdefault(cell.name, {})[cell.request.label] = judged
        runs[cell.request.label] += judged is None
    others = different(cell for row in rows.values() for cell in row.values() if cell)
    labels = list(dict.fromkeys(cell.request.label for cell in planned))
    body = [
        [name, *("run" if label in row and row[label] is None else _code(row.get(label), others) for label in labels)]
        for name, row in rows.items()
    ]
    heads = [label.replace("-", "\n", 1) for label in labels]
    yield from tabulate(body, headers=["scenario", *heads], disable_numparse=True).splitlines()
    yield ""
    for request in {cell.request.label: cell.request for cell in planned}.values():
        installed = request.problem or ("installed" if cache.is_installed(request) else "to be installed")
        yield f"{request.label}: {installed}; {runs[request.label]} of {len(rows)} cells to run"


def short(path: Path) -> str:
    """Return a path relative to the current folder where it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
