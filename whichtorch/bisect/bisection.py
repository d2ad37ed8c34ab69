"""The answer of a search: what `bisect --json` writes, and what reports are made from."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field

from whichtorch.base.grouping import grouped
from whichtorch.bisect.search_request import AxisName  # noqa: TC001  pydantic reads these
from whichtorch.failures.failure import Failure, described
from whichtorch.model import Cell, Environment, Model, Outcome
from whichtorch.model.record import Curve  # noqa: TC001
from whichtorch.records.compare.factors import Versions  # noqa: TC001
from whichtorch.search.search_state import AnswerKind, Change, Find, Purpose, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SCHEMA = 1
NO_ENVIRONMENT = "no environment can be made"
_UNJUDGED = {Outcome.UNBUILDABLE: NO_ENVIRONMENT, Outcome.SKIP: "it is skipped"}


class Probe(Model):
    """A value that was tried, and its result."""

    value: str
    title: str = ""  # what else it is called: a commit's subject
    outcome: Outcome
    signature: str | None = None
    k: int  # runs that ended so
    n: int  # all runs
    reused: int  # those of them that an earlier run made
    verdict: SearchVerdict  # what it says about the failure that is searched
    purpose: Purpose | None = None  # why it was tried; None for what was known before, and where all values are tried
    message: str = ""  # first line of the exception, or why there is no environment
    seconds: float = 0  # of the run that gave the outcome
    environment: Environment
    cell: Cell

    @property
    def in_words(self) -> str:
        """What it showed, k of n, for a reason."""
        what = described(self.signature, self.message)
        return f"{self.value}: {self.outcome}, {self.k} of {self.n} runs" + (f": {what}" if what else "")


class Stretch(Model):
    """Neighbors among the tried values that showed the same."""

    values: tuple[str, ...]  # in their order; untried ones may lie between them
    outcome: Outcome  # of the newest of them, as the rest
    signature: str | None = None
    message: str = ""
    verdict: SearchVerdict

    @classmethod
    def of(cls, probes: Sequence[Probe]) -> Stretch:
        """Return the stretch of some probes."""
        shown = probes[-1].model_dump(include={"outcome", "signature", "message", "verdict"})
        return cls(values=tuple(probe.value for probe in probes), **shown)

    @property
    def ends(self) -> str:
        """Its first and last value: `2.1.0 to 2.11.0`."""
        first, last = self.values[0], self.values[-1]
        return first if first == last else f"{first} to {last}"

    @property
    def what(self) -> str:
        """Signature and message of a failure, or why a value is no evidence."""
        return described(self.signature, self.message)


def timeline_of(probes: Iterable[Probe]) -> tuple[Stretch, ...]:
    """Return what was seen along the values, with neighbors that showed the same in one stretch."""
    groups: list[list[Probe]] = []
    for probe in probes:
        if groups and _shows_the_same(groups[-1][-1], probe):
            groups[-1].append(probe)
        else:
            groups.append([probe])
    return tuple(map(Stretch.of, groups))


def _shows_the_same(probe: Probe, other: Probe) -> bool:
    if probe.verdict is not other.verdict:
        return False
    if probe.verdict in {SearchVerdict.GOOD, SearchVerdict.BAD}:
        return True
    first, second = (
        Failure(outcome=each.outcome, signature=each.signature, message=each.message) for each in (probe, other)
    )
    return probe.outcome is other.outcome and bool(first.compare(second))


def unjudged_in(probes: Iterable[Probe]) -> dict[str, tuple[str, ...]]:
    """Return the values that do not tell whether the failure that is searched is there, by what they do instead."""

    def shown(probe: Probe) -> str:
        if probe.verdict is SearchVerdict.DIFFERENT:
            return "it fails in another way"
        if probe.outcome is Outcome.BROKEN:
            is_import = "'import torch'" in probe.message
            return "torch cannot be imported" if is_import else "torch, or a module that the script imports, fails"
        return _UNJUDGED.get(probe.outcome, "it could not be judged")

    says_nothing = (probe for probe in probes if probe.verdict not in {SearchVerdict.GOOD, SearchVerdict.BAD})
    return {words: tuple(probe.value for probe in those) for words, those in grouped(says_nothing, shown).items()}


class Cause(StrEnum):
    """What can cause a change where several packages changed together."""

    ITSELF = "itself"  # the package that is searched, whatever version the others have
    COMPANION = "companion"  # a package that was installed with it
    TOGETHER = "together"  # only both together
    EITHER = "either"  # each of the two alone
    UNKNOWN = "unknown"


class Attribution(Model):
    """What caused the change at a boundary: the package that is searched, or others that changed with it."""

    package: str  # whose releases are searched
    cause: Cause
    changes: tuple[str, ...] = ()  # of companions, all of them needed: "setuptools 81.0.0 -> 82.0.0"
    candidates: tuple[str, ...] = ()  # of companions, one of which is the cause
    release: str = ""  # of `package`, with which the changes of companions make the difference
    tried: tuple[str, ...] = ()  # mixtures of the packages of both sides, and what each showed
    notes: tuple[str, ...] = ()  # what was not tried, and why

    @property
    def words(self) -> str:
        """Return the cause, as a part of a sentence; "" where it is not known."""
        others = " and ".join(self.changes) or f"one of {', '.join(self.candidates)}"
        return {
            Cause.ITSELF: f"by {self.package} itself",
            Cause.COMPANION: f"by {others} that came with it",
            Cause.TOGETHER: f"by {self.package} together with {others}",
            Cause.EITHER: f"by {self.package} itself, and by {others} alone as well",
        }.get(self.cause, "")


class Culprit(Model):
    """A commit that changed the outcome."""

    commit: str  # full hash
    subject: str
    date: str  # on which its author wrote it, UTC
    pull_request: int | None = None
    taken_back: bool = False  # the older value has it and the newer one has not, as on a release branch
    merges: tuple[str, ...] = ()  # that brought it, the outermost first
    paths: tuple[str, ...] = ()  # files that it changes and that the script reads
    relatives: tuple[str, ...] = ()  # commits that are the same change or took it back, in words
    checked: tuple[str, ...] = ()  # what other wheels show, in words


class Boundary(Model):
    """Two values between which the outcome changes."""

    from_: str = Field(alias="from")
    to: str
    change: Change
    confidence: float
    untestable_between: tuple[str, ...] = ()
    different_between: tuple[str, ...] = ()
    untried_between: tuple[str, ...] = ()
    unasked_between: tuple[str, ...] = ()  # releases that were not among the values
    commits: str | None = None  # link to the commits between the two
    same_commit: bool = False  # both were built from the same commit
    packages: Versions = Field(default_factory=dict)  # packages, but the searched one, whose versions differ: old, new
    culprit: Culprit | None = None  # the commit, where commits are searched that are not built
    attribution: Attribution | None = None  # what caused the change; None: that was not tested
    tests: tuple[str, ...] = ()  # of a command with many: the ids of those that change here
    what: str = ""  # the failure that these tests share

    @property
    def bad(self) -> str:
        """The one of the two that fails."""
        return self.from_ if self.change is Change.FIX else self.to

    @property
    def good(self) -> str:
        """The one of the two that passes."""
        return self.to if self.change is Change.FIX else self.from_

    @property
    def between(self) -> dict[str, tuple[str, ...]]:
        """The values between the two, by what is known of them."""
        kinds = {
            "could not be tested": self.untestable_between,
            "fails in another way": self.different_between,
            "not tried": self.untried_between,
        }
        return {words: values for words, values in kinds.items() if values}

    @property
    def unasked(self) -> str:
        """A part of a sentence: which releases between the two were not among the values; "" for none."""
        *others, last = self.unasked_between or ("",)
        named = f"{', '.join(others)} and {last} were" if others else f"{last} was"
        return f"; {named} not asked for" if last else ""

    @property
    def is_exact(self) -> bool:
        """True where no release or value lies between the two."""
        return not (self.between or self.unasked)


class SearchedTest(Model):
    """What came of one of the many tests of a command."""

    answer: AnswerKind
    boundaries: tuple[tuple[str, str], ...] = ()  # last and first value; of an inconclusive answer: an unresolved range
    confidence: float = 0  # of the least sure boundary
    outcomes: dict[str, Outcome] = Field(default_factory=dict)  # by value
    flaky: dict[str, str] = Field(default_factory=dict)  # by value: "3 of 8" runs ended so
    reasons: tuple[str, ...] = ()


class Bisection(Model):
    """All that is known at the end of a search."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    scenario: str
    question: Find
    axis: AxisName
    values: tuple[str, ...]  # all there were, in order
    common: dict[str, str] = Field(default_factory=dict)  # what all environments share: build, Python, config, torch
    reference: tuple[Outcome, str | None] | None = None  # outcome and signature of the failure searched for
    boundaries: tuple[Boundary, ...] = ()  # of an inconclusive answer: brackets, blaming nobody
    probes: tuple[Probe, ...] = ()  # in the order of the values
    timeline: tuple[Stretch, ...] = ()  # of an ordered axis: what the probes showed, like neighbors together
    unjudged: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # values that are neither good nor bad: why not
    order: tuple[str, ...] = ()  # values in the order in which they were tried
    changes: tuple[str, ...] = ()  # of packages, that it takes: "numpy 2.2.6 -> 2.3.0"
    along: tuple[str, ...] = ()  # further ones that those cannot be had without
    differing: int = 0  # packages in which the two locks differ
    installs: int = 0
    run: str = ""  # id of the run that holds them
    runs: int = 0  # attempts made now
    seconds: float = 0
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # of values without an order, by verdict
    tests: dict[str, SearchedTest] = Field(default_factory=dict)  # of a command with many: those searched, by id
    others: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # ids of the other ones, by what both ends show
    curve: Curve | None = None  # of a search for a change of a number
    answer: AnswerKind
    interrupted: bool = False  # by Ctrl-C or a signal: the same command goes on
    reasons: tuple[str, ...] = ()
    command: str = ""  # that repeats it

    @property
    def has_tests(self) -> bool:
        """True for a command with tests of its own."""
        return bool(self.tests or self.others)

    def probe_at(self, value: str) -> Probe | None:
        """Return what is known of a value."""
        return next((probe for probe in self.probes if probe.value == value), None)
