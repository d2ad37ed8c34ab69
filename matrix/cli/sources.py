"""The options of a search through a git history: where it is, and how a commit of it is built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matrix.environments.commander import INSTALL_TIMEOUT
from matrix.errors import UsageError

if TYPE_CHECKING:
    from matrix.bisect.axes.commits import Source

Git = Annotated[
    Path | None, typer.Option("--git", metavar="CHECKOUT", help="Search the commits of a git checkout by git bisect.")
]
BuildCommand = Annotated[
    str | None,
    typer.Option("--build-command", metavar="CMD", help="Of --git: builds a commit; exit code 125 skips it."),
]
Interpreter = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Of --git: the Python that sees the build. [default: CHECKOUT/.venv/bin/python]"),
]
InstallTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        min=1,
        help=f"Seconds for a step of an install, or a build. [default: {INSTALL_TIMEOUT:g}; 14400]",
    ),
]


def check_alone(source: Source | None, others: dict[str, object]) -> None:
    """Raise UsageError where options are given that say nothing about a git history."""
    given = [name for name, value in others.items() if value]
    if source is not None and given:
        raise UsageError(f"{' and '.join(given)} cannot go with --git", hint="leave out one or the other")


def source_of(
    git: Path | None, build_command: str | None, interpreter: Path | None, timeout: float | None
) -> Source | None:
    """Return the history that options name, None for a search of something else."""
    if git is None:
        named = {"--build-command": build_command, "--interpreter": interpreter}
        lone = next((name for name, value in named.items() if value is not None), None)
        if lone:
            raise UsageError(f"{lone} is for a git history", hint="name its checkout with --git")
        return None
    if not build_command:
        raise UsageError("a commit needs to be built", hint="say how with --build-command, such as 'pip install -e .'")
    from matrix.bisect.axes.commits import BUILD_TIMEOUT, Source  # here: `matrix` starts without it

    return Source(checkout=git, command=build_command, interpreter=interpreter, timeout=timeout or BUILD_TIMEOUT)
