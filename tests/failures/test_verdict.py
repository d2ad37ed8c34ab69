"""From how a process ended to an outcome and a signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.failures.test_failure import is_one
from whichtorch.failures.deadline import StoppedLook
from whichtorch.failures.failure import Signature, place_of
from whichtorch.failures.tracebacks import CodeFrame, read_exception
from whichtorch.failures.verdict import judge
from whichtorch.model import Attempt, Outcome, StoppedBy, combine
from whichtorch.process.supervision import Ending

if TYPE_CHECKING:
    from pathlib import Path

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
        ({"signal": "SIGKILL", "sent": ("SIGKILL",)}, Outcome.CRASH),
        ({"signal": "SIGTERM", "sent": ("SIGTERM",)}, Outcome.CRASH),
        ({"signal": "SIGKILL", "peak_rss_mb": 900, "sent": ("SIGKILL",)}, Outcome.CRASH),  # the kernel killed nothing
        ({"signal": "SIG58", "peak_rss_mb": 10}, Outcome.ERROR),  # whichtorch's own question, too late
        ({"signal": "SIGKILL", "peak_rss_mb": 900, "oom_kills": 1}, Outcome.OOM),
        ({"exit_code": 1, "peak_rss_mb": 900, "oom_kills": 1}, Outcome.FAIL),
        ({"exit_code": 0, "oom_kills": 1, "machine": "it was suspended for 60 s"}, Outcome.PASS),
        ({"stopped_by": "memory", "machine": "it was suspended for 60 s"}, Outcome.OOM),
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
        "RuntimeError in merge_devices (fake_tensor.py) < f (repro.py:8) < <module> (repro.py:12)"
    )


@pytest.mark.parametrize("words", ["[Errno 28] No space left on device: 'x.pt'", "[Errno 122] Disk quota exceeded"])
def test_a_failure_for_want_of_room_is_the_machines(words: str) -> None:
    """What a script could not write says nothing about torch."""
    verdict = judge(ending(exit_code=1), f"Traceback (most recent call last):\nOSError: {words}\n", MEMORY)
    assert (verdict.outcome, verdict.note) == (Outcome.ERROR, f"could not write to the disk: {words}")


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        (
            {"signal": "SIGKILL", "peak_rss_mb": 28, "oom_kills": 1},
            "the machine ran out of memory; this test used 28 MB",
        ),
        ({"exit_code": 1, "peak_rss_mb": 28, "oom_kills": 2}, "the machine ran out of memory; this test used 28 MB"),
        ({"stopped_by": "stall", "peak_rss_mb": 28, "oom_kills": 1}, "the machine ran out of memory"),
        ({"signal": "SIGKILL", "peak_rss_mb": 900}, "not known who ended it by SIGKILL"),
        ({"signal": "SIGTERM", "sent": ("SIGKILL",)}, "not known who ended it by SIGTERM"),
        ({"signal": "SIGHUP"}, "not known who ended it by SIGHUP"),
        ({"exit_code": 1, "machine": "it was suspended for 60 s"}, "it was suspended for 60 s"),
        ({"stopped_by": "timeout", "busy": False, "machine": "its clock was set"}, "its clock was set"),
    ],
)
def test_what_was_done_to_an_attempt_is_an_error(fields: dict[str, object], note: str) -> None:
    """Neither the kernel, nor a stranger's signal, nor a pause of the machine says anything of a script."""
    verdict = judge(ending(**fields), "", MEMORY)
    assert (verdict.outcome, verdict.signature) == (Outcome.ERROR, None)
    assert note in verdict.note


def test_a_process_that_somebody_ended_makes_no_hang() -> None:
    """Who waits for a process that a stranger killed has not hung by itself."""
    look = StoppedLook(killed="SIGTERM")
    assert judge(ending(stopped_by="stall"), "", MEMORY, look).note == "not known who ended a process of it by SIGTERM"


def raised(source: str, words: str) -> str:
    return f'Traceback (most recent call last):\n  File "a.py", line 1, in begin\n    {source}\n{words}\n'


