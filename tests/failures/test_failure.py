"""Which two failures are one, and which failures say only that a release does not have what a test uses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtorch.failures.failure import Changed, Failure, Signature, described, kept
from whichtorch.failures.tracebacks import read_chain
from whichtorch.hangs.hang_diagnosis import HangDiagnosis
from whichtorch.model import Attempt, Limits, Outcome, Record, StoppedBy
from whichtorch.process.evidence.waiting import HangKind


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("AttributeError in <module> (repro.py)", "module 'torch' has no attribute 'compile'"),
        ("AttributeError in f (repro.py) < <module> (repro.py)", "'Tensor' object has no attribute 'untyped_storage'"),
        ("AttributeError in __getattr__ (__init__.py) < <module> (repro.py)", "module 'torch' has no attribute 'xpu'"),
        ("AttributeError in __getattr__ (_ops.py) < f (repro.py)", "'_OpNamespace' 'aten' object has no attribute 'x'"),
        ("ImportError in <module> (repro.py)", "cannot import name 'FakeTensorMode' from 'torch._subclasses'"),
        ("ModuleNotFoundError in <module> (repro.py)", "No module named 'torch._dynamo'"),
        ("TypeError in <module> (repro.py)", "compile() got an unexpected keyword argument 'dynamic'"),
        ("RuntimeError in check_if_dynamo_supported (eval_frame.py) < f (repro.py)", "Python 3.11+ not yet supported"),
    ],
)
def test_a_lack_is_told(signature: str, message: str) -> None:
    """A name, module, argument or platform that a release does not have is no failure of its own."""
    assert Failure(outcome=Outcome.FAIL, signature=signature, message=message).is_missing_api


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("AttributeError in forward (linear.py) < <module> (repro.py)", "module 'torch' has no attribute 'compile'"),
        ("AttributeError in <module> (repro.py)", "'NoneType' object has no attribute 'shape'"),
        ("AttributeError in __getattr__ (__init__.py) < <module> (repro.py)", "module 'numpy' has no attribute 'int'"),
        ("RuntimeError in <module> (repro.py)", "module 'torch' has no attribute 'compile'"),
        ("TypeError in <module> (repro.py)", "mm() missing 1 required positional argument"),
        ("SIGSEGV", ""),
        (None, ""),
    ],
)
def test_a_failure_is_one(signature: str | None, message: str) -> None:
    """What goes wrong inside a library, or says something else, stays a failure."""
    assert not Failure(outcome=Outcome.FAIL, signature=signature, message=message).is_missing_api


MIXED = "Expected all tensors to be on the same device, but found two devices, cpu and meta!"
WRAPPED = "compile_wrapper (eval_frame.py)"
USERS = "<module> (repro.py:12)"
SAID, SAID_IN_F = (f'RuntimeError "{kept(MIXED)}" in {frames}' for frames in (USERS, f"f (m.py:4) < {USERS}"))
RAISED, CHECKED, IN_A = (f"RuntimeError in {frames}{USERS}" for frames in ("", "check (x.py) < ", "a (x.py) < "))
GENERATED, CRASHED = f"SIGFPE in code that Inductor generated < {USERS}", f"SIGSEGV in mm (a.py) < {USERS}"


def failed(signature: str | None, words: str = "") -> Failure:
    return Failure(outcome=Outcome.FAIL, signature=signature, message=words)


def is_one(first: str, second: str, words: str = "", other_words: str = "") -> bool:
    """Return whether two failures are one, which does not depend on their order."""
    failure, other = failed(first, words), failed(second, other_words)
    result = failure.compare(other)
    assert result.why
    assert other.compare(failure).is_same is result.is_same
    return result.is_same


@pytest.mark.parametrize(
    ("first", "second", "words", "other_words"),
    [
        # up to 2.8 C++ raises; from 2.9 on Python of torch does, with the same words
        (SAID, f"RuntimeError in {WRAPPED} < {USERS}", MIXED, MIXED),
        # of two records that hold no messages
        (SAID, f'RuntimeError "{kept(MIXED)}" in {WRAPPED} < {USERS}', "", ""),
        # one release hides a frame of the user's: the outer one, then the inner one
        (SAID_IN_F, f"RuntimeError in {WRAPPED} < f (m.py:4)", MIXED, MIXED),
        (SAID_IN_F, f"RuntimeError in {WRAPPED} < {USERS}", MIXED, MIXED),
        # the same operator, named as that release does
        (RAISED, RAISED, "no kernel of aten::mm for device meta", "no kernel of aten.mm.default for device meta"),
        # a frame of a library that moved, with numbers of another run
        (IN_A, f"RuntimeError in b (y.py) < {USERS}", "size 3, not 4", "size 30, not 1"),
        # reworded by the function that raises it
        (
            CHECKED,
            CHECKED,
            "found two devices cpu, meta",
            "found two different devices cpu and meta, which do not match",
        ),
        # torch's own type for what was a built-in one
        (CHECKED, CHECKED.replace("Runtime", "Device"), MIXED, MIXED),
        # which its C++ raises, so no frame tells
        (f'RuntimeError "port in use: N" in {USERS}', f'DistNetworkError "port in use: N" in {USERS}', "", ""),
        # an internal assertion says where it is in C++, which moves
        (RAISED, RAISED, "x INTERNAL ASSERT FAILED at a.cpp:3", "internal error"),
        # a crash whose library frame was renamed
        (CRASHED, f"SIGSEGV in mm_out (b.py) < {USERS}", "", ""),
        (GENERATED, GENERATED.replace("Inductor", "Triton"), "", ""),
    ],
)
def test_what_releases_move_and_reword_is_one_failure(first: str, second: str, words: str, other_words: str) -> None:
    """Exception, message and the user's line hold over releases; frames of a library need not."""
    assert is_one(first, second, words, other_words)


