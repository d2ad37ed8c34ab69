"""The answer to a bug report: what `answer --json` writes, and what the comment is made from.

What the runs of its script, or what that needs, say of the report is judged here: pure, from facts to an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from packaging.version import Version
from pydantic import Field

from whichtorch.answer import needs
from whichtorch.answer.claims import Claims, listed
from whichtorch.failures.failure import described, missing_module
from whichtorch.model import Cell, Environment, Model, Outcome

if TYPE_CHECKING:
    from whichtorch.answer.report import Report
    from whichtorch.answer.script_candidates import Candidate
    from whichtorch.failures.tracebacks import RaisedException


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

    def said(self, verdict: ReportVerdict, why: str, asks: str = "", **more: object) -> ReportAnswer:
        """Return this answer with a verdict."""
        return self.model_copy(update={"verdict": verdict, "why": why, "asks": asks, **more})


FLAKY_RUNS = 10  # of a script that does not fail in every run, until it does
_NO_NETWORK = re.compile(
    r"URLError|HTTPError|ConnectionError|gaierror|MaxRetryError|Connection(?:Refused|Reset)Error|OfflineModeIsEnabled|"
    r"LocalEntryNotFound|Network is unreachable|Name or service not known|Temporary failure in name resolution"
)
_NO_DEVICE = re.compile(
    r"Found no NVIDIA driver|not compiled with (?:CUDA|XPU|MPS|HIP)|No (?:CUDA|HIP|XPU) GPUs are available|"
    r"Attempting to deserialize object on a CUDA|no NVIDIA|Torch not linked with", re.IGNORECASE,
)  # fmt: skip


def answer_without_run(base: ReportAnswer, candidates: Sequence[Candidate], report: Report) -> ReportAnswer | None:
    """Return the answer to a report of which nothing is run; None if there is something to run."""
    if not candidates:
        asks = "a script that shows it, with the version of torch and what it prints"
        return base.said(ReportVerdict.INFORMATION, "the report has no Python that could be run", asks)
    if any(needs.uses_torch(each.tree) for each in candidates):
        return None
    base = base.model_copy(update={"script": candidates[0].source, "added": candidates[0].added})
    if tried := tuple(dict.fromkeys(what for each in candidates for what in needs.dangers(each.tree))):
        why = f"the script uses nothing of torch, and {', '.join(tried)}: it was not run"
        asks = "a script that shows the failure of torch and does none of that"
        return base.said(ReportVerdict.REFUSED, why, asks, blocked=tried)
    if hardware := next(filter(None, (needs.hardware(each.tree, [report.whole]) for each in candidates)), ""):
        return base.said(ReportVerdict.HARDWARE, f"the script needs {hardware}")
    return base.said(ReportVerdict.INFORMATION, "no code of the report uses torch", "a script that shows the failure")


def answer_if_not_runnable(base: ReportAnswer, candidate: Candidate, report: Report) -> ReportAnswer | None:
    """Return the answer if a script cannot run here for what it needs; None if it can."""
    tree = candidate.tree
    base = base.model_copy(update={"script": candidate.source, "added": candidate.added})
    if hardware := needs.hardware(tree, [report.whole]):
        asks = f"a run on a machine with {hardware}, or a script that fails on the CPU"
        return base.said(ReportVerdict.HARDWARE, f"the script needs {hardware}", asks)
    if unknown := needs.unknown_modules(tree, [name for name, _ in candidate.files]):
        names = ", ".join(unknown)
        why = f"the script imports {names}, and no known package on PyPI has that: nothing was installed for it"
        return base.said(ReportVerdict.INFORMATION, why, f"a script without {names}, or where to get it")
    if data := needs.data(tree):
        asks = f"a script that makes its own input instead of {data}"
        return base.said(ReportVerdict.INFORMATION, f"the script needs {data}", asks)
    return None


def more_telling(first: ReportAnswer | None, other: ReportAnswer) -> ReportAnswer:
    """Return the answer that says more, of two that do not show the reported failure; the first of equals."""
    order = (
        ReportVerdict.ANOTHER,
        ReportVerdict.UNKNOWN,
        ReportVerdict.NOT_SEEN,
        ReportVerdict.HARDWARE,
        ReportVerdict.INFORMATION,
    )
    places = {verdict: place for place, verdict in enumerate(order)}
    return other if first is None or places.get(other.verdict, 9) < places.get(first.verdict, 9) else first


def no_evidence(cell: Cell, stderr: str, exception: str) -> str:
    """Return why a failure says nothing about torch: something is missing that the report does not have."""
    said = f"{cell.signature or ''} {cell.message}"
    if _NO_DEVICE.search(said):
        return "hardware: it found no accelerator"
    if _NO_NETWORK.search(said):
        return "data: it needs the network, which it does not have here"
    if module := missing_module(cell.signature, cell.message):
        return f"package: the module {module!r} is not known"
    if exception in {"NameError", "SyntaxError", "IndentationError"}:
        return f"script: it is not complete: {cell.message}"
    if exception == "FileNotFoundError":
        return f"data: {cell.message}"
    return "script: it needs other arguments" if "usage: " in stderr and not exception else ""


def shown_failure(cell: Cell, chain: Sequence[RaisedException]) -> str:
    """Return what a cell shows: the exception that the script ends with, and where its first cause is raised."""
    shown = described(cell.signature, cell.message) or cell.reason or ""
    last = f"{chain[0].name}: {chain[0].first_line}" if chain else ""
    return shown if shown.startswith(last) else f"{last}; first {shown}"


_REQUESTS = {
    "hardware": (ReportVerdict.HARDWARE, "a script that fails on the CPU"),
    "data": (ReportVerdict.INFORMATION, "a script that makes its own input"),
    "package": (ReportVerdict.INFORMATION, "a script without that package, or where to get it"),
    "script": (ReportVerdict.INFORMATION, "the whole script, and how it is started"),
}


def judged(base: ReportAnswer, here: ReleaseResult, newest: ReleaseResult, claims: Claims) -> ReportAnswer:
    """Return the answer that two results give."""
    for each in (here, newest):
        kind, _, what = each.why.partition(": ")
        if kind in _REQUESTS and not (here.is_as_claimed or newest.is_as_claimed):
            verdict, asks = _REQUESTS[kind]
            return base.said(verdict, f"in {each.version} the script fails for another reason: {what}", asks)
    if not here.is_usable:
        if base.packages:
            names = ", ".join(base.packages)
            asks = f"a script without {names}, or where to get these versions"
            why = f"the packages that it needs cannot be installed: {names}"
            return base.said(ReportVerdict.INFORMATION, why, asks)
        return base.said(ReportVerdict.UNKNOWN, f"torch {here.version} cannot be installed here: {here.failure}")
    same = here.version == newest.version
    claim = claims.claim
    if claim.is_printed and not claim.seen and {here.is_as_claimed, newest.is_as_claimed} == {True}:
        why = f"{claim.expected} is printed nowhere, and the report does not say what is printed instead"
        return base.said(ReportVerdict.UNKNOWN, why, "what the script prints, and what it should print")
    if here.is_as_claimed and newest.is_as_claimed:
        where = f"in {here.version}" if same else f"in {here.version} and in {newest.version}, the newest"
        return base.said(ReportVerdict.REPRODUCES, f"the failure shows {where}")
    if here.is_as_claimed and newest.outcome is ShownOutcome.PASS:
        why = f"the failure shows in {here.version}, and the script passes in {newest.version}"
        return base.said(ReportVerdict.FIXED, why)
    if here.is_as_claimed:
        why = f"the failure shows in {here.version}; {newest.version} shows something else: {newest.failure}"
        return base.said(ReportVerdict.REPRODUCES, why)
    if newest.is_as_claimed and here.outcome is ShownOutcome.PASS:
        why = f"the script passes in {here.version}, and the failure shows in {newest.version}"
        return base.said(ReportVerdict.REPRODUCES, why)
    if newest.is_as_claimed:
        why = f"the failure shows in {newest.version}; the script {here.words}: {here.failure}"
        return base.said(ReportVerdict.REPRODUCES, why)
    if ShownOutcome.OTHER in {here.outcome, newest.outcome}:
        other = here if here.outcome is ShownOutcome.OTHER else newest
        why = f"the run in {other.version} decides nothing: {other.failure or 'it is too slow'}"
        return base.said(ReportVerdict.UNKNOWN, why)
    if here.outcome is not ShownOutcome.PASS:
        report = f"; {here.why}" if here.why else ""
        return base.said(ReportVerdict.ANOTHER, f"{here.version} shows another failure, {here.failure}{report}")
    if newest.outcome is not ShownOutcome.PASS:
        why = f"the script passes in {here.version}; {newest.version} shows {newest.failure}"
        return base.said(ReportVerdict.ANOTHER, why)
    if claim.outcome is None and not claim.is_printed and not claim.is_silent:
        why = "the script passes, and the report tells nothing that an outcome could show: speed and memory are not"
        asks = "what it prints and should print, or a number; `whichtorch bisect --measure` searches for its change"
        return base.said(ReportVerdict.UNKNOWN, why, asks)
    where = here.version if same else f"{here.version} and {newest.version}"
    where += f", {FLAKY_RUNS} times each" if claims.is_flaky else ""
    return base.said(ReportVerdict.NOT_SEEN, f"the script passes in {where}", "what else the failure needs")


def as_far_as_taken_over(answer: ReportAnswer, *, is_started_so: bool) -> ReportAnswer:
    """Return an answer that denies nothing of what ran otherwise than the report says."""
    is_red = answer.verdict in {ReportVerdict.ANOTHER, ReportVerdict.INFORMATION}
    if not answer.differences or not (answer.verdict is ReportVerdict.NOT_SEEN or (is_red and not is_started_so)):
        return answer
    return answer.said(ReportVerdict.UNKNOWN, "; ".join((answer.why, *answer.differences)), outcome=None, newest=None)


def with_boundary(answer: ReportAnswer) -> ReportAnswer:
    """Return an answer whose sentence names the releases between which the failure comes or goes."""
    if (edge := answer.boundary) is None:
        return answer
    is_fix = Version(edge.bad) < Version(edge.good)
    last, first = ("fails", "passes") if is_fix else ("passes", "fails")
    ends = (edge.bad, edge.good) if is_fix else (edge.good, edge.bad)
    gap = f", and {listed(edge.untested_between)} could not be tested" if edge.untested_between else ""
    why = f"{answer.why}: {ends[0]} is the last that {last}, {ends[1]} the first that {first}{gap}"
    return answer.model_copy(update={"why": why})
