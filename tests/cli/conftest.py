"""A user at a shell, and the index of stand-in wheels that their settings name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.shell import User
from tests.wheels import Index, build_companion, build_wheel

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return the folder that the index serves: an old torch, in which a fault is, and a new one."""
    folder = tmp_path / "wheels"
    build_companion(folder, "numpy", "2.2.0")
    build_wheel(folder, "9.1.0", behaviour="old")
    build_wheel(folder, "9.2.0", behaviour="new")
    return folder


@pytest.fixture
def user(tmp_path: Path, index: Index) -> User:
    """Return somebody who has no settings but these."""
    folder = tmp_path / "user"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "WHICHTORCH_"))}
    settings = {
        "HOME": str(tmp_path / "empty"),
        "PYTHONPATH": str(ROOT),
        "UV_DEFAULT_INDEX": index.url,
        "WHICHTORCH_PYTORCH_INDEX": "http://127.0.0.1:9/whl",
        "COLUMNS": "160",
    }
    return User(folder, kept | settings)
