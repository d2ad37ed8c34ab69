"""What to do next about a test that went wrong: by its cause, and by where else it passes or fails.

A sentence must not say more than the run shows: only environments in which the test ran count.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.base.version_parsing import parse_version
from whichtorch.failures.failure import is_alike
from whichtorch.failures.hang_kind import HangKind
from whichtorch.failures.missing_package import absence, missing_module
from whichtorch.failures.signature import Signature
from whichtorch.model import Cell, Doubt, Environment, Outcome, Result, StoppedBy, is_command, split_test
from whichtorch.process.evidence.waiting import Waiting
from whichtorch.records.compare.factors import age
from whichtorch.reports import cell_text
from whichtorch.reports.shown_text import shown_path
from whichtorch.source.code_owner import normalized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from whichtorch.reports.cell_text import CommandPrefix

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
        return cell_text.run_command(self.cell, self.alike or [self.environment], self.called("matrix"), *more)

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
            search = cell_text.bisect_command(self.cell, self.environment, self.called("bisect"))
            yield NextStep("finds the release that changed it" if search else "it differs from run to run", search)
        elif len(torches) < 2:
            options = ("--torch", MORE_RELEASES, *cell_text.options_without_torch(self.environment))
            others = self.environment.model_copy(update={"options": options})
            command = cell_text.run_command(self.cell, [others], self.called("matrix"))
            yield NextStep(f"shows whether it {does} with other releases", command)
        else:
            places = "releases" if len(torches) == len(where) else "environments"
            what = "your script" if cell_text.is_script(self.cell.scenario) else "it"
            everywhere = f"in all {len(where)} {places} tried: it is not the release{self._look_at()}"
            yield NextStep(f"{what} {does} the same way {everywhere}")
            is_in_library = signature.library_frame or self.cell.outcome is Outcome.CRASH
            if is_in_library and cell_text.has_own_caches(self.cell) and not is_command(self.cell.runnable):
                triage = cell_text.in_shell(self.called("triage"), self.cell.runnable, *where[-1].options)
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
        if not cell_text.is_searchable(self.cell):
            later, earlier = [], []
        can_be_cured = self.cell.outcome in {Outcome.FAIL, Outcome.HANG} and cell_text.has_own_caches(self.cell)
        if later and can_be_cured and _are_near(newest.torch, later[0].torch):
            words = f"turns the fix in {later[0].torch} into a patch for {newest.torch}"
            return self._between("fix", newest, later[0], words)
        if later:
            return self._between("bisect", newest, later[0], "finds the release that fixed it")
        if earlier and bad:
            first = next(each for each in bad if age(each.torch) > age(earlier[-1].torch))
            return self._between("bisect", first, earlier[-1], "finds the release that broke it")
        return NextStep(WHY, cell_text.in_shell(self.called("explain"), self.cell.runnable))

    def _between(self, name: str, bad: Environment, good: Environment, words: str) -> NextStep:
        search = cell_text.bisect_between_command(self.cell.runnable, good, bad, ("", ""), self.called(name))
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
