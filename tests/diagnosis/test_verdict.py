"""From how a process ended to an outcome and a signature."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.diagnosis.deadline import StoppedLook
from matrix.diagnosis.verdict import judge
from matrix.model import Attempt, Outcome, StoppedBy, combine
from matrix.process.supervision import Ending

MEMORY = 1000

TRACEBACK = """\
Traceback (most recent call last):
  File "/somewhere/inner.py", line 3, in helper
    raise KeyError("first")
KeyError: 'first'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/me/repro.py", line 12, in <module>
    f(x)
  File "/env/lib/torch/_subclasses/fake_tensor.py", line 1234, in merge_devices
    raise RuntimeError(
torch._dynamo.exc.TorchRuntimeError: found two different devices cpu, meta
  Explanation: a hint

from user code:
   File "/home/me/repro.py", line 8, in f
    return x.add_(y)

warning: No CUDA runtime is found
"""

FAULTHANDLER = """\
Fatal Python error: Floating point exception

Current thread 0x00007f1d6be29740 (most recent call first):
  File "/env/lib/torch/_ops.py", line 1123 in __call__
  File "/home/me/repro.py", line 3 in <module>

Extension modules: numpy.core._multiarray_umath (total: 1)
"""


def ending(**fields: Any) -> Ending:
    return Ending(**({"stopped_by": "exit", "exit_code": None, "signal": None, "seconds": 4.0} | fields))


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"exit_code": 0}, Outcome.PASS),
        ({"exit_code": 125}, Outcome.SKIP),
        ({"exit_code": 1}, Outcome.FAIL),
        ({"signal": "SIGSEGV"}, Outcome.CRASH),
        ({"signal": "SIGKILL", "peak_rss_mb": 10}, Outcome.CRASH),
        ({"signal": "SIGKILL", "peak_rss_mb": 900}, Outcome.OOM),
        ({}, Outcome.ERROR),
        ({"exit_code": 0, "problem": "the supervisor died"}, Outcome.ERROR),
        ({"stopped_by": "stall"}, Outcome.HANG),
        ({"stopped_by": "memory"}, Outcome.OOM),
        ({"stopped_by": "processes"}, Outcome.OOM),
        ({"stopped_by": "output"}, Outcome.ERROR),
        ({"stopped_by": "interrupt"}, Outcome.ERROR),
        ({"stopped_by": "timeout", "cpu_seconds": 0.1}, Outcome.HANG),
        ({"stopped_by": "timeout", "cpu_seconds": 4, "busy": False}, Outcome.HANG),
        ({"stopped_by": "timeout", "cpu_seconds": 0.1, "busy": True}, Outcome.SLOW),
        ({"stopped_by": "timeout", "cpu_seconds": 4, "moving": False}, Outcome.SLOW),
        ({"stopped_by": "timeout", "cpu_seconds": 4, "moving": True}, Outcome.SLOW),
        ({"stopped_by": "timeout", "cpu_seconds": 4, "moving": None}, Outcome.SLOW),
    ],
)
def test_outcome_follows_from_how_it_ended(fields: dict[str, object], outcome: Outcome) -> None:
    """Each way to end has its one outcome; without stacks, nothing that was busy is a hang at first."""
    assert judge(ending(**fields), "", MEMORY).outcome is outcome


def test_every_way_to_stop_is_judged() -> None:
    """No value of StoppedBy is left without an outcome."""
    for way in StoppedBy:
        assert isinstance(judge(ending(stopped_by=way.value), "", MEMORY).outcome, Outcome)


def test_failure_is_named_by_its_last_exception_and_frames() -> None:
    """Neither the chained cause, nor what follows the exception, nor the last line names a failure."""
    assert judge(ending(exit_code=1), TRACEBACK, MEMORY).signature == (
        "RuntimeError in merge_devices (fake_tensor.py) < <module> (repro.py:12)"
    )


def test_failure_without_traceback_is_named_by_its_exit_code() -> None:
    """A bare exit code is all there is to tell two of them apart."""
    assert judge(ending(exit_code=3), "some warning\n", MEMORY).signature == "exit code 3"


def test_crash_is_named_by_signal_and_python_frames() -> None:
    """The frames that faulthandler wrote say where a signal struck."""
    verdict = judge(ending(signal="SIGFPE"), FAULTHANDLER, MEMORY)
    assert verdict.signature == "SIGFPE in <module> (repro.py:3)"


def test_deadlock_is_named_by_what_its_threads_wait_for() -> None:
    """Thread and process numbers change from run to run; the kinds of waits do not."""
    stall = [{"pid": 5, "tid": tid, "wait": wait} for tid, wait in ((5, "child"), (6, "futex"), (7, "futex"))]
    verdict = judge(ending(stopped_by="stall", evidence={"stall": stall}), "", MEMORY)
    assert verdict.signature == "stuck: child, 2 x futex"


@pytest.mark.parametrize(("moving", "note"), [(True, "still moving after 240 s"), (None, "still busy after 240 s")])
def test_the_longer_look_claims_no_more_than_was_seen(moving: bool | None, note: str) -> None:
    """Where no stacks could be read, nobody knows whether it moved."""
    late = ending(stopped_by="timeout", busy=True, moving=moving, seconds=240.0)
    verdict = judge(late, "", MEMORY, StoppedLook(goal=240.0))
    assert (verdict.outcome, verdict.note) == (Outcome.HANG, note)


def attempt(outcome: Outcome, seconds: float = 1) -> Attempt:
    return Attempt(outcome=outcome, seconds=seconds, stopped_by=StoppedBy.EXIT)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([Outcome.PASS], Outcome.PASS),
        ([Outcome.PASS, Outcome.HANG, Outcome.PASS], Outcome.HANG),
        ([Outcome.FAIL, Outcome.FAIL, Outcome.HANG], Outcome.FAIL),
        ([Outcome.FAIL, Outcome.HANG], Outcome.HANG),
        ([Outcome.SLOW, Outcome.PASS], Outcome.PASS),
        ([Outcome.SLOW, Outcome.HANG], Outcome.HANG),
        ([Outcome.SLOW], Outcome.SLOW),
    ],
)
def test_of_several_attempts_a_red_one_speaks(outcomes: list[Outcome], expected: Outcome) -> None:
    """A pass does not take a hang back, and a slow attempt speaks only when nothing decided."""
    speaker = combine([attempt(outcome) for outcome in outcomes])
    assert speaker is not None
    assert speaker.outcome is expected


def test_no_attempt_speaks_for_nothing() -> None:
    """A cell that never ran has no speaker."""
    assert combine([]) is None
