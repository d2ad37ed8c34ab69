"""What the rest of the program needs of something that makes environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from pathlib import Path

    from matrix.model import Build, Environment, Request

Stage = Callable[[str], None]  # told what is being done: "resolving", "installing", "probing", …


def silent(_stage: str) -> None:
    """Tell nobody what is being done."""


class Environments(Protocol):
    """Something that makes environments. Its methods may be called from several threads."""

    @property
    def home(self) -> Path:
        """The state folder."""

    def known(self, request: Request) -> Environment | None:
        """Return what an earlier install of a request was, installed now or not; None where there was none."""

    def is_installed(self, request: Request) -> bool:
        """Return whether using it needs no install."""

    def typical_install(self) -> float:
        """Return the seconds that an install takes here."""

    def in_the_way(self, request: Request) -> str | None:
        """Return the unreachable index this request needs, if any; such a failure says nothing about the version."""

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return the environment, ready to be used until `release`; an unusable one where it cannot be made."""

    def release(self, request: Request) -> None:
        """Let an environment be removed when room is needed."""


class Resolver(Protocol):
    """Something that knows which exact versions requirements mean, and what packages require."""

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
        """Return the exact pins that requirements mean, installing nothing. Raises InstallError."""

    def requirements_of(self, request: Request) -> dict[str, list[str]]:
        """Return by package what its metadata requires, for an installation that was made."""


class ResolvingEnvironments(Environments, Resolver, Protocol):
    """Both: what searches over packages need."""
