"""What the rest of the program needs from something that makes environments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from whichtorch.model import Environment, Request

Stage = Callable[[str], None]  # called with what is being done: "resolving", "installing", "probing", …
COMMAND_MARK = "$ "  # begins a stage that is a command and the path of its log


def silent(_stage: str) -> None:
    """Do nothing: nobody follows the stages."""


class Environments(Protocol):
    """Something that makes environments. Its methods may be called from several threads."""

    @property
    def home(self) -> Path:
        """The state folder."""

    def known(self, request: Request) -> Environment | None:
        """Return the environment that an earlier install made, evicted since or not; None where there was none."""

    def is_installed(self, request: Request) -> bool:
        """Return whether the request needs no install."""

    def typical_install(self) -> float:
        """Return the seconds that an install takes here."""

    def unreachable_index(self, request: Request) -> str | None:
        """Return the unreachable index this request needs, if any; such a failure says nothing about the version."""

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return the environment, usable until `release`. Where it cannot be made, its outcome says why."""

    def release(self, request: Request) -> None:
        """Allow an environment to be removed when disk is needed."""


class ResolvedEnvironments(Environments, Protocol):
    """Environments that are made of packages from an index."""

    def requirements_of(self, request: Request) -> dict[str, tuple[str, ...]]:
        """Return by package what its metadata requires, for an environment that was made, evicted or not."""
