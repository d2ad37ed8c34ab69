"""The commands of the room `watch`: `run`, `stacks`, `dispatch` and `doctor`."""

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import STDOUT, Strings, argument, group, json_output, option, output_file
from whichtorch.cli import command
from whichtorch.cli.command import Display, Exit
from whichtorch.matrix.options import MatrixAxes, interpreter_option, jobs_option, known_environment
from whichtorch.watch.watch_request import WatchRequest

if TYPE_CHECKING:
    from whichtorch.watch.watched_command import Standstill
    from whichtorch.watch.watched_run import SeenHang


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions(WatchRequest):
    """The options of `run`."""

    json_file: Path | None = json_output()
    junit_file: Path | None = output_file("--junit", help="Write JUnit XML.")


def run(options: RunCommandOptions) -> int:
    """Run a command here, and say where it hangs.

    Nothing is installed. The command has your terminal, folder and variables. When all its processes wait for each
    other, or its loop comes back to the same state, stderr gets one sentence that says where, and the stacks.
    Exit code: that of the command, as a shell gives it; 124 if the command was stopped or kept.
    """
    from whichtorch.process.marks import temporary_folder
    from whichtorch.watch.watched_command import CommandWatch

    if STDOUT in {options.json_file, options.junit_file}:
        raise UsageError("standard output belongs to the command", hint="name a file for --json and --junit")
    hangs: list[SeenHang] = []

    def tell(seen: "Standstill") -> None:
        if hang := _report_hang(seen, folder):
            hangs.append(hang)

    with temporary_folder() as folder:
        end = CommandWatch(options, str(folder)).watch(tell)
    if not (hangs or options.json_file or options.junit_file):
        return end.exit_code
    from whichtorch.watch.watched_run import WatchedRun

    ended = WatchedRun.of(options.command, end, hangs[-1] if hangs else None)
    command.write_json(options.json_file, ended)
    if options.junit_file:
        from whichtorch.reports.junit import watched_xml

        command.write_bytes(options.junit_file, watched_xml(ended))
    return ended.exit_code


def _report_hang(seen: "Standstill", folder: Path) -> "SeenHang | None":
    """Say on stderr where a command hangs, with its stacks; on GitHub also as an annotation of the job.

    Return the hang, None where there is none to tell.
    """
    from whichtorch.base.redaction import Redactor
    from whichtorch.watch.watched_run import read_hang

    hang, lines = read_hang(seen, folder)
    if hang is None:
        return None
    redact = Redactor.of_this_machine().text
    shown = [f"\nwhichtorch: {hang.headline}", *lines, *(f"note: {note}" for note in hang.notes)]
    with suppress(BrokenPipeError):  # stderr has no reader anymore; the watch goes on
        print(*map(redact, shown), sep="\n", file=sys.stderr, flush=True)
        if os.environ.get("GITHUB_ACTIONS") == "true" and not hang.is_likely:
            print(f"::error title=whichtorch::{redact(hang.headline)}", flush=True)
    return hang


@dataclass(frozen=True, kw_only=True)
class StacksOptions:
    """The options of `stacks`."""

    targets: Strings = argument("PID|FILE...", "A process, of any origin; with --merge, files.")
    merge: bool = option(default=False, help="One answer of what `stacks PID --json FILE` wrote on several machines.")
    json_file: Path | None = json_output()


def stacks(options: StacksOptions) -> None:
    """Say where a running process is stuck, and who waits for whom.

    Each process is paused for some tenths of a second. Of a distributed job give the launcher: torchrun's own PID.
    If it runs on several machines, write a file on each and merge them. Exit code: 0 told; 2 no such process, or
    files that cannot be merged; 3 not permitted.
    """
    from whichtorch.watch import process_report

    if options.merge:
        shown = process_report.merged([Path(target) for target in options.targets])
    else:
        shown = process_report.inspect_process(_process_number(options.targets))
    for note in shown.notes:
        print(f"note: {note}", file=sys.stderr)
    Display().say(shown.lines)
    if options.json_file:
        command.write_bytes(options.json_file, f"{shown.json_text}\n".encode())


def _process_number(targets: Strings) -> int:
    """Return the PID, which must be the only target."""
    files = [target for target in targets if not target.isdigit()]
    if files:
        hint = f"`pgrep -f {shlex.quote(files[0])}` finds it; to read files, give --merge"
        raise UsageError(f"{', '.join(files)}: no number of a process", hint=hint)
    if len(targets) > 1:
        raise UsageError(
            f"{len(targets)} processes are given", hint="give that which started the others, or each alone"
        )
    return int(targets[0])


@dataclass(frozen=True, kw_only=True)
class DispatchOptions:
    """The options of `dispatch`."""

    operator: str = argument("OPERATOR", "For example aten::mm or aten::add.Tensor.")
    environments: Strings = argument("ENV [ENV]", "Label or id of a known environment, or a Python's path.")
    axes: MatrixAxes = group(MatrixAxes, "path")
    json_file: Path | None = json_output()


def dispatch(options: DispatchOptions) -> None:
    """Compare by which kernels two environments dispatch an operator.

    The tables are taken live, inside each. Exit code: 0 done; 2 wrong usage; 3 an environment cannot be had.
    """
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.process.executor import LocalExecutor
    from whichtorch.watch import dispatch_tables

    cache = EnvironmentCache(command.state_folder())
    comparison = dispatch_tables.compare_operator(
        options.operator, options.environments, options.axes.file, cache, LocalExecutor()
    )
    print(*dispatch_tables.comparison_lines(comparison), sep="\n")
    command.write_json(options.json_file, comparison)


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options of `doctor`."""

    interpreter: Path | None = interpreter_option()
    env: str | None = known_environment()
    jobs: int | None = jobs_option()
    display: Display = group(Display)


def doctor(options: DoctorOptions) -> Exit:
    """Check tools, permissions, and that each control gets its outcome.

    The controls need no torch; by default the Python of whichtorch runs them. They take less than a
    minute on an idle machine, and several minutes on a busy one.
    Exit code: 0 all is well; 1 not, each problem with its remedy; 2 wrong usage; 130 interrupted.
    """
    from whichtorch.watch import checkup

    home = command.state_folder()
    python = _python_named(options, home)
    problems = 0
    for check in checkup.check_up(home, python):
        problems += check.state is checkup.CheckState.PROBLEM
        print(f"{check.state:<8} {check.name}: {check.found}", flush=True)
        if check.remedy:
            print(f"{'':<8} remedy: {check.remedy}")
    print()
    with command.terminating_like_interrupt():
        results = list(checkup.run_controls(home, python, options.jobs, options.display.progress))
    print()
    print(*checkup.control_lines(results), sep="\n")
    problems += sum(result.problem is not None for result in results)
    print()
    print("all is well" if not problems else f"{problems} {'problem' if problems == 1 else 'problems'}")
    return Exit.RED if problems else Exit.GOOD


def _python_named(options: DoctorOptions, home: Path) -> Path:
    """Return the Python that options name, or that of a known environment, by default the current one."""
    from whichtorch.environments.expansion import environment_named
    from whichtorch.records import store

    this = Path(sys.executable)
    if options.interpreter and not options.interpreter.is_file():
        hint = "name an environment with --environment"
        raise UsageError(f"--interpreter: no such Python: {options.interpreter}", hint=hint)
    if options.env is None:
        return (options.interpreter or this).absolute()
    return environment_named(options.env, store.read_environments(home)).interpreter or this
