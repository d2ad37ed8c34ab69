"""`pytest --whichtorch`: a test that hangs fails with a sentence, and the others run."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from junitparser import JUnitXml

from tests.patience import PATIENCE
from whichtorch.process import kernel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

HANGS = """
import multiprocessing, threading

def test_before(): pass

def test_loop():
    loss = 2.0
    while loss > 1.0:
        half = loss / 2

def test_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_process():
    queue = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=queue.get)
    child.start()
    try:
        child.join()
    finally:
        child.join()

def test_thread():
    thread = threading.Thread(target=threading.Event().wait)
    thread.start()
    thread.join()

def test_after(): pass
"""
NATIVE = """
import ctypes
import pytest

def test_pass(): pass

@pytest.mark.skip(reason="why")
def test_skip(): pass

def test_fail(): assert 0

def test_native():
    mutex = ctypes.create_string_buffer(64)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)

def test_after(): pass
"""


def run(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests in a folder, with --junit-xml."""
    (folder / "test_it.py").write_text(source)
    call = [sys.executable, "-m", "pytest", "--whichtorch", "-q", "-p", "no:cacheprovider", "--junit-xml=junit.xml"]
    return subprocess.run(
        [*call, *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def messages(folder: Path) -> dict[str, str]:
    """Return what the JUnit file says of each test; "" of one that passes."""
    cases = [case for suite in JUnitXml.fromfile(str(folder / "junit.xml")) for case in suite]
    return {case.name: "".join(result.message or "" for result in case.result) for case in cases}


@pytest.mark.thorough
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_hang_fails_its_test_and_no_other(tmp_path: Path, workers: str) -> None:
    """Each hang says its own lines; the session ends, though stuck threads and processes are left in it."""
    chosen = "not loop" if workers != "0" else ""  # a loop is proven only where no other thread runs
    ended = run(tmp_path, HANGS, "-n", workers, "--dist=loadfile", "-k", chosen)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    said = messages(tmp_path)
    assert [name for name, message in said.items() if not message] == ["test_before", "test_after"], (
        ended.stdout + ended.stderr
    )
    if workers == "0":  # with xdist the sentence may begin at the controller
        assert "in test_it.py::test_loop: busy in `while loss > 1.0` (test_it.py:8)" in said["test_loop"]
        assert "in test_it.py::test_lock: lock cycle: " in said["test_lock"]
        assert "in test_it.py::test_process: wait for a queue: " in said["test_process"]
        assert "in test_it.py::test_thread: wait for an event: " in said["test_thread"]
    assert "test_it.py:14" in said["test_lock"]
    for name in ("test_lock", "test_process", "test_thread"):
        assert f"in test_it.py::{name}: " in said[name]
    assert not [pid for pid in psutil.pids() if kernel.link(f"/proc/{pid}/cwd") == str(tmp_path)]


@pytest.mark.thorough
def test_a_hang_in_native_code_ends_the_session(tmp_path: Path) -> None:
    """No exception reaches it: the session ends, and its JUnit file has the test and those before it."""
    ended = run(tmp_path, NATIVE)
    assert ended.returncode == 1
    assert "whichtorch: HANG after " in ended.stderr
    assert "pytest cannot go on" in ended.stderr
    assert "FAILED test_it.py::test_native - HANG in test_it.py::test_native: lock cycle: " in ended.stderr
    said = messages(tmp_path)
    assert list(said) == ["test_pass", "test_skip", "test_fail", "test_native"]
    assert (said["test_pass"], said["test_skip"]) == ("", "why")
    assert "lock cycle" in said["test_native"]


@pytest.mark.parametrize(("source", "code"), [("def test(): pass", 0), ("def test(): assert 0", 1), ("", 5)])
def test_a_session_that_does_not_hang_is_as_ever(tmp_path: Path, source: str, code: int) -> None:
    """Its exit status and its output are those of pytest, and the tests see no variable of ours."""
    ended = run(tmp_path, f"import os\nassert not any('WHICHTORCH' in name for name in os.environ)\n{source}\n")
    assert (ended.returncode, ended.stderr) == (code, "")


def test_the_option_costs_nothing_until_it_is_given(tmp_path: Path) -> None:
    """Pytest imports one small module of ours."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_modules():\n"
        "    ours = {name for name in sys.modules if name.startswith('whichtorch')}\n"
        "    assert ours == {'whichtorch', 'whichtorch.watch', 'whichtorch.watch.pytest_plugin'}\n"
    )
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert subprocess.run(call, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_a_watched_pytest_is_not_watched_twice(tmp_path: Path) -> None:
    """`whichtorch run` does what it is asked to do, and the option adds nothing."""
    (tmp_path / "test_it.py").write_text("import threading\ndef test(): threading.Event().wait()\n")
    call = [sys.executable, "-m", "whichtorch", "run", "--on-hang", "stop", "--"]
    call += [sys.executable, "-m", "pytest", "--whichtorch", "-q", str(tmp_path)]
    ended = subprocess.run(call, env=os.environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stderr.count("HANG after")) == (124, 1)
