"""Hang or slow: what decides it of an attempt that was stopped."""

import itertools
from typing import Any

import pytest

from tests.hangs.pictures import files, picture
from whichtorch.failures.deadline import Decider, StoppedLook, longer_look
from whichtorch.failures.verdict import Verdict, judge
from whichtorch.hangs.hang_diagnosis import agreeing, diagnose
from whichtorch.model import Attempt, AttemptEvidence, BusyLoop, Outcome, StoppedBy
from whichtorch.process.evidence.sampler import seconds_given
from whichtorch.process.evidence.waiting import HangKind
from whichtorch.process.supervision import Ending

MOVES = {"place": "train.py:9", "words": "busy in `while`", "moves": True}
STANDS = {"place": "train.py:9", "words": "busy in `while`"}
PLACE = [["multiply (model.py:3)", "<module> (train.py:9)"]] * 3
BUSY = {"paused": 0.4, "needed": 4.0, "seconds": {"core": 19}, "late": ["core"]}
CROWDED = BUSY | {"stretch": 4.5}
IDLE = {"paused": 12.0, "needed": 4.0, "seconds": {"core": 7}, "late": []}
SAMPLES = sorted({path.name.partition(".")[0] for path in files()})


def stopped(headway: dict[str, Any] | None, look: StoppedLook | None = None, **fields: Any) -> Verdict:
    """Judge an attempt of 20 s that was stopped."""
    evidence = {"headway": headway, "samples": PLACE if fields.get("moving") is False else []}
    evidence["loop"] = fields.pop("loop", None)
    given: dict[str, Any] = {"stopped_by": "timeout", "seconds": 20.0, "evidence": evidence}
    ending = Ending(**given | fields)
    return judge(ending, "", 1000, look or StoppedLook())


def timed_out(limit: float, headway: dict[str, Any] | None = None) -> Attempt:
    """Return a slow attempt that ended at its limit."""
    evidence = AttemptEvidence.model_validate({"headway": headway})
    return Attempt(outcome=Outcome.SLOW, seconds=limit, stopped_by=StoppedBy.TIMEOUT, limit=limit, evidence=evidence)


def native(**fields: Any) -> StoppedLook:
    """Return a look that found native code running."""
    return StoppedLook(kind=HangKind.SPIN_NATIVE, **fields)


def test_what_is_slow_on_a_crowded_machine_says_so() -> None:
    """Who waited for cores most of the time learns that the machine is a reason."""
    assert stopped(CROWDED, moving=True).note.endswith("; waiting for cores made it take 4 times as long")
    assert "cores" not in stopped(BUSY, moving=True).note
    assert "cores" not in stopped(IDLE | {"stretch": 4.5}).note


@pytest.mark.parametrize(
    ("verdict", "outcome", "decided"),
    [
        (stopped(IDLE), Outcome.HANG, Decider.IDLE),
        (stopped(IDLE | {"wakes_in": 35.0}), Outcome.SLOW, Decider.ASLEEP),
        (stopped(IDLE | {"wakes_in": 50.0}), Outcome.HANG, Decider.IDLE),  # the longer look would not see it wake
        (stopped(BUSY, moving=True), Outcome.SLOW, Decider.MOVING),
        (stopped(BUSY, busy=True), Outcome.SLOW, Decider.OPEN),
        (stopped(BUSY, busy=False), Outcome.SLOW, Decider.OPEN),
        (stopped(BUSY | {"late": ["core", "disk"]}, moving=False), Outcome.SLOW, Decider.HEADWAY),
        (stopped(BUSY, StoppedLook(kind=HangKind.SPIN_PYTHON), moving=False), Outcome.SLOW, Decider.OPEN),
        (stopped(BUSY, StoppedLook(kind=HangKind.CHILD), moving=False), Outcome.SLOW, Decider.OPEN),
        (stopped(CROWDED, StoppedLook(kind=HangKind.SPIN_PYTHON), moving=False), Outcome.SLOW, Decider.CROWDED),
        (
            stopped(CROWDED, StoppedLook(kind=HangKind.SPIN_PYTHON, is_again=True), moving=False),
            Outcome.SLOW,
            Decider.OPEN,
        ),
        (stopped(BUSY, StoppedLook(goal=20.0), moving=False), Outcome.HANG, Decider.LONGER_LOOK),
        (
            stopped(BUSY, StoppedLook(kind=HangKind.SPIN_PYTHON), moving=False, loop=MOVES),
            Outcome.SLOW,
            Decider.PROGRESS,
        ),
        (stopped(BUSY, StoppedLook(goal=20.0), moving=False, loop=MOVES), Outcome.SLOW, Decider.PROGRESS),
        (stopped(BUSY, StoppedLook(goal=20.0), moving=False, loop=STANDS), Outcome.HANG, Decider.LONGER_LOOK),
        (stopped(None, stopped_by="stall", loop=STANDS | {"repeats": True}), Outcome.HANG, Decider.REPEATS),
        (stopped(BUSY, native(), moving=False), Outcome.SLOW, Decider.NATIVE),
        (stopped(BUSY, StoppedLook(), moving=False), Outcome.SLOW, Decider.NATIVE),
        (stopped(BUSY, StoppedLook(kind=HangKind.SLOW_COMPILE), moving=False), Outcome.SLOW, Decider.COMPILE),
        (stopped(IDLE, StoppedLook(kind=HangKind.SLOW_COMPILE)), Outcome.SLOW, Decider.COMPILE),
        (stopped(None, StoppedLook(kind=HangKind.SLOW_COMPILE), stopped_by="stall"), Outcome.HANG, Decider.STALL),
    ],
)
def test_the_first_evidence_that_is_known_decides(verdict: Verdict, outcome: Outcome, decided: Decider) -> None:
    """Each verdict says which evidence it rests on."""
    assert (verdict.outcome, verdict.decided) == (outcome, decided)


