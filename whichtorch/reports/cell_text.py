"""What every report says of a cell: what happened, where its files are, the commands that go on from it, what to do.

What to do about a test that went wrong follows from its cause, and from where else it passes or fails. A sentence must
not say more than the run shows: only environments in which the test ran count.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.base.version_parsing import age, parse_version
from whichtorch.failures.failure import Signature, absence, described, is_alike, missing_module
from whichtorch.hangs.conditions import words
from whichtorch.model import (
    Attempt,
    Cell,
    Diagnosis,
    Doubt,
    Environment,
    Outcome,
    Result,
    Run,
    StoppedBy,
    is_command,
    split_test,
)
from whichtorch.process.evidence.waiting import HangKind, Waiting
from whichtorch.reports.document import shown_path
from whichtorch.source.code_owner import normalized
from whichtorch.suite.chain import WRITTEN_BY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whichtorch.records.store import StoredRun

CommandPrefix = Callable[[str], str]  # how the user calls a command: "matrix" -> "nox -s matrix --"
_AXES = {"--torch": "", "--build": "", "--python": "", "--config": "default"}  # and what is meant without the option
_ON_CLUSTERS = {"matrix", "bisect"}  # commands that reports give, and that take --executor

WHY = "says why it fails there and passes here"
MORE_TIME = 4  # times the limit for a slow test, as long as the longer look
MORE_RELEASES = "recent:3"  # where a test ran with one release only
MANY = "20"  # attempts that show how often a test fails
_OF_SCRIPT = {  # exceptions that no release can be the cause of where the script itself raises them
    *("NameError", "UnboundLocalError", "ZeroDivisionError", "EOFError", "FileNotFoundError", "NotADirectoryError"),
    *("IsADirectoryError", "PermissionError", "UnicodeDecodeError", "JSONDecodeError"),
}
_UNREADABLE = {"SyntaxError", "IndentationError", "TabError"}
_NEEDS_ARGUMENTS = re.compile(r"\brequired|missing (?:argument|option|parameter)", re.IGNORECASE)
_LINE = re.compile(r"([^ (]+:\d+)\)?$")  # of the user's, in a frame of a signature


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


class NextStep(NamedTuple):
    """A command and what it is for, or a sentence."""

    words: str
    command: str = ""

    def __str__(self) -> str:
        """Return it as a line for a shell, or as the sentence."""
        return f"{self.command}  # {self.words}" if self.command else self.words


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongTest:
    """A cell that went wrong, and the results of its test in all environments that ran it."""

    cell: Cell
    environment: Environment
    row: tuple[tuple[Cell, Environment], ...]  # the oldest torch first
    called: CommandPrefix

    @classmethod
    def of(cls, cell: Cell, result: Result, called: CommandPrefix) -> WrongTest:
        """Return what a run knows of the test of a cell."""
        environments = {environment.id: environment for environment in result.environments}
        same = [(other, environments[other.environment]) for other in result.cells if other.name == cell.name]
        ran = (pair for pair in same if not (pair[0].outcome.is_prevented or pair[0].outcome is Outcome.SKIP))
        row = tuple(sorted(ran, key=lambda pair: age(pair[1].torch)))
        return cls(cell=cell, environment=environments[cell.environment], row=row, called=called)

    @property
    def alike(self) -> list[Environment]:
        """The environments in which it goes wrong in the same way."""
        return [environment for other, environment in self.row if other.is_red and _is_same(other, self.cell)]

    @property
    def passing(self) -> list[Environment]:
        """The environments in which it passes."""
        return [
            environment for other, environment in self.row if other.outcome is Outcome.PASS and not other.is_doubted
        ]

    def rerun(self, *more: str) -> str:
        """Return the command that runs it where it goes wrong in this way, with more options."""
        return run_command(self.cell, self.alike or [self.environment], self.called("matrix"), *more)

    @property
    def signature(self) -> Signature:
        """The signature of the cell."""
        return Signature.parse(self.cell.signature)

    @property
    def script(self) -> Path | None:
        """The user's script, where it is here."""
        path = Path(split_test(self.cell.scenario)[0])
        return path if path.suffix == ".py" and path.is_file() else None

    def steps(self) -> Iterator[NextStep]:
        """Yield what to do, the most useful first: what the first rule says that applies."""
        yield from next(steps for applies, steps in _RULES if applies(self))(self)

    @property
    def lacks_module(self) -> bool:
        """Whether a module is missing, and no release tells whether it should be there."""
        module = missing_module(self.cell.signature, self.cell.message)
        return module.isidentifier() or bool(module and not self.passing)

    @property
    def needs_arguments(self) -> bool:
        """Whether it ended because it was called without arguments that it needs."""
        return self.signature.head == "exit code 2" and bool(_NEEDS_ARGUMENTS.search(self.cell.message))

    @property
    def imports_relatively(self) -> bool:
        """Whether the line that failed imports from the script's own package."""
        line = _LINE.search(self.signature.frames[0]) if self.signature.frames else None
        if not (line and self.script and self.signature.head == "ImportError"):
            return False
        lines = self.script.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[int(line[1].rpartition(":")[2]) - 1].lstrip().startswith("from .")

    def _more_time(self) -> Iterator[NextStep]:
        limit = max((attempt.limit for attempt in self.cell.attempts), default=0)
        yield NextStep("gives it more time", self.rerun("--timeout", f"{MORE_TIME * limit:.0f}"))

    def _bring_module(self) -> Iterator[NextStep]:
        missing = absence(missing_module(self.cell.signature, self.cell.message))
        yield NextStep(missing.words, self.rerun(*missing.options) if missing.options else "")

    def _run_package(self) -> Iterator[NextStep]:
        """Yield the command that runs a script as a module of its package."""
        assert self.script
        above = [folder for folder in self.script.parents if (folder / "__init__.py").exists()]
        root = (above[-1] if above else self.script.parent).parent
        module = ".".join(self.script.relative_to(root).with_suffix("").parts)
        options = [*self.environment.options, *(("--env", f"PYTHONPATH={root}") if root.name else ())]
        command = shlex.join(["python", "-m", module]) + split_test(self.cell.scenario)[1].removeprefix(" --")
        words = f"{self.script} is part of a package, and imports from it"
        yield NextStep(words, f"{self.called('matrix')} {shlex.join(options)} -- {command}")

    def _give_input(self) -> Iterator[NextStep]:
        started = f"python {self.cell.scenario} < input"
        yield NextStep(
            "a test gets no input: a command can read it from a file",
            f"{self.called('matrix')} {shlex.join([*self.environment.options, '--', 'sh', '-c', started])}",
        )

    def _give_arguments(self) -> Iterator[NextStep]:
        command = self.rerun()
        if not is_command(self.cell.runnable):
            command = f"{command.removesuffix(split_test(self.cell.scenario)[1])} --"
        yield NextStep(f"it needs arguments: {self.cell.message}", f"{command} ARGUMENTS")

    def _remedy(self) -> Iterator[NextStep]:
        """Yield what helps against a hang of its kind, or against too little memory."""
        if self.cell.outcome is Outcome.HANG and (diagnosis := self.cell.diagnosis):
            asleep = [edge.text for edge in diagnosis.cycle if edge.waiting == Waiting.SLEEP and edge.text]
            if asleep and diagnosis.kind not in {HangKind.SLEEP, HangKind.GIL, HangKind.GIL_CYCLE}:
                yield NextStep(f"Find out why {asleep[-1]}.")
            else:
                yield from (NextStep(kind.remedy) for kind in HangKind if kind == diagnosis.kind)
        if self.cell.outcome is Outcome.OOM and self.cell.signature != StoppedBy.PROCESSES:
            yield NextStep("give it more memory: --memory SIZE, or memory_mb in the script's header")

    def _without_pass(self) -> Iterator[NextStep]:
        """Yield what to do about a test that passed in no environment: the script may be wrong."""
        signature, where, does = self.signature, self.alike, self.cell.outcome.row.verb
        torches = {environment.torch for environment in where}
        yield from self._remedy()
        if len(where) < len(self.row) or any(other.flaky for other, _ in self.row):
            search = bisect_command(self.cell, self.environment, self.called("bisect"))
            yield NextStep("finds the release that changed it" if search else "it differs from run to run", search)
        elif len(torches) < 2:
            options = ("--torch", MORE_RELEASES, *options_without_torch(self.environment))
            others = self.environment.model_copy(update={"options": options})
            command = run_command(self.cell, [others], self.called("matrix"))
            yield NextStep(f"shows whether it {does} with other releases", command)
        else:
            places = "releases" if len(torches) == len(where) else "environments"
            what = "your script" if is_script(self.cell.scenario) else "it"
            everywhere = f"in all {len(where)} {places} tried: it is not the release{self._look_at()}"
            yield NextStep(f"{what} {does} the same way {everywhere}")
            is_in_library = signature.library_frame or self.cell.outcome is Outcome.CRASH
            if is_in_library and has_own_caches(self.cell) and not is_command(self.cell.runnable):
                triage = in_shell(self.called("triage"), self.cell.runnable, *where[-1].options)
                yield NextStep("makes a small case of it, in case torch is wrong in all of them", triage)

    def _look_at(self) -> str:
        """Return a hint at the user's lines, and whose they are; without one, at what the script said."""
        lines = [line[1] for line in map(_LINE.search, self.signature.frames) if line]
        called_from = f", called from {lines[1]}" if self.cell.command and len(lines) > 1 else ""
        said, whose = self.cell.message, f" of {self.cell.scenario}" if self.cell.command else ""
        place = lines[0] + called_from if lines else ""
        return f"; look at {place}{whose}" if place else f"; it says: {said}" if said else ""

    def _search(self) -> NextStep:
        """Return the search between the nearest bad and good release; without one, `explain`."""
        ours = {axis: value for axis, value in self.environment.axes.items() if axis != "torch"}
        bad, good = (
            [each for each in found if each.axes.items() >= ours.items() and "--torch" in each.options]
            for found in (self.alike, self.passing)
        )
        newest = bad[-1] if bad else self.environment
        later = [each for each in good if age(each.torch) > age(newest.torch)]
        earlier = [each for each in good if age(each.torch) < age(newest.torch)]
        if not is_searchable(self.cell):
            later, earlier = [], []
        can_be_cured = self.cell.outcome in {Outcome.FAIL, Outcome.HANG} and has_own_caches(self.cell)
        if later and can_be_cured and _are_near(newest.torch, later[0].torch):
            words = f"turns the fix in {later[0].torch} into a patch for {newest.torch}"
            return self._between("fix", newest, later[0], words)
        if later:
            return self._between("bisect", newest, later[0], "finds the release that fixed it")
        if earlier and bad:
            first = next(each for each in bad if age(each.torch) > age(earlier[-1].torch))
            return self._between("bisect", first, earlier[-1], "finds the release that broke it")
        return NextStep(WHY, in_shell(self.called("explain"), self.cell.runnable))

    def _between(self, name: str, bad: Environment, good: Environment, words: str) -> NextStep:
        search = bisect_between_command(self.cell.runnable, good, bad, ("", ""), self.called(name))
        return NextStep(words, search)


