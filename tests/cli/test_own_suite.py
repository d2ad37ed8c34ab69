"""A user's own repository, with its own suite, on stand-in wheels."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.shell import FAILS_IN_OLD, User

PROJECT = """\
[tool.whichtorch.axes]
torch = [">=9.1"]
build = ["mine"]

[tool.whichtorch.build.mine]
find-links = "{wheels}"

[tool.whichtorch.suite]
scripts = ["repros/*.py"]
"""


@pytest.fixture
def repository(user: User, wheels: Path) -> User:
    """Return the user in a repository with two scripts, one of which reads a file by its path there."""
    (user.folder / "pyproject.toml").write_text(PROJECT.format(wheels=wheels))
    (user.folder / "repros").mkdir()
    user.script("repros/old.py", FAILS_IN_OLD)
    user.script("repros/reads.py", "NOTE\nopen('pyproject.toml').close()\n")
    return user


def test_the_suite_runs_from_each_folder(repository: User) -> None:
    """The plan says which file counts; a folder below gives the same names, and the same answers without a run."""
    above = repository.run("matrix")
    assert above.returncode == 1, above.stdout + above.stderr
    assert above.stdout.startswith("matrix file pyproject.toml\n2 environments, 4 cells;")
    assert [line.split() for line in above.stdout.splitlines() if line.startswith("repros/")] == [
        ["repros/old.py", "FAIL!", "pass"],
        ["repros/reads.py", "pass", "pass"],
    ]
    (repository.folder / "deep" / "er").mkdir(parents=True)
    below = replace(repository, folder=repository.folder / "deep" / "er")
    state = {"WHICHTORCH_HOME": str(repository.folder / ".whichtorch")}
    again = below.run("matrix", environ=state)
    assert "matrix file ../../pyproject.toml\n2 environments, 4 cells; all known\n" in again.stdout
    (command,) = (line.rpartition("rerun: ")[2] for line in again.stdout.splitlines() if "rerun: " in line)
    assert below.run(*shlex.split(command)[1:], environ=state).returncode == 1
    assert repository.runs("repros/old.py") == 3
    searched = below.run("bisect", "repros/old.py", environ=state)
    assert "fixed in 9.2.0" in searched.stdout, searched.stdout + searched.stderr
    assert below.run("matrix", "--scenario", "repros/re*", environ=state).returncode == 0


def test_options_come_before_the_file(repository: User) -> None:
    """A script and a version that are named replace the suite and the axis."""
    other = repository.script("other.py", "NOTE\n")
    ended = repository.run("matrix", "--torch", "9.2.0", "--script", other, "--json", "result.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads((repository.folder / "result.json").read_text())
    assert [cell["scenario"] for cell in result["cells"]] == ["other.py"]
    assert [environment["build"] for environment in result["environments"]] == ["mine"]
