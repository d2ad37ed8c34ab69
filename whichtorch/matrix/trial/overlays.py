"""Overlays of environments, each there as long as some run uses it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from whichtorch.matrix.atomic_files import remove_tree
from whichtorch.matrix.environments.overlay import make_overlay
from whichtorch.matrix.model import digest
from whichtorch.matrix.process.temporary_folders import new_temporary_folder, remove_left_behind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from whichtorch.matrix.model import Environment


@dataclass(slots=True)
class Overlays:
    """The overlays that this process uses, in a folder that other processes use, too."""

    folder: Path  # on the environments' file system
    _laid: dict[str, tuple[Path, int]] = field(default_factory=dict)  # where an overlay is, and how many use it
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def laid(self, environment: Environment, files: Mapping[str, str | None]) -> Iterator[Environment]:
        """Give an environment in which some files have other texts; runs side by side share its overlay."""
        assert environment.interpreter is not None
        venv, name = environment.interpreter.parent.parent, digest([environment.id, sorted(files.items())])
        with self._guard:
            self.folder.mkdir(parents=True, exist_ok=True)
            place, users = self._laid.get(name) or (new_temporary_folder(self.folder), 0)
            try:
                if not users:
                    make_overlay(venv, place / "venv", files)
            except BaseException:
                place.rmdir()
                raise
            self._laid[name] = place, users + 1
        interpreter = place / "venv" / environment.interpreter.relative_to(venv)
        changes = {"id": f"{environment.id}+{name}", "label": f"{environment.label}+{name[:6]}"}
        try:
            yield environment.model_copy(update=changes | {"interpreter": interpreter})
        finally:
            with self._guard:
                place, users = self._laid.pop(name)
                if users > 1:
                    self._laid[name] = place, users - 1
                else:
                    remove_tree(place)


@lru_cache
def overlays_below(home: Path) -> Overlays:
    """Return the overlays in a state folder, without those of processes that are gone; all threads share them."""
    below = home / "fix" / "in-use"
    remove_left_behind(below)
    return Overlays(below)
