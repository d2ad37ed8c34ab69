"""Declare a field of a request as an option of the command line; `cli/parser.py` builds the option from it.

A field declared with `group` holds another request, so that several commands share its options. The parser reads the
types of fields, so a module that declares options must not import `annotations` from `__future__`.
"""

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from whichtorch.base.errors import UsageError

AFTER_DASHES = "whichtorch.after_dashes"  # key of what follows `--`: in a field's metadata, and in click's context
_DURATION = re.compile(r"(?:(\d*\.?\d+)h)?(?:(\d*\.?\d+)m)?(?:(\d*\.?\d+)s?)?")
_MEGABYTES = {"MB": 1, "GB": 1000, "TB": 1_000_000, "MIB": 1.048576, "GIB": 1073.741824, "TIB": 1099511.627776}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How a field is given on the command line. Its type and its default are those of the field."""

    help: str
    name: str = ""  # names, separated by spaces; "" for the name of the field: `max_time` is --max-time
    metavar: str | None = None
    panel: str = "Options"  # the heading in --help
    parse: Callable[[str], object] | None = None  # raises UsageError; None to convert by the type
    choices: tuple[str, ...] = ()  # () for all of an enum, or any text
    least: float | None = None
    most: float | None = None
    is_argument: bool = False
    if_bare: str | None = None  # the value if it is given without one; None if it must have one


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A request whose options are part of another request."""

    kind: type
    only: tuple[str, ...] = ()  # the fields that are options; () for all


def option(name: str = "", *, default: Any = None, **details: Any) -> Any:
    """Declare a field as an option; `details` are the fields of Option."""
    return field(default=default, metadata={"option": Option(name=name, **details)})


def argument(metavar: str, text: str, *, default: Any = MISSING) -> Any:
    """Declare a field as a positional argument, which is required if it has no default."""
    return field(default=default, metadata={"option": Option(metavar=metavar, help=text, is_argument=True)})


def after_dashes(shown: str = "ARGUMENTS") -> Any:
    """Declare a field for what follows `--`: a script's arguments, or a command. None if there is no `--`."""
    return field(default=None, metadata={AFTER_DASHES: shown})


def group(kind: type, *only: str) -> Any:
    """Declare a field that holds another request, with all of its options or `only` some of them."""
    return field(default_factory=kind, metadata={"group": Group(kind=kind, only=only)})


def seconds(text: str) -> float:
    """Return "90s", "30m", "2h" or "1h30m" as seconds; a plain number is seconds."""
    parts = _DURATION.fullmatch(text)
    hours, minutes, rest = (float(part or 0) for part in parts.groups()) if parts else (0.0, 0.0, 0.0)
    total = hours * 3600 + minutes * 60 + rest
    if total <= 0:
        raise UsageError(f"{text!r} is not a duration", hint="write it as 90s, 30m, 2h or 1h30m")
    return total


def megabytes(text: str) -> float:
    """Return "60GB" as 60000; a plain number is gigabytes."""
    number = text.strip().upper().rstrip("BIMGT")
    unit = text.strip().upper()[len(number) :].strip() or "GB"
    try:
        size = float(number) * _MEGABYTES[unit if unit.endswith("B") else unit + "B"]
    except (KeyError, ValueError):
        size = 0
    if not 0 < size < math.inf:
        raise UsageError(f"{text!r} is not a size", hint="write it as 60GB, 800MB or 1.5TB")
    return size


def output_path(text: str) -> Path:
    """Return the path of a file to write, STDOUT for `-`.

    Raises UsageError if its folder does not exist, before hours of work.
    """
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"no folder {path.parent} to write {path.name} into")
    OUTPUTS.add(path.resolve())
    return path


OUTPUTS: set[Path] = set()  # files that this command is to write: no part of the user's project
Strings = tuple[str, ...]  # of an option that may be repeated
STDOUT = Path("-")
output_file = partial(option, metavar="FILE", panel="Output", parse=output_path)
json_output = partial(output_file, "--json", help="Write the answer as JSON; - for standard output.")
markdown_output = partial(output_file, "--markdown --report", help="Write Markdown, ready for an issue.")
duration = partial(option, metavar="TIME", parse=seconds)
max_time = partial(duration, "--max-time", help="Stop after this time (90s, 30m, 1h30m), with what is known.")