_RULES: tuple[tuple[Callable[[WrongTest], object], Callable[[WrongTest], Iterable[NextStep]]], ...] = (
    (lambda test: test.cell.outcome is Outcome.SLOW and not test.cell.is_red, WrongTest._more_time),
    (
        lambda test: test.cell.doubt is Doubt.UNREAD,
        lambda _: [
            NextStep("make the script compile something: its later runs read no cache, so this tests no caches")
        ],
    ),
    (lambda test: not test.cell.is_red, lambda test: [NextStep("runs it again", test.rerun("--fresh"))]),
    (lambda test: test.lacks_module, WrongTest._bring_module),
    (lambda test: test.passing, lambda test: [test._search(), *test._remedy()]),
    (
        lambda test: test.cell.flaky and len({environment.torch for _, environment in test.row}) < 2,
        lambda test: [
            NextStep(f"it comes and goes, {test.cell.flaky}: shows how often", test.rerun("--repeat", MANY, "--fresh"))
        ],
    ),
    (
        lambda test: test.signature.head in _UNREADABLE and not test.signature.library_frame,
        lambda test: [NextStep(f"it is the script: Python {test.environment.python} cannot read it{test._look_at()}")],
    ),
    (lambda test: test.needs_arguments, WrongTest._give_arguments),
    (lambda test: test.imports_relatively, WrongTest._run_package),
    (lambda test: test.signature.head == "EOFError" and test.script, WrongTest._give_input),
    (
        lambda test: test.signature.head in _OF_SCRIPT and not test.signature.library_frame,
        lambda test: [NextStep(f"it is the script, not torch{test._look_at()}")],
    ),
    (lambda _: True, WrongTest._without_pass),
)  # what is known of a failure, and what helps; the first that applies counts


