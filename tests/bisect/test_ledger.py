"""What records say of a search's positions: which failure it is about, and what each run is evidence of."""

import pytest

from whichtorch.bisect.ledger import PositionEvidence, observations_of, reference_of
from whichtorch.failures.failure import Failure
from whichtorch.model import Attempt, Cell, Environment, Limits, Outcome, Record, StoppedBy
from whichtorch.search.search_state import Find, ProbeRun, SearchVerdict

ABSENT = ("AttributeError in <module> (repro.py)", "module 'torch' has no attribute 'compile'")
RAISED = ("ValueError in <module> (repro.py)", "wrong")
OTHER = ("KeyError in <module> (repro.py)", "'x'")
REMOVED = ("ModuleNotFoundError in <module> (repro.py)", "No module named 'torchvision.transforms.functional_tensor'")
NEEDY = ("ModuleNotFoundError in <module> (repro.py)", "No module named 'einops'")


def record(outcome: Outcome, what: tuple[str | None, str] = (None, ""), limit: float = 60) -> Record:
    signature, message = what
    attempt = Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.EXIT, message=message, limit=limit)
    limits = Limits(timeout=60, memory_mb=4096)
    return Record(
        key="key",
        environment="id",
        scenario="repro.py",
        source_hash="hash",
        variant={},
        limits=limits,
        attempt=attempt,
        signature=signature,
    )


def position_evidence(position: int, *records: Record, outcome: Outcome = Outcome.PASS) -> PositionEvidence:
    environment = Environment(
        id="id", label=f"torch-2.{position}.0", torch=f"2.{position}.0", python="3.11.7", build="pypi", config="default"
    )
    cell = Cell(environment="id", scenario="repro.py", outcome=outcome, expected=True, seconds=1)
    return PositionEvidence(position=position, environment=environment, cell=cell, records=records)


def passing(position: int) -> PositionEvidence:
    return position_evidence(position, record(Outcome.PASS))


def failing(position: int, what: tuple[str, str] = RAISED) -> PositionEvidence:
    return position_evidence(position, record(Outcome.FAIL, what), outcome=Outcome.FAIL)


@pytest.mark.parametrize(
    ("evidence", "find", "expected"),
    [
        ([], Find.ANY, None),
        ([passing(0), passing(9)], Find.ANY, None),
        ([passing(0), failing(9)], Find.ANY, RAISED),
        ([failing(0), passing(9)], Find.ANY, RAISED),
        ([failing(0, OTHER), failing(9)], Find.ANY, RAISED),  # both fail: the newer one is in use
        ([failing(0, OTHER), failing(9)], Find.FIX, RAISED),  # and whoever has it hopes for a fix
        ([failing(0, OTHER), passing(2), failing(4), passing(9)], Find.ANY, RAISED),  # the last before what passes
        ([failing(0, OTHER), passing(2), failing(4), passing(9)], Find.FIX, RAISED),
        ([passing(0), failing(4, OTHER), failing(6), passing(9)], Find.ANY, RAISED),
        ([passing(0), failing(4, OTHER), failing(6), passing(9)], Find.REGRESSION, OTHER),  # the first after it
        ([passing(0), failing(4, OTHER), failing(6)], Find.ANY, OTHER),
        ([passing(0), failing(1), passing(3), failing(4, OTHER), failing(6)], Find.ANY, OTHER),
        ([failing(0, OTHER), passing(2), failing(4)], Find.FIX, OTHER),  # nothing fixes the other one
        ([failing(0, ABSENT), failing(9)], Find.FIX, RAISED),  # a lack is no failure where there is another
        ([failing(0, ABSENT), passing(9)], Find.ANY, None),  # what came was not broken before
        ([failing(0, ABSENT), passing(9)], Find.FIX, ABSENT),  # but asked for by name
        ([passing(0), failing(9, ABSENT)], Find.ANY, ABSENT),  # it was taken away
        ([passing(0), failing(4, ABSENT), failing(9)], Find.ANY, ABSENT),  # before something else broke
        ([failing(9, REMOVED)], Find.ANY, REMOVED),  # an older one may have it
        ([failing(0, ABSENT), failing(9, REMOVED)], Find.ANY, REMOVED),
        ([failing(0, REMOVED), passing(5), failing(9, ABSENT)], Find.ANY, ABSENT),
        ([failing(0, NEEDY), failing(9, NEEDY)], Find.ANY, None),  # no release brings a package that is not installed
        ([passing(0), failing(9, NEEDY)], Find.ANY, NEEDY),  # but this one did
    ],
)
def test_the_failure_that_a_search_is_about(
    evidence: list[PositionEvidence], find: Find, expected: tuple[str, str] | None
) -> None:
    """It is the one at the newest change; a version's lack of what the test uses only where there is no other."""
    reference = reference_of(evidence, find)
    wanted = expected and Failure(outcome=Outcome.FAIL, signature=expected[0], message=expected[1])
    assert reference == wanted
    assert reference_of(evidence[::-1], find) == wanted


