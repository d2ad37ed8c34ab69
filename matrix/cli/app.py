"""The command line: its commands in the order of its help, and how it ends."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from matrix.cli.bisect import bisect
from matrix.cli.compare import compare
from matrix.cli.dispatch import dispatch
from matrix.cli.doctor import doctor
from matrix.cli.exits import Exit
from matrix.cli.explain import explain
from matrix.cli.history import history
from matrix.cli.matrix import matrix
from matrix.cli.merge import merge
from matrix.cli.report import report
from matrix.cli.runs import runs
from matrix.cli.stacks import stacks
from matrix.errors import WhichtorchError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def whichtorch() -> None:
    """Which torch hangs, which torch fixed it: run scripts over PyTorch versions, builds and configurations."""


for _command in (matrix, bisect, explain, report, compare, merge, history, stacks, dispatch, doctor):
    app.command()(_command)
app.add_typer(runs, name="runs")


def main() -> NoReturn:
    """Run the command line; a user's mistake ends in a message, not in a traceback.

    Paths in commands that reports give may begin with ~, and within quotes no shell makes them whole.
    """
    sys.argv[1:] = [os.path.expanduser(word) if word.startswith("~/") else word for word in sys.argv[1:]]  # noqa: PTH111
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
    sys.exit(Exit.GOOD)
