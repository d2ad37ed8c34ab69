"""A user at a shell, and the index of stand-in wheels that their settings name."""

import os
from pathlib import Path

import pytest

from tests.cli.prepared import prepare
from tests.cli.shell import User, new_user, old_and_new
from tests.wheels import Index


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return the folder that the index serves: an old torch, in which a fault is, and a new one."""
    return old_and_new(tmp_path / "wheels")


@pytest.fixture
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the environments that all workers copy."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "prepared"


@pytest.fixture
def newcomer(tmp_path: Path, index: Index) -> User:
    """Return somebody who has no environments, and no settings but the address of the index."""
    return new_user(tmp_path, index)


@pytest.fixture
def user(newcomer: User, wheels: Path, originals: Path) -> User:
    """Return somebody who has the environments of the old and the new torch, where the index has both."""
    if all((wheels / f"torch-{version}-py3-none-any.whl").exists() for version in ("9.1.0", "9.2.0")):
        prepare(newcomer, wheels, originals, "--torch", "9.1.0,9.2.0")
    return newcomer
