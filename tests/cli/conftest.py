"""A user at a shell, and the index of stand-in wheels that their settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import User, new_user, old_and_new
from tests.wheels import Index


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return the folder that the index serves: an old torch, in which a fault is, and a new one."""
    return old_and_new(tmp_path / "wheels")


@pytest.fixture
def user(tmp_path: Path, index: Index) -> User:
    """Return somebody who has no settings but these."""
    return new_user(tmp_path, index)
