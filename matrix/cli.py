"""The commands. The only place that parses arguments."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

import scenarios
from matrix import config, plan, store
from matrix.asking import answering
from matrix.environments.cache import EnvironmentCache
from matrix.environments.releases import split_specs
from matrix.errors import UsageError, WhichtorchError
from matrix.events import EnvironmentStage
from matrix.examine import examine
from matrix.executors.local import LocalExecutor, default_jobs
from matrix.model import Cell, Result
from matrix.naming import environment_named
from matrix.process.marks import owner_is_dead, state_id, sweep
from matrix.run import MatrixRun
from reports import markdown, table
from reports.terminal import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from matrix.events import Emit
    from matrix.model import Scenario

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Exit(IntEnum):
    """What the exit code says."""

    GOOD = 0
    RED = 1  # something hung, crashed, failed or ran out of memory that no scenario expects
    USAGE = 2
    PREVENTED = 3  # environments or the machine kept cells from running
    UNANSWERED = 4  # `explain` has too little to go by
    INTERRUPTED = 130


@app.callback()
def whichtorch() -> None:
    """Which torch hangs, which torch fixed it: run scripts over PyTorch versions, builds and configurations."""


def _commas(values: list[str] | None) -> tuple[str, ...] | None:
    """Split "a,b" and repeated options alike; None where the option was not given."""
    if values is None or not values:
        return None
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


@app.command()
def matrix(  # one parameter per option
    matrix_file: Annotated[
        Path | None, typer.Option("--matrix", metavar="FILE", help="Matrix file, instead of the default one.")
    ] = None,
    torch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC[,SPEC]",
            help="A version, a specifier such as '>=2.9,<2.13', recent:3, latest, nightly, "
            "nightly:2026-11-01..2026-11-20, or a wheel's path.",
        ),
    ] = None,
    python: Annotated[list[str] | None, typer.Option(metavar="3.11[,3.12]", help="Python versions.")] = None,
    build: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[,NAME]", help="auto, pypi, cpu, cu128, rocm6.4, xpu, nightly-cpu, or of the file."),
    ] = None,
    config_names: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME[,NAME]",
            help="default, single-thread, iomp, cpp-meta, dispatch-trace, no-compile-threads, or of the file.",
        ),
    ] = None,
    interpreter: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Python of an existing environment, used as it is. Repeatable."),
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Scenarios by name, 'tag:NAME', or 'NAME[variant=value]'. Repeatable."),
    ] = None,
    script: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Any script of your own. Repeatable.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", min=0.1, help="Seconds per attempt, instead of the scenarios' own.")
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", min=1, help="Attempts per cell.")] = 1,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Attempts at once. [default: cores, memory permitting; twice that for hangs]"
        ),
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Room for environments, e.g. 60GB. [default: 80 % of what is free]"),
    ] = None,
    install_timeout: Annotated[
        float, typer.Option(metavar="S", min=1, help="Seconds after which an install is given up.")
    ] = 1800,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what earlier runs have answered.")] = False,
    no_stall: Annotated[
        bool, typer.Option("--no-stall", help="Wait out every timeout, even on evidence of a deadlock.")
    ] = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="Show what would run and what is already known, and run nothing.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the report as Markdown.")
    ] = None,
) -> None:
    """Run scenarios in every environment of a matrix and show what passed, hung, crashed or failed.

    Exit code: 0 all as expected; 1 something hung, crashed, failed or ran out of memory that no scenario
    expects; 2 wrong usage or matrix file; 3 environments or the machine kept cells from running;
    130 interrupted.
    """
    started = time.monotonic()
    home = store.state_folder()
    file = _with_axes(
        config.read_matrix_file(matrix_file or config.DEFAULT_FILE),
        torch=tuple(split_specs(",".join(torch))) if torch else None,
        python=_commas(python),
        build=_commas(build),
        config=_commas(config_names),
    )
    globs = tuple(scenario) if scenario else () if script else file.suite.scenarios
    suite = _chosen_scenarios(globs, script or [])
    options = plan.Options(timeout=timeout, repeat=repeat, jobs=jobs or default_jobs(), fresh=fresh, stall=not no_stall)
    for path in (json_file, markdown_file):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"no folder {path.parent} to write {path.name} into")
    disk_budget_mb = _megabytes(disk)
    console = Console()
    given = tuple(interpreter or ())
    expansion = config.expand(file, interpreters_given=given, cache=home / "cache", product=bool(torch) or not given)
    for note in expansion.notes:
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    planned = plan.plan(expansion.requests, suite, options)
    records = store.read_records(home)
    cache = EnvironmentCache(home, disk_budget_mb=disk_budget_mb, install_timeout=install_timeout)
    if list_only:
        _print_lines(table.plan_lines(planned, cache, records))
        return
    ours = state_id(home)
    sweep(lambda mark: mark.startswith(ours) and owner_is_dead(mark))  # of a run that was killed
    with store.new_run(home, tuple(sys.argv[1:])) as run_store:
        with _terminating_like_interrupt(), Progress(console, len(planned)) as progress:
            cache.progress = lambda label, stage: progress(EnvironmentStage(label=label, stage=stage))
            executor = LocalExecutor()
            run = MatrixRun(planned, cache=cache, executor=executor, records=records, store=run_store, emit=progress)
            with answering(executor, progress):
                run.run(options.jobs, waiting=0 if jobs else options.jobs)
        code = Exit.INTERRUPTED if run.interrupted else exit_code(run.cells)
        seconds = round(time.monotonic() - started, 3)
        ended = {"seconds": seconds, "interrupted": run.interrupted, "exit_code": int(code)}
        run_store.finish(run_store.run.model_copy(update=ended))
    result = Result(run=run_store.run, environments=run.environments, cells=run.cells)
    _report(result, home, console, json_file, markdown_file)
    raise typer.Exit(code)


@app.command()
def stacks(
    pid: Annotated[int, typer.Argument(help="A process, of any origin.")],
    as_json: Annotated[bool, typer.Option("--json", help="Write the diagnosis and the stacks as JSON.")] = False,
) -> None:
    """Say where a running process and its children are stuck, and who waits for whom.

    Each process is paused for some tenths of a second. Exit code: 0 told; 2 no such process; 3 not permitted.
    """
    shown = examine(pid)
    for note in shown.notes:
        print(f"note: {note}", file=sys.stderr)
    _print_lines([shown.json_text] if as_json else shown.lines)


@app.command()
def explain(  # one parameter per option
    test: Annotated[str, typer.Argument(metavar="SCENARIO|SCRIPT", help="One test, as NAME or NAME[variant=value].")],
    here: Annotated[Path | None, typer.Option(metavar="PYTHON", help="Why not in the environment of this one?")] = None,
    env: Annotated[str | None, typer.Option(metavar="ID|LABEL", help="Why not in this known environment?")] = None,
    run: Annotated[bool, typer.Option("--run", help="Run the cells that tell more, and confirm the answer.")] = False,
    matrix_file: Annotated[Path | None, typer.Option("--matrix", metavar="FILE", help="Matrix file.")] = None,
    torch: Annotated[list[str] | None, typer.Option(metavar="SPEC[,SPEC]", help="Only these versions.")] = None,
    python: Annotated[list[str] | None, typer.Option(metavar="3.11[,3.12]", help="Only these Pythons.")] = None,
    build: Annotated[list[str] | None, typer.Option(metavar="NAME[,NAME]", help="Only these builds.")] = None,
    config_names: Annotated[
        list[str] | None, typer.Option("--config", metavar="NAME[,NAME]", help="Only these configs.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="S", min=0.1, help="Seconds per attempt.")] = None,
    repeat: Annotated[int, typer.Option(metavar="N", min=1, help="Attempts per cell.")] = 1,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="Room for environments, e.g. 60GB.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the answers as JSON.")] = None,
) -> None:
    """Say why a test hangs or fails in some environments and not in others, from what is recorded.

    The answer is an environment, a version, conditions that were not met, or that it does fail here; with --run
    the cells that decide are run, as few as can be. Options that name environments leave the others out.
    --json writes {"schema_version": 1, "explanations": [...]}: each with its test, reference outcome and
    signature, answers (kind, rule, counts, histories, unmet conditions), observations, experiment, and what is
    missing. Exit code: 0 answered; 4 not; 2 wrong usage; 130 interrupted.
    """
    # imported here: `matrix` answers from its records in less time than these take
    from matrix import explaining
    from reports.explain import explanation_lines

    home = store.state_folder()
    axes = {"torch": tuple(split_specs(",".join(torch))) if torch else None, "python": _commas(python)}
    axes |= {"build": _commas(build), "config": _commas(config_names)}
    file = _with_axes(config.read_matrix_file(matrix_file or config.DEFAULT_FILE), **axes)
    suite = [scenarios.script(test)] if test.partition("[")[0].endswith(".py") else _chosen_scenarios((test,), [])
    console = Console()
    question = explaining.Question(
        home=home,
        file=file,
        is_narrowed=any(axes.values()),
        here=here.absolute() if here else None,
        env=env,
        may_run=run,
        options=plan.Options(timeout=timeout, repeat=repeat),
    )
    cache = EnvironmentCache(home, disk_budget_mb=_megabytes(disk))
    with _terminating_like_interrupt():
        explanations = explaining.answers(question, suite, cache, _progress_on(console))
    again = "" if run else f"{_called('explain')} {shlex.join([*sys.argv[2:], '--run'])}"
    for explanation in explanations:
        _print_lines(explanation_lines(explanation, _called("matrix"), again))
    if json_file:
        written = explaining.Explanations(explanations=explanations)
        json_file.write_text(written.model_dump_json(indent=1) + "\n", encoding="utf-8")
    raise typer.Exit(Exit.GOOD if explaining.is_answered(explanations) else Exit.UNANSWERED)


@app.command()
def dispatch(
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="For example aten::mm or aten::add.Tensor.")],
    environments: Annotated[
        list[str], typer.Argument(metavar="ENV [ENV]", help="Label or id of a known environment, or a Python's path.")
    ],
    matrix_file: Annotated[Path | None, typer.Option("--matrix", metavar="FILE", help="Matrix file.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the tables as JSON.")] = None,
) -> None:
    """Compare by which kernels two environments dispatch an operator, or show those of one.

    The tables are taken live, inside each. Exit code: 0 done; 2 wrong usage; 3 an environment cannot be had.
    """
    from matrix import tables

    file = config.read_matrix_file(matrix_file or config.DEFAULT_FILE)
    comparison = tables.compare(operator, environments, file, EnvironmentCache(store.state_folder()))
    _print_lines(tables.comparison_lines(comparison))
    if json_file:
        json_file.write_text(comparison.model_dump_json(indent=1) + "\n", encoding="utf-8")


@app.command()
def doctor(
    interpreter: Annotated[
        str | None, typer.Option(metavar="PATH|LABEL", help="Python, or known environment, that runs the controls.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Controls at once.")] = None,
) -> None:
    """Check tools and permissions, then run every control scenario: each must get its own outcome.

    The controls need no torch; by default the Python of whichtorch runs them. They take about two minutes.
    Exit code: 0 all is well; 1 not, each problem with its remedy; 2 wrong usage; 130 interrupted.
    """
    from matrix import checkup, controls

    home = store.state_folder()
    python = Path(sys.executable)
    if interpreter is not None and not Path(interpreter).is_file():
        python = environment_named(interpreter, store.read_environments(home)).interpreter or python
    elif interpreter is not None:
        python = Path(interpreter).absolute()
    problems = 0
    for check in checkup.check_up(home):
        problems += check.state is checkup.State.PROBLEM
        print(f"{check.state:<8} {check.name}: {check.found}", flush=True)
        if check.remedy:
            print(f"{'':<8} remedy: {check.remedy}")
    print()
    with _terminating_like_interrupt():
        found = list(controls.run_controls(home, python, jobs or default_jobs(), _progress_on(Console())))
    problems += sum(control.problem is not None for control in found)
    print()
    _print_lines(controls.control_lines(found))
    print()
    print("all is well" if not problems else f"{problems} {'problem' if problems == 1 else 'problems'}")
    raise typer.Exit(Exit.RED if problems else Exit.GOOD)


def _called(command: str) -> str:
    """Return how the user calls a command: as they called this one."""
    return f"nox -s {command} --" if "WHICHTORCH_COMMAND" in os.environ else f"whichtorch {command}"


def _progress_on(console: Console) -> Callable[[EnvironmentCache, int], AbstractContextManager[Emit]]:
    """Return what shows the progress of so many cells, and of the environments they need."""

    def show(cache: EnvironmentCache, total: int) -> Progress:
        progress = Progress(console, total)
        cache.progress = lambda label, stage: progress(EnvironmentStage(label=label, stage=stage))
        return progress

    return show


def exit_code(cells: Iterable[Cell]) -> Exit:
    """Return what the exit code says of the cells of a whole run."""
    cells = tuple(cells)
    if any(cell.outcome.is_red and not cell.expected for cell in cells):
        return Exit.RED
    if any(cell.outcome.is_prevented for cell in cells):
        return Exit.PREVENTED
    return Exit.GOOD


def _with_axes(file: config.MatrixFile, **axes: tuple[str, ...] | None) -> config.MatrixFile:
    """Return a matrix file with the axes that options name instead of its own.

    Its `include` rows go with the first of them: who names an axis wants just that.
    """
    given = {name: value for name, value in axes.items() if value}
    if not given:
        return file
    table = file.model_dump(by_alias=True, exclude={"include"})
    table["axes"] |= given
    return config.checked(table, "the options")


def _chosen_scenarios(globs: tuple[str, ...], scripts: list[str]) -> list[Scenario]:
    """Return the scenarios that globs choose, then the user's scripts."""
    chosen = scenarios.select(scenarios.suite(), globs) if globs else []
    return chosen + [scenarios.script(text) for text in scripts]


