"""What is published: the sources, and the wheel that is built from them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_rooms import ROOT


@pytest.mark.shell
def test_one_package_is_installed(tmp_path: Path) -> None:
    """A wheel built from the published sources brings one top-level package, with every file that git has of it."""
    subprocess.run([sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(["git", "ls-files", "whichtorch"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert names == set(tracked.stdout.split())
