"""Which environments are in use by living processes, and how much disk their installs have set aside."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

from matrix.environments.whole_files import write_whole
from matrix.process.supervision import mark_for, owner_is_dead

if TYPE_CHECKING:
    from pathlib import Path


class UseMarks:
    """One file per environment and process, in envs/.marks. Marks of dead processes do not count."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home / "envs" / ".marks"
        self._removed = threading.Condition()
        self._removals = 0

    def add(self, key: str, reserved: int = 0) -> None:
        """Note that this process uses an environment, or installs it with so many bytes set aside."""
        owner = mark_for(self._home, key)
        write_whole(self._file(key), json.dumps({"owner": owner, "reserved": reserved}))

    def remove(self, key: str) -> None:
        """Note that this process uses an environment no more, and wake whoever waits in `wait`."""
        self._file(key).unlink(missing_ok=True)
        with self._removed:
            self._removals += 1
            self._removed.notify_all()

    def reserved(self) -> dict[str, int]:
        """Return the environments in use, with the bytes set aside for each."""
        reserved: dict[str, int] = {}
        for file in self._folder.glob("[!.]*.[0-9]*"):
            try:
                mark = json.loads(file.read_text(encoding="utf-8"))
                dead = owner_is_dead(mark["owner"])
            except (OSError, ValueError, KeyError):
                continue
            if dead:
                file.unlink(missing_ok=True)
            else:
                key = file.name.rpartition(".")[0]
                reserved[key] = reserved.get(key, 0) + int(mark["reserved"])
        return reserved

    @property
    def removals(self) -> int:
        """How many marks this process has removed: tells `wait` what its caller has taken into account."""
        with self._removed:
            return self._removals

    def wait(self, removals: int, timeout: float) -> None:
        """Wait up to `timeout` seconds for a mark to be removed after `removals` were counted."""
        with self._removed:
            if self._removals == removals:
                self._removed.wait(timeout)

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.{os.getpid()}"
