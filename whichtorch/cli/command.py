"""What commands share: the call as the user typed it, the test, the cluster, what they print and write, interrupts."""

import os
import re
import shlex
import shutil
import signal
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, make_dataclass
from enum import IntEnum
from functools import cached_property, partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from whichtorch.base.errors import GOES_ON, TimeOverError, UsageError
from whichtorch.base.option import STDOUT, Strings, after_dashes, argument, group, option, output_file
from whichtorch.matrix.options import CommandOptions, RunOptions, check_command, commas, running_option
from whichtorch.process.sandbox import Sandbox
from whichtorch.reports.formats import FORMATS, ReportFormat
from whichtorch.watch.watch_request import STOPPED_CODE

if TYPE_CHECKING:
    from rich.console import Console

    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.environments.matrix_file import MatrixFile
    from whichtorch.matrix.forecast import Forecast
    from whichtorch.matrix.planning import Plan
    from whichtorch.matrix.site import ThisMachine
    from whichtorch.matrix.work import Machines
    from whichtorch.measure.measure import Measure
    from whichtorch.model import Model, Outcome, Scenario
    from whichtorch.model.events import Emit, Event
    from whichtorch.records.store import RunFolder, StoredRun
    from whichtorch.reports.document import Line
    from whichtorch.reports.event_lines import EventLog

ANY_FAILURE = "any"  # as --failure: every failure is bad
WRAP_UP = 4.0  # seconds for a search to end by itself after its time limit, before it is interrupted
test_argument = partial(argument, "SCENARIO|SCRIPT", "One test, as NAME or NAME[variant=value].")
baseline_option = partial(
    option,
    "--baseline",
    metavar="RUN",
    panel="Output",
    help="Compare with this run. `matrix` then exits 1 only for what got worse since.",
)
failure_option = partial(
    option,
    "--failure",
    default="",
    metavar="WORDS",
    help="Which failure: words of it, RUN:ENVIRONMENT, or any. [default: newest]",
)
git_option = partial(option, "--git", metavar="CHECKOUT", help="The git checkout whose commits the answer names.")
_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]+")

_output_option = partial(option, panel="Output", default=False)

_number_option = partial(option, panel="Numbers")


@dataclass(frozen=True, kw_only=True)
class NamedTest:
    """The test that a command is about."""

    test: str = test_argument()
    script_arguments: Strings | None = after_dashes()

    def scenarios(self, file: "MatrixFile | None" = None) -> "list[Scenario]":
        """Return the scenarios with a name or path in the suite, or the user's script with its arguments.

        A matrix file gives a script its timeout, and the folder to look in.
        """
        from whichtorch.matrix.options import matrix_file
        from whichtorch.suite import selection

        words, test = self.script_arguments, self.test
        if selection.is_script(test):
            return [(file or matrix_file(None)).script(test, words)]
        if words is not None:
            raise UsageError(f"{test} takes no arguments", hint="only your own script can have arguments, after --")
        return selection.select(selection.suite(), (test,))

    def one(
        self, file: "MatrixFile | None" = None, run_options: RunOptions | None = None
    ) -> "tuple[Scenario, dict[str, str]]":
        """Return the one scenario and variant that a user names; a chain of runs if options say so.

        If none of several variants is named, it is the first that the header expects to go wrong, or else the first.
        """
        from whichtorch.model import variant_suffix
        from whichtorch.suite import selection

        scenarios = self.scenarios(file)
        if len(scenarios) > 1:
            names = ", ".join(scenario.name for scenario in scenarios[:4])
            raise UsageError(f"{self.test} names {len(scenarios)} tests", hint=f"name one of {names}")
        (scenario,) = scenarios
        variants = selection.variants_of(scenario, run_options.chain if run_options else None)
        wrong = [
            variant
            for variant in variants
            if any(line.outcome.is_red and line.variant.items() <= variant.items() for line in scenario.expect)
        ]
        chosen = (wrong or variants)[0]
        if len(variants) > 1:
            others = ", ".join(variant_suffix(variant) for variant in variants if variant != chosen)
            print(f"of {scenario.name}: {variant_suffix(chosen)}; others are {others}")
        is_sandboxed = run_options is not None and run_options.sandbox is not Sandbox.OFF
        return scenario.in_sandbox() if is_sandboxed else scenario, chosen


