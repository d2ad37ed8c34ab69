"""`whichtorch matrix`: scenarios in every environment of a matrix. `whichtorch plan`: these, shared among jobs."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.base.errors import FailFastError, UsageError
from whichtorch.base.option import group, json_output, option
from whichtorch.cli import command
from whichtorch.cli.command import ClusterAddress, Display, Exit, MeasureOptions, baseline_option, format_options
from whichtorch.cli.parser import command_of, request_of
from whichtorch.matrix.options import MatrixAxes, MatrixRequest
from whichtorch.reports.formats import FORMATS

if TYPE_CHECKING:
    from whichtorch.matrix.planning import Plan
    from whichtorch.matrix.site import ThisMachine
    from whichtorch.measure.measure import Measure
    from whichtorch.records.store import RunFolder, StoredRun
    from whichtorch.reports.cell_text import CommandPrefix

_output_option = partial(option, panel="Output")


@dataclass(frozen=True, kw_only=True)
class MatrixOptions(MatrixRequest):
    """The options of `matrix`."""

    cluster: ClusterAddress = group(ClusterAddress)
    list_only: bool = _output_option(
        "--list", default=False, help="Show what would run and what is already known, and run nothing."
    )
    baseline: str | None = baseline_option()
    files: Any = group(format_options(row for row in FORMATS if row.file))
    numbers: MeasureOptions = group(MeasureOptions)
    display: Display = group(Display)


def matrix(options: MatrixOptions) -> Exit:
    """Run scripts or tests in many environments, and show what fails.

    Exit code: 0 all as expected; 1 something hung, crashed, failed, ran out of memory, or was slow in some attempts
    and in time in others, and no scenario expects that; 2 wrong usage or matrix file; 3 environments or the machine
    kept cells from running; 130 interrupted. With --measure, numbers are compared instead, and 1 means that one is
    worse. With --baseline: 1 something that passed in the other run fails now,
    whatever changed, or a number is worse in two runs in a row; 3 cells that had an outcome there were kept from
    running.
    """
    from whichtorch.matrix.forecast import Forecast
    from whichtorch.matrix.lab import opened_lab, raise_if_impossible
    from whichtorch.matrix.planning import plan_matrix
    from whichtorch.matrix.site import ThisMachine
    from whichtorch.records import stored_runs
    from whichtorch.records.line_index import Records
    from whichtorch.reports import table
    from whichtorch.reports.cell_text import where_it_ran
    from whichtorch.suite.chain import WRITTEN_BY

    one_machine = "leave out one or the other: the caches are copied on one machine"
    if options.written and options.cluster.executor:
        raise UsageError("--cache cannot go with --executor", hint=one_machine)
    measures = options.numbers.measures
    if measures and (options.cluster.executor or options.chained.chain):
        raise UsageError("--measure cannot go with --executor, --runs or --cache", hint="leave out one or the other")
    home = command.state_folder()
    options = replace(_as_before(options, home) if options.repeats_last else options, home=home)
    display = options.display
    before = stored_runs.find(options.baseline, options.home) if options.baseline else None  # as yet
    here = ThisMachine.of(options.cache(options.home), options.jobs)
    with options.cluster.machines(here, options.jobs) as machines:
        planned, notes = plan_matrix(options)
        records = Records(home)
        machines.check(planned.requests)
        if options.cluster.executor and planned.has_writers:
            raise UsageError(f"a test with {WRITTEN_BY} cannot go with --executor", hint=one_machine)
        forecast = None if display.quiet or measures else Forecast.of(planned, machines, records)
        for line in (*notes, *forecast.lines()) if forecast else ():
            display.console.print(line, style="dim", highlight=False, soft_wrap=True)
        if options.list_only:
            display.say(table.plan_lines(planned, machines.environments, records))
        if measures and not options.list_only and planned.requests:
            return _measured(planned, measures, options, here, before)
        if options.list_only or not planned.requests:  # a share may have no environments
            return Exit.GOOD
        show = partial(display.progress, forecast=forecast)
        with command.terminating_like_interrupt(), opened_lab(machines, records, show, len(planned)) as lab:
            run, run_store = lab.run(planned, keep_cells=False), lab.store
            is_cut = run.interrupt is not None and not isinstance(run.interrupt, FailFastError)
            code = Exit.INTERRUPTED if is_cut else command.exit_code(run_store.tally, failed=run_store.failed)
            ended = {"interrupted": run.interrupt is not None, "exit_code": int(code)}
            run_store.run = run_store.run.model_copy(update=ended)
    shown = run_store.shown()
    called = where_it_ran(command.called, shown.result.run)
    display.say(_report_lines(shown, options, called))
    files = command.named_files(options.files)
    if files:
        command.write_reports(files, stored_runs.find(run_store.run.id, options.home), options.home, before)
    raise_if_impossible(() if shown.left_out else shown.result.cells)
    if before is None:
        return code
    compared = _compared(before.read(), run_store.stored() if shown.left_out else shown, called, options)
    return code if run.interrupt else compared


def _as_before(options: MatrixOptions, home: Path) -> MatrixOptions:
    """Return options with the tests, environments and limits of the last matrix, where they do not say others."""
    from whichtorch.records.stored_runs import all_runs

    matrices = (head.run.command for head in reversed(all_runs(home)) if head.run.kind == "matrix")
    for words in matrices:
        with command_of(matrix, "matrix").make_context("matrix", list(words[1:])) as context:
            before: MatrixOptions = request_of(MatrixOptions, context)
        if not before.repeats_last:
            names, default = (each.name for each in fields(MatrixRequest)), MatrixOptions()
            same = (name for name in names if getattr(options, name) == getattr(default, name))
            return replace(options, **{name: getattr(before, name) for name in same})
    return options


def _measured(
    planned: "Plan",
    measures: "tuple[Measure, ...]",
    options: MatrixOptions,
    here: "ThisMachine",
    before: "RunFolder | None",
) -> Exit:
    """Measure the cells, write the files that were asked for, and compare with another run if that was asked for."""
    from whichtorch.records import stored_runs
    from whichtorch.reports.cell_text import where_it_ran

    stored, code = command.measured(planned, measures, here, options.display)
    if files := command.named_files(options.files):
        command.write_reports(files, stored_runs.find(stored.result.run.id, options.home), options.home, before)
    if before is None or code is Exit.INTERRUPTED:
        return code
    called = where_it_ran(command.called, stored.result.run)
    return _compared(before.read(), stored, called, options)


def _compared(before: "StoredRun", stored: "StoredRun", called: "CommandPrefix", options: MatrixOptions) -> Exit:
    """Print what changed since another run, and return the exit code for it."""
    from whichtorch.records.compare.comparison import compare
    from whichtorch.records.compare.nights import measured_before
    from whichtorch.reports.stored_run_text import comparison_lines

    comparison = compare(before.result, stored.result, measured_before(stored.result, options.home), options.home)
    options.display.say(comparison_lines(comparison, before, stored, called))
    if comparison.is_worse:
        return Exit.RED
    return Exit.PREVENTED if comparison.is_prevented else Exit.GOOD


def _report_lines(stored: "StoredRun", options: MatrixOptions, called: "CommandPrefix") -> Iterator[str]:
    """Yield the table, the legend, the red cells, the summary of the run, and the next command to try."""
    from whichtorch.reports import table

    result = stored.result
    if not options.display.quiet:
        yield ""
        yield from table.matrix_lines(result, options.display.columns, show_all=options.display.verbose)
        yield from table.legend_lines(result, stored.left_out)
    if red := list(table.red_lines(stored, called("matrix"))):
        yield from ("", *red)
    yield ""
    yield from table.summary_lines(result, called, stored.left_out)


@dataclass(frozen=True, kw_only=True)
class PlanOptions(MatrixAxes):
    """The options of `plan`."""

    shares: int | None = option(
        metavar="N", least=1, help="How many jobs share the environments. [default: one for each, 256 at most]"
    )
    json_file: Path | None = json_output()


def plan(options: PlanOptions) -> None:
    """Share the environments of a matrix among the jobs of a CI service.

    Each job then runs its share: the second of four is `matrix --share 2/4`, with the same other options. Exit code:
    0; 2 wrong usage or matrix file, or no environment.
    """
    from whichtorch.environments.expansion import expand
    from whichtorch.environments.share_plan import SharePlan

    file = options.file
    expansion = expand(file, cache=command.state_folder() / "cache")
    planned = SharePlan.of(expansion.requests, options.shares)
    for note in (*options.found_note, *expansion.build_notes, *expansion.notes):
        print(note)
    for row in planned.shares:
        print(f"{row.share:>7}  {', '.join(row.environments)}")
    command.write_json(options.json_file, planned)
