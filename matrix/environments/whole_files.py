"""Files and folders that are there whole or not at all."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Write a file under a hidden name, then rename it, so that no reader sees a half."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def remove_tree(path: Path) -> None:
    """Remove a folder. It is moved aside first, so that a killed removal leaves no half of it."""
    if not path.exists() and not path.is_symlink():
        return
    aside = path.with_name(f".removed-{path.name}-{os.getpid()}-{time.monotonic_ns()}")
    path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


class Trash:
    """Takes folders out of use at once and frees them in the background: gigabytes take many seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, paths: Iterable[Path]) -> None:
        """Move folders aside, and begin to free them."""
        self._folder.mkdir(exist_ok=True)
        for path in paths:
            with suppress(FileNotFoundError):
                path.rename(self._folder / f"{path.parent.name}-{path.name}-{os.getpid()}-{time.monotonic_ns()}")
        threading.Thread(target=self.empty, daemon=True).start()

    def names(self) -> set[str]:
        """Return the names of what is not freed yet."""
        return {path.name for path in self._folder.glob("*")}

    def empty(self) -> None:
        """Free what was moved aside, also by an earlier run that ended meanwhile."""
        for path in self._folder.glob("*"):
            shutil.rmtree(path, ignore_errors=True)
