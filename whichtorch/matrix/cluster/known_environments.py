"""What the client of a cluster knows of environments: it makes none itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.atomic_files import read_json, write_atomic
from whichtorch.matrix.environments.cache import UNMEASURED_INSTALL, EnvironmentCache
from whichtorch.matrix.environments.index.sources import local_folder
from whichtorch.matrix.errors import PreventedError, UsageError
from whichtorch.matrix.model import Environment, Request, digest

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from pathlib import Path

    from whichtorch.matrix.cluster.membership import Cluster
    from whichtorch.matrix.environments.provider import Stage


class KnownEnvironments:
    """The environments that workers have made for this state folder."""

    def __init__(self, home: Path, cluster: Cluster) -> None:
        self.home = home
        self._cluster = cluster
        self._cache = EnvironmentCache(home)

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UsageError for what lies on this machine only, PreventedError for what no worker can run."""
        for request in requests:
            if request.interpreter is not None:
                hint = "leave out --executor, or name a release with --torch"
                raise UsageError(f"{request.interpreter} is on this machine, and workers are not", hint=hint)
            folder = request.build.find_links
            wheel = request.torch if request.torch.endswith(".whl") else ""
            if wheel or (folder and local_folder(folder) is not None):
                hint = "leave out --executor, or serve the wheels from an index that the workers reach"
                raise UsageError(f"{wheel or folder} is on this machine, and workers are not", hint=hint)
        self._cluster.check(requests)

    def known(self, request: Request) -> Environment | None:
        """Return the environment that a worker made, None where none did."""
        return read_json(self._file(request), Environment) if request.problem is None else None

    def remember(self, request: Request, environment: Environment) -> None:
        """Keep what a worker made."""
        write_atomic(self._file(request), environment.model_dump_json())

    def is_installed(self, request: Request) -> bool:
        """Return whether a worker has made it."""
        return self.known(request) is not None

    def typical_install(self) -> float:
        """Return the seconds that an install takes, as far as one can know."""
        return UNMEASURED_INSTALL

    def expected_size(self, _requests: Sequence[Request]) -> int:
        """Return 0: nothing is installed on this machine."""
        return 0

    def unreachable_index(self, request: Request) -> str | None:
        """Return the unreachable index this request needs, if any."""
        return self._cache.unreachable_index(request)

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return what a request comes to that cannot be made anywhere."""
        if request.problem is None:
            raise PreventedError(f"{request.label} is made by workers only")
        return self._cache.acquire(request, cancelled, stage)

    def release(self, request: Request) -> None:
        """Do nothing: the environment is a worker's."""

    def _file(self, request: Request) -> Path:
        return self.home / "cache" / "cluster" / f"{digest(request.key, 20)}.json"