@dataclass(frozen=True, kw_only=True)
class NamedTestOrCommand(NamedTest):
    """The test that a command is about: a scenario, a script, or a command of the user's."""

    test: str = test_argument(default="")
    script_arguments: Strings | None = after_dashes("COMMAND")
    command: CommandOptions = group(CommandOptions)

    def __post_init__(self) -> None:
        """Raise UsageError where nothing, or nothing that can be run, is named."""
        if not self.test:
            if self.script_arguments is None:
                raise UsageError("no test is named", hint="name a scenario or a script, or write a command after --")
            check_command(self.script_arguments)

    def scenarios(self, file: "MatrixFile | None" = None) -> "list[Scenario]":
        """Return the same, or the command after `--`."""
        from whichtorch.matrix.options import matrix_file

        if self.test:
            return super().scenarios(file)
        assert self.script_arguments is not None
        return [(file or matrix_file(None)).timed(self.command.scenario(self.script_arguments, state_folder()))]


class Exit(IntEnum):
    """The exit codes."""

    GOOD = 0
    RED = 1  # something hung, crashed, failed or ran out of memory that no scenario expects
    USAGE = 2
    PREVENTED = 3  # environments or the machine kept cells from running
    UNANSWERED = 4  # `explain` and `bisect` have too little to go by
    STOPPED = STOPPED_CODE  # `run` has stopped its command, or left it running
    INTERRUPTED = 130


def exit_code(cells: "Iterable[tuple[Outcome, bool]]", *, failed: bool) -> Exit:
    """Return the exit code of a run, given the outcomes of its cells, and whether one is red that nobody expects."""
    is_prevented = any(outcome.is_prevented for outcome, _ in cells)
    return Exit.RED if failed else Exit.PREVENTED if is_prevented else Exit.GOOD


def called(command: str) -> str:
    """Return how the user types a command: through nox or directly, as they did for this one."""
    return f"nox -s {command} --" if "WHICHTORCH_COMMAND" in os.environ else f"whichtorch {command}"


def repeated_call(command: str, *more: str) -> str:
    """Return the command line of this call, with more arguments."""
    words = sys.argv[2:]
    end = words.index("--") if "--" in words else len(words)
    return f"{called(command)} {shlex.join([*words[:end], *more, *words[end:]])}"


def state_folder() -> Path:
    """Return the folder that holds the runs and the environments; say where it is if it is new."""
    from whichtorch.records import store

    return store.state_folder(partial(print, file=sys.stderr))


def announced(file: "MatrixFile") -> "MatrixFile":
    """Print which requirements of options and a script are left out of a matrix file; return the file."""
    for note in file.needs.notes:
        print(note)
    return file


def failure_words(text: str, test: "tuple[Scenario, dict[str, str]]", home: Path) -> str:
    """Return the text of --failure itself, "" for any, or for RUN:ENVIRONMENT the message of the failure in that cell.

    Raises UsageError for a run without that cell, and for a cell without a failure.
    """
    from whichtorch.records import stored_runs

    run, _, label = text.partition(":")
    if not (stored_runs.LATEST.fullmatch(run) or _RUN_ID.fullmatch(run)):
        return "" if text == ANY_FAILURE else text
    result = stored_runs.find(run, home).read().result
    labels = {environment.id: environment.label for environment in result.environments}
    scenario, variant = test
    cells = [cell for cell in result.cells if (cell.scenario, cell.variant) == (scenario.name, variant)]
    failing = {labels[cell.environment]: cell for cell in cells if cell.is_red}
    if label not in failing:
        shown = f"it failed in {', '.join(failing)}" if failing else "it did not fail in that run"
        raise UsageError(f"--failure {text}: no failure of {scenario.name} in {label or 'no environment'}", hint=shown)
    cell = failing[label]
    messages = (attempt.message for attempt in cell.attempts if attempt.outcome is cell.outcome)
    return next(filter(None, messages), None) or cell.signature or str(cell.outcome)


