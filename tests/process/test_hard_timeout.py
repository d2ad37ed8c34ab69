"""A timeout that somebody chose is wall clock: what is to be learnt is learnt before it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import PATIENCE
from tests.process.running import PROGRAMS, begin, headway_of, until
from tests.process.test_capture import needs_collectors
from whichtorch.inside.startup import FOLDER
from whichtorch.process.evidence.capture import NOT_PERMITTED
from whichtorch.process.evidence.headway import PAUSE
from whichtorch.process.supervisor import RESERVE, RESERVE_SHARE

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.process.supervision import Ending, Supervised

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
    pytest.mark.xdist_group("hard_timeout"),  # they measure
]
TIMEOUT = 4.0  # seconds
STUBBORN = """\
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
number = 0
while True:
    number += 1
    print(number, file=sys.stderr, flush=True)
"""
ENDS_LATE = """\
import os, sys, time
while not os.path.exists(os.environ["WHICHTORCH_STACKS"] + "/kernel.txt"):
    time.sleep(0.01)
sys.exit(7)
"""
SPINS = "while True:\n    pass\n"
ASLEEP_SINCE = """\
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    print(end, flush=True)
    time.sleep(0.02)
while True:
    time.sleep(0.5)
"""
IDLE = "import time\ntime.sleep(600)\n"


def start(folder: Path, text: str, *arguments: str, **fields: Any) -> Supervised:
    """Start a program whose stacks are taken, with a timeout that somebody chose."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stacks").mkdir()
    (folder / "script.py").write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    given: dict[str, Any] = {
        "argv": (sys.executable, str(folder / "script.py"), *arguments),
        "env": kept | {"PYTHONPATH": str(FOLDER), "WHICHTORCH_STACKS": str(folder / "stacks")},
        "timeout": TIMEOUT,
        "is_hard": True,
        "sample": True,
        "stacks": str(folder / "stacks"),
    }
    return begin(folder, "spins", **given | fields)


def ended(folder: Path, text: str, *arguments: str, **fields: Any) -> tuple[Ending, float]:
    """Return how a program ended, and the seconds that this took, seen from here."""
    began = time.monotonic()
    ending = start(folder, text, *arguments, **fields).wait()
    return ending, time.monotonic() - began


@needs_collectors
def test_a_program_that_ignores_sigterm_ends_with_its_timeout(tmp_path: Path) -> None:
    """However it resists and whatever it writes, it is ended, and its stacks are there (how soon: `stop_rows.py`)."""
    ending, _ = ended(tmp_path, STUBBORN)
    assert ending.stopped_by == "timeout", ending
    assert ending.seconds >= TIMEOUT
    assert any("script.py" in path.read_text(errors="replace") for path in (tmp_path / "stacks").iterdir())
    assert ending.diagnosis_seconds > 0


@pytest.mark.thorough
def test_a_program_that_ends_in_its_last_seconds_has_ended(tmp_path: Path) -> None:
    """While its stacks are taken it goes on, undisturbed, and its exit code counts."""
    timeout = 12.0
    ending, _ = ended(tmp_path, ENDS_LATE, timeout=timeout)
    assert (ending.stopped_by, ending.exit_code, ending.signal) == ("exit", 7, None), ending
    assert timeout * (1 - RESERVE_SHARE) <= ending.seconds < timeout


def test_a_timeout_that_nobody_chose_has_no_last_seconds(tmp_path: Path) -> None:
    """What it stops has had all of it, and its stacks are taken afterwards."""
    ending, seconds = ended(tmp_path, SPINS, timeout=2.0, is_hard=False)
    assert ending.stopped_by == "timeout"
    assert ending.diagnosis_seconds > 0
    assert seconds >= ending.seconds + ending.diagnosis_seconds


def test_without_stacks_a_program_has_all_of_its_time(tmp_path: Path) -> None:
    """Where nothing is to be learnt, nothing is kept in reserve."""
    ending, _ = ended(tmp_path, STUBBORN, stacks=None, sample=False, timeout=1.0)
    assert (ending.stopped_by, ending.diagnosis_seconds) == ("timeout", 0)
    assert ending.seconds >= 1.0