REFUSED = "BlockingIOError: [Errno 11] Resource temporarily unavailable"
NO_THREAD = (
    "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable\n"
)
SHORTAGES = {
    "disk": raised("file.write(text)", "OSError: [Errno 28] No space left on device"),
    "disk, as a cause": raised("os.write(1, b'')", "OSError: [Errno 122] Disk quota exceeded")
    + "\nThe above exception was the direct cause of the following exception:\n\n"
    + raised("raise SaveError() from error", "SaveError: it could not be saved"),
    "disk, in a compiler": raised(
        "run()", "torch.CppCompileError: C++\nfatal error: /tmp/a.s: No space left on device"
    ),
    "shared memory": raised(
        "get()",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is "
        "possible that dataloader's workers are out of shared memory.",
    ),
    "files": raised("open('x')", "OSError: [Errno 23] Too many open files in system: 'x'"),
    "inotify": raised("watch()", "OSError: [Errno 28] inotify watch limit reached"),
    "processes": raised("self.pid = os.fork()", REFUSED),
    "processes, of the library": raised("self.pid = _fork_exec(", REFUSED),
    "processes, for want of memory": raised("pid = os.posix_spawn(", "OSError: [Errno 12] Cannot allocate memory"),
    "threads": raised("_start_new_thread()", "RuntimeError: can't start new thread"),
    "threads, of OpenMP": "libgomp: Thread creation failed: Resource temporarily unavailable\n",
}
KILLED = {
    "spawn": "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
    "loader": "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ",
    "run": "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.",
    "torchrun": "torch.ChildFailedError: \n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n"
    "  traceback : Signal 9 (SIGKILL)",
}


@pytest.mark.parametrize("name", SHORTAGES)
def test_what_the_machine_had_no_more_of_is_an_error(name: str) -> None:
    """A script that was refused what all processes share, and did not use it up, has not failed."""
    assert judge(ending(exit_code=1, peak_threads=9), SHORTAGES[name], MEMORY).outcome is Outcome.ERROR
    used_up = judge(ending(exit_code=1, peak_threads=4000), SHORTAGES["threads"], MEMORY)
    assert used_up.outcome is Outcome.FAIL  # nobody else is to blame


@pytest.mark.parametrize("name", KILLED)
def test_a_child_that_a_stranger_killed_is_an_error(name: str) -> None:
    """Who tells of a child's SIGKILL, and sent none, has not failed; who sent one has."""
    text = raised("main()", KILLED[name])
    assert judge(ending(exit_code=1), text, MEMORY).outcome is Outcome.ERROR
    assert judge(ending(exit_code=1, sent=("SIGKILL",)), text, MEMORY).outcome is Outcome.CRASH
    assert judge(ending(exit_code=1, oom_kills=1, peak_rss_mb=MEMORY), text, MEMORY).outcome is Outcome.OOM


def test_a_thread_that_could_not_be_started_in_native_code_is_an_error() -> None:
    """What C++ says before it aborts counts, not what was said long before, and not in what follows."""
    abort = ending(signal="SIGABRT", peak_threads=9)
    assert judge(abort, NO_THREAD + FAULTHANDLER, MEMORY).outcome is Outcome.ERROR
    assert judge(abort, "No space left on device\n" + "later\n" * 200, MEMORY).outcome is Outcome.CRASH
    assert judge(ending(signal="SIGABRT", peak_threads=5000), NO_THREAD, MEMORY).outcome is Outcome.CRASH


@pytest.mark.parametrize(
    "text",
    [
        raised("socket.recv(1)", REFUSED),
        raised("fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", REFUSED),
        raised("open('x')", "OSError: [Errno 24] Too many open files: 'x'"),
        raised("torch.empty(1 << 50)", "RuntimeError: can't allocate memory: Error code 12 (Cannot allocate memory)"),
    ],
)
def test_a_refusal_of_its_own_stays_a_failure(text: str) -> None:
    """A lock that is taken, a limit of the process itself, and a request that no machine can meet are the script's."""
    assert judge(ending(exit_code=1), text, MEMORY).outcome is Outcome.FAIL


def test_colors_are_no_part_of_what_was_said() -> None:
    """A message and a signature are the same whether the terminal codes of Python, pytest or torch are in them."""
    colored = TRACEBACK.replace("found two", "\x1b[1;35mfound\x1b[0m two").replace("  File", "  \x1b[35mFile\x1b[0m")
    assert judge(ending(exit_code=1), colored, MEMORY) == judge(ending(exit_code=1), TRACEBACK, MEMORY)
    assert judge(ending(exit_code=1), "\x1b[31merror: no\x1b[0m\n", MEMORY).message == "error: no"


