"""A case: what is known of one failing script, step by step, and the folder that it is kept in.

output/cases/NAME/
case.json     what each step found; a step that is in it is not taken again
script.py     the script as it was, and beside it the modules of its own
minimal.py    the smallest script that fails in the same way
fix.patch     what cures the script, of a healthy release's Python
logs/         what the category asks for
CASE.md       all of it, to be pasted into an issue
case.zip      the same, for another machine
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pydantic import Field

from whichtorch.base.errors import INTERRUPTED
from whichtorch.bisect.bisection import Bisection  # noqa: TC001  pydantic reads it
from whichtorch.failures.failure import Failure
from whichtorch.fix.commission import FixAnswer  # noqa: TC001  pydantic reads it
from whichtorch.model import Model, Outcome
from whichtorch.search.search_state import Change
from whichtorch.suite.chain import Chain
from whichtorch.triage.failure_facts import CompileCall, Rung  # noqa: TC001  pydantic reads them

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.model import Environment

SCHEMA = 1
FILE = "case.json"
_REMEDIES = {
    Outcome.UNBUILDABLE: "name another --python or --torch; the log of the install says what was missing",
    Outcome.BROKEN: "`whichtorch doctor` tells what keeps torch from running",
}
BRIEF_HANG = 10.0  # seconds for a forked run that may hang: passes take less than one, on a busy machine a few
COLD_MARGIN = 3.0  # times as long where torch is imported first
MINIMAL, PATCH = "minimal.py", "fix.patch"
ANSWERS = ".answers.jsonl"


class CaseEnvironment(Model):
    """Where it fails."""

    id: str = ""
    label: str
    torch: str
    git_version: str = ""
    python: str
    system: str = ""
    processor: str = ""
    packages: dict[str, str] = Field(default_factory=dict)
    options: tuple[str, ...] = ()  # that ask for it again
    problem: str = ""  # why torch cannot be used there
    remedy: str = ""

    @classmethod
    def of(cls, environment: Environment) -> CaseEnvironment:
        """Return what a maintainer asks about an environment, and what to do where torch cannot be used in it."""
        fingerprint = environment.fingerprint
        processor = fingerprint.cpu
        problem = "" if environment.is_usable else environment.reason or str(environment.outcome)
        return cls(
            id=environment.id,
            label=environment.label,
            torch=environment.torch,
            git_version=fingerprint.git_version or "",
            python=environment.python,
            system=" ".join(filter(None, (fingerprint.system, fingerprint.machine, fingerprint.glibc))),
            processor=processor.model if processor is not None and not isinstance(processor, str) else "",
            packages=environment.packages,
            options=environment.options,
            problem=problem,
            remedy=_REMEDIES.get(environment.outcome or Outcome.ERROR, "") if problem else "",
        )


class Reproduction(Model):
    """How often the script was seen to fail, and how."""

    failing: int  # runs that showed this failure
    runs: int
    outcome: Outcome
    signal: str = ""
    signature: str = ""
    message: str = ""
    where: str = ""  # of a hang: where it is stuck, in words
    hang_kind: str = ""  # a HangKind
    seconds: float  # of the longest
    limit: float  # seconds that still tell this failure from a pass
    stderr: str = ""  # its end, redacted
    others: tuple[str, ...] = ()  # what other runs showed
    shape: Failure | None = None  # None in a case of before
    chain: str = ""  # of runs that share caches: which of them failed, and with which cache, in words

    def brief_limit(self, *, forks: bool) -> float:
        """Return the seconds for a run that is to show no more than whether it may be this failure."""
        if self.outcome is not Outcome.HANG:
            return self.limit
        return min(self.limit, BRIEF_HANG if forks else COLD_MARGIN * BRIEF_HANG)

    @property
    def failure(self) -> Failure:
        """The failure that the case is about."""
        return Failure(
            outcome=self.outcome,
            signature=self.signature or None,
            message=self.message,
            signal=self.signal,
            hang=self.hang_kind,
            needs_earlier_run=self.shape is not None and self.shape.needs_earlier_run,
        )


class Ladder(Model):
    """The script at one layer after another."""

    rungs: tuple[Rung, ...] = ()
    graph_breaks: int = 0  # that torch logs in a plain run
    recompilations: int = 0
    guilty: str = ""  # the first application of a part of the compiler with which it fails
    is_complete: bool = False


class Classification(Model):
    """What kind of failure it is."""

    category: str  # "unclassified" where no rule applies
    words: str
    layer: str
    mode: str  # "eager", "torch.compile", "torch.export (strict)", ...
    stage: str = ""  # "while tracing", "while running"
    evidence: tuple[str, ...] = ()
    nearest: str = ""  # of what is unclassified


class Minimal(Model):
    """The smallest script found."""

    source: str
    method: str  # how it was found
    lines: int  # of code: neither blank nor a comment alone
    lines_before: int
    runs: int
    seconds: float
    is_verified: bool  # in a fresh process, with fresh caches
    healthy_in: str = ""  # where the same script passes
    shape: Failure | None = None  # of its failure: a comparison of its own may say it in other words
    error: str = ""  # the end of its own stderr, redacted; "" in a case of before


class ShownTest(Model):
    """A unit test of the failure, and where it was seen to fail and to pass."""

    file: str  # for pytest, in the case's folder
    test_case: str  # the same in the form of PyTorch's own tests, in the case's folder
    place: str  # where PyTorch's tree has tests of this kind
    fails_in: str = ""  # label of an environment, "" where it was not seen to
    passes_in: str = ""


class Newest(Model):
    """What the smallest script comes to in the newest release."""

    torch: str
    outcome: Outcome
    signature: str = ""
    message: str = ""
    is_same: bool  # it shows the failure that the case is about


class Stopped(Model):
    """Where a triage ended before its last step."""

    step: str  # that was not finished; it is taken again
    why: str  # INTERRUPTED, or that the time is over
    run: str = ""  # how long the script had run by then, and where it was

    @property
    def is_interrupted(self) -> bool:
        """True where a user or a signal stopped it."""
        return self.why == INTERRUPTED

    @property
    def words(self) -> str:
        """It in one line."""
        return f"{self.why} during the {self.step} step" + (f": {self.run}" if self.run else "")


class Case(Model):
    """What `case.json` holds."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    name: str
    script: str  # its file, in the case's folder
    source_hash: str
    variant: dict[str, str] = Field(default_factory=dict)
    arguments: tuple[str, ...] = ()  # of the script
    requirements: tuple[str, ...] = ()  # what it was given beside torch
    overrides: tuple[str, ...] = ()  # versions that replaced what packages ask for
    variables: dict[str, str] = Field(default_factory=dict)  # that options gave it, without secrets
    environment: CaseEnvironment | None = None
    reproduction: Reproduction | None = None
    calls: tuple[CompileCall, ...] = ()
    ladder: Ladder | None = None
    classification: Classification | None = None
    logs: dict[str, str] | None = None  # path in the case's folder -> what it is
    minimal: Minimal | None = None
    bisection: Bisection | None = None
    bisected: str = ""  # the file of the smallest script that is known to fail and to pass at the change
    unit_test: ShownTest | None = None
    newest: Newest | None = None
    fix: FixAnswer | None = None
    cold_because: str | None = None  # why no run is forked; "" where they are, None where it was not tried
    seconds: dict[str, float] = Field(default_factory=dict)  # by step
    stopped: Stopped | None = None  # None where it came to its end
    command: str = ""

    @property
    def chain(self) -> Chain | None:
        """How each of its runs is a chain of runs, None where it is a single run."""
        return Chain.of(self.variant)

    @property
    def smallest(self) -> str:
        """The file of the smallest script that is known, in the case's folder."""
        return self.script if self.minimal is None else MINIMAL

    @property
    def smallest_failure(self) -> Failure | None:
        """How the smallest script fails."""
        known = self.minimal or self.reproduction
        return known.shape if known is not None else None

    @property
    def healthy_release(self) -> str:
        """The release nearest to the failing ones in which the script passes, "" where none is known."""
        if self.bisection is None:
            return ""
        if self.bisection.boundaries:
            return self.bisection.boundaries[-1].good
        passing = [probe.value for probe in self.bisection.probes if probe.outcome is Outcome.PASS]
        return passing[-1] if passing else ""

    @property
    def failing_release(self) -> str:
        """The release nearest to the healthy one in which it fails, in this way or in another."""
        if self.bisection is None or not self.bisection.boundaries:
            return self.environment.torch if self.environment else ""
        newest = self.bisection.boundaries[-1]
        others = newest.different_between or (newest.bad,)
        return others[-1] if newest.change is Change.FIX else others[0]


class CaseFolder:
    """Where a case is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Case | None:
        """Return the case that is kept here; None where there is none, or one of another form."""
        try:
            return Case.model_validate_json((self.path / FILE).read_bytes())
        except (OSError, ValueError):
            return None

    def empty(self) -> None:
        """Remove what a case of before has left here; other files stay."""
        for name in (FILE, MINIMAL, PATCH, ANSWERS, "CASE.md", "case.zip"):
            (self.path / name).unlink(missing_ok=True)
        for name in ("logs", "tests"):
            shutil.rmtree(self.path / name, ignore_errors=True)
