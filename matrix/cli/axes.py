"""The options that name a matrix file or replace its axes, and the matrix file that they make.

A command that fills a matrix takes Torch, Python, Build and Config; one that searches what is known takes
OnlyTorch, OnlyPython, OnlyBuild and OnlyConfig, which leave the other environments out.
"""

from pathlib import Path
from typing import Annotated

import typer

from matrix.cli.options import commas
from matrix.environments.index.version_specs import split_specs
from matrix.errors import UsageError
from matrix.plan import matrix_file

MatrixFile = Annotated[Path | None, typer.Option("--matrix", metavar="FILE", help="Matrix file.")]

_SPECS, _PYTHONS, _NAMES = "SPEC[,SPEC]", "3.11[,3.12]", "NAME[,NAME]"

Torch = Annotated[
    list[str] | None,
    typer.Option(
        metavar=_SPECS,
        help="A version, a specifier such as '>=2.9,<2.13', recent:3, latest, nightly, "
        "nightly:2026-11-01..2026-11-20, or a wheel's path.",
    ),
]
Python = Annotated[list[str] | None, typer.Option(metavar=_PYTHONS, help="Python versions.")]
Build = Annotated[
    list[str] | None,
    typer.Option(metavar=_NAMES, help="auto, pypi, cpu, cu128, rocm6.4, xpu, nightly-cpu, or of the file."),
]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar=_NAMES,
        help="default, single-thread, iomp, cpp-meta, dispatch-trace, no-compile-threads, or of the file.",
    ),
]

OnlyTorch = Annotated[list[str] | None, typer.Option(metavar=_SPECS, help="Only these versions.")]
OnlyPython = Annotated[list[str] | None, typer.Option(metavar=_PYTHONS, help="Only these Pythons.")]
OnlyBuild = Annotated[list[str] | None, typer.Option(metavar=_NAMES, help="Only these builds.")]
OnlyConfig = Annotated[list[str] | None, typer.Option("--config", metavar=_NAMES, help="Only these configs.")]

# of a search: one of each, but for the axis whose values are told apart
OnePython = Annotated[list[str] | None, typer.Option("--python", metavar="3.11", help="Python version.")]
OneBuild = Annotated[
    list[str] | None, typer.Option("--build", metavar="NAME", help="pypi, cpu, cu128, nightly-cpu, or of the file.")
]
OneConfig = Annotated[list[str] | None, typer.Option("--config", metavar="NAME", help="default, or another config.")]


def named_axes(
    torch: list[str] | None, python: list[str] | None, build: list[str] | None, config_names: list[str] | None
) -> dict[str, tuple[str, ...]]:
    """Return the axes that options name, as a matrix file spells them."""
    specs = tuple(split_specs(",".join(torch or ())))
    named = {"torch": specs, "python": commas(python), "build": commas(build), "config": commas(config_names)}
    return {axis: values for axis, values in named.items() if values}


def one_of_each(
    torch: list[str],
    python: list[str] | None,
    build: list[str] | None,
    config_names: list[str] | None,
    *,
    several: str = "",
) -> dict[str, tuple[str, ...]]:
    """Return the axes of a search: one build, Python and config, the default ones where none is named.

    Only the axis `several` may have more of them. Raises UsageError.
    """
    named = {"python": commas(python), "build": commas(build), "config": commas(config_names)}
    for axis, values in named.items():
        if axis != several and len(values) > 1:
            hint = f"name one, or have them told apart with --axis {axis}"
            raise UsageError(f"--{axis} names {len(values)} for a search along another axis", hint=hint)
    specs = {"torch": tuple(split_specs(",".join(torch)))}
    return specs | {"build": ("auto",), "config": ("default",), "python": ()} | {k: v for k, v in named.items() if v}


def read_matrix(path: Path | None, named: dict[str, tuple[str, ...]] | None = None) -> matrix_file.MatrixFile:
    """Return a matrix file, or the default one, with the axes that options name instead of its own.

    Its `include` rows go with the first of them: who names an axis wants just that.
    """
    file = matrix_file.read_matrix_file(path or matrix_file.DEFAULT_FILE)
    if not named:
        return file
    table = file.model_dump(by_alias=True, exclude={"include"})
    table["axes"] |= named
    return matrix_file.checked(table, "the options")
