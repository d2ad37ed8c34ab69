"""What is run after `--` where no script is named: a command, in a copy of the user's project.

The parser reads the types of fields, so this module must not import `annotations` from `__future__`.
"""

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import OUTPUTS, Strings, option

if TYPE_CHECKING:
    from whichtorch.model import Scenario

_UNSUPPORTED = {  # options of pytest that read results of its last run, or that need a person
    **dict.fromkeys(
        ("--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--sw", "--stepwise"),
        "each environment starts from a fresh copy of the project, without results of earlier runs; "
        "whichtorch's own --last-failed selects cells",
    ),
    **dict.fromkeys(("--pdb", "--trace"), "standard input is empty"),
    **dict.fromkeys(("--looponfail", "-f"), "it never ends"),
}
_REPORTS = ("index.html", "report.md", "junit.xml", "result.json")  # what `report` writes by default
_command_option = partial(option, panel="Command after --")


def check_command(words: Strings | None) -> None:
    """Raise UsageError for no command, and for an option that it cannot have."""
    from whichtorch.model import pytest_place

    if words is None:
        return
    if not words:
        raise UsageError("-- without a command", hint="write it after --, as in `-- pytest tests`")
    if words[0].startswith("-"):
        hint = "a script that takes it stands before --: `repro.py -- --size 4`"
        raise UsageError(f"{words[0]} is not a command", hint=hint)
    if pytest_place(words) is not None:
        for word in words:
            if reason := _UNSUPPORTED.get(word.partition("=")[0]):
                raise UsageError(f"pytest's {word} cannot be used here: {reason}", hint="leave it out")


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """How a command is run, and what its exit codes mean."""

    ok_exit: tuple[int, ...] = _command_option(
        default=(), metavar="CODE", least=0, most=255, help="An exit code that passes, beside 0. Repeatable."
    )
    skip_exit: tuple[int, ...] = _command_option(
        default=(), metavar="CODE", least=0, most=255, help="An exit code that skips, beside 125. Repeatable."
    )
    in_place: bool = _command_option(
        default=False, help="Run the command in the folder itself, one environment at a time, not in copies of it."
    )

    def scenario(self, words: Strings, home: Path) -> "Scenario":
        """Return the test that a command is; its project's files are kept below `home`.

        Raises UsageError for a project that is too large.
        """
        from whichtorch.model import COMMAND_MARK, ProjectCommand, Scenario, digest
        from whichtorch.suite.project import Project

        folder = Path.cwd()
        reports = {folder.resolve() / "output" / name for name in _REPORTS}
        project = Project.around(folder, OUTPUTS | reports)
        if not self.in_place:
            project.keep(home)
        command = ProjectCommand(
            words=words,
            project=project.digest,
            subfolder=project.subfolder,
            in_place=folder if self.in_place else None,
            ok_codes=self.ok_exit,
            skip_codes=self.skip_exit,
        )
        return Scenario(
            name=COMMAND_MARK + shlex.join(words),
            path=folder,
            source_hash=digest(command.model_dump(), 12),
            in_suite=False,
            command=command,
        )