@pytest.mark.parametrize("timeout", [1.5, 3.0])
def test_a_short_timeout_is_long_enough_to_see_that_nothing_moves(tmp_path: Path, timeout: float) -> None:
    """The time kept for the stacks is not counted among that in which something might have moved."""
    for attempt in range(20):
        ending, _ = ended(tmp_path / str(attempt), IDLE, timeout=timeout)
        assert ending.stopped_by == "timeout"
        if not headway_of(ending).makes_headway:  # else its start, or the look at it, waited too long for a core
            break
    assert not headway_of(ending).makes_headway


@pytest.mark.thorough
def test_a_pause_goes_on_while_the_stacks_are_taken(tmp_path: Path) -> None:
    """What does nothing from before its last seconds to its end has done nothing for all of that time."""
    timeout = 12.0
    active = timeout * (1 - RESERVE_SHARE) - PAUSE * 0.8  # without its last seconds its pause is no evidence
    for attempt in range(5):
        ending, _ = ended(tmp_path / str(attempt), ASLEEP_SINCE, str(active), timeout=timeout, collectors={})
        if not headway_of(ending).makes_headway:  # else its start, or the look at it, waited too long for a core
            break
    assert ending.stopped_by == "timeout"
    assert not headway_of(ending).makes_headway, ending.evidence


@pytest.mark.thorough
@needs_collectors
@pytest.mark.parametrize("active", [0.0, 5.8])
def test_a_sleep_stays_one_when_its_stacks_are_taken(tmp_path: Path, active: float) -> None:
    """Reading a stack interrupts the sleep, which is then not taken for a pause without end, however short it was."""
    text = ASLEEP_SINCE.replace("while True:\n    time.sleep(0.5)", "time.sleep(20)")
    headway = headway_of(ended(tmp_path, text, str(active), timeout=8.0)[0])
    assert headway.makes_headway or headway.wakes_in


def test_an_interrupt_does_not_wait_for_the_last_seconds(tmp_path: Path) -> None:
    """Whoever stops the tool is not kept waiting until the stacks would be taken."""
    timeout = 4 * PATIENCE
    supervised = start(tmp_path, STUBBORN, timeout=timeout)
    assert until(lambda: (tmp_path / "err").exists() and (tmp_path / "err").stat().st_size)
    supervised.interrupt()
    ending = supervised.wait()
    assert ending.stopped_by == "interrupt"
    assert ending.seconds < timeout - RESERVE


def is_deniable() -> bool:
    without = (sys.executable, str(PROGRAMS / "without_ptrace.py"), "true")
    return sys.platform == "linux" and subprocess.run(without, check=False).returncode == 0


@pytest.mark.thorough
@needs_collectors
@pytest.mark.parametrize("is_stall", [True, False])
def test_what_may_not_be_read_is_asked_once_its_time_is_over(tmp_path: Path, is_stall: bool) -> None:
    """Where no collector may read it, a process writes its own stacks: nothing that goes on is disturbed by that."""
    if not is_deniable():
        pytest.skip("needs seccomp")
    text = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n"
    for timeout in (PATIENCE,) if is_stall else (TIMEOUT, 4 * TIMEOUT, 8 * TIMEOUT):
        folder = tmp_path / f"{timeout:g}"
        program = f"""
import sys
sys.path[:0] = [{str(PROGRAMS.parents[2])!r}]
from pathlib import Path
from tests.process.test_hard_timeout import ended
ending, _ = ended(Path({str(folder)!r}), {text!r}, stall={is_stall}, timeout={timeout})
print(ending.stopped_by, ending.note, sep=";")
"""
        without = (sys.executable, str(PROGRAMS / "without_ptrace.py"), sys.executable, "-c", program)
        answer = subprocess.run(without, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
        if "the time was over" not in answer.stdout:  # else the collectors had too little time to be refused
            break
    assert answer.stdout == f"{'stall' if is_stall else 'timeout'};{NOT_PERMITTED}\n", answer.stderr
    (own,) = (folder / "stacks").glob("*.faulthandler.txt")
    assert 'script.py", line 4 in <module>' in own.read_text()
