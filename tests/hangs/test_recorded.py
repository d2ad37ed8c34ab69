"""What is said of real programs that hang, each of a kind that the library's rows know."""

import pytest

from tests.hangs.recorded import PROGRAMS, RECORDINGS, SENTENCES, diagnosed, picture, sentence
from whichtorch.hangs.hang_diagnosis import agreeing
from whichtorch.hangs.library import NATIVE_CALLS, ROWS, LibraryCall, NativeCall, library_call
from whichtorch.hangs.thread_state import ThreadState
from whichtorch.model import Outcome
from whichtorch.process.evidence.waiting import Waiting

NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))
EXPECTED = dict(line.split(": ", 1) for line in SENTENCES.read_text(encoding="utf-8").splitlines())
# Known by the names of functions only: other backends than gloo, and GPUs.
UNSEEN = {row for row in NATIVE_CALLS if row.name == "torch.distributed" or row.waiting is Waiting.DEVICE}


@pytest.mark.parametrize("name", NAMES)
def test_the_sentence_says_where_what_and_why(name: str) -> None:
    """A hang has its kind and its sentence; of what is slow it is not said that nobody could end its wait."""
    assert sentence(name) == EXPECTED[name]
    found = diagnosed(name)
    assert agreeing(found, Outcome.HANG, None).summary == found.summary
    slow = agreeing(found, Outcome.SLOW, None).summary
    assert "nobody is left" not in slow
    assert "nobody else runs" not in slow


def test_a_circle_of_locks_is_a_hang_whatever_else_works() -> None:
    """So is a lock that fork copied; a wait with a deadline may end, and who works may release a lock for another."""
    proven = {name for name in NAMES if name.startswith("work_beside") and diagnosed(name).proven}
    assert proven == {"work_beside_circle", "work_beside_fork"}


def test_every_program_is_recorded_and_expected() -> None:
    """No program lies about without a recording, no recording without its program and what is expected of it."""
    assert NAMES == sorted(path.stem for path in PROGRAMS.glob("*.py")) == sorted(EXPECTED)


def test_every_row_of_the_library_is_met_in_a_real_run() -> None:
    """What a row claims of a library has been seen in a real program that hangs there."""
    met = set[LibraryCall | NativeCall](UNSEEN)
    for name in NAMES:
        for process in picture(name)[0]:
            for thread in process.threads:
                user = ThreadState(process, thread).user
                met.update(filter(None, (user.call, user.native)))
                met.update(row for frame in user.frames if (row := library_call(frame)) and row.is_exit)
    assert [row for row in (*ROWS, *NATIVE_CALLS) if row not in met] == []
