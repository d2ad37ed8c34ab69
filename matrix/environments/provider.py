"""What the rest of the program needs from something that makes environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from matrix.model import Build, Environment, Request

Stage = Callable[[str], None]  # called with what is being done: "resolving", "installing", "probing", …


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

    def in_the_way(self, request: Request) -> str | None:
        """Return the unreachable index this request needs, if any; such a failure says nothing about the version."""

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return the environment, usable until `release`. Where it cannot be made, its outcome says why."""

    def release(self, request: Request) -> None:
        """Allow an environment to be removed when disk is needed."""


class Resolver(Protocol):
    """Something that turns requirements into exact versions and knows what packages require."""

    def locked(
        self,
        requirements: Sequence[str],
        build: Build,
        python: str,
        *,
        constraints: Sequence[str] = (),
        before: str | None = None,
        cancelled: threading.Event | None = None,
    ) -> tuple[str, ...]:
        """Return the exact pins that requirements mean, without an install. Raises InstallError, CancelledError."""

    def requirements_of(self, request: Request) -> Mapping[str, Sequence[str]]:
        """Return by package what its metadata requires, for an installation that was made, evicted or not."""


class ResolvingEnvironments(Environments, Resolver, Protocol):
    """What searches over packages need."""
