"""`whichtorch compare`: two runs, cell by cell."""

from pathlib import Path
from typing import Annotated

import typer

from matrix.cli.session import Exit, called, check_folders_of, print_lines, write_json
from matrix.records import store, stored_runs


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A run: id or its beginning, name, latest~1, day, folder.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Another one, such as latest.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the comparison as JSON.")
    ] = None,
) -> None:
    """Compare two runs cell by cell: regressions, fixes, new and different failures, what came and went.

    A run is named by its id or the beginning of it, by its name, by `latest` or `latest~1`, by a day (the last run
    started on 2026-11-20, UTC), or by a folder from elsewhere. Cells are matched by test and environment; a nightly
    is compared with the one of the other night. Exit code: 0 nothing got worse; 1 a regression; 2 no such run.
    """
    from matrix.compare.comparison import compare as compared
    from reports.stored_run_text import comparison_lines

    home = store.state_folder()
    check_folders_of(json_file)
    before, after = (stored_runs.read(stored_runs.find(text, home)) for text in (old, new))
    comparison = compared(before.result, after.result)
    print_lines(comparison_lines(comparison, before, after, called))
    if json_file:
        write_json(json_file, comparison)
    raise typer.Exit(Exit.RED if comparison.is_worse else Exit.GOOD)
