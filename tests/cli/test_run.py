"""A command that is watched behaves as if it were not, until it hangs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from junitparser import JUnitXml

from tests.patience import PATIENCE
from tests.process.running import PROGRAMS, until
from whichtorch.process import kernel
from whichtorch.process.evidence import snapshots, stall

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

WATCHED = [sys.executable, "-m", "whichtorch", "run"]


@pytest.fixture
def locks(tmp_path: Path) -> list[str]:
    """Return the command of a deadlock of two threads, which no other test runs."""
    return [sys.executable, shutil.copy(str(PROGRAMS / "stuck_locks.py"), str(tmp_path))]


def run(
    *options: str, command: Sequence[str], given: str = "", environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Watch a command to its end."""
    return subprocess.run(
        [*WATCHED, *options, "--", *command],
        input=given,
        env=os.environ | (environ or {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9)])
def test_exit_code_is_that_of_the_command(script: str, code: int) -> None:
    """A number is passed on; a signal is told as a shell does."""
    assert run(command=["sh", "-c", script]).returncode == code


def test_input_and_output_are_those_of_the_command() -> None:
    """It reads what it is given, and its two outputs stay apart, with nothing of ours between them."""
    ended = run(command=["sh", "-c", "cat; echo aside >&2"], given="to the letter\n")
    assert (ended.stdout, ended.stderr) == ("to the letter\n", "aside\n")


def test_import_path_of_the_user_stays() -> None:
    """PYTHONPATH is kept, and a sitecustomize of the user's is imported."""
    probe = "import sys; print('/of/the/user' in sys.path, any('startup' in entry for entry in sys.path))"
    ended = run(command=[sys.executable, "-c", probe], environ={"PYTHONPATH": "/of/the/user"})
    assert ended.stdout == "True False\n"


def test_hang_is_told_and_stopped(tmp_path: Path, locks: list[str]) -> None:
    """Standard error gets one sentence with the user's lines; JSON and JUnit say the same; nothing is left running."""
    files = ["--json", str(tmp_path / "run.json"), "--junit", str(tmp_path / "run.xml")]
    ended = run("--on-hang", "stop", *files, command=locks, environ={"GITHUB_ACTIONS": "true"})
    assert ended.returncode == 124
    (headline,) = (line for line in ended.stderr.splitlines() if line.startswith("whichtorch: HANG after "))
    assert "each waits for the other" in headline
    assert "stuck_locks.py:" in headline
    sentence = headline.removeprefix("whichtorch: ")
    assert f"::error title=whichtorch::{sentence}\n" in ended.stdout
    answer = json.loads((tmp_path / "run.json").read_text())
    assert (answer["outcome"], answer["hang"]["is_stuck"]) == ("hang", True)
    assert answer["hang"]["sentence"] in sentence
    (case,) = (case for suite in JUnitXml.fromfile(str(tmp_path / "run.xml")) for case in suite)
    assert [result.type for result in case.result] == ["hang"]
    assert not running(locks)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_hang_of_a_test_names_the_test(tmp_path: Path, workers: str) -> None:
    """Of pytest, the sentence says which test hangs, also where workers run several; files have its id."""
    source = "import threading\nlock = threading.Lock()\ndef test_a(): lock.acquire()\ndef test_b(): lock.acquire()\n"
    (tmp_path / "test_stuck.py").write_text(source)
    pytest_ = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        workers,
        "--dist=loadfile",
        f"--rootdir={tmp_path}",
        str(tmp_path),
    ]
    files = ["--json", str(tmp_path / "run.json"), "--junit", str(tmp_path / "run.xml")]
    ended = run("--on-hang", "stop", *files, command=pytest_)
    assert ended.returncode == 124
    assert "s: in test_stuck.py::test_b: " in ended.stderr
    assert "test_stuck.py:4" in ended.stderr
    assert json.loads((tmp_path / "run.json").read_text())["hang"]["tests"] == ["test_stuck.py::test_b"]
    assert "in test_stuck.py::test_b: " in (tmp_path / "run.xml").read_text()


@pytest.mark.thorough
def test_loop_of_a_test_that_repeats_is_a_hang(tmp_path: Path) -> None:
    """A test is called once, so a loop in it is told as one of a script is; the time is that of the test."""
    source = "import time\n\ndef test_a(): time.sleep(4)\n\ndef test_b():\n    while True:\n        half = 1 / 2\n"
    (tmp_path / "test_loop.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", f"--rootdir={tmp_path}", str(tmp_path)]
    ended = run("--on-hang", "stop", "--json", str(tmp_path / "run.json"), command=command)
    assert "in test_loop.py::test_b: busy in `while True` (test_loop.py:6) for " in ended.stderr
    hang = json.loads((tmp_path / "run.json").read_text())["hang"]
    spell = re.search(r"for \d+ of (\d+) s", hang["sentence"])
    assert spell is not None
    assert int(spell[1]) <= hang["after"] - 3


