"""The commands that a report offers: run a cell again, find what changed it, ask why."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.model import Cell, Environment

    Called = Callable[[str], str]  # how the user calls a command: "matrix" -> "nox -s matrix --"


def rerun(cell: Cell, environment: Environment, command: str) -> str:
    """Return the command that runs just this cell again."""
    option = "--script" if cell.scenario.endswith(".py") else "--scenario"
    return f"{command} {shlex.join([*environment.options, option, cell.name, '--fresh'])}"


def bisect(cell: Cell, environment: Environment, command: str) -> str:
    """Return the command that searches the release that changed a cell; "" in an environment of the user's own."""
    if environment.interpreter is not None and "--interpreter" in environment.options:
        return ""
    return f"{command} {shlex.join([cell.name, *_without_torch(environment)])}"


def explain(cell: Cell, command: str) -> str:
    """Return the command that says why a cell fails here and not there."""
    return f"{command} {shlex.join([cell.name])}"


def bisect_between(name: str, good: Environment, bad: Environment, days: tuple[str, str], command: str) -> str:
    """Return the command that finds what changed between two environments, run on two days; "" where there is none.

    Of two versions of torch it searches those between them; where other packages changed, the days between the runs.
    """
    options = _without_torch(bad)
    if "--interpreter" in bad.options or "--interpreter" in good.options:
        return ""
    if good.torch != bad.torch:
        return f"{command} {shlex.join([name, *options, '--good', good.torch, '--bad', bad.torch])}"
    if good.packages == bad.packages or days[0] == days[1]:
        return ""
    since = ["--axis", "date", "--torch", bad.torch, "--since", days[0], "--until", days[1]]
    return f"{command} {shlex.join([name, *options, *since])}"


def _without_torch(environment: Environment) -> list[str]:
    """Return the options that ask for an environment, but for its version of torch."""
    options = list(environment.options)
    if "--torch" in options:
        place = options.index("--torch")
        del options[place : place + 2]
    return options
