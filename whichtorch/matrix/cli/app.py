"""The command line: its commands with examples, in the order of its help, and how it ends."""

from __future__ import annotations

import os
import re
import sys
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from whichtorch.matrix.cli.bisect import bisect
from whichtorch.matrix.cli.cluster import scheduler, worker
from whichtorch.matrix.cli.command import Exit, called
from whichtorch.matrix.cli.explain import explain
from whichtorch.matrix.cli.fix import fix
from whichtorch.matrix.cli.inspect import dispatch, doctor, stacks
from whichtorch.matrix.cli.matrix import matrix
from whichtorch.matrix.cli.runs import compare, history, list_runs, merge, report, runs
from whichtorch.matrix.cli.triage import new_scenario, replay, triage
from whichtorch.matrix.errors import GOES_ON, WhichtorchError, is_disk_full

if TYPE_CHECKING:
    from collections.abc import Callable

# with the arguments of two examples each
_COMMANDS: dict[Callable[..., None], tuple[str, str]] = {
    matrix: ("--script repro.py --torch '>=2.9'", "--scenario 'meta_mm/*' --config default,single-thread"),
    bisect: ("repro.py --torch '>=2.9'", "repro.py --axis config --config default,single-thread,iomp"),
    fix: ("repro.py", "repro.py --bad 2.11.0 --good 2.12.0"),
    triage: ("repro.py", "repro.py --torch 2.6.0 --max-time 10m"),
    replay: ("case.zip", "case.zip --torch 2.11.0"),
    new_scenario: ("repro.py", "repro.py --output scenarios/mine/repro.py"),
    explain: ("repro.py", "meta_mm/linear --run"),
    report: ("", "latest~1 --markdown report.md"),
    compare: ("latest~1 latest", "2026-11-20 latest --json changes.json"),
    merge: ("downloads", "run-of-linux run-of-mac"),
    history: ("meta_mm/linear", "repro.py --json history.json"),
    stacks: ("4711", "--merge host1.json host2.json"),
    dispatch: ("aten::mm torch-2.11.0-cpu torch-2.15.0-cpu", "aten::add.Tensor .venv/bin/python"),
    doctor: ("", "--interpreter .venv/bin/python"),
    scheduler: ("", "--port 9000 --tls certificates"),
    worker: ("tls://head:8786", "tls://head:8786 --slots 4 --home /scratch/whichtorch --idle 10m"),
}
_RUNS_COMMANDS = (("latest before-the-update", "2026-11-20 friday"), ("--keep 20", "--keep 20 --dry-run"))


class _Command(TyperCommand):
    """A command whose help has its options by panel, and whose values may be paths that begin with ~.

    The commands that reports give have such paths within quotes, where no shell expands them.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _expanded(args))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if record := parameter.get_help_record(ctx):
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


class _Group(TyperGroup):
    """A command with commands below it, whose own values may be paths that begin with ~."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _expanded(args))


def _expanded(words: list[str]) -> list[str]:
    """Return arguments with the user's folder instead of ~, as in ~/a.py and --script=~/a.py."""
    return [re.sub(r"^(--[\w-]+=)?~(?=/|$)", lambda match: f"{match[1] or ''}{Path.home()}", word) for word in words]


def _help(function: Callable[..., object], *examples: tuple[str, str]) -> str:
    """Return the help of a command: examples, each a command and its arguments, before what the docstring says."""
    lines = "\n".join(f"  {called(command)} {arguments}".rstrip() for command, arguments in examples)
    return f"\b\nExamples:\n{lines}\n\n{getdoc(function)}"


def _summary(function: Callable[..., object]) -> str:
    return (getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")


def whichtorch() -> None:
    """Which torch hangs, which torch fixed it: run scripts over PyTorch versions, builds and configurations."""


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich's help would double the time until the first line
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback(help=_help(whichtorch, ("matrix", "--script repro.py"), ("bisect", "repro.py")))(whichtorch)
for _function, _examples in _COMMANDS.items():
    _lines = [(_function.__name__.replace("_", "-"), arguments) for arguments in _examples]
    app.command(cls=_Command, help=_help(_function, *_lines), short_help=_summary(_function))(_function)
_lines = [("runs", ""), ("runs", "--json runs.json")]
app.add_typer(runs, name="runs", cls=_Group, help=_help(list_runs, *_lines), short_help=_summary(list_runs))
for _below, _examples in zip(runs.registered_commands, _RUNS_COMMANDS, strict=True):
    assert _below.callback is not None
    _lines = [(f"runs {_below.callback.__name__}", arguments) for arguments in _examples]
    _below.cls, _below.help, _below.short_help = _Command, _help(_below.callback, *_lines), _summary(_below.callback)


def main() -> NoReturn:
    """Run the command line; a user's mistake ends in a message, not in a traceback."""
    try:
        app(standalone_mode=True)
    except WhichtorchError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(Exit.INTERRUPTED)  # a second Ctrl-C: wait for no thread
    except BrokenPipeError:
        os._exit(Exit.GOOD)
    except Exception as error:
        if not is_disk_full(error):
            raise
        print(f"error: {error}\nhint: make room; {GOES_ON}", file=sys.stderr)
        sys.exit(Exit.PREVENTED)
    sys.exit(Exit.GOOD)