def test_failure_without_traceback_is_named_by_its_exit_code() -> None:
    """A bare exit code is all there is to tell two of them apart; the message has the script's last words."""
    verdict = judge(ending(exit_code=3), "", MEMORY, stdout="1 checked\nFAILED: 2\n")
    assert (verdict.signature, verdict.message) == ("exit code 3", "FAILED: 2")
    assert judge(ending(exit_code=0), "", MEMORY, stdout="all is well\n").message == ""


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
        ([], None),
        ([Outcome.PASS], Outcome.PASS),
        ([Outcome.PASS, Outcome.HANG, Outcome.PASS], Outcome.HANG),
        ([Outcome.FAIL, Outcome.FAIL, Outcome.HANG], Outcome.FAIL),
        ([Outcome.FAIL, Outcome.HANG], Outcome.HANG),
        ([Outcome.SLOW, Outcome.PASS], Outcome.SLOW),
        ([Outcome.SLOW, Outcome.HANG], Outcome.HANG),
        ([Outcome.SLOW], Outcome.SLOW),
    ],
)
def test_of_several_attempts_a_red_one_speaks(outcomes: list[Outcome], expected: Outcome | None) -> None:
    """A pass takes back neither a hang nor what was slow with as much time; red says more than slow."""
    speaker = combine([attempt(outcome) for outcome in outcomes])
    assert (speaker and speaker.outcome) is expected


HASHES = (
    "cq7b4drx2mzk3lwaj5ftyhv6ogniuespqb2c7d4e5f3g6h2jklmn",
    "cnmlkj2h6g3f5e4d7c2bqpseuingo6vhytf5jawl3kzm2xrd4b7q",
)
TORCH = "/e/lib/python3.11/site-packages/torch"


def crashed(inner: str) -> str:
    """Return what faulthandler writes of a crash below compiled code."""
    return f"""\
Fatal Python error: Floating point exception

Current thread 0x00007f1d6be29740 (most recent call first):
  File {inner}
  File "{TORCH}/_dynamo/eval_frame.py", line 655 in _fn
  File "/home/me/repro.py", line 9 in <module>
"""


def test_a_crash_in_generated_code_is_the_same_in_each_run() -> None:
    """Inductor calls its module by a hash and lays it anywhere; a crash while it compiles is another one."""
    folders = ("/tmp/torchinductor_me", "/work/.whichtorch/runs/1/attempts/3/tmp/inductor")
    inners = [
        f'"{folder}/q7/{name}.py", line {line} in call' for folder in folders for name in HASHES for line in (5, 51)
    ]
    signatures = {judge(ending(signal="SIGFPE"), crashed(inner), MEMORY).signature for inner in inners}
    assert signatures == {"SIGFPE in code that Inductor generated < <module> (repro.py:9)"}
    compiling = crashed(f'"{TORCH}/_inductor/codecache.py", line 51 in compile_file')
    other = judge(ending(signal="SIGFPE"), compiling, MEMORY).signature
    assert other == "SIGFPE in compile_file (codecache.py) < <module> (repro.py:9)"
    assert not is_one(str(other), str(signatures.pop()))


WORKER = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 20, in <module>
    for batch in loader:
  File "{TORCH}/utils/data/dataloader.py", line 708, in __next__
    data = self._next_data()
  File "{TORCH}/_utils.py", line 733, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "{TORCH}/utils/data/_utils/worker.py", line 351, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/me/train.py", line 8, in __getitem__
    raise ValueError("row 17 is empty")
ValueError: row 17 is empty
"""
SCRIPTED = """\
Traceback (most recent call last):
  File "/home/me/repro.py", line 12, in <module>
    f(torch.ones(2))
    ~^^^^
RuntimeError: The following operation failed in the TorchScript interpreter.
Traceback of TorchScript (most recent call last):
  File "/home/me/repro.py", line 7, in f
    def f(x):
        return torch.mm(x, x)
               ~~~~~~~~ <--- HERE
RuntimeError: self must be a matrix
"""
SERIALIZED = """\
Traceback (most recent call last):
  File "/home/me/repro.py", line 12, in <module>
    f(torch.ones(2))
torch.jit.Error: The following operation failed in the TorchScript interpreter.
Traceback of TorchScript, serialized code (most recent call last):
  File "code/__torch__/repro.py", line 5, in forward
    x: Tensor) -> Tensor:
    ops.prim.RaiseException("no", "builtins.ValueError")
    ~~~~~~~ <--- HERE

