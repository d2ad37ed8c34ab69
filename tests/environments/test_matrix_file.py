"""A matrix file: every mistake at once, and other values on its axes; that of the user's own repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels import behaviour_patch
from whichtorch.base.errors import UsageError
from whichtorch.environments.matrix_file import DEFAULT_FILE, Axes, MatrixFile, own_file, read_matrix_file
from whichtorch.matrix.options import matrix_file
from whichtorch.records.store import state_folder

FIVE_MISTAKES = """\
[axes]
torch = ["2.11.0", "two"]
python = ["eleven"]
build = ["pipy"]

[suite]
scenarioes = ["*"]

[build.mine]
index-ur = "https://example.org/simple"
"""

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


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return path


def test_default_file_is_good() -> None:
    """The file that comes with the tool has no mistake."""
    assert read_matrix_file(DEFAULT_FILE).axes.torch == ("2.11.0", "recent:3")


def test_all_mistakes_are_told_at_once_with_place_and_remedy(tmp_path: Path) -> None:
    """Five mistakes make one message of five lines, each with file, line, what is wrong and what to write."""
    path = write(tmp_path, FIVE_MISTAKES)
    with pytest.raises(UsageError) as caught:
        read_matrix_file(path)
    first, *lines = caught.value.message.splitlines()
    assert first == f"5 mistakes in {path}:"
    assert [line.split(": ")[0].strip().rpartition(":")[2] for line in lines] == ["2", "3", "4", "7", "10"]
    text = "\n".join(lines)
    for remedy in ("'two' names no torch version", "3.11", "pypi", "'scenarios'", "'index-url'"):
        assert remedy in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[axes\n", "not a TOML file"),
        ("a = " + "[" * 100_000, "not a TOML file: It is nested too deep"),
        ("a = " + "9" * 10_000, "not a TOML file: Exceeds the limit"),
        ("[axes]\ntorch = 3\n", "axes.torch: "),
        ("[axes]\ntorch = '2.11.0'\n", "must be a list"),
        ("[axes]\ntorch = []\n", "axes.torch"),
        ("[axes]\ntorch = ['latest']\nconfig = ['singel-thread']\n", "single-thread"),
        ("[axes]\ntorch = ['latest']\n[[exclude]]\ntorch = 'old'\n", "is not a specifier"),
        (
            "[axes]\ntorch = ['latest']\n[build.mine]\nname = 'x'\n",
            "4: build.mine.name: unknown key; known here: index",
        ),
        ("[axes]\ntorch = ['latest']\n[build.mine]\nindex_url = 'x'\n", "unknown key; did you mean 'index-url'?"),
        ("[axes]\ntorch = ['latest']\n[hardware.h]\ndriver = 'new'\n", ":4: hardware.h.driver: 'new' is not"),
        ("[axes]\ntorch = ['latest']\n[config]\nmine = 'x'\n", "4: config.mine: "),
    ],
)
def test_each_mistake_has_its_message(tmp_path: Path, text: str, message: str) -> None:
    """What is wrong is said in the words of the file, not of the library that reads it."""
    with pytest.raises(UsageError, match=r"matrix\.toml") as caught:
        read_matrix_file(write(tmp_path, text))
    assert message in caught.value.message


def test_missing_file_says_where_to_start(tmp_path: Path) -> None:
    """A matrix file that is not there is a usage error with a remedy."""
    with pytest.raises(UsageError, match="no such matrix file") as caught:
        read_matrix_file(tmp_path / "nowhere.toml")
    assert "default.toml" in caught.value.hint


BOTH_ROWS = """\
[axes]
torch = ["2.11.0"]
python = ["3.12"]

[[exclude]]
torch = "<2.3"

[[include]]
torch = "2.5.1"

[build.mine]
find-links = "wheels"
"""


def test_other_axes_leave_the_rest_of_the_file(tmp_path: Path) -> None:
    """Axes that are given replace the file's, an empty one too; rows beside their product go, builds stay."""
    file = read_matrix_file(write(tmp_path, BOTH_ROWS))
    assert file.with_axes() == file
    changed = file.with_axes(torch=["latest"], python=(), build=["mine"], keep_rows=True)
    assert changed.axes == Axes.model_construct(
        torch=("latest",), python=(), build=("mine",), config=("default",), patch=("none",)
    )
    assert (changed.exclude, changed.include, changed.build) == (file.exclude, (), file.build)
    assert file.with_axes(torch=["latest"]).exclude == ()


def test_mistakes_in_other_axes_are_those_of_options(tmp_path: Path) -> None:
    """All of them are told at once, each with the axis and the remedy."""
    file = read_matrix_file(write(tmp_path, BOTH_ROWS))
    with pytest.raises(UsageError) as caught:
        file.with_axes(torch=["two"], python=["eleven"], build=["mine", "pipy"], config=["singel-thread"])
    first, *lines = caught.value.message.splitlines()
    assert first == "4 mistakes in the options:"
    assert [line.split(":")[0].strip() for line in lines] == ["--build", "--config", "--python", "--torch"]
    with pytest.raises(UsageError, match=r"^--torch: 'two' names no torch version; write it as 2\.11\.0"):
        file.with_axes(torch=["two"])


PATCHES = """\
[axes]
torch = ["2.11.0"]
patch = ["none", "mine", "mien", "lost"]

[patch.mine]
file = "mine.diff"

[patch.lost]
file = "lost.diff"

[patch.cpp]
file = "cpp.diff"
name = "other"
"""


def test_mistakes_of_patches_are_among_the_others(tmp_path: Path) -> None:
    """A name without a table, a file that is not there, one in C++ and an unknown key are told with their lines."""
    (tmp_path / "mine.diff").write_text(behaviour_patch("old", "new"))
    (tmp_path / "cpp.diff").write_text(behaviour_patch("old", "new").replace("torch/__init__.py", "c10/Device.cpp"))
    with pytest.raises(UsageError) as caught:
        read_matrix_file(write(tmp_path, PATCHES))
    first, *lines = (line.strip().removeprefix(str(tmp_path)) for line in caught.value.message.splitlines())
    assert first.startswith("4 mistakes")
    assert [line.split(": ")[:2] for line in lines] == [
        ["/matrix.toml:3", "axes.patch"],
        ["/matrix.toml:9", "patch.lost.file"],
        ["/matrix.toml:12", "patch.cpp.file"],
        ["/matrix.toml:13", "patch.cpp.name"],
    ]
    for part, line in zip(("mien", "lost.diff", "c10/Device.cpp", "known here: file"), lines, strict=True):
        assert part in line


def test_a_patch_lies_beside_its_matrix_file(tmp_path: Path) -> None:
    """The path of a patch begins where the matrix file is, and it is called as the table is."""
    (tmp_path / "mine.diff").write_text(behaviour_patch("old", "new"))
    text = '[axes]\ntorch = ["2.11.0"]\npatch = ["fast"]\n[patch.fast]\nfile = "mine.diff"\n'
    (patch,) = read_matrix_file(write(tmp_path, text)).patches.values()
    assert (patch.name, patch.option, patch.text) == ("fast", "fast", behaviour_patch("old", "new"))


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
