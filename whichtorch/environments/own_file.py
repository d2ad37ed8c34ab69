"""The matrix file of the user's own repository: whichtorch.toml, or [tool.whichtorch] in pyproject.toml.

It counts where no --matrix is given: the one in the nearest folder, from the current one upwards.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from whichtorch.base.errors import UsageError
from whichtorch.suite.toml_lines import parsed

_OWN, _PROJECT = "whichtorch.toml", "pyproject.toml"
_HEADER = re.compile(r"^[ \t]*\[+\s*tool\s*\.\s*[\"']?whichtorch\b.*", re.MULTILINE)


def own_file() -> Path | None:
    """Return the path of the user's own matrix file, from the current folder; None where there is none.

    Raises UsageError for a folder with two.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        own, project = folder / _OWN, folder / _PROJECT
        line = _line_in(project)
        if own.is_file() and line:
            message = f"{project}:{line}: [tool.whichtorch] and {own} are both matrix files"
            raise UsageError(message, hint="keep one of the two")
        if own.is_file() or line:
            return Path(os.path.relpath(own if own.is_file() else project))
    return None


def table_in(path: Path) -> tuple[dict[str, Any], str]:
    """Return what a matrix file says, and its text; of a pyproject.toml its [tool.whichtorch], with all lines kept.

    Raises what reading and parsing raise, and UsageError for a pyproject.toml without that table.
    """
    text = path.read_text(encoding="utf-8")
    table = parsed(text)
    if path.name != _PROJECT:
        return table, text
    try:
        own = table["tool"]["whichtorch"]
    except KeyError:
        raise UsageError(f"{path} has no [tool.whichtorch]", hint="give another file with --matrix") from None
    header = _HEADER.search(text)
    start = header.start() if header else 0
    return own, "\n" * text.count("\n", 0, start) + text[start:]


def _line_in(project: Path) -> int | None:
    """Return the line of [tool.whichtorch] in a pyproject.toml; None where it has none, or there is no such file."""
    try:
        header = _HEADER.search(text := project.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return text.count("\n", 0, header.start()) + 1 if header else None
