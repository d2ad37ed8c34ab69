"""Who failed, where and how, below each launcher and for each way to fail."""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.failures.test_failure import is_one
from tests.patience import PATIENCE
from whichtorch.failures.tracebacks import first_failure, read_chain, read_exception
from whichtorch.failures.verdict import Verdict, judge
from whichtorch.model import Outcome
from whichtorch.process.supervision import Ending

FOLDER = Path(__file__).parent / "launchers"
RELEASES = ("2.2.2", "2.11.0", "2.15.0")
WAYS = {  # to fail: outcome, head and innermost frame, where that is known
    "exception": (Outcome.FAIL, "KeyError \"'weights'\" in fail (fail.py:9)"),
    "other exception": (Outcome.FAIL, 'OSError "no shm" in fail (fail.py:11)'),
    "exit code": (Outcome.FAIL, "exit code 7"),
    "signal": (Outcome.CRASH, "SIGSEGV in fail (fail.py:15)"),
    "abort": (Outcome.CRASH, "SIGABRT in fail (fail.py:17)"),
    "killed": (Outcome.CRASH, "SIGKILL"),
}
CALLERS = {  # of `fail`, and the line of the launcher's script, which stands for it where the process said nothing
    "ranks": ("<module> (ranks.py:7)", ""),
    "early": ("<module> (early.py:8)", ""),
    "recorded": ("main (recorded.py:11)", ""),
    "spawn": ("work (spawn.py:9)", "<module> (spawn.py:14)"),
    "loader": ("__getitem__ (loader.py:12)", ""),
}
UNKNOWN = {("loader", way) for way in WAYS if "exception" not in way}  # its words name a process id only
UNNAMED = {("2.2.2", "ranks", way) for way in WAYS if "exception" in way}  # two tracebacks, and no prefix says whose
NO_FRAMES = {("loader", "signal")}  # torch's own handler takes the place of Python's


def texts(release: str) -> dict[tuple[str, str], str]:
    """Return what a release wrote, by launcher and way to fail."""
    parts = (FOLDER / f"torch-{release}.txt").read_text().replace("<NUL>", "\0").split("##### ")[1:]
    named = (part.partition("\n") for part in parts)
    return {tuple(name.split(".")): text for name, _, text in named}  # type: ignore[misc]


def verdict(stderr: str, exit_code: int = 1, sent: tuple[str, ...] = ("SIGKILL",)) -> Verdict:
    """Return the verdict on a program whose Python code has sent some signals."""
    return judge(Ending(stopped_by="exit", exit_code=exit_code, seconds=1.0, sent=sent), stderr, 4096)


@pytest.mark.parametrize("release", RELEASES)
def test_the_rank_or_worker_that_failed_first_is_the_failure(release: str) -> None:
    """Its exception, code or signal, its line and its number are told, as far as anything was written of them."""
    written = texts(release)
    for launcher, way in product(CALLERS, WAYS):
        found = verdict(written[launcher, way])
        outcome, head = WAYS[way]
        caller, parent = CALLERS[launcher]
        has_frames = " in " in head and (launcher, way) not in NO_FRAMES
        head = head if has_frames else head.partition(" in ")[0]
        expected = f"{head} < {caller}" if has_frames else f"{head} in {parent}" if parent else head
        assert (found.outcome, found.signature) == (outcome, expected), (launcher, way)
        who = {"spawn": "process 1", "loader": "DataLoader worker process 1"}.get(launcher, "rank 1")
        is_unknown = (launcher, way) in UNKNOWN or (release, launcher, way) in UNNAMED
        assert found.process == ("" if is_unknown else who), (launcher, way)


RESET = """\
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/resource_sharer.py", line 138, in _serve
    with self._listener.accept() as conn:

  File "/usr/lib/python3.11/multiprocessing/connection.py", line 395, in _recv
    chunk = read(handle, remaining)
ConnectionResetError: [Errno 104] Connection reset by peer
"""


@pytest.mark.parametrize("release", RELEASES)
def test_it_does_not_matter_where_the_parent_was_when_its_worker_died(release: str) -> None:
    """Torch's handler raises at any line, whose source may be empty, and another worker writes between its lines."""
    text = texts(release)["loader", "signal"]
    lines = text.splitlines(keepends=True)
    handled = "".join(lines[: lines.index("\n")]).replace("    data = self._data_queue.get(timeout=timeout)", "")
    frames = [at for at in range(lines.index("\n") + 5, len(lines)) if lines[at].startswith("  ")]
    torn = ["".join([*lines[:at], RESET, *lines[at:]]) for at in frames]
    for written in (handled, text + RESET, RESET + text, *torn):
        found = verdict(written)
        assert (found.outcome, found.signature) == (Outcome.CRASH, "SIGSEGV"), written


@pytest.mark.parametrize("launcher", CALLERS)
def test_who_was_killed_from_outside_says_nothing_of_torch(launcher: str) -> None:
    """No code of the program has sent the signal, so that who did is not known."""
    assert verdict(texts("2.15.0")[launcher, "killed"], sent=()).outcome is Outcome.ERROR


