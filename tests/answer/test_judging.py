"""What two results of a report's script say of the report."""

from typing import Any

import pytest

from whichtorch.answer.answer import (
    ReleaseResult,
    ReportAnswer,
    ReportBoundary,
    ReportVerdict,
    ShownOutcome,
    as_far_as_taken_over,
    judged,
    more_telling,
    with_boundary,
)
from whichtorch.answer.claims import Claim, Claims
from whichtorch.model import Outcome

BASE = ReportAnswer(verdict=ReportVerdict.UNKNOWN, why="")
CLAIMS = Claims(claim=Claim(outcome=Outcome.FAIL, exceptions=(("ValueError", "x"),)))


def seen(letter: str, version: str, **fields: Any) -> ReleaseResult:
    """Return a result: c(laimed failure), o(ther failure), p(ass), or n(othing that can be judged)."""
    outcome = {"p": ShownOutcome.PASS, "n": ShownOutcome.OTHER}.get(letter, ShownOutcome.FAIL)
    return ReleaseResult(version=version, outcome=outcome, is_as_claimed=letter == "c", failure="E: e", **fields)


@pytest.mark.parametrize(
    ("letters", "verdict"),
    [
        ("cc", ReportVerdict.REPRODUCES),
        ("cp", ReportVerdict.FIXED),
        ("co", ReportVerdict.REPRODUCES),
        ("pc", ReportVerdict.REPRODUCES),
        ("pp", ReportVerdict.NOT_SEEN),
        ("op", ReportVerdict.ANOTHER),
        ("oo", ReportVerdict.ANOTHER),
        ("po", ReportVerdict.ANOTHER),
        ("np", ReportVerdict.UNKNOWN),
        ("nn", ReportVerdict.UNKNOWN),
    ],
)
def test_the_verdict_follows_from_what_both_releases_show(letters: str, verdict: ReportVerdict) -> None:
    here, newest = (seen(letter, version) for letter, version in zip(letters, ("2.1.0", "2.9.0"), strict=True))

    assert judged(BASE, here, newest, CLAIMS).verdict is verdict


@pytest.mark.parametrize(
    ("why", "verdict"),
    [
        ("hardware: no accelerator", ReportVerdict.HARDWARE),
        ("data: needs the network", ReportVerdict.INFORMATION),
        ("package: module 'x'", ReportVerdict.INFORMATION),
        ("script: name 'x' is not defined", ReportVerdict.INFORMATION),
    ],
)
def test_what_is_missing_here_is_no_other_failure_of_torch(why: str, verdict: ReportVerdict) -> None:
    here, newest = seen("o", "2.1.0", why=why), seen("o", "2.9.0", why=why)

    assert judged(BASE, here, newest, CLAIMS).verdict is verdict


@pytest.mark.parametrize(("letter", "claims"), [("c", Claims(claim=Claim(expected="7"))), ("p", Claims())])
def test_what_no_outcome_tells_is_neither_shown_nor_denied(letter: str, claims: Claims) -> None:
    """An expected text that is printed nowhere, and a script that passes though nothing is claimed of its outcome."""
    answer = judged(BASE, seen(letter, "2.1.0"), seen(letter, "2.9.0"), claims)

    assert (answer.verdict, answer.is_answer) == (ReportVerdict.UNKNOWN, False)


@pytest.mark.parametrize(
    ("verdict", "differences", "is_started_so", "expected"),
    [
        (ReportVerdict.NOT_SEEN, ("the report has x 1, this ran with 2",), True, ReportVerdict.UNKNOWN),
        (ReportVerdict.NOT_SEEN, (), True, ReportVerdict.NOT_SEEN),
        (ReportVerdict.ANOTHER, ("the report has x 1, this ran with 2",), True, ReportVerdict.ANOTHER),
        (ReportVerdict.ANOTHER, ("it ran without torchrun",), False, ReportVerdict.UNKNOWN),
        (ReportVerdict.FIXED, ("it ran without torchrun",), False, ReportVerdict.FIXED),
    ],
)
def test_what_ran_otherwise_than_the_report_says_denies_nothing(
    verdict: ReportVerdict, differences: tuple[str, ...], is_started_so: bool, expected: ReportVerdict
) -> None:
    """What it shows stays true."""
    answer = BASE.model_copy(update={"verdict": verdict, "differences": differences, "outcome": ShownOutcome.PASS})
    found = as_far_as_taken_over(answer, is_started_so=is_started_so)

    assert found.verdict is expected
    assert (found.outcome is None) is (expected is ReportVerdict.UNKNOWN)
    assert all(words in found.why for words in differences) or found is answer


def test_what_is_not_known_of_one_script_is_not_denied_by_another() -> None:
    known, unknown = (
        BASE.model_copy(update={"verdict": each}) for each in (ReportVerdict.NOT_SEEN, ReportVerdict.UNKNOWN)
    )

    assert more_telling(known, unknown) is unknown


@pytest.mark.parametrize(
    ("bad", "good", "untested", "words"),
    [
        ("2.1.0", "2.2.0", (), "2.1.0 is the last that fails, 2.2.0 the first that passes"),
        ("2.2.0", "2.1.0", (), "2.1.0 is the last that passes, 2.2.0 the first that fails"),
        ("2.1.0", "2.4.0", ("2.2.0", "2.3.0"), "2.4.0 the first that passes, and 2.2.0 and 2.3.0 could not be tested"),
    ],
)
def test_the_sentence_names_both_ends_of_the_change(bad: str, good: str, untested: tuple[str, ...], words: str) -> None:
    edge = ReportBoundary(bad=bad, good=good, confidence=1, untested_between=untested)

    assert with_boundary(BASE.model_copy(update={"boundary": edge})).why.endswith(words)
