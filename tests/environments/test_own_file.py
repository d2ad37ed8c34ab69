"""The matrix file of the user's own repository: where it is found, and what is a mistake in it."""

from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.environments.matrix_file import MatrixFile, read_matrix_file
from whichtorch.environments.own_file import own_file
from whichtorch.matrix.environment_options import matrix_file
from whichtorch.records.store import state_folder

PROJECT = """\
[project]
name = "mine"

[tool.whichtorch]
state = "kept"

[tool.whichtorch.axes]
torch = ["9.1.0"]

[tool.whichtorch.suite]
scripts = ["repros/*.py", "checks/slow.py"]

[tool.whichtorch.run]
timeout = 120

[tool.other]
timeout = "a while"
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's repository, in which the current folder is two folders down."""
    folder = tmp_path / "repository"
    for name in ("repros/b.py", "repros/a.py", "repros/c.txt", "checks/slow.py", "below/further/here"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "checks" / "slow.py").write_text("# /// scenario\n# timeout = 7\n# ///\n")
    monkeypatch.chdir(folder / "below" / "further")
    monkeypatch.delenv("WHICHTORCH_HOME", raising=False)
    return folder


def names(file: MatrixFile) -> list[str]:
    return [scenario.name for scenario in file.scenarios]


@pytest.mark.parametrize("name", ["whichtorch.toml", "pyproject.toml"])
def test_the_nearest_file_counts(repository: Path, name: str) -> None:
    """Either file is found from a folder below it; one that is nearer hides it; a --matrix hides both."""
    text = PROJECT if name == "pyproject.toml" else '[axes]\ntorch = ["9.1.0"]\n'
    (repository / name).write_text(text)
    assert own_file() == Path("../..", name)
    assert matrix_file(None).axes.torch == ("9.1.0",)
    (repository / "below" / "whichtorch.toml").write_text('[axes]\ntorch = ["9.2.0"]\n')
    assert matrix_file(None).axes.torch == ("9.2.0",)
    assert matrix_file(Path("../..", name)).axes.torch == ("9.1.0",)


def test_a_project_without_the_table_is_nothing(repository: Path) -> None:
    """A pyproject.toml of something else, even one that is no TOML, is passed over; a file above it is found."""
    (repository / "whichtorch.toml").write_text("")
    for text in ("[tool.ruff]\n", "[project.scripts]\nwhichtorch = 'a:b'\n", "[tool\n", "\udcff"):
        (repository / "below" / "pyproject.toml").write_text(text, errors="surrogateescape")
        assert own_file() == Path("../../whichtorch.toml")
    (repository / "whichtorch.toml").unlink()
    assert own_file() is None
    assert matrix_file(None).path is None, "the default file"


def test_two_files_in_a_folder_are_a_mistake(repository: Path) -> None:
    """Both are named, one with its line, and what to do about it."""
    (repository / "pyproject.toml").write_text(PROJECT)
    (repository / "whichtorch.toml").write_text("")
    with pytest.raises(UsageError, match=r"pyproject\.toml:4: \[tool\.whichtorch\] and .*/whichtorch\.toml") as caught:
        own_file()
    assert caught.value.hint == "keep one of the two"


def test_a_suite_of_scripts(repository: Path) -> None:
    """Scripts are called by their paths in the file's folder, and run there; the bundled scenarios stay out."""
    (repository / "pyproject.toml").write_text(PROJECT)
    scenarios = matrix_file(None).scenarios
    assert [scenario.name for scenario in scenarios] == ["checks/slow.py", "repros/a.py", "repros/b.py"]
    assert {scenario.folder for scenario in scenarios} == {repository}
    assert [scenario.timeout for scenario in scenarios] == [7, 120, 120], "a header's own timeout counts"
    assert not any(scenario.in_suite for scenario in scenarios)


def test_scenarios_beside_scripts_are_those_that_are_named(repository: Path) -> None:
    """Without scripts all bundled scenarios run, as ever; with scripts those that the file names."""
    file = repository / "whichtorch.toml"
    file.write_text("")
    assert len(names(matrix_file(None))) > 10
    file.write_text('[suite]\nscripts = ["repros/a.py"]\nscenarios = ["control/*"]\n')
    assert {name.partition("/")[0] for name in names(matrix_file(None))} == {"control", "repros"}


def test_a_script_is_found_by_its_name_from_everywhere(repository: Path) -> None:
    """What a report calls it names it in each folder of the repository; a file that is here comes first."""
    (repository / "whichtorch.toml").write_text("[run]\ntimeout = 3\n")
    script = matrix_file(None).script("repros/a.py")
    assert (script.name, script.path, script.timeout) == ("repros/a.py", repository / "repros" / "a.py", 3)
    here = repository / "below" / "further" / "repros" / "a.py"
    here.parent.mkdir()
    here.write_text("")
    assert matrix_file(None).script("repros/a.py").path == here
    with pytest.raises(UsageError, match=r"no such script: repros/z\.py"):
        matrix_file(None).script("repros/z.py")


@pytest.mark.parametrize("glob", ["nowhere/*.py", "repros", "/etc/*.py", ""])
def test_a_glob_without_scripts_is_a_mistake(repository: Path, glob: str) -> None:
    """It is told with its line in pyproject.toml, beside the other mistakes, and with a remedy."""
    text = PROJECT.replace("repros/*.py", glob).replace("timeout = 120", "timeout = 0\nlimit = 3")
    (repository / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        matrix_file(None)
    first, *lines = caught.value.message.splitlines()
    assert first == "3 mistakes in ../../pyproject.toml:"
    assert [line.strip().split(": ")[0] for line in lines] == [f"../../pyproject.toml:{line}" for line in (11, 14, 15)]
    assert repr(glob) in lines[0]
    assert str(repository) in lines[0] or "write it as repros/*.py" in lines[0]
    assert "known here: timeout" in lines[2]


def test_a_matrix_option_may_name_a_project(repository: Path, tmp_path: Path) -> None:
    """The commands of reports name the file; one without the table is a mistake there."""
    (repository / "pyproject.toml").write_text(PROJECT)
    assert names(read_matrix_file(repository / "pyproject.toml"))[1:] == ["repros/a.py", "repros/b.py"]
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    with pytest.raises(UsageError, match=r"has no \[tool\.whichtorch\]"):
        read_matrix_file(tmp_path / "pyproject.toml")


def test_state_lies_where_the_file_says(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path begins in the file's folder; the variable comes before it."""
    (repository / "pyproject.toml").write_text(PROJECT)
    assert state_folder() == repository / "kept"
    monkeypatch.setenv("WHICHTORCH_HOME", str(repository / "other"))
    assert state_folder() == repository / "other"
