"""`whichtorch doctor`: whether tools, permissions and the harness itself are in order."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from matrix.cli.options import EnvironmentOption, RunningOption
from matrix.cli.session import Exit, print_lines, progress_on, terminating_like_interrupt
from matrix.plan.planning import environment_named
from matrix.process.executor import default_jobs
from matrix.records import store


def doctor(
    interpreter: Annotated[
        str | None,
        EnvironmentOption(metavar="PATH|LABEL", help="Python, or known environment, that runs the controls."),
    ] = None,
    jobs: Annotated[int | None, RunningOption(metavar="N", min=1, help="Controls at once.")] = None,
) -> None:
    """Check tools and permissions, then run every control scenario: each must get its own outcome.

    The controls need no torch; by default the Python of whichtorch runs them. They take about two minutes.
    Exit code: 0 all is well; 1 not, each problem with its remedy; 2 wrong usage; 130 interrupted.
    """
    home = store.state_folder()
    python = _python_named(interpreter, home)
    problems = _check_machine(home)
    print()
    problems += _run_controls(home, python, jobs or default_jobs())
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


def _check_machine(home: Path) -> int:
    """Print each check as it is done; return how many found a problem."""
    from matrix.inspect import checkup  # here: `matrix` starts without it

    problems = 0
    for check in checkup.check_up(home):
        problems += check.state is checkup.State.PROBLEM
        print(f"{check.state:<8} {check.name}: {check.found}", flush=True)
        if check.remedy:
            print(f"{'':<8} remedy: {check.remedy}")
    return problems


def _run_controls(home: Path, python: Path, jobs: int) -> int:
    """Run the controls, then print them; return how many have a problem."""
    from matrix.inspect import controls  # here: `matrix` starts without it

    with terminating_like_interrupt():
        results = list(controls.run_controls(home, python, jobs, progress_on(Console())))
    print()
    print_lines(controls.control_lines(results))
    return sum(result.problem is not None for result in results)