def test_the_failure_at_the_named_bound_is_meant() -> None:
    """Of two failures the one that the user calls bad is searched, whichever is newer."""
    both = [failing(0, OTHER), failing(9)]
    for named, (signature, says) in ((0, OTHER), (9, RAISED), (5, RAISED)):
        reference = reference_of(both, Find.ANY, named_bad=named)
        assert reference == Failure(outcome=Outcome.FAIL, signature=signature, message=says)


def test_the_failure_that_has_the_words_is_meant() -> None:
    """The words of a user choose among the failures, by outcome, signature or message, in any case of letters."""
    seen = [failing(0, OTHER), failing(4), passing(9)]
    for words, expected in (("keyerror", OTHER), ("'X'", OTHER), ("fail: ValueError", RAISED), ("", RAISED)):
        reference = reference_of(seen, Find.ANY, named=words)
        assert reference == Failure(outcome=Outcome.FAIL, signature=expected[0], message=expected[1])
    assert reference_of(seen, Find.ANY, named="no such words") is None


def test_any_failure_takes_a_lack_for_one() -> None:
    """Where any failure counts, or the user calls it bad, the lack at a bound counts, too."""
    reference = reference_of([failing(0, ABSENT), passing(9)], Find.ANY, any_failure=True)
    assert reference == Failure(outcome=Outcome.FAIL, signature=ABSENT[0], message=ABSENT[1])
    assert reference_of([failing(0, ABSENT), passing(9)], Find.ANY, named_bad=0) == reference


REFERENCE = Failure(outcome=Outcome.FAIL, signature=RAISED[0], message=RAISED[1])
HANG = Failure(outcome=Outcome.HANG, signature="stuck in f (repro.py)")


@pytest.mark.parametrize(
    ("seen", "reference", "any_failure", "expected"),
    [
        (passing(3), REFERENCE, False, SearchVerdict.GOOD),
        (failing(3), REFERENCE, False, SearchVerdict.BAD),
        (failing(3, OTHER), REFERENCE, False, SearchVerdict.DIFFERENT),
        (failing(3, OTHER), REFERENCE, True, SearchVerdict.BAD),
        (failing(3, ABSENT), REFERENCE, False, SearchVerdict.UNTESTABLE),
        (failing(3, ABSENT), REFERENCE, True, SearchVerdict.BAD),
        (failing(3), None, False, SearchVerdict.DIFFERENT),
        (position_evidence(3, record(Outcome.SKIP), outcome=Outcome.SKIP), REFERENCE, True, SearchVerdict.UNTESTABLE),
        (position_evidence(3, record(Outcome.ERROR), outcome=Outcome.ERROR), REFERENCE, True, SearchVerdict.UNTESTABLE),
        (position_evidence(3, outcome=Outcome.UNBUILDABLE), REFERENCE, True, SearchVerdict.UNTESTABLE),
        (
            position_evidence(3, record(Outcome.PASS), outcome=Outcome.VACUOUS),
            REFERENCE,
            True,
            SearchVerdict.UNTESTABLE,
        ),
        (
            position_evidence(3, record(Outcome.CRASH, ("SIGSEGV", "")), outcome=Outcome.CRASH),
            HANG,
            False,
            SearchVerdict.DIFFERENT,
        ),
    ],
)
def test_what_a_run_says(
    seen: PositionEvidence, reference: Failure | None, any_failure: bool, expected: SearchVerdict
) -> None:
    """Only the failure that is searched is bad, only a pass is good, and what was prevented is no evidence."""
    observations = observations_of([seen], reference, any_failure=any_failure)
    assert observations == (ProbeRun(position=3, verdict=expected),)


SLOW = record(Outcome.SLOW, limit=60)


@pytest.mark.parametrize(
    ("records", "reference", "any_failure", "expected"),
    [
        ([SLOW, SLOW], HANG, False, [(SearchVerdict.BAD, True)] * 2),
        ([SLOW], REFERENCE, False, [(SearchVerdict.DIFFERENT, True)]),
        ([SLOW], REFERENCE, True, [(SearchVerdict.BAD, True)]),
        ([SLOW, record(Outcome.PASS, limit=240)], HANG, False, [(SearchVerdict.GOOD, False)]),
        ([record(Outcome.PASS, limit=240), SLOW], HANG, False, [(SearchVerdict.GOOD, False)]),
        ([SLOW, record(Outcome.HANG, limit=240)], HANG, False, [(SearchVerdict.BAD, False)]),
        # a further slow run is not looked at for longer again: it counts as what the longer look came to
        ([SLOW, record(Outcome.PASS, limit=240), SLOW], HANG, False, [(SearchVerdict.GOOD, False)] * 2),
        ([SLOW, record(Outcome.HANG, limit=240), SLOW, SLOW], HANG, False, [(SearchVerdict.BAD, False)] * 3),
    ],
)
def test_what_was_still_moving_counts_until_a_longer_look(
    records: list[Record], reference: Failure, any_failure: bool, expected: list[tuple[SearchVerdict, bool]]
) -> None:
    """A run that the clock ended while it moved is provisional; a longer look stands for it and for later ones."""
    observations = observations_of([position_evidence(3, *records)], reference, any_failure=any_failure)
    assert [(run.verdict, run.provisional) for run in observations] == expected
