"""The command line: the commands and their examples, in the order of the help, and the exit code."""

import _thread
import os
import sys
import threading
from collections.abc import Callable, Iterable
from inspect import getdoc
from typing import Any, NoReturn

import click

from whichtorch.base.errors import GOES_ON, WhichtorchError, remedy
from whichtorch.cli.answer import answer
from whichtorch.cli.bisect import bisect
from whichtorch.cli.cluster import scheduler, worker
from whichtorch.cli.command import Exit, called
from whichtorch.cli.explain import explain
from whichtorch.cli.fix import fix
from whichtorch.cli.inspect import dispatch, doctor, stacks
from whichtorch.cli.matrix import matrix
from whichtorch.cli.mcp import mcp
from whichtorch.cli.parser import SETTINGS, PanelCommand, PanelGroup, command_of, usage_error
from whichtorch.cli.plan import plan
from whichtorch.cli.run import run
from whichtorch.cli.runs import compare, history, merge, report, runs, runs_name, runs_prune
from whichtorch.cli.triage import replay, triage
from whichtorch.reports.shown_text import visible

CALLBACK = 0.05  # seconds in which a callback ends
# each command, with the arguments of two examples
_COMMANDS: dict[Callable[[Any], int | None], tuple[str, str]] = {
    matrix: ("repro.py --torch '>=2.9'", "'meta_mm/*' --config default,single-thread"),
    plan: ("", "--shares 4 --json plan.json"),
    bisect: ("repro.py --torch '>=2.9'", "repro.py --axis config --config default,single-thread,iomp"),
    fix: ("repro.py", "repro.py --bad 2.11.0 --good 2.12.0"),
    triage: ("repro.py", "repro.py --torch 2.6.0 --max-time 10m"),
    replay: ("case.zip", "case.zip --torch 2.11.0"),
    explain: ("repro.py", "meta_mm/linear --run"),
    answer: ("report.md", "issue.json --max-time 10m --comment answer.md"),
    report: ("", "latest~1 --markdown report.md"),
    compare: ("latest~1 latest", "2026-11-20 latest --json changes.json"),
    merge: ("downloads", "run-of-linux run-of-mac"),
    history: ("meta_mm/linear", "repro.py --json history.json"),
    run: ("-- python train.py", "--timeout 30m --on-hang stop -- pytest tests"),
    stacks: ("4711", "--merge host1.json host2.json"),
    dispatch: ("aten::mm torch-2.11.0-cpu torch-2.15.0-cpu", "aten::add.Tensor .venv/bin/python"),
    doctor: ("", "--interpreter .venv/bin/python"),
    scheduler: ("", "--port 9000 --tls certificates"),
    worker: ("tls://head:8786", "tls://head:8786 --slots 4 --home /scratch/whichtorch --idle 10m"),
    mcp: ("", "--max-time 10m --disk 60GB"),
    runs: ("", "--json runs.json"),
}
_RUNS_COMMANDS: dict[Callable[[Any], int | None], tuple[str, str]] = {
    runs_name: ("latest before-the-update", "2026-11-20 friday"),
    runs_prune: ("--keep 20", "--keep 20 --dry-run"),
}


def app() -> click.Group:
    """Return the command line."""
    summary = "Which torch hangs, which torch fixed it: run scripts over PyTorch versions, builds and configurations."
    examples = (f"{called('matrix')} repro.py", f"{called('bisect')} repro.py")
    group = PanelGroup("whichtorch", help=_help(summary, examples), no_args_is_help=True, context_settings=SETTINGS)
    click.version_option(package_name="whichtorch", prog_name="whichtorch")(group)
    for function, arguments in _COMMANDS.items():
        group.add_command(_command(function, "", arguments, is_group=function is runs))
    below = group.commands["runs"]
    assert isinstance(below, click.Group)
    for function, arguments in _RUNS_COMMANDS.items():
        below.add_command(_command(function, "runs ", arguments))
    return group


def _command(
    function: Callable[[Any], int | None], above: str, examples: tuple[str, str], *, is_group: bool = False
) -> PanelCommand:
    """Return a command with the name and the docstring of its function."""
    text, name = getdoc(function) or "", function.__name__.replace("_", "-").removeprefix(above.replace(" ", "-"))
    lines = [f"{called(above + name)} {arguments}".rstrip() for arguments in examples]
    summary = text.partition("\n\n")[0].replace("\n", " ")
    return command_of(function, name, is_group=is_group, help=_help(text, lines), short_help=summary)


def _help(text: str, examples: Iterable[str]) -> str:
    """Return the help of a command, which starts with examples."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in examples), "", text])


def _deliver_interrupt(dropped: "sys.UnraisableHookArgs") -> None:
    """Interrupt again if Ctrl-C came in a callback, where Python would print it and go on."""
    if dropped.exc_type is KeyboardInterrupt:
        threading.Timer(CALLBACK, _thread.interrupt_main).start()  # now, it would be dropped in here
    else:
        sys.__unraisablehook__(dropped)


def main() -> NoReturn:
    """Run the command line; a user's mistake ends in a message, not in a traceback."""
    sys.unraisablehook = _deliver_interrupt
    try:
        if "_WHICHTORCH_COMPLETE" in os.environ:  # a shell asks how the line may go on
            app().main(prog_name="whichtorch")
        with app().make_context("whichtorch", sys.argv[1:]) as context:
            context.command.invoke(context)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.exceptions.NoArgsIsHelpError as asked:
        asked.show()
        sys.exit(Exit.USAGE)
    except click.ClickException as mistake:
        print(f"error: {usage_error(mistake)}", file=sys.stderr)
        sys.exit(Exit.USAGE)
    except WhichtorchError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)  # it may quote a file from elsewhere
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(Exit.INTERRUPTED)  # a second Ctrl-C: do not wait for threads
    except BrokenPipeError:
        os._exit(Exit.GOOD)
    except Exception as error:
        if (what_to_do := remedy(error)) is None:
            raise
        print(f"error: {error}\nhint: {what_to_do}; {GOES_ON}", file=sys.stderr)
        sys.exit(Exit.PREVENTED)
    sys.exit(Exit.GOOD)
