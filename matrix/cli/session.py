"""A command in the user's shell: how it was called, what it shows and writes, what interrupts it, how it ends."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

import typer

from matrix.errors import UsageError
from matrix.privacy.redaction import Redactor
from reports.terminal import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import FrameType

    from rich.console import Console

    from matrix.events import Show
    from matrix.model import Cell, Model


class Exit(IntEnum):
    """What the exit code says."""

    GOOD = 0
    RED = 1  # something hung, crashed, failed or ran out of memory that no scenario expects
    USAGE = 2
    PREVENTED = 3  # environments or the machine kept cells from running
    UNANSWERED = 4  # `explain` and `bisect` have too little to go by
    INTERRUPTED = 130


def exit_code(cells: Iterable[Cell]) -> Exit:
    """Return what the exit code says of the cells of a whole run."""
    cells = tuple(cells)
    if any(cell.outcome.is_red and not cell.expected for cell in cells):
        return Exit.RED
    if any(cell.outcome.is_prevented for cell in cells):
        return Exit.PREVENTED
    return Exit.GOOD


def called(command: str) -> str:
    """Return how the user calls a command: as they called this one."""
    return f"nox -s {command} --" if "WHICHTORCH_COMMAND" in os.environ else f"whichtorch {command}"


def progress_on(console: Console) -> Show:
    """Return what shows the progress of a number of cells, and of the environments they need."""
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


def write_json(path: Path, model: Model) -> None:
    """Write a model as JSON, redacted."""
    text = Redactor.of_this_machine().json_line(model.model_dump_json(by_alias=True, indent=1))
    path.write_text(text + "\n", encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, redacted."""
    path.write_text(Redactor.of_this_machine().text("\n".join(lines)) + "\n", encoding="utf-8")


def check_folders_of(*paths: Path | None) -> None:
    """Raise UsageError where a report could not be written, before hours of work."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"no folder {path.parent} to write {path.name} into")