def test_native_code_gets_the_longer_look_once() -> None:
    """One place of native code is a hang only where a longer look has shown it, here or elsewhere."""
    longer = stopped(BUSY, native(goal=20.0), moving=False)
    assert (longer.outcome, longer.decided) == (Outcome.HANG, Decider.LONGER_LOOK)
    again = stopped(BUSY, native(hung_before={longer.signature}.__contains__), moving=False)
    assert (again.outcome, again.decided, again.signature) == (Outcome.HANG, Decider.KNOWN_PLACE, longer.signature)
    assert again.note == "busy at the same place until the clock ended, where it hung before"
    elsewhere = stopped(BUSY, native(hung_before={"spins in other (model.py)"}.__contains__), moving=False)
    assert elsewhere.outcome is Outcome.SLOW


@pytest.mark.parametrize(
    ("look", "fields", "note"),
    [
        (StoppedLook(kind=HangKind.SLOW_COMPILE, goal=20.0), {}, "still compiling after 20 s"),
        (native(goal=20.0), {"moving": True}, "still moving after 20 s"),
        (StoppedLook(goal=20.0), {"busy": True}, "still busy after 20 s"),
    ],
)
def test_the_longer_look_decides(look: StoppedLook, fields: dict[str, Any], note: str) -> None:
    """What goes on even in the longer look counts as a hang, and the note says what went on."""
    verdict = stopped(BUSY, look, **fields)
    assert (verdict.outcome, verdict.decided, verdict.note) == (Outcome.HANG, Decider.LONGER_LOOK, note)


@pytest.mark.parametrize(
    ("headway", "limit"), [(None, 60), (BUSY, 60), (BUSY | {"stretch": 2.5}, 150), (BUSY | {"stretch": 40.0}, 600)]
)
def test_the_longer_look_is_longer_on_a_crowded_machine(headway: dict[str, Any] | None, limit: float) -> None:
    """Three times as long, and as much longer as the queue for the cores made it, up to the most that there is."""
    slow = timed_out(20, headway)
    assert longer_look(slow, 20, 1000) == (60, limit)
    assert longer_look(slow, 20, 100) == (60, min(limit, 100))
    assert longer_look(slow, 20, 50) == (50, 50)
    assert longer_look(slow, 20, 1000, 1.5) == (30, max(limit / 2, 25))


def test_the_longer_look_after_a_brief_one_is_as_long_as_the_test_is_due() -> None:
    """What a brief look left open is given three times what the test is due, not of what the brief look had."""
    assert longer_look(timed_out(10), 60, 180) == (180, 180)


def test_a_longer_look_that_was_kept_waiting_decides_nothing() -> None:
    """Of 20 s on a machine that made it four times as long, 5 s were of use: it is still slow, and looked at again."""
    verdict = stopped(CROWDED, StoppedLook(goal=20.0), moving=True)
    assert (verdict.outcome, verdict.decided) == (Outcome.SLOW, Decider.CROWDED)
    assert verdict.note == "still moving after 20 s, most of which it waited for a core"
    assert stopped(CROWDED, StoppedLook(goal=20.0), moving=True, seconds=90.0).outcome is Outcome.HANG
    for look in (StoppedLook(goal=20.0), native(goal=20.0)):  # at one place all the time
        assert stopped(CROWDED, look, moving=False).decided == Decider.CROWDED
    assert stopped(CROWDED, native(goal=20.0), moving=False, seconds=90.0).outcome is Outcome.HANG


