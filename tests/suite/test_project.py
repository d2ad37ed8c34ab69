"""A project's files, and copies of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from whichtorch.suite.project import Project, clone_history, lay_out, written_files


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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inner_files", "outer_files", "expects_pytest_ini"),
    [
        ({}, {}, False),
        ({}, {"pyproject.toml": "[project]\nname = 'outer'\n"}, True),
        ({}, {"setup.py": ""}, True),
        ({"setup.py": ""}, {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--unknown'\n"}, True),
        ({}, {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--unknown'\n"}, True),
        ({"pyproject.toml": "[tool.pytest-watcher]\n"}, {"setup.cfg": "[tool:pytest]\n"}, True),
        ({"tox.ini": "[pytest]\n"}, {"pytest.ini": ""}, False),
    ],
)
def test_the_copy_is_the_rootdir_of_pytest(
    inner_files: dict[str, str], outer_files: dict[str, str], expects_pytest_ini: bool, tmp_path: Path
) -> None:
    """It is, even if the state folder is inside another project."""
    origin, outer = tmp_path / "origin", tmp_path / "outer"
    test = "def test_it(request): print('root', request.config.rootpath)\n"
    for folder, files in ((origin, inner_files | {"test_it.py": test}), (outer, outer_files)):
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    home, copy = outer / "home", outer / "copy"
    project = Project.around(origin)
    project.keep(home)
    lay_out(home, project.digest, copy)
    command = (sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_it.py")
    ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)
    assert f"root {copy}\n" in ran.stdout
    assert (copy / "pytest.ini").exists() == expects_pytest_ini
    assert written_files(home, project.digest, copy) == []