def test_hang_is_told_and_the_command_goes_on(locks: list[str]) -> None:
    """By default nothing is ended; a signal for us reaches the command, whose end is passed on."""
    with subprocess.Popen([*WATCHED, "--", *locks], stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        assert any("HANG after" in line for line in watching.stderr)
        assert running(locks)
        watching.send_signal(signal.SIGTERM)
        watching.stderr.read()
        assert watching.wait(PATIENCE) == 128 + signal.SIGTERM
    assert not running(locks)


def test_command_is_stopped_though_nobody_reads_why(locks: list[str]) -> None:
    """A reader that has gone, such as `head`, does not leave a hung command running."""
    with subprocess.Popen([*WATCHED, "--on-hang", "stop", "--", *locks], stderr=subprocess.PIPE) as watching:
        assert watching.stderr is not None
        watching.stderr.close()
        assert watching.wait(PATIENCE) == 124
    assert not running(locks)


@pytest.mark.parametrize(("script", "code"), [("sleep 1; exit 7", 7), ("sleep 600", 124)])
def test_a_defect_of_the_watch_ends_no_command(script: str, code: int) -> None:
    """Its traceback is told; the command has its own exit code, and its time."""
    broken = "from whichtorch.process.evidence.loop_watch import LoopWatch; LoopWatch.look = None\n"
    words = ["run", "--timeout", "3", "--", "sh", "-c", script]
    source = f"{broken}import sys; from whichtorch.cli import main; sys.argv[1:] = {words}; main()"
    ended = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == code
    assert "TypeError: 'NoneType' object is not callable" in ended.stderr
    assert ended.stderr.endswith("whichtorch: a defect; the command goes on without a watch\n")


def test_hung_command_is_kept_for_a_debugger(locks: list[str]) -> None:
    """We end, the command stays as it is."""
    with Path(os.devnull).open("w") as nowhere:  # what is kept would hold a pipe open
        command = [*WATCHED, "--on-hang", "keep", "--", *locks]
        assert subprocess.run(command, stderr=nowhere, timeout=PATIENCE, check=False).returncode == 124
    (kept,) = running(locks)
    kept.kill()


@pytest.mark.thorough
def test_end_of_its_time_says_where_it_is(tmp_path: Path) -> None:
    """What is busy at its timeout is not called a hang; the line is told, its children end with it."""
    script = tmp_path / "busy.py"
    script.write_text("import subprocess\nsubprocess.Popen(['sleep', '987'])\nsteps = 0\nwhile True:\n    steps += 1\n")
    ended = run("--timeout", "4", "--json", str(tmp_path / "run.json"), command=[sys.executable, str(script)])
    assert ended.returncode == 124
    assert "whichtorch: not done after 4 s: " in ended.stderr
    assert "busy.py:" in ended.stderr
    assert json.loads((tmp_path / "run.json").read_text())["outcome"] == "slow"
    assert not running(["sleep", "987"])


@pytest.mark.thorough
def test_what_did_nothing_until_its_time_was_over_is_a_hang(tmp_path: Path) -> None:
    """A hang that was told, and has not moved since, is still one when its time is over; a sleep is only slow."""
    waits = "import threading\nevent = threading.Event()\nwhile not event.wait(1):\n    pass\n"
    for source, outcome in ((waits, "hang"), ("import time\ntime.sleep(300)\n", "slow")):
        (tmp_path / "idle.py").write_text(source)
        run("--timeout", "8", "--json", str(tmp_path / "run.json"), command=[sys.executable, str(tmp_path / "idle.py")])
        assert json.loads((tmp_path / "run.json").read_text())["outcome"] == outcome


@pytest.mark.thorough
def test_loop_that_repeats_is_a_hang(tmp_path: Path) -> None:
    """An endless loop is told with its first line and the variables that do not change."""
    script = tmp_path / "loop.py"
    script.write_text("loss = 2.0\nwhile loss > 1.0:\n    half = loss / 2\n")
    ended = run("--on-hang", "stop", command=[sys.executable, str(script)])
    assert "busy in `while loss > 1.0` (loop.py:2)" in ended.stderr


@pytest.mark.parametrize(
    ("command", "words"), [(["no-such-program"], "error: no-such-program: No such file or directory"), ([], "COMMAND")]
)
def test_what_cannot_be_run_is_a_mistake(command: list[str], words: str) -> None:
    """It is said in one line, with exit code 2."""
    ended = run(command=command)
    assert (ended.returncode, words in ended.stderr) == (2, True)


def test_wait_for_our_own_input_is_no_hang() -> None:
    """A command that waits for what the user's pipe brings is not stuck: we hold that pipe as it does."""
    reading = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with reading:
        tree = kernel.Tree(os.getpid())
        view = snapshots.ProcView(tree, supervisor=0)
        watch = stall.Watch(view)
        assert until(lambda: is_waiting(view, reading.pid))
        members = [member for member in tree.look(full=True) if member.pid == reading.pid]
        verdicts = [watch.observe(now, members) for now in (0.0, 5.0, 10.0)]
    assert verdicts == [None, None, None]


def is_waiting(view: snapshots.ProcView, pid: int) -> bool:
    """Return whether a process reads a pipe, and waits for it."""
    threads = view.threads(pid, pid)
    return all((wait := stall.classify(pid, thread, view)) and wait.descriptors == (0,) for thread in threads)


def running(command: Sequence[str]) -> list[psutil.Process]:
    """Return the processes with a command line."""
    found = []
    for process in psutil.process_iter():
        try:
            found += [process] if process.cmdline() == list(command) and process.status() != "zombie" else []
        except psutil.Error:
            continue
    return found
