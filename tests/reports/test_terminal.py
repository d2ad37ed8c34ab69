"""The lines that are shown while a matrix runs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tests.reports.test_table import NEW, cell
from whichtorch.matrix.forecast import Forecast
from whichtorch.model import Outcome
from whichtorch.model.events import (
    AttemptStarted,
    CellDone,
    EnvironmentStage,
    Interrupted,
    ProbeDropped,
    StacksSeen,
    StatusShown,
)
from whichtorch.reports.terminal import Progress, say

if TYPE_CHECKING:
    from whichtorch.model.events import Event


def shown(*events: Event, cells: int | None = 1) -> list[str]:
    file = io.StringIO()
    progress = Progress(Console(file=file, width=200), cells)
    for event in events:
        progress(event)
    return file.getvalue().splitlines()


def began(name: str, limit: float = 60, **fields: Any) -> AttemptStarted:
    return AttemptStarted(environment="here", cell=name, limit=limit, **fields)


def test_a_known_failure_is_marked() -> None:
    """A red word that the scenario expects frightens nobody; one that nobody expects has its mark alone."""
    cells = cell(NEW, Outcome.FAIL), cell(NEW, Outcome.FAIL, expected=False), cell(NEW, Outcome.PASS)
    assert shown(*(CellDone(environment=NEW, cell=each) for each in cells), cells=3) == [
        "[1/3] FAIL (known) family/case[op=mm]  torch-2.12.1-pypi  1.0 s",
        "[2/3] FAIL!    family/case[op=mm]  torch-2.12.1-pypi  1.0 s",
        "[3/3] pass     family/case[op=mm]  torch-2.12.1-pypi  1.0 s",
    ]


class Terminal(io.StringIO):
    """A terminal that keeps what it shows."""

    def isatty(self) -> bool:
        return True


LINE = "HANG!  train.py  torch-2.15.0-pypi: rank 0 waits in torch.distributed.all_gather; log runs/a long path/x.txt; "
LINE += "stacks runs/stacks; rerun: whichtorch matrix train.py --torch 2.15.0 --build pypi --fresh"


def test_a_terminal_shows_a_thing_a_line_and_wraps() -> None:
    """A long line goes on with an indent; what is copied is never broken, and stays what it was."""
    file = Terminal()
    say(Console(file=file, width=40, force_terminal=True, color_system=None), [LINE, "  two  words"])
    assert file.getvalue().splitlines() == [
        "HANG!  train.py  torch-2.15.0-pypi: rank",
        "    0 waits in",
        "    torch.distributed.all_gather",
        "    log runs/a long path/x.txt",
        "    stacks runs/stacks",
        "    rerun: whichtorch matrix train.py --torch 2.15.0 --build pypi --fresh",
        "  two  words",
    ]


def test_what_is_no_terminal_gets_lines() -> None:
    """Programs and logs read lines, with or without colors."""
    file = io.StringIO()
    say(Console(file=file, width=40), [LINE])
    say(Console(file=file, width=40, color_system="standard"), [LINE])
    plain, colored = file.getvalue().splitlines()
    assert plain == LINE
    assert colored == f"\x1b[1;31mHANG!\x1b[0m{LINE.removeprefix('HANG!')}"


def test_a_longer_look_says_how_long_it_may_take() -> None:
    """The time where the cores are free comes first, and the limit where it may take longer."""
    assert shown(*(began("a", limit, goal=80.0, why="slow: still moving") for limit in (430.4, 80.2))) == [
        "a  here  again for 80 to 430 s: slow: still moving",
        "a  here  again for 80 s: slow: still moving",
    ]


def test_what_is_stopped_is_told_with_its_last_line() -> None:
    """At an interrupt, and when the time is over, each attempt that runs is told, with the line it was last seen at."""
    seen, over = StacksSeen(lines={"a  here": "f (a.py:3)"}), Interrupted(why="the 60 s are over")
    assert shown(began("a"), began("b"), seen, over) == [
        "the 60 s are over: stopping what runs, keeping what is done (press Ctrl-C again to stop at once)",
        "  a  here  0 of 60 s  at f (a.py:3)",
        "  b  here  0 of 60 s",
    ]


def test_a_measured_run_is_told_with_its_round() -> None:
    """Who waits for a series sees how far it is."""
    lines = shown(began("a", round=5, rounds=12), Interrupted(why="the 60 s are over"))
    assert lines[1:] == ["  a  here  0 of 60 s, round 5 of at most 12"]


def test_a_dropped_probe_is_not_shown_any_more() -> None:
    """Neither its attempt nor its install is told as what runs."""
    installs, waits = EnvironmentStage(label="here", stage="installing"), StatusShown(lines=(), why="waiting for:")
    assert shown(installs, began("a"), ProbeDropped(label="here"), waits, Interrupted(), cells=None) == [
        "here: installing",
        "waiting for:",
        "interrupted: stopping what runs, keeping what is done (press Ctrl-C again to stop at once)",
    ]


def test_nobodys_words_control_the_terminal() -> None:
    """Escapes of a message are dropped, in what happens and at the end, and hidden characters are written out."""
    file = Terminal()
    console = Console(file=file, width=200, force_terminal=True, color_system=None)
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\x00"
    say(console, [f"FAIL  {evil}x"])
    progress = Progress(console, 1)
    progress(CellDone(environment=NEW, cell=cell(NEW, Outcome.FAIL, expected=False, signature=f"{evil}y")))
    told = file.getvalue()
    assert not set("\x1b\x07\u202e\x00") & set(told)
    assert "\\u202e\\x00x" in told
    assert "\\u202e\\x00y" in told


def test_a_bar_shows_how_much_is_done_and_how_long_the_rest_takes() -> None:
    """Half of what a run was expected to take is over, at the pace that was expected."""
    console = Console(file=Terminal(), width=100, force_terminal=True, color_system=None)
    forecast = Forecast(cells=2, jobs=1, seconds=240.0, done=120.0)
    progress = Progress(console, 2, forecast=forecast)
    progress._begun -= 120.0
    progress(CellDone(environment=NEW, cell=cell(NEW, Outcome.PASS)))
    with console.capture() as captured:
        console.print(progress._renderable())
    (line,) = captured.get().splitlines()
    assert line.split() == ["1/2", "cells", "\u2501" * 20, "about", "2", "minutes", "left"]
