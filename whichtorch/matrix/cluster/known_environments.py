"""What the client of a cluster knows of environments: it makes none itself."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.base.errors import PreventedError
from whichtorch.environments.cache import UNMEASURED_INSTALL, EnvironmentCache
from whichtorch.model import Environment, Model, Request, digest

if TYPE_CHECKING:
    from whichtorch.environments.provider import Stage


class _MadeEnvironment(Model):
    """What is kept of an environment that a worker made."""

    environment: Environment
    requires: dict[str, tuple[str, ...]]  # by package, what its metadata requires


class KnownEnvironments:
    """The environments that workers have made for this state folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._cache = EnvironmentCache(home)

    def known(self, request: Request) -> Environment | None:
        """Return the environment that a worker made, None where none did."""
        made = self._made(request)
        return made.environment if made else None

    def remember(self, request: Request, environment: Environment, requires: dict[str, tuple[str, ...]]) -> None:
        """Keep what a worker made, and what its packages require."""
        made = _MadeEnvironment(environment=environment, requires=requires)
        write_atomic(self._file(request), made.model_dump_json())

    def is_installed(self, request: Request) -> bool:
        """Return whether a worker has made it."""
        return self.known(request) is not None

    def typical_install(self) -> float:
        """Return the seconds that an install takes, as far as one can know."""
        return UNMEASURED_INSTALL

    def unreachable_index(self, request: Request) -> str | None:
        """Return the unreachable index this request needs, if any."""
        return self._cache.unreachable_index(request)

    def requirements_of(self, request: Request) -> dict[str, tuple[str, ...]]:
        """Return by package what its metadata requires, for an environment that a worker made."""
        made = self._made(request)
        return made.requires if made else {}

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return what a request comes to that cannot be made anywhere."""
        if request.problem is None:
            raise PreventedError(f"{request.label} is made by workers only")
        return self._cache.acquire(request, cancelled, stage)

    def release(self, request: Request) -> None:
        """Do nothing: the environment is a worker's."""

    def _made(self, request: Request) -> _MadeEnvironment | None:
        if request.problem is not None:
            return None
        made = read_json(self._file(request), _MadeEnvironment)
        if made is None and (environment := read_json(self._file(request), Environment)):  # of an older version
            return _MadeEnvironment(environment=environment, requires={})
        return made

    def _file(self, request: Request) -> Path:
        return self.home / "cache" / "cluster" / f"{digest(request.key, 20)}.json"
