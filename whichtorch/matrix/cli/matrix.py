"""`whichtorch matrix`: scenarios in every environment of a matrix."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.command import ClusterAddress, Exit
from whichtorch.matrix.plan.environment_options import MatrixRequest
from whichtorch.matrix.plan.option import group, option, output_file

if TYPE_CHECKING:
    from rich.console import Console

    from whichtorch.matrix.records.store import StoredRun
    from whichtorch.reports.cell_text import CommandPrefix

_output_option = partial(option, panel="Output")


@dataclass(frozen=True, kw_only=True)
class MatrixOptions(MatrixRequest):
    """The options of `matrix`."""

    cluster: ClusterAddress = group(ClusterAddress)
    list_only: bool = _output_option(
        "--list", default=False, help="Show what would run and what is already known, and run nothing."
    )
    baseline: str | None = _output_option(
        metavar="RUN", help="Compare with this run, and exit 1 only for what got worse since."
    )
    json_file: Path | None = output_file("--json", help="Write the result as JSON.")
    markdown_file: Path | None = output_file("--markdown", help="Write the report as Markdown.")


def matrix(options: MatrixOptions) -> Exit:
    """Run scenarios in every environment of a matrix and show what passed, hung, crashed or failed.

    Exit code: 0 all as expected; 1 something hung, crashed, failed or ran out of memory that no scenario
    expects; 2 wrong usage or matrix file; 3 environments or the machine kept cells from running;
    130 interrupted. With --baseline: 1 something that passed in the other run does not in this one; 3 cells that
    had an outcome there were kept from running.
    """
    from whichtorch.matrix.records import stored_runs
    from whichtorch.matrix.run.planned_matrix import PlannedMatrix
    from whichtorch.matrix.run.site import ThisMachine
    from whichtorch.reports import markdown, table
    from whichtorch.reports.cell_text import where_it_ran

    options = replace(options, home=command.state_folder())
    console = command.new_console()
    before = stored_runs.find(options.baseline, options.home) if options.baseline else None  # as yet
    here = ThisMachine.of(options.cache(options.home), options.jobs)
    with options.cluster.machines(here, options.jobs) as machines:
        planned = PlannedMatrix.of(options, machines)
        for line in (*planned.notes, *planned.forecast()):
            console.print(line, style="dim", highlight=False, soft_wrap=True)
        if options.list_only:
            print(*table.plan_lines(planned), sep="\n")
            return Exit.GOOD
        show = command.progress_on(console)
        with command.terminating_like_interrupt(), planned.run(show) as (run, run_store):
            code = Exit.INTERRUPTED if run.is_interrupted else command.exit_code(run_store.tally)
            ended = {"interrupted": run.is_interrupted, "exit_code": int(code)}
            run_store.run = run_store.run.model_copy(update=ended)
    shown = run_store.shown()
    called = where_it_ran(command.called, shown.result.run)
    print(*_report_lines(shown, console, called), sep="\n")
    is_asked_for_all = options.json_file or options.markdown_file or before
    stored = run_store.stored() if shown.left_out and is_asked_for_all else shown
    command.write_json(options.json_file, stored.result)
    if options.markdown_file:
        command.write_lines(options.markdown_file, markdown.markdown_lines(stored, called("matrix")))
    for path in filter(None, (options.json_file, options.markdown_file)):
        print(f"wrote {table.shown_path(path)}")
    return code if before is None else _compared(before.read(), stored, called)


def _compared(before: "StoredRun", stored: "StoredRun", called: "CommandPrefix") -> Exit:
    """Print what changed since another run, and return the exit code for it."""
    from whichtorch.matrix.compare.comparison import compare
    from whichtorch.reports.stored_run_text import comparison_lines

    comparison = compare(before.result, stored.result)
    print(*comparison_lines(comparison, before, stored, called), sep="\n")
    if stored.result.run.interrupted:
        return Exit.INTERRUPTED
    if comparison.is_worse:
        return Exit.RED
    return Exit.PREVENTED if comparison.is_prevented else Exit.GOOD


def _report_lines(stored: "StoredRun", console: "Console", called: "CommandPrefix") -> Iterator[str]:
    """Yield the table, the legend, the red cells, the summary of the run, and the next command to try."""
    from whichtorch.reports import table

    result = stored.result
    width = console.width if console.is_terminal else shutil.get_terminal_size((160, 24)).columns
    yield ""
    yield from table.matrix_lines(result, width)
    yield from table.legend_lines(result, stored.left_out)
    if red := list(table.red_lines(stored, called("matrix"))):
        yield from ("", *red)
    yield ""
    yield from table.summary_lines(result, called, stored.left_out)