@pytest.mark.parametrize("launcher", CALLERS)
def test_two_failures_below_one_launcher_are_two(launcher: str) -> None:
    """The same way to fail is the same failure in two releases, and no other way is."""
    shown = {
        (release, way): str(verdict(texts(release)[launcher, way]).signature) for release in RELEASES for way in WAYS
    }
    wrong = [
        (each, other)
        for each in shown
        for other in shown
        if is_one(shown[each], shown[other]) is not (each[1] == other[1])
    ]
    assert wrong == []


LOCAL = {  # launchers without torch: how they are started, the caller of `fail`, and the line that stands for it
    "subprocess.run": ("{python} runs.py '{way}'", "<module> (alone.py:4)", " in <module> (runs.py:4)"),
    "sh": ("sh run.sh '{way}'", "<module> (alone.py:4)", ""),
    "make": ("make -s WAY='{way}'", "<module> (alone.py:4)", ""),
    "make below sh": ("sh nested.sh '{way}'", "<module> (alone.py:4)", ""),
}


def run(command: str, way: str) -> tuple[int, str]:
    """Return exit code and stderr of a command in the folder of the programs."""
    done = subprocess.run(
        ["sh", "-c", command.format(python=sys.executable, way=way)],
        cwd=FOLDER,
        env=os.environ | {"PYTHON": sys.executable, "PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("launcher", LOCAL)
def test_a_script_below_another_program_is_the_failure(launcher: str, way: str) -> None:
    """What its launcher says of its end counts only where it said nothing itself."""
    command, caller, parent = LOCAL[launcher]
    code, stderr = run(command, way)
    found = verdict(stderr, code)
    outcome, head = WAYS[way]
    assert (found.outcome, found.signature) == (outcome, f"{head} < {caller}" if " in " in head else head + parent)


@pytest.mark.parametrize("way", ["exception", "signal", "abort"])
@pytest.mark.parametrize(
    ("launcher", "caller", "who"),
    [
        ("executor", " < <module> (executor.py:7)", ""),
        ("asks", " < <module> (alone.py:4)", ""),
        ("process", " < <module> (process.py:6)", "Child-1"),
    ],
)
def test_a_child_of_python_is_the_failure(launcher: str, caller: str, who: str, way: str) -> None:
    """Neither the pool that broke, nor the exit code that was looked at, nor what followed is."""
    found = verdict(run(f"{{python}} {launcher}.py '{{way}}'", way)[1])
    is_child = launcher == "process" and way == "exception"  # whose traceback ends where the child began
    assert (found.outcome, found.signature) == (WAYS[way][0], WAYS[way][1] + ("" if is_child else caller))
    assert found.process == (who if is_child else "")


@pytest.mark.parametrize(("way", "head"), [("exit code", "BrokenProcessPool"), ("killed", "BrokenProcessPool")])
def test_a_worker_of_which_nothing_is_told_leaves_its_launchers_words(way: str, head: str) -> None:
    """A pool does not say how its worker ended."""
    found = verdict(run("{python} executor.py '{way}'", way)[1])
    assert (found.signature or "").startswith(f"{head} in __get_result (_base.py)")


def test_a_worker_of_a_pool_fails_where_it_was_raised() -> None:
    """The pool raises anew what its worker sent; the line of the worker and that of the caller are told."""
    chain = read_chain(run("{python} pool.py '{way}'", "exception")[1])
    assert [(link.name, link.frames[0].name, link.message) for link in chain] == [
        ("KeyError", "fail (fail.py)", "'weights'")
    ]
    assert chain[0].frames[-1].name == "<module> (pool.py)"


TORCHRUN = texts("2.15.0")["early", "exception"]
TORCHRUN = TORCHRUN[TORCHRUN.index("W1") :]  # what torchrun itself wrote
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:8091"


def raised(words: str, line: int, prefix: str = "", file: str = "/s/train.py", function: str = "<module>") -> str:
    """Return a traceback, with what is written before each of its lines."""
    text = f'Traceback (most recent call last):\n  File "{file}", line {line}, in {function}\n    step()\n{words}\n'
    return "".join(f"{prefix}{each}\n" for each in text.splitlines())


def torchrun(*entries: tuple[int, int], traceback: str = "To enable traceback see: https://pytorch.org") -> str:
    """Return torchrun's words of ranks and their exit codes, the root cause last."""
    head, line, _ = TORCHRUN.partition("Failures:\n")
    told = "".join(
        f"[0]:\n  time      : 2026-11-28_19:31:55\n  host      : localhost\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {100 + rank})\n  error_file: <N/A>\n  traceback : {traceback}\n"
        for rank, code in entries
    )
    return f"{head}{line}{told}"


HANDLED = raised("OSError: handled", 1, file="/s/x.py", function="load")
UNREADABLE = '  File "/s/train.py", line 3\n    print(\n         ^\nSyntaxError: no\n'


@pytest.mark.parametrize(
    ("stderr", "signature", "process"),
    [
        (raised(LOST, 5, "[rank0]: ") + raised("KeyError: 1", 3, "[rank1]: ") + torchrun((1, 1), (0, 1)), 3, "rank 1"),
        (raised("KeyError: 1", 3, "[rank1]: ") + raised(LOST, 5, "[rank0]:") + torchrun((1, 1), (0, 1)), 3, "rank 1"),
        (raised("KeyError: 1", 3) + raised(LOST, 5) + torchrun((0, -15), (1, 1)), 3, "rank 1"),  # before 2.3
        (raised("KeyError: 1", 3, "[default1]:") + torchrun((1, 1)), 3, "rank 1"),  # with --tee
        (raised("KeyError: 1", 3, "[default1]:[rank1]: ") + torchrun((1, 1)), 3, "rank 1"),
        (HANDLED + raised("KeyError: 1", 3) + torchrun((1, 1)), 3, "rank 1"),
        (HANDLED + torchrun((1, 1)), "exit code 1", "rank 1"),
        (raised(LOST, 5, "[rank0]: ") + torchrun((0, 1), (1, 7)), "exit code 7", "rank 1"),
        (raised(LOST, 5, "[rank0]: ") + torchrun((1, 7), (0, 1)), "exit code 7", "rank 1"),
        (raised("KeyError: 1", 3) * 2 + torchrun((1, 1), (0, 1)), 3, ""),  # which of the two is not told
        (torchrun((1, 1)), "exit code 1", "rank 1"),  # what it wrote went elsewhere
        (UNREADABLE + torchrun((1, 1)), 'SyntaxError "no" in <module> (train.py:3)', "rank 1"),
        (
            torchrun((1, 1), traceback=raised("KeyError: 1", 3).replace("\n", "\n  ")),
            3,
            "rank 1",
        ),
        (raised("KeyError: 1", 3, "[rank1]: ") + raised("ValueError: 2", 4, "[rank0]: "), 3, "rank 1"),  # no launcher
    ],
)  # fmt: skip
def test_of_several_ranks_the_first_counts(stderr: str, signature: str | int, process: str) -> None:
    """A rank that lost its peer, was ended by torchrun, or printed what it handled is not the one that failed."""
    found = verdict(stderr)
    expected = f'KeyError "N" in <module> (train.py:{signature})' if isinstance(signature, int) else signature
    assert (found.signature or "").startswith(expected)
    assert found.process == process


CHECKED = raised(
    "subprocess.CalledProcessError: Command '['make']' returned non-zero exit status 1.", 9, file="/s/x.py"
)


@pytest.mark.parametrize(
    ("stderr", "name"),
    [
        (raised("OSError: handled", 4, file="/s/x.py", function="load") + CHECKED, "CalledProcessError"),
        (raised("OSError: handled", 4, file="/s/x.py") + CHECKED, "CalledProcessError"),
        (raised("OSError: of the child", 4, file="/s/y.py") + CHECKED, "OSError"),
        (raised("OSError: of itself", 4, file="/s/x.py") + CHECKED.replace("make", "x.py"), "OSError"),
        (raised("OSError: handled", 4, file="/s/y.py") + raised("KeyError: 1", 9, file="/s/x.py"), "KeyError"),
        (CHECKED + "\n" + raised("KeyError: 1", 9, file="/s/x.py"), "KeyError"),
        (
            CHECKED
            + "\nThe above exception was the direct cause of the following exception:\n\n"
            + raised("RuntimeError: Error building extension", 9, file="/s/x.py"),
            "RuntimeError",
        ),
    ],
)
def test_what_a_program_printed_itself_is_no_childs_failure(stderr: str, name: str) -> None:
    """A traceback above a launcher's exception is its child's if nobody can have caught it there."""
    found = read_exception(stderr)
    assert found is not None
    assert found.name == name


def test_a_program_that_starts_no_other_keeps_its_words() -> None:
    """Words like a launcher's in a message change nothing."""
    words = "RuntimeError: the tool failed with exit code 7"
    first = first_failure(raised(words, 3))
    assert (first.exit_code, first.signal, first.process) == (None, "", "")
    assert verdict(raised(words, 3)).message == "the tool failed with exit code 7"


def test_a_task_of_ray_fails_where_it_was_raised() -> None:
    """Ray's exception quotes it without a header, after the name of the task."""
    task = 'ray::f() (pid=123, ip=127.0.0.1)\n  File "/s/tasks.py", line 5, in f\n    raise KeyError(1)\nKeyError: 1'
    stderr = raised(f"ray.exceptions.RayTaskError(KeyError): {task}", 9)
    assert verdict(stderr).signature == 'KeyError "N" in f (tasks.py:5) < <module> (train.py:9)'


def test_every_recorded_text_is_in_the_table() -> None:
    """No launcher and no way to fail was recorded for nothing."""
    for release in RELEASES:
        assert set(texts(release)) == {(launcher, way) for launcher in CALLERS for way in WAYS}
        assert not re.search(r"/(?:home|root|work)/", "".join(texts(release).values()))