Traceback of TorchScript, original code (most recent call last):
  File "/home/me/repro.py", line 7, in forward
    raise ValueError("no")
    ~~~~~~~~~~ <--- HERE
builtins.ValueError: no
"""


@pytest.mark.parametrize(
    ("stderr", "signature", "words"),
    [
        (
            WORKER.replace("{TORCH}", TORCH),
            'ValueError "row N is empty" in __getitem__ (train.py:8) < <module> (train.py:20)',
            "row 17 is empty",
        ),
        (SCRIPTED, 'RuntimeError "self must be a matrix" in <module> (repro.py:12)', "self must be a matrix"),
        (SERIALIZED, 'ValueError "no" in <module> (repro.py:12)', "no"),
    ],
)
def test_what_is_passed_on_speaks_for_itself(stderr: str, signature: str, words: str) -> None:
    """A DataLoader's worker and TorchScript's interpreter quote what was raised; that counts, not who passes it on."""
    raised = read_exception(stderr)
    assert raised is not None
    assert (str(Signature.of(raised)), raised.first_line) == (signature, words)
    assert judge(ending(exit_code=1), stderr, MEMORY).message == words


def test_a_worker_fails_in_one_way_whichever_row_it_read() -> None:
    """Another worker, another row and the same line of the user's are the same failure."""
    stderr = WORKER.replace("{TORCH}", TORCH)
    other = stderr.replace("row 17", "row 4242").replace("process 0", "process 3")
    signatures = [judge(ending(exit_code=1), text, MEMORY).signature for text in (stderr, other)]
    assert signatures[0] == signatures[1]


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([("{TORCH}/_ops.py", "__call__"), ("/me/a.py", "f"), ("/me/a.py", "main")], ("f (a.py:2)", "main (a.py:3)")),
        ([("{TORCH}/functional.py", "einsum"), ("/me/a.py", "f")], ("einsum (functional.py)", "f (a.py:2)")),
        (
            [("<eval_with_key>.42", "forward"), ("/me/a.py", "f"), ("/me/a.py", "g"), ("/me/a.py", "main")],
            ("code that fx generated", "f (a.py:2)", "g (a.py:3)"),
        ),
        ([("/me/a.py", "torch_dynamo_resume_in_f_at_12"), ("/me/a.py", "f")], ("f (a.py:1)",)),
        ([("{TORCH}/run.py", "launch"), ("{TORCH}/main.py", "main")], ("launch (run.py)", "main (main.py:2)")),
        ([("/me/a.py", "f"), ("/tool/environments/inside/fork_server.py", "serve")], ("f (a.py:1)",)),
        ([("/me/a.py", "f"), ("/tool/whichtorch/inside/fork_server.py", "serve")], ("f (a.py:1)",)),
        ([], ()),
    ],
)
def test_place_is_the_innermost_frame_and_the_users_line(frames: list[tuple[str, str]], place: tuple[str, ...]) -> None:
    """Helpers, generated names and what a script was forked from tell nothing; a library's lines move."""
    stack = [
        CodeFrame(file=file.replace("{TORCH}", TORCH), function=function, line=line)
        for line, (file, function) in enumerate(frames, 1)
    ]
    assert place_of(stack) == place


def test_place_is_the_first_line_of_a_statement(tmp_path: Path) -> None:
    """Pythons disagree on which line of a long call they are in."""
    script = tmp_path / "repro.py"
    script.write_text("def f(x):\n    return max(\n        x,\n        1,\n    )\n")
    for line in (2, 3, 4):
        assert place_of([CodeFrame(file=str(script), function="f", line=line)]) == ("f (repro.py:2)",)


def test_a_bare_assertion_says_what_it_asserts() -> None:
    """Without a message, line and source tell two assertions apart."""
    stderr = TRACEBACK_OF_ASSERT.replace("SOURCE", "assert a == b")
    other = TRACEBACK_OF_ASSERT.replace("SOURCE", "assert a == c").replace("line 9", "line 10")
    signatures = [judge(ending(exit_code=1), text, MEMORY).signature for text in (stderr, other)]
    assert signatures[0] == 'AssertionError "assert a == b" in <module> (mine.py:9)'
    assert not is_one(str(signatures[0]), str(signatures[1]))


TRACEBACK_OF_ASSERT = """\
Traceback (most recent call last):
  File "/home/me/mine.py", line 9, in <module>
    SOURCE
AssertionError
"""
