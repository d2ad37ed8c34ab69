"""A project's files, and copies of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from whichtorch.matrix.suite.project import Project, clone_history, lay_out


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    return subprocess.run(("git", *identity, *words), cwd=folder, check=True, capture_output=True, text=True).stdout


def test_a_copy_may_have_the_history(tmp_path: Path) -> None:
    """The copy has the version of the original, into whose folder nothing is written."""
    origin, copy, home = tmp_path / "origin", tmp_path / "copy", tmp_path / "home"
    origin.mkdir()
    git(origin, "init", "-q")
    (origin / "a.py").write_text("1")
    git(origin, "add", "a.py")
    git(origin, "commit", "-qm", "one")
    git(origin, "tag", "v1.2.0")
    (origin / "a.py").write_text("22")
    (origin / "b.py").write_text("new")
    before = {path: path.stat().st_mtime_ns for path in origin.rglob("*") if path.is_file()}
    project = Project.around(origin)
    project.keep(home)
    clone_history(str(origin), copy)
    lay_out(home, project.digest, copy)
    assert git(copy, "describe", "--tags", "--dirty").strip() == "v1.2.0-dirty"
    assert sorted(path.name for path in copy.iterdir()) == [".git", "a.py", "b.py"]
    assert {path: path.stat().st_mtime_ns for path in origin.rglob("*") if path.is_file()} == before
