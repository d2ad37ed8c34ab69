"""Where the files of an attempt lie, relative to a state folder."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichtorch.model import Attempt

_PATHS = ("stdout", "stderr", "stacks")  # of an attempt, each below its folder


def folder_of(attempt: Attempt) -> str:
    """Return the folder that an attempt's files lie in, relative to a state folder; "" where it has none."""
    return str(PurePosixPath(attempt.stdout).parent) if attempt.stdout else ""


def with_folder(attempt: Attempt, new: str) -> Attempt:
    """Return an attempt with its files in another folder, which is relative to a state folder, too."""
    old = folder_of(attempt)
    paths = {name: getattr(attempt, name) for name in _PATHS}
    moved = {name: path.replace(old, new, 1) for name, path in paths.items() if path.startswith(f"{old}/")}
    return attempt.model_copy(update=moved)


def without_files(attempt: Attempt) -> Attempt:
    """Return an attempt without its files."""
    return attempt.model_copy(update=dict.fromkeys(_PATHS, ""))
