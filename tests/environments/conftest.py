"""A folder of stand-in wheels, an index that serves it, and caches that install from there."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.environments.stand_in_uv import StandInUv
from tests.wheels import Index, build_companion
from whichtorch.environments.cache import EnvironmentCache
from whichtorch.environments.commander import Commander, uv_path
from whichtorch.environments.index.sources import Sources
from whichtorch.environments.provider import COMMAND_MARK, Stage, silent
from whichtorch.model import Build, Config, Environment, Request

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class WatchedCache(EnvironmentCache):
    """Environments that note the stages they go through, without their commands, and pass each to `watch`."""

    def __init__(self, home: Path, watch: Stage = silent, **options: Any) -> None:
        super().__init__(home, **options)
        self.stages: list[str] = []
        self.watch = watch

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        def note(name: str) -> None:
            if not name.startswith(COMMAND_MARK):
                self.stages.append(name)
                self.watch(name)
            (stage or silent)(name)

        return super().acquire(request, cancelled, note)


MakeCache = Callable[..., WatchedCache]


def made_by(cache: EnvironmentCache, request: Request) -> Environment:
    """Return what a run that is over has made, and uses no more."""
    environment = cache.acquire(request)
    cache.release(request)
    return environment


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return a folder with the numpy that torch is installed with."""
    folder = tmp_path / "wheels"
    build_companion(folder, "numpy", "1.26.4")
    build_companion(folder, "numpy", "2.2.0")
    build_companion(folder, "setuptools", "75.0.0")
    return folder


@pytest.fixture(scope="session")
def interpreters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what uv keeps of this Python: a copy saves each test that installs 0.05 CPU seconds."""
    folder = tmp_path_factory.mktemp("uv")
    words = [uv_path(), "venv", str(folder / "venv"), "--python", sys.executable, "--no-project", "--quiet"]
    subprocess.run(words, env=os.environ | {"UV_CACHE_DIR": str(folder)}, check=True)
    return next(folder.glob("interpreter-*"))


@pytest.fixture
def stand_in_uv(wheels: Path, interpreters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install without uv's processes from the folder of wheels."""
    uv = StandInUv(wheels, interpreters.parent / "venv")
    monkeypatch.setattr(Commander, "uv", lambda commander, *words, **options: uv(commander, *words, **options))


@pytest.fixture
def make_cache(tmp_path: Path, index: Index, interpreters: Path) -> MakeCache:
    """Return a function that opens the state folder anew, as another run of the tool would."""
    shutil.copytree(interpreters, tmp_path / "home" / "cache" / "uv" / interpreters.name)

    def make(**options: Any) -> WatchedCache:
        settings: dict[str, Any] = {"sources": Sources(index_url=index.url), "unknown_size_mb": 1.0}
        return WatchedCache(**({"home": tmp_path / "home"} | settings | options))

    return make


def ask(torch: str, *, config: Config | None = None, build: Build | None = None, **fields: Any) -> Request:
    """Return a request for a stand-in torch."""
    return Request(
        torch=torch, python=PYTHON, build=build or Build(name="pypi"), config=config or Config(name="default"), **fields
    )
