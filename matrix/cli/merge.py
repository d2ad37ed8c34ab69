"""`whichtorch merge`: runs from several machines or jobs become one."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from matrix.cli.session import Exit, print_lines
from matrix.errors import UsageError
from matrix.records import store, stored_runs


def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs, or such that hold some, as downloaded.")
    ],
) -> None:
    """Make one run of runs that were made on several machines or by several jobs of a CI service.

    The same record twice is kept once; conflicting ones are both kept, and the cells that rest on them told. The
    parts stay as they are; the merged run is then the `latest` one. Exit code: 0; 2 a folder holds no run.
    """
    from matrix.records.merging import merge as merged
    from reports.stored_run_text import merge_lines

    home = store.state_folder()
    heads = []
    problems = []
    for folder in folders:
        try:
            heads += stored_runs.runs_below(folder)
        except UsageError as error:
            problems.append(error.message)
    if problems:
        raise UsageError("\n".join(problems), hint="name a folder with a run.json, or one above it")
    with store.new_run(home, tuple(sys.argv[1:])) as run_store:
        result = merged(heads, run_store)
        run_store.finish(run_store.run)
    print_lines(merge_lines(result, run_store.run))
    raise typer.Exit(Exit.GOOD)
