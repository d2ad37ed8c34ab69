"""The answer to a bug report: what `answer --json` writes, and what the comment is made from."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from whichtorch.matrix.model import Environment, Model, Outcome

SCHEMA = 1


class ReportVerdict(StrEnum):
    """What is true of a report."""

    REPRODUCES = "reproduces"  # in the release that the report names, or in the newest one
    FIXED = "fixed since"
    NOT_SEEN = "does not reproduce"
    ANOTHER = "another failure"  # than the one that the report tells of
    HARDWARE = "needs hardware"
    INFORMATION = "needs information"  # a script, a package, data
    REFUSED = "refused as unsafe"
    UNKNOWN = "not known"


class ShownOutcome(StrEnum):
    """How a script ended, as far as a report's question goes."""

    PASS = "pass"  # noqa: S105  no password
    FAIL = "fail"
    HANG = "hang"
    CRASH = "crash"
    OTHER = "other"  # nothing that answers the question: no environment, no memory, too slow

    @classmethod
    def of(cls, outcome: Outcome) -> ShownOutcome:
        """Return the one that stands for an outcome."""
        return cls(outcome.value) if outcome.value in {each.value for each in cls} else cls.OTHER


class ReleaseResult(Model):
    """What a script showed in a release."""

    version: str
    outcome: ShownOutcome
    failure: str = ""  # its signature and message
    is_as_claimed: bool = False  # it is the failure that the report tells of
    why: str = ""  # it is not, or is no evidence
    hang: str = ""  # where it is stuck, and who should have moved
    stderr: str = ""  # the end of what it wrote
    seconds: float = 0
    cpu_seconds: float = 0
    blocked: tuple[str, ...] = ()  # what the sandbox kept it from
    is_slow: bool = False  # it was still getting on when its time was over
    environment: Environment | None = None

    @property
    def is_usable(self) -> bool:
        """False where there was no environment to run it in."""
        return self.environment is None or self.environment.is_usable

    @property
    def words(self) -> str:
        """It as a clause."""
        shown = {ShownOutcome.PASS: "passes", ShownOutcome.HANG: "hangs", ShownOutcome.CRASH: "crashes"}
        what = shown.get(self.outcome, "fails" if self.outcome is ShownOutcome.FAIL else "decides nothing")
        return f"{what} in {self.version}"


class ReportBoundary(Model):
    """The two published releases between which the reported failure comes or goes."""

    bad: str  # the one that fails
    good: str  # the one that passes
    confidence: float
    commits: str | None = None  # link to the commits between the two
    untested_between: tuple[str, ...] = ()


class ReportAnswer(Model):
    """All that is known of a report."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    verdict: ReportVerdict
    why: str  # the verdict as a sentence
    asks: str = ""  # what the reporter should be asked for
    title: str = ""
    claimed_version: str = ""  # as the report has it
    claimed: str = ""  # the failure that it tells of
    run_version: str | None = None  # the release that stands for the claimed one
    outcome: ShownOutcome | None = None  # there
    failure: str | None = None  # there
    newest: ReleaseResult | None = None
    seen: tuple[ReleaseResult, ...] = ()  # every run, of the claimed release and the newest one first
    boundary: ReportBoundary | None = None
    script: str = ""  # what was run, whole
    added: tuple[str, ...] = ()  # what was done to the text of the report
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)
    packages: tuple[str, ...] = ()
    python: str = ""
    blocked: tuple[str, ...] = ()  # what the sandbox kept the script from
    notes: tuple[str, ...] = ()  # on the environment that was used
    differences: tuple[str, ...] = ()  # those of the notes on what could not be taken over from the report
    seconds: float = 0

    @property
    def is_answer(self) -> bool:
        """False where nothing can be said."""
        return self.verdict is not ReportVerdict.UNKNOWN
