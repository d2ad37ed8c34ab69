"""Other options and arguments that commands share, and how their values are read."""

from pathlib import Path
from typing import Annotated

import typer

from matrix.errors import UsageError
from matrix.model import Scenario
from matrix.suite import selection
from matrix.suite.headers import SUITE_ROOT

Test = Annotated[str, typer.Argument(metavar="SCENARIO|SCRIPT", help="One test, as NAME or NAME[variant=value].")]
Timeout = Annotated[float | None, typer.Option(metavar="S", min=0.1, help="Seconds per attempt.")]
Repeat = Annotated[int, typer.Option(metavar="N", min=1, help="Attempts per cell.")]
Disk = Annotated[str | None, typer.Option(metavar="SIZE", help="Room for environments, e.g. 60GB.")]


def commas(values: list[str] | None) -> tuple[str, ...]:
    """Split "a,b" and repeated options alike."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def scenarios_of(test: str) -> list[Scenario]:
    """Return what a Test names: a scenario of the suite, by name or path, or a script of the user's."""
    path = Path(test.partition("[")[0])
    if path.suffix == ".py" and not path.resolve().is_relative_to(SUITE_ROOT):
        return [selection.script(test)]
    return selection.select(selection.suite(), (test,))


_SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str | None) -> float | None:
    """Return "90s", "30m" or "2h" as seconds; a plain number is seconds."""
    if text is None:
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS else (text, "s")
    try:
        found = float(number) * _SECONDS[unit]
    except ValueError:
        found = 0.0
    if found <= 0:
        raise UsageError(f"{text!r} is not a time", hint="write it as 90s, 30m or 2h")
    return found


_UNITS = {"MB": 1, "GB": 1000, "TB": 1_000_000, "MIB": 1.048576, "GIB": 1073.741824, "TIB": 1099511.627776}


def megabytes(text: str | None) -> float | None:
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
