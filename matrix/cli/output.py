"""Where answers go: lines to standard output, models and reports to the files that options name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.privacy.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matrix.model import Model


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        print(line)


def write_json(path: Path, model: Model) -> None:
    """Write a model as JSON, redacted."""
    text = Redactor.of_this_machine().json_line(model.model_dump_json(by_alias=True, indent=1))
    path.write_text(text + "\n", encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, redacted."""
    path.write_text(Redactor.of_this_machine().text("\n".join(lines)) + "\n", encoding="utf-8")


def check_folders_of(*paths: Path | None) -> None:
    """Raise UsageError, before hours of work, where a report could not be written."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"no folder {path.parent} to write {path.name} into")
