"""The commands that look at what is there: `whichtorch stacks`, `dispatch` and `doctor`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.command import EnvironmentOption, Exit, OutputOption, RunningOption
from whichtorch.matrix.environments.cache import EnvironmentCache
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.plan.expansion import environment_named
from whichtorch.matrix.process.executor import LocalExecutor, default_jobs
from whichtorch.matrix.records import store


def stacks(
    targets: Annotated[
        list[str], typer.Argument(metavar="PID|FILE...", help="A process, of any origin; with --merge, files.")
    ],
    merge: Annotated[
        bool, typer.Option("--merge", help="One answer of what `stacks PID --json` wrote on several machines.")
    ] = False,
    as_json: Annotated[bool, OutputOption("--json", help="Write the diagnosis and the stacks as JSON.")] = False,
) -> None:
    """Say where a running process and its children are stuck, and who waits for whom.

    Each process is paused for some tenths of a second. Of a distributed job give the launcher: torchrun's own PID.
    If it runs on several machines, write a file on each and merge them. Exit code: 0 told; 2 no such process, or
    files that cannot be merged; 3 not permitted.
    """
    from whichtorch.matrix.inspect import process_report  # here: `matrix` starts without it

    if merge:
        shown = process_report.merged([Path(target) for target in targets])
    else:
        shown = process_report.inspect_process(_process_number(targets))
    for note in shown.notes:
        print(f"note: {note}", file=sys.stderr)
    for line in [shown.json_text] if as_json else shown.lines:
        print(line)


def _process_number(targets: list[str]) -> int:
    """Return the only target, which must be the number of a process."""
    files = [target for target in targets if not target.isdigit()]
    if files:
        raise UsageError(f"{', '.join(files)}: no number of a process", hint="to read files, give --merge")
    if len(targets) > 1:
        raise UsageError(
            f"{len(targets)} processes are given", hint="give that which started the others, or each alone"
        )
    return int(targets[0])


def dispatch(
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="For example aten::mm or aten::add.Tensor.")],
    environments: Annotated[
        list[str], typer.Argument(metavar="ENV [ENV]", help="Label or id of a known environment, or a Python's path.")
    ],
    matrix_file: command.MatrixPath = None,
    json_file: Annotated[Path | None, OutputOption("--json", metavar="FILE", help="Write the tables as JSON.")] = None,
) -> None:
    """Compare by which kernels two environments dispatch an operator, or show those of one.

    The tables are taken live, inside each. Exit code: 0 done; 2 wrong usage; 3 an environment cannot be had.
    """
    from whichtorch.matrix.inspect import dispatch_tables  # here: `matrix` starts without it

    file = command.read_matrix(matrix_file)
    cache = EnvironmentCache(store.state_folder())
    comparison = dispatch_tables.compare_operator(operator, environments, file, cache, LocalExecutor())
    print(*dispatch_tables.comparison_lines(comparison), sep="\n")
    if json_file:
        command.write_json(json_file, comparison)


def doctor(
    interpreter: Annotated[
        str | None,
        EnvironmentOption(metavar="PATH|LABEL", help="Python, or known environment, that runs the controls."),
    ] = None,
    jobs: Annotated[int | None, RunningOption(metavar="N", min=1, help="Controls at once.")] = None,
) -> None:
    """Check tools and permissions, then run every control scenario: each must get its own outcome.

    The controls need no torch; by default the Python of whichtorch runs them. They take some three minutes.
    Exit code: 0 all is well; 1 not, each problem with its remedy; 2 wrong usage; 130 interrupted.
    """
    from whichtorch.matrix.inspect import checkup, controls  # here: `matrix` starts without them

    home = store.state_folder()
    python = _python_named(interpreter, home)
    problems = 0
    for check in checkup.check_up(home):
        problems += check.state is checkup.CheckState.PROBLEM
        print(f"{check.state:<8} {check.name}: {check.found}", flush=True)
        if check.remedy:
            print(f"{'':<8} remedy: {check.remedy}")
    print()
    with command.terminating_like_interrupt():
        results = list(controls.run_controls(home, python, jobs or default_jobs(), command.progress_on(Console())))
    print()
    print(*controls.control_lines(results), sep="\n")
    problems += sum(result.problem is not None for result in results)
    print()
    print("all is well" if not problems else f"{problems} {'problem' if problems == 1 else 'problems'}")
    raise typer.Exit(Exit.RED if problems else Exit.GOOD)


def _python_named(interpreter: str | None, home: Path) -> Path:
    """Return the Python at a path or of a known environment; by default this one."""
    this = Path(sys.executable)
    if interpreter is None:
        return this
    if Path(interpreter).is_file():
        return Path(interpreter).absolute()
    return environment_named(interpreter, store.read_environments(home)).interpreter or this
