"""The options and arguments that commands share, and how their values are read.

A command that fills a matrix takes Torch, Python, Build and Config. One that searches what is known takes OnlyTorch,
OnlyPython, OnlyBuild and OnlyConfig, which leave the other environments out. A search takes OnePython, OneBuild and
OneConfig: it keeps all but one axis at one value.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from matrix.environments.index.version_specs import split_specs
from matrix.errors import UsageError
from matrix.model import Scenario
from matrix.plan.matrix_file import DEFAULT_FILE, MatrixFile, read_matrix_file
from matrix.suite import selection
from matrix.suite.headers import SUITE_ROOT

# the options of each panel of --help
EnvironmentOption = partial(typer.Option, rich_help_panel="Environments")
ScenarioOption = partial(typer.Option, rich_help_panel="Scenarios")
RunningOption = partial(typer.Option, rich_help_panel="How it runs")
OutputOption = partial(typer.Option, rich_help_panel="Output")
JsonOption = partial(typer.Option, "--json", metavar="FILE")

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
OnlyTorch = Annotated[Words, _axis("--torch", _SPECS, "Only these versions.")]
OnlyPython = Annotated[Words, _axis("--python", _PYTHONS, "Only these Pythons.")]
OnlyBuild = Annotated[Words, _axis("--build", _NAMES, "Only these builds.")]
OnlyConfig = Annotated[Words, _axis("--config", _NAMES, "Only these configs.")]
OnePython = Annotated[Words, _axis("--python", "3.11", "Python version.")]
OneBuild = Annotated[Words, _axis("--build", "NAME", "pypi, cpu, cu128, nightly-cpu, or of the file.")]
OneConfig = Annotated[Words, _axis("--config", "NAME", "default, or another config.")]
Disk = Annotated[
    str | None, _axis("--disk", "SIZE", "Room for environments, e.g. 60GB. [default: 80 % of what is free]")
]

Test = Annotated[str, typer.Argument(metavar="SCENARIO|SCRIPT", help="One test, as NAME or NAME[variant=value].")]
Timeout = Annotated[float | None, RunningOption(metavar="S", min=0.1, help="Seconds per attempt.")]
Repeat = Annotated[int, RunningOption(metavar="N", min=1, help="Attempts per cell.")]


def commas(values: Words) -> tuple[str, ...]:
    """Split "a,b" and repeated options alike."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def read_matrix(
    path: Path | None, torch: Words = None, python: Words = None, build: Words = None, config: Words = None
) -> MatrixFile:
    """Return a matrix file, or the default one, with the axes that options name instead of its own."""
    return read_matrix_file(path or DEFAULT_FILE).with_axes(
        torch=split_specs(",".join(torch or ())) or None,
        python=commas(python) or None,
        build=commas(build) or None,
        config=commas(config) or None,
        keep_rows=True,
    )


def read_search_matrix(
    path: Path | None, torch: list[str], python: Words, build: Words, config: Words, *, several: str = ""
) -> MatrixFile:
    """Return a matrix file with the axes of a search: one build, Python and config, by default the default ones.

    Only the axis `several` may have more of them. Raises UsageError.
    """
    named = {"python": commas(python), "build": commas(build), "config": commas(config)}
    for axis, values in named.items():
        if axis != several and len(values) > 1:
            hint = f"name one, or have them told apart with --axis {axis}"
            raise UsageError(f"--{axis} names {len(values)} for a search along another axis", hint=hint)
    return read_matrix_file(path or DEFAULT_FILE).with_axes(
        torch=split_specs(",".join(torch)),
        python=named["python"],
        build=named["build"] or ("auto",),
        config=named["config"] or ("default",),
        keep_rows=True,
    )


def scenarios_of(test: str) -> list[Scenario]:
    """Return what a Test names: a scenario of the suite, by name or path, or a script of the user's."""
    path = Path(test.partition("[")[0])
    if path.suffix == ".py" and not path.resolve().is_relative_to(SUITE_ROOT):
        return [selection.script(test)]
    return selection.select(selection.suite(), (test,))


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