@pytest.mark.parametrize(
    ("first", "second", "words", "other_words"),
    [
        # another message at the same line
        (f'ValueError "no such file" in {USERS}', f'ValueError "too many rows" in {USERS}', "", ""),
        (CHECKED, CHECKED.replace("Runtime", "Device"), MIXED, "no such operator"),
        (CHECKED, f'RuntimeError "no such operator" in {USERS}', MIXED, ""),
        # the same message at another line
        (SAID, f'RuntimeError "{kept(MIXED)}" in <module> (repro.py:13)', "", ""),
        (IN_A, "RuntimeError in a (x.py) < <module> (repro.py:13)", MIXED, MIXED),
        (IN_A, "RuntimeError in a (x.py) < <module> (other.py:12)", MIXED, MIXED),
        # with the same caller, at another line of the function; a crash at the same line, with another caller
        (SAID_IN_F, f'RuntimeError "{kept(MIXED)}" in f (m.py:5) < {USERS}', MIXED, MIXED),
        (
            f"SIGFPE in code that fx generated < f (m.py:4) < {USERS}",
            "SIGFPE in code that fx generated < f (m.py:4) < g (m.py:9)",
            "",
            "",
        ),
        # another operator at the same line
        (
            f"TypeError in a (x.py) < {USERS}",
            f"TypeError in b (x.py) < {USERS}",
            "mul(): argument 'other' (position 2) must be Tensor, not str",
            "add(): argument 'other' (position 2) must be Tensor, not str",
        ),
        # two bare assertions, told by what they assert
        ('AssertionError "assert a == b" in f (m.py:4)', 'AssertionError "assert a == c" in f (m.py:5)', "", ""),
        # another built-in exception with the same words
        (f"TypeError in a (x.py) < {USERS}", IN_A, MIXED, MIXED),
        # elsewhere in a library, and nothing said
        (IN_A, f"RuntimeError in b (y.py) < {USERS}", "", ""),
        # compiled code that crashes is not its compiler that crashes
        (GENERATED, f"SIGFPE in compile_file (codecache.py) < {USERS}", "", ""),
        (f"SIGFPE in mm (a.py) < {USERS}", CRASHED, "", ""),
        (CRASHED, "SIGSEGV in mm (a.py) < <module> (repro.py:13)", "", ""),
        (CRASHED, f"RuntimeError in mm (a.py) < {USERS}", "", ""),
        # torch's own type instead of a built-in one, at the same line, and nothing said
        (RAISED, f"DistError in {USERS}", "", ""),
    ],
)
def test_what_differs_little_is_two_failures(first: str, second: str, words: str, other_words: str) -> None:
    """Another message, another line of the user's, another type or another owner of the code is another failure."""
    assert not is_one(first, second, words, other_words)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("stuck: wait for a queue in train.py:6", "stuck: wait for a queue in train.py:6", True),
        ("stuck: wait for a queue in train.py:6", "stuck: wait for a queue in load.py:3 < train.py:6", True),
        ("stuck: wait for a queue in train.py:6", "stuck: wait for a queue in train.py:7", False),
        ("stuck: wait for a queue in train.py:6", "stuck: lock cycle in train.py:6", False),
        ("stuck: lock cycle in a.py:1 < b.py:2", "stuck: lock cycle in a.py:1 < c.py:3", False),
        ("stuck: lock cycle in train.py:6", "stuck in pthread_cond_wait < f (train.py)", True),  # of before
        ("stuck: lock cycle in train.py:6", "stuck: child, 2 x futex", True),
        ("stuck: lock cycle in train.py:6", "stuck", True),
        ("stuck: lock cycle in train.py:6", "idle", True),
        ("stuck: lock cycle in train.py:6", "spins in train.py:6", False),
        ("spins in train.py:6", "spins in train.py:9", False),
        ("spins in train.py:6", "spins", True),
    ],
)
def test_a_hang_is_known_by_its_kind_and_the_users_lines(first: str, second: str, same: bool) -> None:
    """What is not known of a hang is no evidence of another one."""
    assert is_one(first, second) is same


