"""What commands share: their options and how these are read, how a command was called, what it writes, how it ends.

A command that fills a matrix takes Torch, Python, Build, Config and Patch. One that searches what is known takes
OnlyTorch, OnlyPython, OnlyBuild, OnlyConfig and OnlyPatch, which leave the other environments out. A search takes
OnePython, OneBuild, OneConfig and OnePatch: it keeps all but one axis at one value.
"""

import os
import re
import signal
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from whichtorch.matrix.environments.index.version_specs import split_specs
from whichtorch.matrix.errors import GOES_ON, TimeOverError, UsageError
from whichtorch.matrix.events import Show
from whichtorch.matrix.model import NO_PATCH, Model, Outcome, Scenario, variant_suffix
from whichtorch.matrix.plan.matrix_file import DEFAULT_FILE, MatrixFile, read_matrix_file
from whichtorch.matrix.privacy.redaction import Redactor
from whichtorch.matrix.records import stored_runs
from whichtorch.matrix.suite import selection
from whichtorch.matrix.suite.headers import SUITE_ROOT
from whichtorch.reports.terminal import Progress

# the options of each panel of --help
EnvironmentOption = partial(typer.Option, rich_help_panel="Environments")
ScenarioOption = partial(typer.Option, rich_help_panel="Scenarios")
RunningOption = partial(typer.Option, rich_help_panel="How it runs")
OutputOption = partial(typer.Option, rich_help_panel="Output")
JsonOption = partial(typer.Option, "--json", metavar="FILE")

WRAP_UP = 4.0  # seconds that a search has to end by itself when its time is over, before whatever it does is stopped
Words = list[str] | None  # an option that may be repeated
_SPECS, _PYTHONS, _NAMES = "SPEC[,SPEC]", "3.11[,3.12]", "NAME[,NAME]"


def _axis(name: str, metavar: str, text: str) -> Any:
    return EnvironmentOption(name, metavar=metavar, help=text)


MatrixPath = Annotated[Path | None, _axis("--matrix", "FILE", "Matrix file, instead of the default one.")]
Torch = Annotated[
    Words,
    _axis(
        "--torch",
        _SPECS,
        "A version, a specifier such as '>=2.9,<2.13', recent:3, latest, nightly, "
        "nightly:2026-11-01..2026-11-20, or a wheel's path.",
    ),
]
Python = Annotated[Words, _axis("--python", _PYTHONS, "Python versions.")]
Build = Annotated[Words, _axis("--build", _NAMES, "auto, pypi, cpu, cu128, rocm6.4, xpu, nightly-cpu, or of the file.")]
Config = Annotated[
    Words,
    _axis(
        "--config",
        _NAMES,
        "default, single-thread, iomp, cpp-meta, dispatch-trace, no-compile-threads, or of the file.",
    ),
]
Patch = Annotated[
    Words,
    _axis("--patch", "FILE[,FILE]", "A diff of torch's Python files to try, none, or of the file. Repeatable."),
]
OnlyTorch = Annotated[Words, _axis("--torch", _SPECS, "Only these versions.")]
OnlyPython = Annotated[Words, _axis("--python", _PYTHONS, "Only these Pythons.")]
OnlyBuild = Annotated[Words, _axis("--build", _NAMES, "Only these builds.")]
OnlyConfig = Annotated[Words, _axis("--config", _NAMES, "Only these configs.")]
OnlyPatch = Annotated[Words, _axis("--patch", "FILE[,FILE]", "Only these patches, none for without.")]
OnePython = Annotated[Words, _axis("--python", "3.11", "Python version.")]
OneBuild = Annotated[Words, _axis("--build", "NAME", "pypi, cpu, cu128, nightly-cpu, or of the file.")]
OneConfig = Annotated[Words, _axis("--config", "NAME", "default, or another config.")]
OneHardware = Annotated[Words, _axis("--hardware", "NAME", "A kind of machine, a [hardware.NAME] of the file.")]
OnePatch = Annotated[Words, _axis("--patch", "FILE", "A diff of torch's Python files, applied to each value.")]
Disk = Annotated[
    str | None, _axis("--disk", "SIZE", "Room for environments, e.g. 60GB. [default: 80 % of what is free]")
]