_UNITS = {"MB": 1, "GB": 1000, "TB": 1_000_000, "MIB": 1.048576, "GIB": 1073.741824, "TIB": 1099511.627776}


def _megabytes(text: str | None) -> float | None:
    """Return "60GB" as 60000; a plain number is gigabytes."""
    if text is None:
        return None
    number = text.strip().upper().rstrip("BIMGT")
    unit = text.strip().upper()[len(number) :].strip() or "GB"
    unit = unit if unit.endswith("B") else unit + "B"
    try:
        return float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        raise UsageError(f"--disk {text!r} is not a size", hint="write it as 60GB, 800MB or 1.5TB") from None


@contextmanager
def _terminating_like_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(result: Result, home: Path, console: Console, json_file: Path | None, markdown_file: Path | None) -> None:
    """Print the table, the legend and the red cells; write the files and name them."""
    command = os.environ.get("WHICHTORCH_COMMAND", "whichtorch matrix")
    folder = home / "runs" / result.run.id
    written = [folder / "result.json"]
    text = result.model_dump_json(by_alias=True, indent=1) + "\n"
    written[0].write_text(text, encoding="utf-8")
    if json_file:
        json_file.write_text(text, encoding="utf-8")
        written.append(json_file)
    if markdown_file:
        lines = markdown.markdown_lines(result, home, command)
        markdown_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written.append(markdown_file)
    width = console.width if console.is_terminal else shutil.get_terminal_size((160, 24)).columns
    print()
    _print_lines(table.matrix_lines(result, width))
    _print_lines(table.legend_lines(result))
    red = list(table.red_lines(result, home, command))
    if red:
        print()
        _print_lines(red)
    print()
    _print_lines(f"wrote {table.short(path)}" for path in written)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def main() -> NoReturn:
    """Run the command line; a user's mistake ends in a message, not in a traceback."""
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
