"""The options that decide how cells are run, and how a command after `--` is.

The parser reads the types of fields, so this module must not import `annotations` from `__future__`.
"""

import shlex
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import OUTPUTS, Strings, megabytes, option, seconds
from whichtorch.process.sandbox import Sandbox
from whichtorch.suite.chain import chain_variant

if TYPE_CHECKING:
    from whichtorch.model import Scenario


running_option = partial(option, panel="How it runs")
sandbox_option = partial(
    running_option,
    "--sandbox",
    if_bare=Sandbox.BUBBLEWRAP,
    help="Run scripts without network, your files and your variables: bubblewrap or off.",
)
fresh_option = partial(running_option, "--fresh", default=False, help="Run again what earlier runs have answered.")
jobs_option = partial(
    option,
    "--jobs",
    panel="Budget",
    metavar="N",
    least=1,
    help="How many run at once. [default: by cores and memory; a search 1; of a cluster all slots]",
)


def _variables() -> str:
    from whichtorch.environments.configs import variables_digest

    return variables_digest()


CHAINED = ("runs", "vary")  # fields that make an attempt a chain of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How cells are run. The last four are not options of the command line."""

    timeout: float | None = running_option(
        metavar="TIME", parse=seconds, help="How long an attempt may take, instead of the test's own timeout."
    )
    memory: float | None = running_option(
        metavar="SIZE",
        parse=megabytes,
        help="Memory limit of an attempt, all of its processes together, such as 8GB. "
        "[default: memory_mb in the script's header, otherwise 4096MB]",
    )
    repeat: int = running_option(default=1, metavar="N", least=1, help="Attempts per cell.")
    runs: int | None = running_option(
        metavar="N",
        least=1,
        help="Runs per attempt, one after another: each finds the compiler caches of those before. [default: 1]",
    )
    vary: Strings = running_option(
        default=(), metavar="NAME=A,B", help="A variable that differs between the runs; threads=1,2. Repeatable."
    )
    fresh: bool = fresh_option()
    stall: bool = running_option(
        "--no-stall", default=True, help="Wait out every timeout, even on evidence of a deadlock."
    )
    fail_fast: bool = running_option(
        "-x --fail-fast", default=False, help="Stop after the first failure that no scenario expects."
    )
    cold: bool = running_option(
        default=False, help="Start each script in a fresh Python, even where torch could be imported once and shared."
    )
    sandbox: Sandbox = sandbox_option(default=Sandbox.OFF)
    until: frozenset[str] = frozenset()  # outcomes: after an attempt with one of these, no other is made
    provisional: bool = False  # a slow attempt does not get a longer look
    in_search: bool = False  # passes elsewhere are known: many times their duration counts as a hang
    variables: str = field(default_factory=_variables)  # digest of the shell variables that may change what torch does

    @property
    def chain(self) -> dict[str, str]:
        """What they add to a variant for a chain of runs. Raises UsageError for what can be none."""
        return chain_variant(self.runs, self.vary)


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
