"""A command in the user's shell: how it was called, what it shows while it works, what interrupts it."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from matrix.cli.exits import Exit
from reports.terminal import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from rich.console import Console

    from matrix.events import Show


def called(command: str) -> str:
    """Return how the user calls a command: as they called this one."""
    return f"nox -s {command} --" if "WHICHTORCH_COMMAND" in os.environ else f"whichtorch {command}"


def progress_on(console: Console) -> Show:
    """Return what shows the progress of so many cells, and of the environments they need."""
    return lambda total: Progress(console, total)


@contextmanager
def terminating_like_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def going_on_later() -> Iterator[None]:
    """Let an interrupt end the command with its exit code, and say that nothing is lost."""
    try:
        with terminating_like_interrupt():
            yield
    except KeyboardInterrupt:
        print("interrupted: what is done is kept, and the same command goes on", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
