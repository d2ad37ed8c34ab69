"""A signal asks what runs."""

import io
import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from rich.console import Console

from tests.cli.shell import wait_for
from tests.patience import PATIENCE
from whichtorch.cli.command import terminating_like_interrupt
from whichtorch.matrix import signals
from whichtorch.matrix.signals import SIGNALS, Lookout, answering, stopping_signals
from whichtorch.model.events import EnvironmentStage, Event, StacksSeen, StatusShown
from whichtorch.process.spawning import find_tool
from whichtorch.process.supervision import Task, start
from whichtorch.reports.terminal import Progress


def test_what_nohup_ignores_stays_ignored() -> None:
    """A terminal that closes ends a run, but not one that was started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert signal.SIGHUP in stopping_signals()
        with pytest.raises(KeyboardInterrupt), terminating_like_interrupt():
            signal.raise_signal(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert signal.SIGHUP not in stopping_signals()
        with terminating_like_interrupt():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_asked_while_nothing_runs(number: int) -> None:
    """The answer is that nothing runs, and afterwards the signal is what it was."""
    events: list[Event] = []
    answered = threading.Event()

    def emit(event: Event) -> None:
        events.append(event)
        answered.set()

    before = signal.getsignal(number)
    with answering(tuple, emit):
        os.kill(os.getpid(), number)
        assert answered.wait(PATIENCE)
    assert events == [StatusShown(lines=())]
    assert signal.getsignal(number) == before


@pytest.mark.skipif(find_tool("py-spy") is None, reason="needs py-spy")
def test_what_runs_for_a_while_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that has run for so long is told with its line, one that has not is left alone."""
    events: queue.Queue[Event] = queue.Queue()
    monkeypatch.setattr(signals, "LOOK_CHECK", 0.05)
    monkeypatch.setattr(signals, "LOOK_FIRST", 0.5)
    monkeypatch.setattr(signals, "LOOK", 0.5)
    sleeps = "import time\ndef stuck():\n    time.sleep(60)\nstuck()\n"
    (tmp_path / "a.py").write_text(sleeps)
    log = str(tmp_path / "log")
    argv = (sys.executable, str(tmp_path / "a.py"))
    begun = time.monotonic()
    task = Task(argv=argv, cwd=str(tmp_path), env={}, stdout=log, stderr=log, timeout=PATIENCE, name="a")
    supervised = start(task)
    young = Mock(elapsed=0.1, task=replace(task, name="young"))
    try:
        with Lookout(lambda: [supervised, young], events.put):
            lines: set[str] = set()
            while not any("stuck" in line for line in lines):
                looked = events.get(timeout=PATIENCE)
                assert isinstance(looked, StacksSeen)
                assert set(looked.lines) == {"a"}
                lines.update(looked.lines.values())
        assert time.monotonic() - begun >= 0.5
        assert "stuck (a.py:3)" in lines
    finally:
        supervised.interrupt()
        supervised.wait()


@pytest.mark.skipif(find_tool("py-spy") is None, reason="needs py-spy")
def test_the_test_that_runs_is_told(tmp_path: Path) -> None:
    """Of a command's pytest the running test is named, with how many have ended, before the line that it is at."""
    tests = tmp_path / "tests"
    tests.mkdir()
    said = [{"event": "collected", "ids": ["a.py::one", "a.py::two"]}, {"event": "start", "id": "a.py::one"}]
    said += [{"event": "end", "id": "a.py::one", "outcome": "pass"}, {"event": "start", "id": "a.py::two"}]
    (tests / "tests.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in said))
    (tmp_path / "a.py").write_text("import time\ntime.sleep(60)\n")
    log, argv = str(tmp_path / "log"), (sys.executable, str(tmp_path / "a.py"))
    environ = {"WHICHTORCH_TESTS": str(tests)}
    task = Task(argv=argv, cwd=str(tmp_path), env=environ, stdout=log, stderr=log, timeout=PATIENCE, name="pytest")
    supervised = start(task)
    try:
        told = "  a.py::two, 1 of 2 tests done, <module> (a.py:2)"
        wait_for(lambda: signals.running_lines([supervised])[0].endswith(told))
    finally:
        supervised.interrupt()
        supervised.wait()


def test_answer_in_words() -> None:
    """Cells come first, then environments on their way; none of either is said."""
    text = io.StringIO()
    progress = Progress(Console(file=text), 1)
    progress(StatusShown(lines=()))
    progress(EnvironmentStage(label="torch-2.11.0-pypi", stage="installing"))
    progress(StatusShown(lines=("a  torch-2.12.0-pypi  3 of 60 s  f (a.py:3)",)))
    assert text.getvalue().splitlines() == [
        "no cell is running",
        "torch-2.11.0-pypi: installing",
        "running:",
        "  a  torch-2.12.0-pypi  3 of 60 s  f (a.py:3)",
        "  torch-2.11.0-pypi: installing",
    ]
