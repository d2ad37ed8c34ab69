"""Scenario x environment, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tabulate import tabulate

from whichtorch.matrix.diagnosis.code_owner import normalized
from whichtorch.matrix.diagnosis.failure import different
from whichtorch.matrix.errors import GOES_ON
from whichtorch.matrix.grouping import counted, grouped
from whichtorch.matrix.model import NO_PATCH, Cell, Doubt, Environment, Outcome, Result, name_of_test
from whichtorch.matrix.plan.judgement import judge
from whichtorch.matrix.records.store import MOST_SHOWN
from whichtorch.matrix.run.pipeline import with_answers
from whichtorch.matrix.suite.chain import WRITTEN_BY
from whichtorch.reports import cell_text
from whichtorch.reports.next_step import next_lines
from whichtorch.reports.shown_text import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.matrix.compare.comparison import RunSide
    from whichtorch.matrix.records.store import StoredRun
    from whichtorch.matrix.run.planned_matrix import PlannedMatrix
    from whichtorch.reports.cell_text import CommandPrefix

_AXES = {"torch": "torch", "build": "build", "python": "Python", "config": "config"}
OmittedCells = Mapping[tuple[Outcome, bool], int]  # cells that a result lacks, by outcome and whether it is expected
_NONE: OmittedCells = MappingProxyType({})
# of rows and columns, where caches are written elsewhere
WRITTEN_BY_HEAD, READ_BY_HEAD = "written by", "read by"
KNOWN_SHOWN = 3  # expected cells that have a line each: a suite of known bugs would bury the rest


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
    codes = outcome_words(result)
    alike = {} if show_all else _alike_everywhere(result, codes)
    codes = {name: words for name, words in codes.items() if name not in alike}
    shared, heads = column_heads(result.environments)
    if shared:
        yield f"Everywhere: {shared}"
        yield ""
    plain, pairs = without_pairs(codes, result)
    if plain or not pairs:
        yield from _table("scenario", heads, plain, width)
    for test, written in pairs.items():
        yield test
        rows = dict(written.values())
        yield from _table(WRITTEN_BY_HEAD, [f"{READ_BY_HEAD}\n{head}" for head in heads], rows, width)
    if alike:
        kinds = ", ".join(f"{count} {word}" for word, count in Counter(alike.values()).most_common())
        where = "in every environment" if len(heads) > 1 else "here"
        yield f"{counted(len(alike), 'more test')} as expected {where} ({kinds}); --all shows each"
        yield ""


def _table(first: str, heads: Sequence[str], codes: Mapping[str, Sequence[str]], width: int) -> Iterator[str]:
    """Yield a table with a blank line below it, in parts where it is wider than `width` columns."""
    left = width - max(map(len, codes), default=0)
    for block in _blocks(heads, codes, left):
        rows = [[name, *(words[index] for index in block)] for name, words in codes.items()]
        shown = [heads[index] for index in block]
        above = ""
        if first == WRITTEN_BY_HEAD:  # beside the last line of the others
            above = "\n" * max(head.count("\n") for head in shown)
        yield from tabulate(rows, headers=[above + first, *shown], disable_numparse=True).splitlines()
        yield ""


def without_pairs(
    codes: Mapping[str, list[str]], result: Result
) -> tuple[dict[str, list[str]], dict[str, dict[str, tuple[str, list[str]]]]]:
    """Return the rows of the table, and those of a table of its own for each test whose caches are written elsewhere.

    Each of these has the environment that writes them, too; they are in the order of the columns, which read them.
    """
    order = [title for environment in result.environments for title in (environment.torch, environment.label)]
    known = {title: place for place, title in reversed([*enumerate(order)])}
    pairs: dict[str, dict[str, tuple[str, list[str]]]] = {}
    chains = {cell.name: cell for cell in result.cells if WRITTEN_BY in cell.variant and cell.name in codes}
    for name, cell in sorted(chains.items(), key=lambda each: known.get(each[1].variant[WRITTEN_BY], len(order))):
        own = {key: value for key, value in cell.variant.items() if key != WRITTEN_BY}
        pairs.setdefault(name_of_test(cell.scenario, own), {})[name] = cell.variant[WRITTEN_BY], codes[name]
    return {name: words for name, words in codes.items() if name not in chains}, pairs


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
    is_patched = any(environment.patch != NO_PATCH for environment in environments)
    is_placed = any(environment.hardware for environment in environments)
    is_added = any(environment.added for environment in environments)
    added = {"added": "with"} if is_added else {}
    axes = _AXES | added | ({"patch": "patch"} if is_patched else {}) | ({"hardware": "hardware"} if is_placed else {})
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


def _blocks(heads: Sequence[str], codes: Mapping[str, Sequence[str]], width: int) -> Iterator[list[int]]:
    """Yield the indices of environments that fit beside each other."""
    block: list[int] = []
    used = 0
    for index, head in enumerate(heads):
        texts = [*head.split("\n"), *(words[index] for words in codes.values())]
        needed = max(map(len, texts)) + 4  # the gap between columns, and what tabulate adds to heads
        if block and used + needed > width:
            yield block
            block, used = [], 0
        block.append(index)
        used += needed
    if block:
        yield block


def legend_lines(result: Result, left_out: OmittedCells = _NONE) -> Iterator[str]:
    """Yield the outcomes that occur, how often, and what they mean."""
    counts = Counter(cell.outcome for cell in result.cells)
    for (outcome, _), count in left_out.items():
        counts[outcome] += count
    for outcome in Outcome:
        if counts[outcome]:
            yield f"{counts[outcome]:5d}  {outcome.word:<11}  {outcome.row.meaning}"
    if others := different(result.cells):
        yield f"{len(others):5d}  ~            another failure than the most common one of its row"
    ended = _ended(result, left_out)
    if any(not expected and not outcome.is_prevented for outcome, expected in ended):
        unexpected = sum(count for (_, expected), count in ended.items() if not expected)
        yield f"{unexpected:5d}  !            not what the scenario's header expects"
    if total := sum(left_out.values()):
        yield f"{total} cells have no row: their tests pass everywhere as expected, or {MOST_SHOWN} cells have one"


def red_lines(stored: StoredRun, command: str) -> Iterator[str]:
    """Yield for each red, prevented or doubted cell what happened, its log and stacks, and the command that reruns it.

    Unexpected cells come first. More than KNOWN_SHOWN expected ones are one line that counts them. An environment that
    cannot be used has one line, however many cells it has. `command` is how the user calls `matrix`.
    """
    result = stored.result
    environments = {environment.id: environment for environment in result.environments}
    others = different(result.cells)
    cells = [cell for cell in result.cells if environments[cell.environment].is_usable]
    unexpected = [cell for cell in cells if not cell.expected]
    known = [cell for cell in cells if cell.expected]
    known = [cell for cell in known if cell.is_red or cell.outcome.is_prevented or cell.doubt]
    yield from (_red_line(alike, stored, others, command) for alike in _alike(unexpected, others))
    for environment in environments.values():
        if not environment.is_usable and any(cell.environment == environment.id for cell in result.cells):
            log = f"; log {shown_path(environment.log)}" if environment.log else ""
            yield f"{environment.outcome}  {environment.label}: {environment.reason}{log}"
    if len(known) > KNOWN_SHOWN:
        yield f"{_kinds(known)} are as expected; `report` shows each"
    else:
        yield from (_red_line(alike, stored, others, command) for alike in _alike(known, others))


def _alike(cells: Iterable[Cell], others: frozenset[tuple[str, str]]) -> Iterable[list[Cell]]:
    """Return cells that went wrong in the same way in several environments together."""

    def what_happened(cell: Cell) -> tuple[str, ...]:
        chain = cell.chain.words if cell.chain else ""
        remarks = (cell.name, _code(cell, others), str(cell.expected), cell_text.conditions_of(cell), chain)
        return *remarks, normalized(cell.signature or cell_text.summary(cell)), normalized(cell.message)

    return grouped(cells, what_happened).values()


def _red_line(alike: Sequence[Cell], stored: StoredRun, others: frozenset[tuple[str, str]], command: str) -> str:
    """Return what happened to a test in one or several environments, with the files of the first."""
    cell, known = alike[0], {environment.id: environment for environment in stored.result.environments}
    environments = [known[each.environment] for each in alike]
    remarks = " (expected)" if cell.expected else ""
    remarks += " (different)" if (cell.name, cell.environment) in others else ""
    what = "; ".join(filter(None, (cell_text.summary(cell), cell_text.conditions_of(cell))))
    log, stacks = cell_text.log_of(stored, cell), cell_text.stacks_of(stored, cell)
    files = f"log {shown_path(log) if log else 'none'}" + (f"; stacks {shown_path(stacks)}" if stacks else "")
    again = cell_text.run_command(cell, environments, command, "--fresh")
    where = ", ".join(environment.label for environment in environments)
    return f"{_code(cell, others)}{remarks}  {cell.name}  {where}: {what}; {files}; rerun: {again}"


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
    if ended and not unexpected:
        parts += ["all as expected" if len(parts) == 1 else "the others as expected"]
    parts += [f"{missing} of {result.run.planned} not run"] if missing else []
    is_clean = not (unexpected or prevented or missing or result.run.interrupted)
    hanging = "no unexpected hangs" if is_clean else counted(hangs, "unexpected hang") if hangs else ""
    doubts = counted(doubted, "doubted pass") if doubted else ""
    unused = sum(cell.doubt is Doubt.UNUSED for cell in result.cells)
    without = f"{unused} never imported torch" if unused else ""
    yield "; ".join(filter(None, (", ".join(parts), hanging, doubts, without)))
    steps = [GOES_ON] if missing or result.run.interrupted else next_lines(result, command)
    yield from (f"next: {step}" for step in steps)


def plan_lines(matrix: PlannedMatrix) -> Iterator[str]:
    """Yield what would run and what is known: the table with known outcomes, `run` for the rest."""
    rows: dict[str, dict[str, Cell | None]] = {}
    runs: Counter[str] = Counter()
    for _, cell, environment, answer in with_answers(matrix.planned, matrix.environments, matrix.records):
        judged = judge(cell, environment, answer.records) if environment and answer else None
        rows.setdefault(cell.name, {})[cell.request.label] = judged
        runs[cell.request.label] += judged is None
    others = different(cell for row in rows.values() for cell in row.values() if cell)
    labels = list(dict.fromkeys(request.label for request in matrix.planned.requests))
    body = [
        [name, *(_code(row.get(label), others, "run" if label in row else "-") for label in labels)]
        for name, row in rows.items()
    ]
    heads = [label.replace("-", "\n", 1) for label in labels]
    yield from tabulate(body, headers=["scenario", *heads], disable_numparse=True).splitlines()
    yield ""
    for request in {request.label: request for request in matrix.planned.requests}.values():
        installed = request.problem or ("installed" if matrix.environments.is_installed(request) else "to be installed")
        cells = counted(sum(request.label in row for row in rows.values()), "cell")
        yield f"{request.label}: {installed}; {runs[request.label]} of {cells} to run"
