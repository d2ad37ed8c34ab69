"""`whichtorch matrix`: scenarios in every environment of a matrix."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.cluster import Executor, TlsFolder, machines_at
from whichtorch.matrix.cli.command import EnvironmentOption, Exit, OutputOption, RunningOption, ScenarioOption
from whichtorch.matrix.environments.cache import EnvironmentCache
from whichtorch.matrix.environments.commander import INSTALL_TIMEOUT
from whichtorch.matrix.plan.planning import MatrixRequest, RunOptions
from whichtorch.matrix.records import store, stored_runs
from whichtorch.matrix.records.store import StoredRun
from whichtorch.matrix.run.planned_matrix import PlannedMatrix
from whichtorch.matrix.run.site import ThisMachine
from whichtorch.reports import cell_text, markdown, table
from whichtorch.reports.cell_text import CommandPrefix


def matrix(  # one parameter per option
    matrix_file: command.MatrixPath = None,
    torch: command.Torch = None,
    python: command.Python = None,
    build: command.Build = None,
    config_names: command.Config = None,
    patch: command.Patch = None,
    hardware: command.HardwareNames = None,
    interpreter: Annotated[
        list[Path] | None,
        EnvironmentOption(metavar="PATH", help="Python of an existing environment, used as it is. Repeatable."),
    ] = None,
    disk: command.Disk = None,
    install_timeout: Annotated[
        float, EnvironmentOption(metavar="S", min=1, help="Seconds after which a step of an install is given up.")
    ] = INSTALL_TIMEOUT,
    scenario: Annotated[
        list[str] | None,
        ScenarioOption(metavar="GLOB", help="Scenarios by name, 'tag:NAME', or 'NAME[variant=value]'. Repeatable."),
    ] = None,
    script: Annotated[
        list[str] | None, ScenarioOption(metavar="FILE", help="Any script of your own. Repeatable.")
    ] = None,
    timeout: Annotated[
        float | None, RunningOption(metavar="S", min=0.1, help="Seconds per attempt, instead of the scenarios' own.")
    ] = None,
    look_longer: command.LookLonger = False,
    repeat: command.Repeat = 1,
    jobs: Annotated[
        int | None,
        RunningOption(
            metavar="N", min=1, help="Attempts at once. [default: cores, memory permitting; twice that for hangs]"
        ),
    ] = None,
    fresh: Annotated[bool, RunningOption("--fresh", help="Run again what earlier runs have answered.")] = False,
    no_stall: Annotated[
        bool, RunningOption("--no-stall", help="Wait out every timeout, even on evidence of a deadlock.")
    ] = False,
    fork: Annotated[
        bool,
        RunningOption("--fork", help="Import torch once for what is expected to pass; all else is confirmed cold."),
    ] = False,
    executor: Executor = None,
    tls: TlsFolder = None,
    list_only: Annotated[
        bool, OutputOption("--list", help="Show what would run and what is already known, and run nothing.")
    ] = False,
    baseline: Annotated[
        str | None, OutputOption(metavar="RUN", help="Compare with this run, and exit 1 only for what got worse since.")
    ] = None,
    json_file: Annotated[Path | None, OutputOption("--json", metavar="FILE", help="Write the result as JSON.")] = None,
    markdown_file: Annotated[
        Path | None, OutputOption("--markdown", metavar="FILE", help="Write the report as Markdown.")
    ] = None,
) -> None:
    """Run scenarios in every environment of a matrix and show what passed, hung, crashed or failed.

    Exit code: 0 all as expected; 1 something hung, crashed, failed or ran out of memory that no scenario
    expects; 2 wrong usage or matrix file; 3 environments or the machine kept cells from running;
    130 interrupted. With --baseline: 1 something that passed in the other run does not in this one; 3 cells that
    had an outcome there were kept from running.
    """
    home = store.state_folder()
    console = Console()
    axes = {"python": python, "build": build, "config": config_names, "patch": patch, "hardware": hardware}
    file = command.read_matrix(matrix_file, torch, **axes)
    request = MatrixRequest(
        home=home,
        file=file,
        path=matrix_file,
        interpreters=tuple(interpreter or ()),
        product=bool(torch) or not interpreter,
        scenarios=tuple(scenario or ()),
        scripts=tuple(script or ()),
        options=RunOptions(
            timeout=timeout, look_longer=look_longer, repeat=repeat, fresh=fresh, stall=not no_stall, fork=fork
        ),
    )
    cache = EnvironmentCache(home, disk_budget_mb=command.megabytes(disk), install_timeout=install_timeout)
    command.check_folders_of(json_file, markdown_file)
    before = stored_runs.find(baseline, home) if baseline else None  # now: later `latest` is this very run
    with machines_at(executor, tls, ThisMachine.of(cache, jobs), jobs) as machines:
        planned = PlannedMatrix.of(request, machines)
        for line in (*planned.notes, *planned.forecast()):
            console.print(line, style="dim", highlight=False, soft_wrap=True)
        if list_only:
            print(*table.plan_lines(planned), sep="\n")
            return
        show = command.progress_on(console)
        with command.terminating_like_interrupt(), planned.run(show) as (run, run_store):
            code = Exit.INTERRUPTED if run.is_interrupted else command.exit_code(run_store.tally)
            ended = {"interrupted": run.is_interrupted, "exit_code": int(code)}
            run_store.run = run_store.run.model_copy(update=ended)
    shown = run_store.shown()
    called = cell_text.where_it_ran(command.called, shown.result.run)
    print(*_report_lines(shown, console, called), sep="\n")
    is_asked_for_all = json_file or markdown_file or before
    stored = run_store.stored() if shown.left_out and is_asked_for_all else shown
    if json_file:
        command.write_json(json_file, stored.result)
    if markdown_file:
        command.write_lines(markdown_file, markdown.markdown_lines(stored, called("matrix")))
    for path in filter(None, (json_file, markdown_file)):
        print(f"wrote {table.shown_path(path)}")
    if before is not None:
        code = _compared(before.read(), stored, called)
    raise typer.Exit(code)


def _compared(before: StoredRun, stored: StoredRun, called: CommandPrefix) -> Exit:
    """Tell what changed since another run, and return what the exit code says of it."""
    from whichtorch.matrix.compare.comparison import compare
    from whichtorch.reports.stored_run_text import comparison_lines

    comparison = compare(before.result, stored.result)
    print(*comparison_lines(comparison, before, stored, called), sep="\n")
    if stored.result.run.interrupted:
        return Exit.INTERRUPTED
    if comparison.is_worse:
        return Exit.RED
    return Exit.PREVENTED if comparison.is_prevented else Exit.GOOD


def _report_lines(stored: StoredRun, console: Console, called: CommandPrefix) -> Iterator[str]:
    """Yield the table, the legend, the red cells, what came of the run, and the command to go on with."""
    result = stored.result
    width = console.width if console.is_terminal else shutil.get_terminal_size((160, 24)).columns
    yield ""
    yield from table.matrix_lines(result, width)
    yield from table.legend_lines(result, stored.left_out)
    red = list(table.red_lines(stored, called("matrix")))
    if red:
        yield ""
        yield from red
    yield ""
    yield from table.summary_lines(result, called, stored.left_out)