def test_an_end_by_the_goal_is_enough() -> None:
    """However the queue for the cores grew in the seconds after the end stood, the look has decided."""
    for stretch, seconds in ((1.4, 26.0), (2.0, 40.0), (8.0, 100.0)):
        assert seconds_given(25.5, 26.0, 20.0, stretch, 100.0) == seconds
        verdict = stopped(BUSY | {"stretch": stretch}, StoppedLook(goal=20.0), moving=True, seconds=seconds)
        assert verdict.outcome is (Outcome.HANG if seconds < 100 else Outcome.SLOW)  # it ran into its limit before
    assert stopped(BUSY | {"stretch": 2.0}, StoppedLook(goal=20.0), moving=True, seconds=26.0).outcome is Outcome.SLOW


def test_a_compile_that_does_nothing_is_not_looked_at_again() -> None:
    """A pause as long as the look before it ends a longer look early, and that is enough, whatever its stacks show."""
    look = StoppedLook(kind=HangKind.SLOW_COMPILE, goal=80.0)
    assert stopped(IDLE, look).outcome is Outcome.HANG
    assert stopped(IDLE | {"wakes_in": 1.0}, look).outcome is Outcome.SLOW


def test_who_is_about_to_wake_is_waited_for_once_more() -> None:
    """A longer look that ends just before a sleeper wakes decides nothing; the next one lasts beyond that."""
    asleep = IDLE | {"wakes_in": 2.0}
    verdict = stopped(asleep, StoppedLook(goal=20.0))
    assert (verdict.outcome, verdict.decided, verdict.note) == (Outcome.SLOW, Decider.ASLEEP, "still asleep after 20 s")
    assert stopped(IDLE | {"wakes_in": 12.0}, StoppedLook(goal=20.0)).outcome is Outcome.HANG
    sleeper = timed_out(5.0, IDLE | {"wakes_in": 10.0})
    assert longer_look(sleeper, 5.0, 100.0) == (36.25, 36.25)
    assert longer_look(sleeper, 5.0, 15.0) == (15.0, 15.0)
    assert longer_look(timed_out(5.0, IDLE | {"wakes_in": 0.0}), 5.0, 100.0) == (15.0, 15.0)


def test_a_brief_look_calls_only_a_known_place_a_hang() -> None:
    """What is busy at one place for less than it is due is slow, unless it hung there before."""
    look = StoppedLook(kind=HangKind.SPIN_PYTHON, is_brief=True)
    verdict = stopped(BUSY, look, moving=False)
    assert (verdict.outcome, verdict.decided) == (Outcome.SLOW, Decider.OPEN)
    known = StoppedLook(kind=HangKind.SPIN_PYTHON, is_brief=True, hung_before=lambda _: True)
    verdict = stopped(BUSY, known, moving=False)
    assert (verdict.outcome, verdict.decided) == (Outcome.HANG, Decider.KNOWN_PLACE)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_verdict_contradicts_its_diagnosis(name: str) -> None:
    """However an attempt with these stacks was stopped, what is called a hang is not called a slow compile."""
    found = diagnose(picture(name))
    for by, headway, moving, is_longer in itertools.product(
        ("timeout", "stall"), (None, BUSY, IDLE), (None, True, False), (True, False)
    ):
        look = StoppedLook(kind=found.kind, goal=20.0 if is_longer else None)
        verdict = stopped(headway, look, stopped_by=by, moving=moving)
        told = agreeing(found, verdict.outcome, None).kind
        assert (verdict.outcome, told) != (Outcome.HANG, HangKind.SLOW_COMPILE)
        assert told in {found.kind, HangKind.ENDLESS_COMPILE}


def test_a_compile_is_among_the_samples() -> None:
    """The rule above is tried on a compile."""
    assert HangKind.SLOW_COMPILE in {diagnose(picture(name)).kind for name in SAMPLES}


def test_a_repeated_state_is_an_endless_loop() -> None:
    """The diagnosis tells the user's loop first, then what it called; a state that repeats names the kind."""
    found = diagnose(picture("spin_python"))
    loop = BusyLoop(place="train.py:9", words="busy in `while True` (train.py:9) for 3 of 4 s", repeats=True)
    told = agreeing(found, Outcome.HANG, loop)
    assert told.kind is HangKind.ENDLESS_LOOP
    assert told.summary == f"{loop.words}; {found.summary}"
    slow = agreeing(found, Outcome.SLOW, loop.model_copy(update={"repeats": False, "moves": True}))
    assert (slow.kind, slow.summary) == (found.kind, told.summary)


def test_what_is_busy_is_named_by_the_users_line() -> None:
    """The user's line names a hang of what was busy, whatever frames of a library it was in; what waits is not."""
    look = StoppedLook(kind=HangKind.SPIN_NATIVE, place="train.py:9", goal=20.0)
    assert stopped(BUSY, look, moving=False).signature == "spins in train.py:9"
    assert stopped(IDLE, look, busy=False).signature == "idle"
    known = native(place="train.py:9", hung_before={"spins in train.py:9"}.__contains__)
    assert stopped(BUSY, known, moving=False).decided == Decider.KNOWN_PLACE