@contextmanager
def terminating_like_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C."""
    from whichtorch.matrix.signals import stopping_signals

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        if number == signal.SIGHUP:
            _leave_lost_terminal()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in stopping_signals() if number != signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_lost_terminal() -> None:
    """Discard output to a lost terminal, where each write would fail, so that files can still be written."""
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


@contextmanager
def resumable(seconds: float | None = None) -> Iterator[None]:
    """On an interrupt or after the time limit, say that the same command resumes, and exit with the right code."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeOverError(f"the time limit of {seconds:g} s is over")

    before = signal.signal(signal.SIGALRM, end)
    try:
        with terminating_like_interrupt():
            signal.setitimer(signal.ITIMER_REAL, seconds + WRAP_UP if seconds else 0)
            yield
    except TimeOverError as over:
        print(f"{over}: {GOES_ON}", file=sys.stderr)
        sys.exit(Exit.UNANSWERED)
    except KeyboardInterrupt:
        print(f"interrupted: {GOES_ON}", file=sys.stderr)
        sys.exit(Exit.INTERRUPTED)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def write_json(path: Path | None, model: "Model") -> None:
    """Write a model as redacted JSON, if a file was requested."""
    from whichtorch.base.redaction import Redactor

    if path:
        text = Redactor.of_this_machine().json_line(model.model_dump_json(by_alias=True, indent=1))
        write_bytes(path, f"{text}\n".encode())


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write redacted lines."""
    from whichtorch.base.redaction import Redactor

    text = Redactor.of_this_machine().text("\n".join(lines))
    write_bytes(path, f"{text}\n".encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, or to standard output for `-`, which nothing else uses then."""
    if path != STDOUT:
        path.write_bytes(content)
    elif sys.__stdout__ is not None:
        sys.__stdout__.buffer.write(content)
        sys.__stdout__.flush()


def format_options(formats: Iterable[ReportFormat]) -> type:
    """Return a group with an option for each report format."""
    options = [
        (row.name, Path | None, output_file(metavar="DIR" if row.in_folder else "FILE", help=row.help))
        for row in formats
    ]
    return make_dataclass("FormatOptions", options, frozen=True)


def named_files(given: Any) -> list[tuple[ReportFormat, Path]]:
    """Return the formats that options ask for, with the file that each goes to."""
    named = [(row, path) for row in FORMATS if (path := getattr(given, row.name, None))]
    return [(row, path / row.file if row.in_folder and path != STDOUT else path) for row, path in named]


def write_reports(
    files: "Iterable[tuple[ReportFormat, Path]]", head: "RunFolder", home: Path, baseline: "RunFolder | None"
) -> None:
    """Write the reports of a stored run, compared with a baseline, and say where they are."""
    from whichtorch.base.redaction import Redactor
    from whichtorch.model import Model
    from whichtorch.reports.cell_text import where_it_ran
    from whichtorch.reports.document import shown_path
    from whichtorch.reports.run_facts import gather

    facts = gather(head, home, baseline)
    there = where_it_ran(called, facts.stored.result.run)
    for row, file in files:
        file.parent.mkdir(exist_ok=True)
        content = row.content(facts, there)
        if isinstance(content, Model):
            write_json(file, content)
        elif isinstance(content, bytes):
            write_bytes(file, content if row.is_redacted else Redactor.of_this_machine().data(content))
        else:
            write_lines(file, content)
    for _, file in files:
        if file != STDOUT:
            print(f"wrote {shown_path(file)}")


def certificates() -> Path:
    """Return the folder of a cluster's certificates."""
    return state_folder() / "tls"


@dataclass(frozen=True, kw_only=True)
class ClusterAddress:
    """Which cluster runs the cells."""

    executor: str | None = running_option(
        metavar="ADDRESS", help="Run on the workers of a scheduler, tls://head:8786. [default: here]"
    )

    @contextmanager
    def machines(self, here: "ThisMachine", jobs: int | None = None) -> Iterator["Machines"]:
        """Yield the workers of the cluster, or `here` if no scheduler is given; print which workers cannot be used."""
        if self.executor is None:
            yield here
            return
        from whichtorch.matrix.cluster.cluster_site import ClusterMachines
        from whichtorch.matrix.cluster.engine import DaskEngine

        engine = DaskEngine(self.executor, certificates())
        try:
            machines = ClusterMachines(engine, here.environments.home, jobs)
            for line in machines.remarks():
                print(line, file=sys.stderr)
            yield machines
        finally:
            engine.close()

    @contextmanager
    def searching(self, cache: "EnvironmentCache", jobs: int | None) -> Iterator[tuple["Machines | None", int]]:
        """Yield the machines for a search, None for this machine, and how many candidates it tries at once."""
        from whichtorch.matrix.site import ThisMachine

        here = ThisMachine(environments=cache, jobs=jobs or 1)
        with self.machines(here, jobs) as machines:
            yield (None if machines is here else machines), jobs or max(1, machines.slots)


