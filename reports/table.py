"""Scenario x environment, as lines of text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from matrix.diagnosis.sameness import different
from matrix.model import Outcome
from matrix.plan.judging import judged_cell
from matrix.run.forecast import with_answers
from reports import cell_text
from reports.rerun_commands import rerun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.environments.cache import EnvironmentCache
    from matrix.model import Cell, Environment, Result
    from matrix.plan.planning import PlannedCell
    from matrix.records.store import Records
    from matrix.records.stored_runs import StoredRun

LEGEND = {
    Outcome.PASS: "ended well",
    Outcome.VACUOUS: "ended well, but without what it declares",
    Outcome.FAIL: "exception or exit code",
    Outcome.HANG: "stuck",
    Outcome.SLOW: "still moving when its time was over",
    Outcome.CRASH: "ended by a signal",
    Outcome.OOM: "out of memory or processes",
    Outcome.SKIP: "does not apply here",
    Outcome.UNBUILDABLE: "the environment could not be installed",
    Outcome.BROKEN: "installed, but cannot run torch",
    Outcome.ERROR: "the harness or the machine, not torch",
}
_NO_CELL = "-"
KNOWN_TOLD = 12  # lines about what was expected: a suite of known bugs would bury the rest


def code(cell: Cell, *, is_different: bool = False) -> str:
    """Return a cell in one word: capitals where red, `~` for another failure, `!` where nobody expects it."""
    word = cell.outcome.word
    word += "~" if is_different else ""
    word += "" if cell.expected or cell.outcome.is_prevented else "!"
    return f"{word} {cell.flaky.replace(' of ', '/')}" if cell.flaky else word


def matrix_lines(result: Result, width: int, tablefmt: str = "simple") -> Iterator[str]:
    """Yield the table; more environments than fit in `width` columns continue in a table below."""
    found = {(cell.name, cell.environment): cell for cell in result.cells}
    names = list(dict.fromkeys(cell.name for cell in result.cells))
    others = different(result.cells)
    shared, heads = heads_of(result.environments)
    if shared:
        yield f"Everywhere: {shared}"
        yield ""
    columns = {
        environment.id: [
            code(cell, is_different=(name, environment.id) in others)
            if (cell := found.get((name, environment.id)))
            else _NO_CELL
            for name in names
        ]
        for environment in result.environments
    }
    room = width - max((len(name) for name in names), default=0)
    for block in _blocks(result.environments, heads, columns, room):
        rows = [[name, *(columns[environment.id][row] for environment in block)] for row, name in enumerate(names)]
        headers = ["scenario", *(heads[environment.id] for environment in block)]
        yield from tabulate(rows, headers=headers, tablefmt=tablefmt, disable_numparse=True).splitlines()
        yield ""


def heads_of(environments: Sequence[Environment]) -> tuple[str, dict[str, str]]:
    """Return what all environments share, and for each a head of what tells it apart."""
    facts = {
        environment.id: {
            "torch": f"torch {environment.torch}",
            "build": f"build {environment.build}",
            "python": f"Python {environment.python}",
            "config": f"config {environment.config}",
        }
        for environment in environments
    }
    varying = [
        kind for kind in ("torch", "build", "python", "config") if len({fact[kind] for fact in facts.values()}) > 1
    ]
    varying = varying or ["torch"]
    one = next(iter(facts.values()), {})
    shared = ", ".join(one[kind] for kind in ("torch", "build", "python", "config") if one and kind not in varying)
    return shared, {id_: "\n".join(fact[kind].split(" ", 1)[1] for kind in varying) for id_, fact in facts.items()}


def _blocks(
    environments: Sequence[Environment], heads: dict[str, str], columns: dict[str, list[str]], room: int
) -> Iterator[list[Environment]]:
    block: list[Environment] = []
    used = 0
    for environment in environments:
        texts = [*heads[environment.id].split("\n"), *columns[environment.id]]
        needed = max(map(len, texts)) + 4  # the gap between columns, and what tabulate adds to heads
        if block and used + needed > room:
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
            yield f"{counts[outcome]:5d}  {outcome.word:<11}  {LEGEND[outcome]}"
    if others := different(result.cells):
        yield f"{len(others):5d}  ~            another failure than the most common one of its row"
    unexpected = sum(not cell.expected for cell in result.cells)
    if any(not cell.expected and not cell.outcome.is_prevented for cell in result.cells):
        yield f"{unexpected:5d}  !            not what the scenario's header expects"


def red_lines(stored: StoredRun, command: str) -> Iterator[str]:
    """Yield for each red, prevented or doubted cell what happened, its log and stacks, and the command that reruns it.

    What nobody expected comes first; of what was expected only the first KNOWN_TOLD are told, the rest counted. A whole
    environment that cannot be had is told once.
    """
    result = stored.result
    environments = {environment.id: environment for environment in result.environments}
    told: set[str] = set()
    others = different(result.cells)
    known_told = 0
    for cell in sorted(result.cells, key=lambda cell: cell.expected):
        environment = environments[cell.environment]
        if not environment.is_usable:
            if environment.id not in told:
                told.add(environment.id)
                story = f"; log {short(environment.log)}" if environment.log else ""
                yield f"{environment.outcome}  {environment.label}: {environment.reason}{story}"
        elif cell.outcome.is_red or cell.outcome.is_prevented or cell.is_doubted or not cell.expected:
            known_told += cell.expected
            if known_told > KNOWN_TOLD:
                continue
            is_different = (cell.name, cell.environment) in others
            known = " (expected)" if cell.expected else ""
            known += " (different)" if is_different else ""
            seen = cell_text.conditions_of(cell)
            what = f"{cell_text.what(cell)}; {seen}" if seen else cell_text.what(cell)
            log, stacks = cell_text.log_of(stored, cell), cell_text.stacks_of(stored, cell)
            files = f"log {short(log) if log else 'none'}" + (f"; stacks {short(stacks)}" if stacks else "")
            place = f"{cell.name}  {environment.label}"
            again = rerun(cell, environment, command)
            yield f"{code(cell, is_different=is_different)}{known}  {place}: {what}; {files}; rerun: {again}"
    if known_told > KNOWN_TOLD:
        yield f"and {known_told - KNOWN_TOLD} more, all expected: `report` tells of each"


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

    def word(name: str, label: str) -> str:
        cell = rows[name].get(label)
        if cell is None:
            return "run" if label in rows[name] else _NO_CELL
        return code(cell, is_different=(name, cell.environment) in others)

    body = [[name, *(word(name, label) for label in labels)] for name in rows]
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
