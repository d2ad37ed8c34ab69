"""Folders for temporary files: what a killed tool has left, the next one removes.

Each has the process that made it in its name.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.process import kernel
from whichtorch.process.marks import owner_is_dead, owner_mark

if TYPE_CHECKING:
    from collections.abc import Iterator


def new_temporary_folder(below: Path | None = None) -> Path:
    """Make a folder that the caller removes; it is in the folder for temporary files unless another one is given."""
    return Path(tempfile.mkdtemp(prefix=f"{_prefix()}{owner_mark().replace(':', '-')}-", dir=below))


@contextmanager
def temporary_folder(below: Path | None = None) -> Iterator[Path]:
    """Make a folder as `new_temporary_folder` does, and remove it at the end of the block."""
    folder = new_temporary_folder(below)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(below: Path | None = None) -> None:
    """Remove the folders of tools that were killed."""
    for folder in (below or Path(tempfile.gettempdir())).glob(f"{_prefix()}*"):
        owner = re.match(r"(\d+)-(\d+)-", folder.name.removeprefix(_prefix()))
        if owner and owner_is_dead(f":{owner[1]}:{owner[2]}:"):
            shutil.rmtree(folder, ignore_errors=True)


def _prefix() -> str:
    """Return how the names begin; with the machine and the pid namespace, because a pid means nothing elsewhere."""
    place = f"{platform.node()} {kernel.link('/proc/self/ns/pid')}"
    return f"whichtorch-{hashlib.sha256(place.encode()).hexdigest()[:12]}-"
