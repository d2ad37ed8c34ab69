"""What other releases tell of a case: which one changed it, what the newest shows, and the fix as a patch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.strategy.search_state import AnswerKind
from whichtorch.matrix.diagnosis.failure import Changed
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.model import Outcome
from whichtorch.matrix.run.variation import Variation
from whichtorch.matrix.triage.case import PATCH, Newest
from whichtorch.matrix.triage.places import NEWEST

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.matrix.bisect.bisection import Bisection
    from whichtorch.matrix.fix.commission import FixAnswer
    from whichtorch.matrix.triage.case import Case
    from whichtorch.matrix.triage.places import CaseTest, OtherReleases

FIX_SECONDS = 300.0  # of trials: most patches are found within; the command `fix` takes as long as it is given


def change_of(
    case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest, seconds: float | None
) -> tuple[Bisection | None, str]:
    """Search all releases with the smallest script; return the answer, and the file of the script that gave it.

    If the smallest script passes nowhere, the whole one is used: its user made it pass in healthy releases.
    """
    assert case.environment is not None
    known, bisected = case.bisection, case.bisected
    for script in dict.fromkeys((case.smallest, case.script)):
        found = other_releases.searched(folder / script, test, case.environment.torch, seconds)
        if known is None or known.interrupted or found.answer is AnswerKind.BOUNDARY:
            known, bisected = found, script
        if found.interrupted or any(probe.outcome is Outcome.PASS for probe in found.probes):
            break
    return known, bisected


def newest_of(case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest) -> Newest | None:
    """Return how the smallest script of a case ends in the newest release; None where that release cannot be used."""
    assert case.reproduction is not None
    source = (folder / case.smallest).read_text(encoding="utf-8")
    with other_releases.runs(NEWEST, test) as runs:
        environment = runs.environment
        if not environment.is_usable:
            other_releases.tell(f"{environment.label} cannot be used: {environment.reason or environment.outcome}")
            return None
        run = runs.run(case.reproduction.limit, Variation(source=source))
    record, failure = run.record, case.smallest_failure
    return Newest(
        torch=environment.torch,
        outcome=record.attempt.outcome,
        signature=record.signature or "",
        message=record.attempt.message,
        is_same=failure is not None and failure.compare(run.failure, Changed.SCRIPT_AND_RELEASE).is_same,
    )


def patch_for(
    case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest, seconds: float | None
) -> FixAnswer | None:
    """Search the healthy release's Python for what cures the script; write the patch into the case's folder.

    Return None where such a search cannot help.
    """
    assert case.reproduction is not None
    if not case.healthy_release:
        return None
    if not (case.calls or case.reproduction.outcome is Outcome.FAIL):
        other_releases.tell("fix: left out, it fails in native code")
        return None
    script, seconds = folder / case.bisected, min(FIX_SECONDS, FIX_SECONDS if seconds is None else seconds)
    try:
        found = other_releases.fixed(script, test, case.failing_release, case.healthy_release, seconds)
    except UsageError as error:  # the failure may be another one on the bad side of the change
        other_releases.tell(f"fix: left out, {error}")
        return None
    if found.fix is not None and found.fix.patch:
        (folder / PATCH).write_text(found.fix.patch, encoding="utf-8", errors="surrogateescape")
    return found
