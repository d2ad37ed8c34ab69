"""What a bisection comes to: the form of `bisect --json`, and what reports are made from."""

from __future__ import annotations

from enum import StrEnum
from typing import TypedDict

from pydantic import Field

from matrix.bisect.strategy.evidence import AnswerKind, Change, Find, Purpose, SearchVerdict  # noqa: TC001  pydantic reads them
from matrix.compare.factors import Versions, changed_packages, commit_of, compare_link
from matrix.model import Cell, Environment, Model, Outcome

SCHEMA = 1


class Probe(Model):
    """A value that was tried, and what came of it."""

    value: str
    title: str = ""  # what else it is called: a commit's subject
    outcome: Outcome
    signature: str | None = None
    k: int  # runs that ended so
    n: int  # runs in all
    reused: int  # of them, those that an earlier run had made
    verdict: SearchVerdict  # what it says about the failure that is searched
    purpose: Purpose | None = None  # None for what was known before
    message: str = ""  # first line of the exception, or why the environment cannot be had
    seconds: float = 0  # of the run that gave the outcome
    environment: Environment
    cell: Cell


class Boundary(Model):
    """Two values between which the outcome changes."""

    from_: str = Field(alias="from")
    to: str
    change: Change
    confidence: float
    untestable_between: tuple[str, ...] = ()
    different_between: tuple[str, ...] = ()
    untried_between: tuple[str, ...] = ()
    commits: str | None = None  # link to the commits between the two
    same_commit: bool = False  # both were built from one
    packages: Versions = Field(default_factory=dict)  # that differ but for torch: versions before and after

    @property
    def is_exact(self) -> bool:
        """True where no value lies between the two."""
        return not (self.untestable_between or self.different_between or self.untried_between)


class Searched(StrEnum):
    """What was searched."""

    VERSION = "version"
    DATE = "date"
    COMMIT = "commit"
    LOCK = "lock"
    CONFIG = "config"
    PYTHON = "python"
    BUILD = "build"


class Bisection(Model):
    """All that is known at the end of a search."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    scenario: str
    question: Find
    axis: Searched
    values: tuple[str, ...]  # all there were, in order
    common: dict[str, str] = Field(default_factory=dict)  # what all environments share: build, Python, config, torch
    reference: tuple[Outcome, str | None] | None = None  # outcome and signature of the failure searched for
    boundaries: tuple[Boundary, ...] = ()  # of an inconclusive answer: brackets, blaming nobody
    probes: tuple[Probe, ...] = ()  # in the order of the values
    order: tuple[str, ...] = ()  # values in the order in which they were tried
    changes: tuple[str, ...] = ()  # of packages, that it takes: "numpy 2.2.6 -> 2.3.0"
    along: tuple[str, ...] = ()  # further ones that those cannot be had without
    differing: int = 0  # packages in which the two locks differ
    installs: int = 0
    run: str = ""  # id of the run that holds them
    runs: int = 0  # attempts made now
    seconds: float = 0
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # of values without an order, by verdict
    answer: AnswerKind
    reasons: tuple[str, ...] = ()
    command: str = ""  # that repeats it

    def probe_at(self, value: str) -> Probe | None:
        """Return what is known of a value."""
        return next((probe for probe in self.probes if probe.value == value), None)


class Facts(TypedDict):
    """What is known of the builds on the two sides of a boundary."""

    commits: str | None
    same_commit: bool
    packages: Versions


def facts_between(before: Environment, after: Environment) -> Facts:
    """Return what two environments say of what changed between them."""
    first, last = commit_of(before), commit_of(after)
    return {
        "commits": compare_link(first, last),
        "same_commit": first is not None and first == last,
        "packages": {name: pair for name, pair in changed_packages(before, after).items() if name != "torch"},
    }