@pytest.mark.parametrize("frames", [("take_gil", "Holder"), ("futex_wait", "sem_wait", "at::_ops::mm::call")])
def test_native_frames_do_not_tell_hangs_of_one_kind_apart(frames: tuple[str, ...]) -> None:
    """Releases lead to the same wait at the same line of the user's through other frames of C++."""
    first, second = (
        HangDiagnosis(kind=HangKind.QUEUE, signature_frames=names, places=("train.py:18",)).signature
        for names in (frames, ("pthread_cond_timedwait", "c10d::Reducer::finalize_backward", "at::full"))
    )
    assert first == second == f"stuck: {HangKind.QUEUE} in train.py:18"
    unknown = HangDiagnosis(kind=HangKind.QUEUE, signature_frames=frames).signature
    assert unknown == f"stuck in {' < '.join(frames)}"
    assert is_one(str(first), unknown)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("RuntimeError in <module> (repro.py)", f"RuntimeError in {WRAPPED} < {USERS}", True),
        ("RuntimeError in check (x.py) < f (repro.py)", "RuntimeError in check (x.py) < f (repro.py:8)", True),
        ("RuntimeError in check (x.py) < f (repro.py)", "RuntimeError in check (x.py) < g (repro.py:8)", False),
        ("SIGSEGV in mm (a.py) < <module> (repro.py)", f"SIGSEGV in mm (a.py) < {USERS}", True),
        ("SIGSEGV in <module> (repro.py)", "SIGSEGV in <module> (other.py:3)", False),
        ("exit code 3", "exit code 3", True),
    ],
)
def test_a_stored_signature_without_a_line_still_compares(old: str, new: str, same: bool) -> None:
    """Records of before the user's line was kept are compared by the function that is named."""
    assert is_one(old, new, MIXED, MIXED) is same


FRAME = st.from_regex(r"[\w<>:~]{1,12}( \([\w.<>]{1,10}(:\d{1,4})?\))?", fullmatch=True)


@given(
    st.from_regex(r"[A-Za-z_]\w{0,20}(: [\w, ]{0,20}\w)?", fullmatch=True),
    st.lists(FRAME, max_size=5).map(tuple),
    st.text().map(kept),
)
def test_a_signature_is_read_as_it_was_written(head: str, frames: tuple[str, ...], message: str) -> None:
    """What a record holds as text is the signature that was stored, whatever the message says."""
    signature = Signature(head, frames, message)
    assert Signature.parse(str(signature)) == signature


@given(st.text())
def test_any_text_is_a_signature(text: str) -> None:
    """A record that somebody else wrote is read, and compares with itself."""
    assert str(Signature.parse(text)) == text or '"' in text or " in " in text
    assert failed(text).compare(failed(text))


def test_people_read_a_message_once() -> None:
    """A signature that holds the message is not shown beside it."""
    assert described('ValueError "no" in f (a.py:3)', "no") == "ValueError: no, in f (a.py:3)"
    assert described('ValueError "no" in f (a.py:3)', "") == 'ValueError "no" in f (a.py:3)'
    assert described(None, "") == ""


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (f"RuntimeError in a (x.py) < {USERS}", f"RuntimeError in a (x.py) < {USERS}", "the signatures are equal"),
        (f"TypeError in {USERS}", f"KeyError in {USERS}", "another exception or signal: KeyError, not TypeError"),
        (
            f"TypeError in {USERS}",
            "TypeError in f (a.py:3)",
            f"another line of the script: TypeError in f (a.py:3), not TypeError in {USERS}",
        ),
        (
            f'TypeError "mul() fails" in {USERS}',
            f'TypeError "add() fails" in {USERS}',
            "another operator: add, not mul",
        ),
        (
            f'ValueError "no such file" in {USERS}',
            f'ValueError "no such row" in {USERS}',
            "67% of the messages agree, of 70% that must",
        ),
        ("stuck: a in m.py:3", "stuck: a in m.py:4", "another wait: stuck: a in m.py:4, not stuck: a in m.py:3"),
    ],
)
def test_a_comparison_says_why(first: str, second: str, why: str) -> None:
    """Whoever asks reads which evidence decided."""
    assert failed(first).compare(failed(second)).why == why


