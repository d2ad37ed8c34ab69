"""What other releases tell of a case: which one changed it, what the newest shows, and the fix as a patch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.strategy.search_state import AnswerKind
from whichtorch.matrix.diagnosis.failure import Changed
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.model import Outcome
from whichtorch.matrix.triage.case import PATCH, Newest
from whichtorch.matrix.triage.places import NEWEST
from whichtorch.matrix.trial.variation import Variation

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.matrix.triage.case import Case
    from whichtorch.matrix.triage.places import CaseTest, OtherReleases

FIX_SECONDS = 300.0  # of trials: most patches are found within; the command `fix` takes as long as it is given


def with_change(case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest, seconds: float | None) -> Case:
    """Return a case with a search of all releases by the smallest script.

    Where that is healthy nowhere, by the whole one: its user made it pass in healthy releases.
    """
    assert case.environment is not None
    for script in dict.fromkeys((case.smallest, case.script)):
        found = other_releases.searched(folder / script, test.variant, case.environment.torch, seconds)
        if case.bisection is None or case.bisection.interrupted or found.answer is AnswerKind.BOUNDARY:
            case = case.model_copy(update={"bisection": found, "bisected": script})
        if found.interrupted or any(probe.outcome is Outcome.PASS for probe in found.probes):
            break
    return case


def with_newest(case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest) -> Case:
    """Return a case with what its smallest script comes to in the newest release."""
    assert case.reproduction is not None
    source = (folder / case.smallest).read_text(encoding="utf-8")
    with other_releases.runs(NEWEST, test) as runs:
        environment = runs.environment
        if not environment.is_usable:
            other_releases.tell(f"{environment.label} cannot be used: {environment.reason or environment.outcome}")
            return case
        run = runs.run(case.reproduction.limit, Variation(source=source))
    record, failure = run.record, case.smallest_failure
    newest = Newest(
        torch=environment.torch,
        outcome=record.attempt.outcome,
        signature=record.signature or "",
        message=record.attempt.message,
        is_same=failure is not None and failure.compare(run.failure, Changed.SCRIPT_AND_RELEASE).is_same,
    )
    return case.model_copy(update={"newest": newest})


def with_fix(case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest, seconds: float | None) -> Case:
    """Return a case with what of the healthy release's Python cures the script; the patch is in the case's folder."""
    assert case.reproduction is not None
    if not case.healthy_release:
        return case
    if not (case.calls or case.reproduction.outcome is Outcome.FAIL):
        other_releases.tell("fix: left out, it fails in native code")
        return case
    script, seconds = folder / case.bisected, min(FIX_SECONDS, FIX_SECONDS if seconds is None else seconds)
    try:
        found = other_releases.fixed(script, test.variant, case.failing_release, case.healthy_release, seconds)
    except UsageError as error:  # the failure may be another one on the bad side of the change
        other_releases.tell(f"fix: left out, {error}")
        return case
    if found.fix is not None and found.fix.patch:
        (folder / PATCH).write_text(found.fix.patch, encoding="utf-8", errors="surrogateescape")
    return case.model_copy(update={"fix": found})
