"""A user's own repository, with its own suite, on stand-in wheels."""

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


@pytest.mark.thorough
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
    again = below.run("matrix")
    assert "matrix file ../../pyproject.toml\n2 environments, 4 cells; all known\n" in again.stdout
    (command,) = (
        line.rpartition("rerun: ")[2] for line in again.stdout.splitlines() if "FAIL!" in line and "rerun: " in line
    )
    assert below.run(*shlex.split(command)[1:]).returncode == 1
    assert repository.runs("repros/old.py") == 3
    searched = below.run("bisect", "repros/old.py")
    assert "fixed in 9.2.0" in searched.stdout, searched.stdout + searched.stderr
    assert below.run("matrix", "repros/re*").returncode == 0


def test_options_come_before_the_file(repository: User) -> None:
    """A script and a version that are named replace the suite and the axis."""
    other = repository.script("other.py", "NOTE\n")
    ended = repository.run("matrix", "--torch", "9.2.0", other, "--json", "result.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads((repository.folder / "result.json").read_text())
    assert [cell["scenario"] for cell in result["cells"]] == ["other.py"]
    assert [environment["build"] for environment in result["environments"]] == ["mine"]


@pytest.mark.thorough
def test_shares_are_merged_into_the_whole(repository: User) -> None:
    """The plan lists what the shares run; each runs its own, and the merged run has all cells, once each."""
    planned = repository.run("plan", "--shares", "2", "--json", "plan.json")
    assert planned.stdout.splitlines() == [
        "matrix file pyproject.toml",
        "    1/2  torch-9.1.0-mine",
        "    2/2  torch-9.2.0-mine",
    ]
    shares = json.loads((repository.folder / "plan.json").read_text())["shares"]
    ends = [repository.run("matrix", "--share", share["share"]) for share in shares]
    assert [end.returncode for end in ends] == [1, 0]
    assert "share 2/2: 1 of 2 environments\n1 environment, 2 cells;" in ends[1].stdout
    runs = sorted((repository.folder / ".whichtorch" / "runs").iterdir())
    assert repository.run("merge", *map(str, runs)).returncode == 0
    repository.run("report", "--json", "merged.json")
    merged = json.loads((repository.folder / "merged.json").read_text())
    assert [environment["label"] for environment in merged["environments"]] == [
        label for share in shares for label in share["environments"]
    ]
    assert len(merged["cells"]) == 4
    assert repository.runs("repros/old.py") == 2


def test_a_share_without_environments_runs_nothing(repository: User) -> None:
    """A job more than there are environments is well, says so, and leaves no run."""
    ended = repository.run("matrix", "--share", "1/3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "share 1/3: 0 of 2 environments" in ended.stdout
    assert "all as expected" not in ended.stdout
    assert not list((repository.folder / ".whichtorch").glob("runs/*/run.json"))
