"""`whichtorch history`: one test, night after night."""

from pathlib import Path
from typing import Annotated

import typer

from matrix.cli.session import Exit, check_folders_of, print_lines, write_json
from matrix.errors import UsageError
from matrix.records import store, stored_runs


def history(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A test by name, with or without its variant.")],
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the lines as JSON.")] = None,
) -> None:
    """Tell what stored runs made of a test: one line per night and environment, and where that changed.

    Exit code: 0; 2 no run has it.
    """
    from matrix.compare import nights
    from reports.stored_run_text import history_lines

    home = store.state_folder()
    check_folders_of(json_file)
    heads = [head for head in stored_runs.all_runs(home) if head.run.kind in stored_runs.COMPARABLE]
    histories = nights.history(scenario, heads)
    if not histories:
        raise UsageError(f"no stored run has a cell {scenario}", hint="`whichtorch runs` lists the runs")
    print_lines(history_lines(histories))
    if json_file:
        write_json(json_file, nights.Histories(histories=histories))
    raise typer.Exit(Exit.GOOD)