@dataclass(frozen=True, kw_only=True)
class Display:
    """What a command prints, and in which form."""

    quiet: bool = _output_option("-q --quiet", help="Print failures and the summary only.")
    verbose: bool = _output_option(
        "-v --verbose",
        help="Also print known cells, each test of a command, the logs of cells, and how installs are made, with logs.",
    )
    events_file: Path | None = output_file(
        "--events", help="Write events as JSON Lines as they happen; - for standard output."
    )

    @cached_property
    def console(self) -> "Console":
        """The terminal, or whatever standard output is."""
        from rich.console import Console

        return Console()

    @property
    def columns(self) -> int:
        """How wide a table may be: the width of the terminal, or 160 columns without one."""
        return self.console.width if self.console.file.isatty() else shutil.get_terminal_size((160, 24)).columns

    @cached_property
    def _log(self) -> "EventLog | None":
        from whichtorch.reports.event_lines import EventLog

        if self.events_file is None:
            return None
        stream = sys.__stdout__ if self.events_file == STDOUT else self.events_file.open("w", encoding="utf-8")
        return EventLog(stream) if stream else None

    @contextmanager
    def progress(self, total: int | None, forecast: "Forecast | None" = None) -> Iterator["Emit"]:
        """Show progress through `total` cells, None if their number is not known, with the time left of a forecast."""
        from whichtorch.reports.terminal import Detail, Progress

        detail = Detail.LITTLE if self.quiet else Detail.ALL if self.verbose else Detail.USUAL
        with Progress(self.console, total, detail, forecast) as show:

            def emit(event: "Event") -> None:
                show(event)
                if self._log:
                    self._log(event)

            yield emit

    def say(self, lines: "Iterable[Line]") -> None:
        """Print finished lines, wrapped and colored as the terminal can."""
        from whichtorch.reports.terminal import say

        say(self.console, lines)


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """Which numbers are measured, and how large a change counts."""

    measure: Strings = _number_option(
        default=(),
        metavar="NAME[,NAME]",
        help="Compare numbers: wall, cpu, import, import-memory, compile, peak, growth, output, or one that "
        "the script prints.",
    )
    pattern: str | None = _number_option(
        metavar="REGEX",
        help="Where the number stands that the script prints, 'tokens/s: ([\\d.]+)'; with growth, the lines at which "
        "memory is measured. [default: NAME=1.5 or NAME: 1.5; each line]",
    )
    worse: str | None = _number_option(
        metavar="CHANGE",
        help="How much worse counts: 10%, or a number in the measure's unit. +10%: more is worse; -10%: less is; "
        "+-10%: both are. [default: 5%; less of what is named like tokens/s or accuracy is worse, more of the rest]",
    )

    @property
    def measures(self) -> "tuple[Measure, ...]":
        """The measures that the options name.

        Raises UsageError for what is wrong with them, and where a library is missing.
        """
        given = [name for name, value in (("--pattern", self.pattern), ("--worse", self.worse)) if value]
        names = commas(self.measure)
        if not names:
            if given or self.measure:
                what = f"{' and '.join(given)}: there is no --measure" if given else "--measure names nothing"
                raise UsageError(what, hint="name what is measured: --measure cpu")
            return ()
        from whichtorch.measure.measure import measures_named
        from whichtorch.search.step_search import check_statistics

        check_statistics()
        return measures_named(names, self.pattern, self.worse)


def measured(
    planned: "Plan", measures: "tuple[Measure, ...]", machines: "ThisMachine", display: "Display"
) -> "tuple[StoredRun, Exit]":
    """Measure the cells of a plan and print the numbers; return the stored run and the exit code.

    A number that is worse makes it red.

    Raises UsageError where no environment has a number.
    """
    from whichtorch.matrix.interleaving import measured_run
    from whichtorch.model import Effect
    from whichtorch.reports.numbers_text import number_lines

    opened = measured_run(planned, measures, machines, display.progress)
    with terminating_like_interrupt(), opened as (store, notes):
        cells = store.stored().result.cells
        is_worse = any(number.effect in {Effect.WORSE, Effect.DIFFERENT} for cell in cells for number in cell.numbers)
        code = Exit.RED if is_worse else exit_code(store.tally, failed=store.failed)
        code = Exit.INTERRUPTED if store.run.interrupted else code
        store.run = store.run.model_copy(update={"exit_code": int(code)})
    stored = store.stored()  # read again: the run is marked as ended now
    display.say(number_lines(stored.result, notes, display.columns))
    if code is not Exit.INTERRUPTED and cells and not any(cell.numbers for cell in cells):
        reasons = dict.fromkeys(cell.reason or str(cell.outcome) for cell in cells)
        raise UsageError(f"nothing could be measured: {'; '.join(reasons)}")
    return stored, code
