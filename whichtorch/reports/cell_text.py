"""What every report says of a cell: what happened, where its files are, and the commands that go on from it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from whichtorch.base.version_parsing import parse_version
from whichtorch.failures.signature import described
from whichtorch.hangs.conditions import words
from whichtorch.model import Attempt, Cell, Diagnosis, Environment, Outcome, Run, is_command, split_test
from whichtorch.suite.chain import WRITTEN_BY

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.records.store import StoredRun

CommandPrefix = Callable[[str], str]  # how the user calls a command: "matrix" -> "nox -s matrix --"
_AXES = {"--torch": "", "--build": "", "--python": "", "--config": "default"}  # and what is meant without the option
_ON_CLUSTERS = {"matrix", "bisect"}  # commands that reports give, and that take --executor


def where_it_ran(called: CommandPrefix, run: Run) -> CommandPrefix:
    """Return how the user calls a command so that cells run again where a run's did: on its cluster, or here."""
    said = " ".join(takewhile("--".__ne__, run.command)).replace("--executor=", "--executor ").split()
    cluster = next((f" {name} {address}" for name, address in pairwise(said) if name == "--executor"), "")
    return lambda command: called(command) + (cluster if command in _ON_CLUSTERS else "")


def representative_attempt(cell: Cell) -> Attempt | None:
    """Return the attempt that shows what came of a cell: the last with its outcome, else the last."""
    same = [attempt for attempt in cell.attempts if attempt.outcome is cell.outcome]
    return next(reversed(same or cell.attempts), None)


def summary(cell: Cell, unknown: str = "-") -> str:
    """Return what happened, in one line, with the words that decide; `unknown` where nothing is known."""
    conflict = f" ({cell.conflict})" if cell.conflict else ""
    what = described(cell.what, cell.message) if cell.outcome is Outcome.FAIL else cell.what
    chain = f"; {cell.chain.words}" if what and cell.chain else ""  # a reason says it already
    attempt = representative_attempt(cell)
    process = f"; in {attempt.evidence.process}" if attempt and attempt.evidence.process else ""
    return (what or cell.reason or unknown) + process + chain + conflict


def conditions_of(cell: Cell) -> str:
    """Return what became of the conditions of a hang; "" where it declares none."""
    return words(cell.conditions) if cell.outcome is Outcome.HANG else ""


def detail_lines(cell: Cell) -> Iterator[str]:
    """Yield what else is known: kind and place of a hang, its conditions, how often."""
    hang = cell.diagnosis or Diagnosis()
    facts = {"kind": hang.kind, "stage": hang.place, "operator": hang.operator, "dispatch key": hang.key}
    yield from (f"{title}: {text}" for title, text in facts.items() if text)
    if conditions := conditions_of(cell):
        yield conditions
    if cell.flaky:
        yield f"flaky: {cell.flaky} attempts end so"
    counts = Counter(attempt.outcome for attempt in cell.attempts)
    if len(counts) > 1:
        yield f"attempts: {', '.join(f'{count} {outcome}' for outcome, count in counts.most_common())}"


def log_of(stored: StoredRun, cell: Cell) -> Path | None:
    """Return the file of what a cell wrote to stderr, or to stdout where that is all it wrote."""
    attempt = representative_attempt(cell)
    if attempt is None or not attempt.stderr:
        return None
    return stored.file(attempt.stdout if attempt.stdout_bytes and not attempt.stderr_bytes else attempt.stderr)


def stacks_of(stored: StoredRun, cell: Cell) -> Path | None:
    """Return the folder of the stacks that were read for a cell."""
    folder = next((attempt.stacks for attempt in reversed(cell.attempts) if attempt.diagnosis), "")
    return stored.file(folder) if folder else None


def is_script(test: str) -> bool:
    """Return whether a test is a script of the user's own."""
    return not is_command(test) and split_test(test)[0].partition("[")[0].endswith(".py")


def in_shell(command: str, test: str, *options: str) -> str:
    """Return a command with a test and options; the test's own arguments, or a command, are the last."""
    name, own = split_test(test)
    return " ".join([command, *map(shlex.quote, filter(None, [name, *options]))]) + own


def rerun_command(cell: Cell, environment: Environment, command: str) -> str:
    """Return the command that runs just this cell again."""
    return run_command(cell, [environment], command, "--fresh")


def run_command(cell: Cell, environments: Sequence[Environment], command: str, *more: str) -> str:
    """Return the command that runs a test in some environments, with further options.

    Of environments that differ in more than the release, the first counts and those like it.
    """
    first = environments[0]
    options = list(first.options)
    if "--torch" in options:
        at = options.index("--torch") + 1
        same = (each for each in environments if options_without_torch(each) == options_without_torch(first))
        options[at] = ",".join(dict.fromkeys(each.options[at] for each in same))
    if cell.chain and (writer := cell.chain.writer_interpreter):  # its name means something only beside it
        options += ["--interpreter", writer]
    if cell.chain and cell.chain.writer_options:
        options = _beside(options, cell.chain.writer_options)
    return in_shell(command, cell.runnable, *options, *cell.sandbox_options, *more)


def _beside(options: Sequence[str], writer: Sequence[str]) -> list[str]:
    """Return options that ask for environments, and for the one that writes their caches."""
    told = list(options)
    for axis, unnamed in _AXES.items():
        own, other = (words[words.index(axis) + 1] if axis in words else unnamed for words in (told, list(writer)))
        values = ",".join(dict.fromkeys(filter(None, [*own.split(","), other])))
        if axis in told:
            told[told.index(axis) + 1] = values
        elif axis in writer:
            told += [axis, values]
    return told


def bisect_command(cell: Cell, environment: Environment, command: str) -> str:
    """Return the command that searches the release that changed a cell; "" in an environment of the user's own."""
    if not is_searchable(cell) or (environment.interpreter is not None and "--interpreter" in environment.options):
        return ""
    return in_shell(command, cell.runnable, *options_without_torch(environment), *cell.sandbox_options)


def has_own_caches(cell: Cell) -> bool:
    """Return whether all of its runs are made in one environment."""
    return WRITTEN_BY not in cell.variant


def is_searchable(cell: Cell) -> bool:
    """Return whether `bisect` can run it: another environment that writes caches must be known by its release."""
    return has_own_caches(cell) or parse_version(cell.variant[WRITTEN_BY]) is not None


def bisect_between_command(name: str, good: Environment, bad: Environment, days: tuple[str, str], command: str) -> str:
    """Return the command that finds what changed between two environments, run on two days; "" where there is none.

    It searches the versions of torch between the two. Where only other packages changed, it searches the days between
    the runs.
    """
    options = options_without_torch(bad)
    if "--interpreter" in bad.options or "--interpreter" in good.options:
        return ""
    if good.torch != bad.torch:
        return in_shell(command, name, *options, "--good", good.torch, "--bad", bad.torch)
    if good.packages == bad.packages or days[0] == days[1]:
        return ""
    since = ["--axis", "date", "--torch", bad.torch, "--since", days[0], "--until", days[1]]
    return in_shell(command, name, *options, *since)


def options_without_torch(environment: Environment) -> list[str]:
    """Return the options that ask for an environment, but for its release."""
    options = list(environment.options)
    if "--torch" in options:
        index = options.index("--torch")
        del options[index : index + 2]
    return options
