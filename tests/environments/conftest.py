"""A folder of stand-in wheels, an index that serves it, and caches that install from there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from matrix.environments.cache import EnvironmentCache
from matrix.environments.index.sources import Sources
from matrix.model import Build, Config, Request
from tests.wheels import Index, build_companion

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MakeCache = Callable[..., EnvironmentCache]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return a folder with the numpy that torch is installed with."""
    folder = tmp_path / "wheels"
    build_companion(folder, "numpy", "1.26.4")
    build_companion(folder, "numpy", "2.2.0")
    build_companion(folder, "setuptools", "75.0.0")
    return folder


@pytest.fixture
def make_cache(tmp_path: Path, index: Index) -> MakeCache:
    """Return a function that opens the state folder anew, as another run of the tool would."""

    def make(**options: object) -> EnvironmentCache:
        stages: list[tuple[str, str]] = []
        settings: dict[str, object] = {
            "sources": Sources(index_url=index.url),
            "unknown_size_mb": 1.0,
            "progress": lambda label, stage: stages.append((label, stage)),
        }
        cache = EnvironmentCache(tmp_path / "home", **(settings | options))  # type: ignore[arg-type]
        cache.stages = stages  # type: ignore[attr-defined]
        return cache

    return make


def ask(torch: str, *, config: Config | None = None, build: Build | None = None, **fields: object) -> Request:
    """Return a request for a stand-in torch."""
    return Request(
        torch=torch,
        python=PYTHON,
        build=build or Build(name="pypi"),
        config=config or Config(name="default"),
        **fields,  # type: ignore[arg-type]
    )


def stages_of(cache: EnvironmentCache) -> list[str]:
    """Return the stages a cache of `make_cache` has told."""
    return [stage for _, stage in cache.stages]  # type: ignore[attr-defined]