HardwareNames = Annotated[Words, _axis("--hardware", _NAMES, "Kinds of machines, each a [hardware.NAME] of the file.")]

Test = Annotated[str, typer.Argument(metavar="SCENARIO|SCRIPT", help="One test, as NAME or NAME[variant=value].")]
Timeout = Annotated[float | None, RunningOption(metavar="S", min=0.1, help="Seconds per attempt.")]
LookLonger = Annotated[
    bool,
    RunningOption("--look-longer", help="Try a test that is slow at your timeout once more, for three times as long."),
]
Repeat = Annotated[int, RunningOption(metavar="N", min=1, help="Attempts per cell.")]


def commas(values: Words) -> tuple[str, ...]:
    """Split "a,b" and repeated options alike."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def read_matrix(path: Path | None, torch: Words = None, **axes: Words) -> MatrixFile:
    """Return a matrix file, or the default one, with the axes that options name instead of its own."""
    specs = split_specs(",".join(torch)) if torch else None
    named = {axis: commas(values) or None for axis, values in axes.items()}
    return read_matrix_file(path or DEFAULT_FILE).with_axes(keep_rows=True, torch=specs, **named)


def read_search_matrix(path: Path | None, torch: list[str], *, several: str = "", **axes: Words) -> MatrixFile:
    """Return a matrix file with the axes of a search: one build, Python, config and patch, by default the default ones.

    Only the axis `several` may have more of them. Raises UsageError.
    """
    named = {axis: commas(axes.get(axis)) for axis in ("python", "build", "config", "patch", "hardware")}
    for axis, values in named.items():
        if axis != several and len(values) > 1:
            hint = "name one" + ("" if axis == "patch" else f", or have them told apart with --axis {axis}")
            raise UsageError(f"--{axis} names {len(values)} for a search along another axis", hint=hint)
    return read_matrix_file(path or DEFAULT_FILE).with_axes(
        keep_rows=True,
        torch=split_specs(",".join(torch)),
        python=named["python"],
        build=named["build"] or ("auto",),
        config=named["config"] or ("default",),
        patch=named["patch"] or (NO_PATCH,),
        hardware=named["hardware"],
    )


def scenarios_of(test: str) -> list[Scenario]:
    """Return what a Test names: a scenario of the suite, by name or path, or a script of the user's."""
    path = Path(test.partition("[")[0])
    if path.suffix == ".py" and not path.resolve().is_relative_to(SUITE_ROOT):
        return [selection.script(test)]
    return selection.select(selection.suite(), (test,))


def one_test(test: str) -> tuple[Scenario, dict[str, str]]:
    """Return the one scenario and variant that a user names.

    If none of several variants is named, it is the first that the header expects to go wrong, or else the first.
    """
    scenarios = scenarios_of(test)
    if len(scenarios) > 1:
        names = ", ".join(scenario.name for scenario in scenarios[:4])
        raise UsageError(f"{test} names {len(scenarios)} tests", hint=f"name one of {names}")
    (scenario,) = scenarios
    variants = selection.variants_of(scenario)
    wrong = [
        variant
        for variant in variants
        if any(line.outcome.is_red and line.variant.items() <= variant.items() for line in scenario.expect)
    ]
    chosen = (wrong or variants)[0]
    if len(variants) > 1:
        others = ", ".join(variant_suffix(variant) for variant in variants if variant != chosen)
        print(f"of {scenario.name}: {variant_suffix(chosen)}; others are {others}")
    return scenario, chosen


_RUN = re.compile(r"latest(~\d+)?|\d{8}-\d{6}-[0-9a-f]+")


def failure_words(text: str, test: tuple[Scenario, dict[str, str]], home: Path) -> str:
    """Return the words that --failure names: as they are, or for RUN:ENVIRONMENT those of the failure in its cell.

    Raises UsageError for a run without that cell, and for a cell without a failure.
    """
    run, _, label = text.partition(":")
    if not _RUN.fullmatch(run):
        return text
    result = stored_runs.find(run, home).read().result
    labels = {environment.id: environment.label for environment in result.environments}
    scenario, variant = test
    cells = [cell for cell in result.cells if (cell.scenario, cell.variant) == (scenario.name, variant)]
    failing = {labels[cell.environment]: cell for cell in cells if cell.outcome.is_red}
    if label not in failing:
        shown = f"it failed in {', '.join(failing)}" if failing else "it failed nowhere in that run"
        raise UsageError(f"--failure {text}: no failure of {scenario.name} in {label or 'no environment'}", hint=shown)
    cell = failing[label]
    messages = (attempt.message for attempt in cell.attempts if attempt.outcome is cell.outcome)
    return next(filter(None, messages), None) or cell.signature or str(cell.outcome)


