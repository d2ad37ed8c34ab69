"""Overlays of environments, each there as long as some run uses it."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import psutil

from whichtorch.matrix.atomic_files import remove_tree
from whichtorch.matrix.environments.overlay import make_overlay
from whichtorch.matrix.model import digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from whichtorch.matrix.model import Environment


@dataclass(slots=True)
class Overlays:
    """The overlays that this process uses, in a folder that other processes use, too."""

    folder: Path  # on the environments' file system
    _users: dict[Path, int] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def laid(self, environment: Environment, files: Mapping[str, str | None]) -> Iterator[Environment]:
        """Give an environment in which some files have other texts; runs side by side share its overlay."""
        assert environment.interpreter is not None
        venv, name = environment.interpreter.parent.parent, digest([environment.id, sorted(files.items())])
        overlay = self.folder / f"{os.getpid()}-{name}"
        with self._guard:
            if not self._users.get(overlay):
                make_overlay(venv, overlay, files)
            self._users[overlay] = self._users.get(overlay, 0) + 1
        interpreter = overlay / environment.interpreter.relative_to(venv)
        changes = {"id": f"{environment.id}+{name}", "label": f"{environment.label}+{name[:6]}"}
        try:
            yield environment.model_copy(update=changes | {"interpreter": interpreter})
        finally:
            with self._guard:
                self._users[overlay] -= 1
                if not self._users[overlay]:
                    remove_tree(overlay)

    def sweep(self) -> None:
        """Remove what killed tools have left behind."""
        for folder in self.folder.glob("*"):
            owner = folder.name.removeprefix(".").partition("-")[0]
            if not (owner.isdigit() and psutil.pid_exists(int(owner))):
                remove_tree(folder)


@lru_cache
def overlays_below(home: Path) -> Overlays:
    """Return the overlays in a state folder, without those of processes that are gone; all threads share them."""
    overlays = Overlays(home / "fix" / "in-use")
    overlays.sweep()
    return overlays