LIBRARY = "/e/lib/python3.11/site-packages/torch"
WHOLE = f"""\
Traceback (most recent call last):
  File "/me/train.py", line 40, in <module>
    step(model)
  File "/me/train.py", line 20, in step
    model(x)
  File "{LIBRARY}/nn/modules/module.py", line 1, in _call_impl
    return forward_call(*args)
  File "{LIBRARY}/_shapes.py", line 7, in check
    raise ShapeError(
torch.ShapeError: size 3 of 'x' does not fit 4
"""
CUT_DOWN = f"""\
Traceback (most recent call last):
  File "/tmp/w/train.py", line 2, in <module>
    torch.check(torch.ones(30))
  File "{LIBRARY}/_shapes.py", line 7, in check
    raise ShapeError(
torch.ShapeError: size 30 of 'y' does not fit 1
"""


def shown(stderr: str, outcome: Outcome = Outcome.FAIL) -> Failure:
    """Return the failure of a run that wrote this to stderr."""
    attempt = Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.EXIT)
    record = Record(
        key="key",
        environment="id",
        scenario="train.py",
        source_hash="hash",
        variant={},
        limits=Limits(timeout=60, memory_mb=4096),
        attempt=attempt,
    )
    return Failure.of(record, read_chain(stderr))


@pytest.mark.parametrize(
    ("stderr", "is_same", "is_same_elsewhere"),
    [
        (CUT_DOWN, True, True),
        (CUT_DOWN.replace("in check", "in fits"), False, True),  # another function of the library raises
        (CUT_DOWN.replace("ShapeError", "DtypeError"), False, False),
        (CUT_DOWN.replace("does not fit", "has no gradient beside"), False, False),
        (f"{CUT_DOWN}\nDuring handling of the above exception, another exception occurred:\n\n{CUT_DOWN}", False, True),
        ("", False, False),
    ],
)
def test_a_script_that_was_cut_down_fails_in_the_same_way(stderr: str, is_same: bool, is_same_elsewhere: bool) -> None:
    """Its own frames, sizes and names go away; exceptions, a library's frames and words stay, these also elsewhere."""
    assert shown(WHOLE).compare(shown(stderr), Changed.SCRIPT).is_same is is_same
    assert shown(WHOLE).compare(shown(stderr), Changed.SCRIPT_AND_RELEASE).is_same is is_same_elsewhere


@pytest.mark.parametrize("changed", Changed)
def test_what_is_not_done_in_time_may_still_hang(changed: Changed) -> None:
    """A run whose limit tells a hang from a pass shows the hang, whatever changed; a failure is none."""
    hang = Failure(outcome=Outcome.HANG, signature="stuck: lock cycle in a.py:1", hang="lock cycle")
    assert hang.compare(shown("", Outcome.SLOW), changed)
    assert hang.compare(hang, changed)
    assert not hang.compare(shown(WHOLE), changed)
    other = Failure(outcome=Outcome.HANG, signature="stuck: wait for a queue in a.py:9", hang="wait for a queue")
    assert not hang.compare(other, changed)


def test_lines_of_an_edited_script_tell_nothing() -> None:
    """Two failures of one function are the same where lines have moved."""
    first, second = failed("KeyError in f (a.py:3)", "'x'"), failed("KeyError in f (a.py:8)", "'x'")
    assert first.compare(second, Changed.LINES)
    assert not first.compare(second)


@pytest.mark.parametrize("changed", Changed)
def test_a_failure_of_the_first_run_of_a_chain_is_another_one(changed: Changed) -> None:
    """What fails with nothing cached is no fault of a cache; a smaller script has to read what a run has cached."""
    first, later = failed("KeyError in f (a.py:3)", "'x'"), failed("KeyError in f (a.py:3)", "'x'")
    later = later.model_copy(update={"needs_earlier_run": True, "reads_cache": True})
    assert not later.compare(first, changed)
    assert later.compare(later.model_copy(update={"reads_cache": None}), changed)
    is_cut_down = changed in {Changed.SCRIPT, Changed.SCRIPT_AND_RELEASE}
    assert later.compare(later.model_copy(update={"reads_cache": False}), changed).is_same is not is_cut_down
