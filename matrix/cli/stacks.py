"""`whichtorch stacks`: where a running process is stuck."""

import sys
from typing import Annotated

import typer

from matrix.cli.options import OutputOption
from matrix.cli.session import print_lines
from matrix.inspect.processes import inspect_process


def stacks(
    pid: Annotated[int, typer.Argument(help="A process, of any origin.")],
    as_json: Annotated[bool, OutputOption("--json", help="Write the diagnosis and the stacks as JSON.")] = False,
) -> None:
    """Say where a running process and its children are stuck, and who waits for whom.

    Each process is paused for some tenths of a second. Exit code: 0 told; 2 no such process; 3 not permitted.
    """
    shown = inspect_process(pid)
    for note in shown.notes:
        print(f"note: {note}", file=sys.stderr)
    print_lines([shown.json_text] if as_json else shown.lines)