def _is_same(cell: Cell, other: Cell) -> bool:
    """Return whether two cells fail alike; what ended without an exception must have said the same."""
    return is_alike(cell, other) and (
        not (cell.signature or "").startswith("exit code") or normalized(cell.message) == normalized(other.message)
    )


def _are_near(torch: str, other: str) -> bool:
    """Return whether no minor release lies between two: farther ones differ in too much for `fix` to begin with."""
    first, last = parse_version(torch), parse_version(other)
    return bool(first and last and first.major == last.major and last.minor - first.minor <= 1)


def next_lines(result: Result, called: CommandPrefix) -> Iterator[str]:
    """Yield what to do next about a whole run, in the order in which it helps."""
    wrong = [cell for cell in result.cells if not (cell.expected or cell.outcome.is_prevented)]
    unusable = next((environment for environment in result.environments if not environment.is_usable), None)
    passing = {cell.name for cell in result.cells if cell.outcome is Outcome.PASS}
    # a test that differs by environment tells more
    if worst := max(wrong, key=lambda cell: (cell.name in passing, cell.outcome.row.severity), default=None):
        yield from map(str, WrongTest.of(worst, result, called).steps())
    elif unusable and unusable.log:
        yield f"read why {unusable.label} is {unusable.outcome}: {shown_path(unusable.log)}"
    elif unusable and unusable.build != "pypi":
        yield "--build pypi takes the wheels of PyPI, or name a mirror in WHICHTORCH_PYTORCH_INDEX"
    elif any(cell.lacks_command or cell.is_unresolvable for cell in result.cells):
        return  # the error says it
    elif not unusable and any(cell.outcome.is_prevented for cell in result.cells):
        yield f"{called('doctor').removesuffix(' --')}  # checks this machine"
    else:
        yield f"{called('report').removesuffix(' --')}  # makes a page that shows each cell"
