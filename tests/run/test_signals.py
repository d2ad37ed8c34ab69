"""A signal asks what runs."""

from __future__ import annotations

import io
import os
import signal
import threading

import pytest
from rich.console import Console

from matrix.events import Asked, EnvironmentStage, Event
from matrix.run.signals import SIGNALS, answering
from reports.terminal import Progress


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
        assert answered.wait(30)
    assert events == [Asked(lines=())]
    assert signal.getsignal(number) == before


def test_answer_in_words() -> None:
    """Cells come first, then environments on their way; none of either is said."""
    text = io.StringIO()
    progress = Progress(Console(file=text), 1)
    progress(Asked(lines=()))
    progress(EnvironmentStage(label="torch-2.11.0-pypi", stage="installing"))
    progress(Asked(lines=("a  torch-2.12.0-pypi  3 of 60 s  f (a.py:3)",)))
    assert text.getvalue().splitlines() == [
        "no cell is running",
        "torch-2.11.0-pypi: installing",
        "running:",
        "  a  torch-2.12.0-pypi  3 of 60 s  f (a.py:3)",
        "  torch-2.11.0-pypi: installing",
    ]
