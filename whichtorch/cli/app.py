"""The command line: the commands and their examples, in the order of the help, and the exit code."""

import _thread
import os
import sys
import threading
from collections.abc import Callable, Iterable
from inspect import getdoc
from typing import Any, NamedTuple, NoReturn

import click

from whichtorch.base.errors import GOES_ON, WhichtorchError, remedy
from whichtorch.cli.answer import answer
from whichtorch.cli.bisect import bisect
from whichtorch.cli.cluster import scheduler, worker
from whichtorch.cli.command import Exit, called
from whichtorch.cli.explain import explain
from whichtorch.cli.fix import fix
from whichtorch.cli.inspect import dispatch, doctor, run, stacks
from whichtorch.cli.matrix import matrix, plan
from whichtorch.cli.mcp import mcp
from whichtorch.cli.parser import SETTINGS, PanelCommand, PanelGroup, command_of, usage_error
from whichtorch.cli.runs import compare, history, merge, report, runs, runs_name, runs_prune
from whichtorch.cli.triage import replay, triage

CALLBACK = 0.05  # seconds in which a callback ends


class _Front(NamedTuple):
    """What stands first in a command's help."""

    examples: tuple[str, ...]  # arguments
    first: str = ""  # the options that --help shows; "" for all


_TESTS, _RANKS = "--with pytest -- pytest tests", "-- torchrun train.py"
_TWO = "--torch 2.11.0,2.15.0"
_COMMANDS: dict[str, dict[Callable[[Any], int | None], _Front]] = {
    "Look here, installing nothing": {
        run: _Front(("-- python train.py", "--timeout 30m --on-hang stop -- pytest tests")),
        stacks: _Front(("4711", "--merge host1.json host2.json")),
        doctor: _Front(("", "--interpreter .venv/bin/python")),
    },
    "Test": {
        matrix: _Front(
            ("repro.py", f"repro.py {_TWO}", f"{_TWO} {_TESTS}", _RANKS),
            "--torch --build --python --with --project --timeout --repeat --fresh --html --list",
        ),
        bisect: _Front(
            ("repro.py --torch '>=2.9'", "repro.py --good 2.11.0 --bad 2.15.0", _TESTS, _RANKS),
            "--torch --build --python --with --project --good --bad --package --flaky --max-time",
        ),
        explain: _Front(
            ("repro.py", "meta_mm/linear --run", "repro.py --here .venv/bin/python", "-- pytest tests"),
            "--run --here --torch --build --python --config --with --project --repeat --timeout",
        ),
        fix: _Front(
            ("repro.py", "repro.py --bad 2.11.0 --good 2.12.0", _TESTS, _RANKS),
            "--bad --good --build --python --with --project --timeout --output --max-time --markdown",
        ),
        triage: _Front(
            ("repro.py", "repro.py --torch 2.6.0 --max-time 10m"),
            "--torch --build --python --with --project --case --only --until --timeout --max-time",
        ),
        replay: _Front(
            ("case.zip", "case.zip --torch 2.11.0"),
            "--torch --build --python --config --with --project --sandbox --disk --verbose --json",
        ),
        answer: _Front(
            ("report.md", "issue.json --max-time 10m --comment answer.md"),
            "--newest --max-time --sandbox --timeout --fresh --jobs --disk --comment --json --verbose",
        ),
        dispatch: _Front(("aten::mm torch-2.11.0-cpu torch-2.15.0-cpu", "aten::add.Tensor .venv/bin/python")),
    },
    "Read": {
        report: _Front(("", "latest~1 --markdown report.md")),
        compare: _Front(("latest~1 latest", "2026-11-20 latest --json changes.json")),
        history: _Front(("meta_mm/linear", "repro.py --json history.json")),
        runs: _Front(("", "--json runs.json")),
    },
    "Many machines, and programs": {
        plan: _Front(
            ("", "--shares 4 --json plan.json"),
            "--shares --torch --build --python --config --with --project --install --matrix --json",
        ),
        merge: _Front(("downloads", "run-of-linux run-of-mac")),
        scheduler: _Front(("", "--port 9000 --tls certificates")),
        worker: _Front(("tls://head:8786", "tls://head:8786 --slots 4 --home /scratch/wt --idle 10m")),
        mcp: _Front(("", "--max-time 10m --disk 60GB")),
    },
}
_RUNS_COMMANDS: dict[Callable[[Any], int | None], _Front] = {
    runs_name: _Front(("latest before-the-update", "2026-11-20 friday")),
    runs_prune: _Front(("--keep 20", "--keep 20 --dry-run")),
}


def app() -> click.Group:
    """Return the command line."""
    summary = "Say where a script or a test hangs, and which torch broke or fixed it."
    examples = (f"{called('run')} -- pytest tests", f"{called('matrix')} repro.py {_TWO}")
    group = PanelGroup("whichtorch", help=_help(summary, examples), no_args_is_help=True, context_settings=SETTINGS)
    click.version_option(package_name="whichtorch", prog_name="whichtorch")(group)
    for section, functions in _COMMANDS.items():
        for function, front in functions.items():
            group.add_command(_command(function, "", front, is_group=function is runs))
        group.sections[section] = [function.__name__ for function in functions]
    below = group.commands["runs"]
    assert isinstance(below, click.Group)
    for function, front in _RUNS_COMMANDS.items():
        below.add_command(_command(function, "runs ", front))
    return group


def _command(
    function: Callable[[Any], int | None], above: str, front: _Front, *, is_group: bool = False
) -> PanelCommand:
    """Return a command with the name and the docstring of its function."""
    text, name = getdoc(function) or "", function.__name__.replace("_", "-").removeprefix(above.replace(" ", "-"))
    lines = [f"{called(above + name)} {arguments}".rstrip() for arguments in front.examples]
    texts = {"help": _help(text, lines), "short_help": text.partition("\n\n")[0].replace("\n", " ").rstrip(".")}
    return command_of(function, name, is_group=is_group, first=front.first.split(), **texts)


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
        from whichtorch.reports.document import visible

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
