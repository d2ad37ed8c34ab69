"""What to do next about a test that went wrong: by its cause, and by where else it passes or fails.

A sentence must not say more than the run shows: only environments in which the test ran count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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
    from collections.abc import Iterator

    from whichtorch.reports.cell_text import CommandPrefix

WHY = "says why it fails there and passes here"
MORE_TIME = 4  # times the limit for a slow test, as long as the longer look
MORE_RELEASES = "recent:3"  # where a test ran with one release only
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

    def steps(self) -> Iterator[NextStep]:
        """Yield what to do, the most useful first."""
        cell, signature = self.cell, Signature.parse(self.cell.signature)
        module = missing_module(cell.signature, cell.message)
        if cell.outcome is Outcome.SLOW and not cell.is_red:
            limit = max((attempt.limit for attempt in cell.attempts), default=0)
            yield NextStep("gives it more time", self.rerun("--timeout", f"{MORE_TIME * limit:.0f}"))
        elif cell.doubt is Doubt.UNREAD:
            yield NextStep(
                "make the script compile something: its later runs read no cache, so this pass does not test caches"
            )
        elif not cell.is_red:
            yield NextStep("runs it again", self.rerun("--fresh"))
        elif module.isidentifier() or (module and not self.passing):
            missing = absence(module)
            yield NextStep(missing.words, self.rerun("--with", missing.package) if missing.package else "")
        elif self.passing:
            yield self._search()
            yield from self._remedy()
        elif signature.head in _UNREADABLE and not signature.library_frame:
            yield NextStep(
                f"it is the script: Python {self.environment.python} cannot read it{self._look_at(signature)}"
            )
        elif signature.head == "exit code 2" and _NEEDS_ARGUMENTS.search(cell.message):
            command = self.rerun()
            if not is_command(cell.runnable):
                command = f"{command.removesuffix(split_test(cell.scenario)[1])} --"
            yield NextStep(f"it needs arguments: {cell.message}", f"{command} ARGUMENTS")
        else:
            yield from self._remedy()
            yield from self._without_pass(signature)

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

    def _without_pass(self, signature: Signature) -> Iterator[NextStep]:
        """Yield what to do about a test that passed in no environment: the script may be wrong."""
        where, does = self.alike, self.cell.outcome.row.verb
        torches = {environment.torch for environment in where}
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
            everywhere = f"in all {len(where)} {places} tried: it is not the release{self._look_at(signature)}"
            yield NextStep(f"{what} {does} the same way {everywhere}")
            is_script = not is_command(self.cell.runnable)
            if (
                is_script
                and cell_text.has_own_caches(self.cell)
                and (signature.library_frame or self.cell.outcome is Outcome.CRASH)
            ):
                triage = cell_text.in_shell(self.called("triage"), self.cell.runnable, *where[-1].options)
                yield NextStep("makes a small case of it, in case torch is wrong in all of them", triage)

    def _look_at(self, signature: Signature) -> str:
        """Return a hint at the user's line; without one, at what the script said."""
        line = next(filter(None, map(_LINE.search, signature.frames)), None)
        said = self.cell.message
        return f"; look at {line[1]}" if line else f"; it says: {said}" if said else ""

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
            return self._between(
                "fix", newest, later[0], f"turns the fix in {later[0].torch} into a patch for {newest.torch}"
            )
        if later:
            return self._between("bisect", newest, later[0], "finds the release that fixed it")
        if earlier and bad:
            first = next(each for each in bad if age(each.torch) > age(earlier[-1].torch))
            return self._between("bisect", first, earlier[-1], "finds the release that broke it")
        return NextStep(WHY, cell_text.in_shell(self.called("explain"), self.cell.runnable))

    def _between(self, name: str, bad: Environment, good: Environment, words: str) -> NextStep:
        return NextStep(
            words, cell_text.bisect_between_command(self.cell.runnable, good, bad, ("", ""), self.called(name))
        )


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
    unexpected = (cell for cell in result.cells if not (cell.expected or cell.outcome.is_prevented))
    unusable = next((environment for environment in result.environments if not environment.is_usable), None)
    if worst := max(unexpected, key=lambda cell: cell.outcome.row.severity, default=None):
        yield from map(str, WrongTest.of(worst, result, called).steps())
    elif unusable and unusable.log:
        yield f"read why {unusable.label} is {unusable.outcome}: {shown_path(unusable.log)}"
    elif not unusable and any(cell.outcome.is_prevented for cell in result.cells):
        yield f"{called('doctor').removesuffix(' --')}  # checks this machine"
    else:
        yield f"{called('report').removesuffix(' --')}  # makes a page that shows each cell"