_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MEGABYTES = {"MB": 1, "GB": 1000, "TB": 1_000_000, "MIB": 1.048576, "GIB": 1073.741824, "TIB": 1099511.627776}


def seconds(text: str | None) -> float | None:
    """Return "90s", "30m" or "2h" as seconds; a plain number is seconds."""
    if text is None:
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS else (text, "s")
    try:
        duration = float(number) * _SECONDS[unit]
    except ValueError:
        duration = 0.0
    if duration <= 0:
        raise UsageError(f"{text!r} is not a time", hint="write it as 90s, 30m or 2h")
    return duration


def megabytes(text: str | None) -> float | None:
    """Return "60GB" as 60000; a plain number is gigabytes."""
    if text is None:
        return None
    number = text.strip().upper().rstrip("BIMGT")
    unit = text.strip().upper()[len(number) :].strip() or "GB"
    try:
        return float(number) * _MEGABYTES[unit if unit.endswith("B") else unit + "B"]
    except (KeyError, ValueError):
        raise UsageError(f"--disk {text!r} is not a size", hint="write it as 60GB, 800MB or 1.5TB") from None


class Exit(IntEnum):
    """What the exit code says."""

    GOOD = 0
    RED = 1  # something hung, crashed, failed or ran out of memory that no scenario expects
    USAGE = 2
    PREVENTED = 3  # environments or the machine kept cells from running
    UNANSWERED = 4  # `explain` and `bisect` have too little to go by
    INTERRUPTED = 130


def exit_code(cells: Iterable[tuple[Outcome, bool]]) -> Exit:
    """Return what the exit code says of a whole run: of the outcome of each cell, and whether it is expected."""
    kinds = set(cells)
    if any(outcome.is_red and not is_expected for outcome, is_expected in kinds):
        return Exit.RED
    return Exit.PREVENTED if any(outcome.is_prevented for outcome, _ in kinds) else Exit.GOOD


def called(command: str) -> str:
    """Return how the user calls a command: as they called this one."""
    return f"nox -s {command} --" if "WHICHTORCH_COMMAND" in os.environ else f"whichtorch {command}"


def progress_on(console: Console) -> Show:
    """Return what shows the progress of a number of cells, and of the environments they need."""
    return partial(Progress, console)


@contextmanager
def terminating_like_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does."""

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        if number == signal.SIGHUP:
            _leave_lost_terminal()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_lost_terminal() -> None:
    """Write no more to a terminal that is gone, where each line would fail; what is known is still to be written."""
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


@contextmanager
def going_on_later(seconds: float | None = None) -> Iterator[None]:
    """End the command with the right exit code on an interrupt or when its time is over; say that nothing is lost."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeOverError(f"the time limit of {seconds:g} s is over")

    before = signal.signal(signal.SIGALRM, end)
    try:
        with terminating_like_interrupt():
            signal.setitimer(signal.ITIMER_REAL, seconds + WRAP_UP if seconds else 0)
            yield
    except TimeOverError as over:
        print(f"{over}: {GOES_ON}", file=sys.stderr)
        raise typer.Exit(Exit.UNANSWERED) from None
    except KeyboardInterrupt:
        print(f"interrupted: {GOES_ON}", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def write_json(path: Path, model: Model) -> None:
    """Write a model as JSON, redacted."""
    text = Redactor.of_this_machine().json_line(model.model_dump_json(by_alias=True, indent=1))
    path.write_text(text + "\n", encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, redacted."""
    path.write_text(Redactor.of_this_machine().text("\n".join(lines)) + "\n", encoding="utf-8")


def check_folders_of(*paths: Path | None) -> None:
    """Raise UsageError where a report could not be written, before hours of work."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"no folder {path.parent} to write {path.name} into")
