"""A matrix file: every mistake at once, and other values on its axes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels import behaviour_patch
from whichtorch.base.errors import UsageError
from whichtorch.environments import matrix_file

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


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return path


def test_default_file_is_good() -> None:
    """The file that comes with the tool has no mistake."""
    assert matrix_file.read_matrix_file(matrix_file.DEFAULT_FILE).axes.torch == ("2.11.0", "recent:3")


def test_all_mistakes_are_told_at_once_with_place_and_remedy(tmp_path: Path) -> None:
    """Five mistakes make one message of five lines, each with file, line, what is wrong and what to write."""
    path = write(tmp_path, FIVE_MISTAKES)
    with pytest.raises(UsageError) as caught:
        matrix_file.read_matrix_file(path)
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
        matrix_file.read_matrix_file(write(tmp_path, text))
    assert message in caught.value.message


def test_missing_file_says_where_to_start(tmp_path: Path) -> None:
    """A matrix file that is not there is a usage error with a remedy."""
    with pytest.raises(UsageError, match="no such matrix file") as caught:
        matrix_file.read_matrix_file(tmp_path / "nowhere.toml")
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
    file = matrix_file.read_matrix_file(write(tmp_path, BOTH_ROWS))
    assert file.with_axes() == file
    changed = file.with_axes(torch=["latest"], python=(), build=["mine"], keep_rows=True)
    assert changed.axes == matrix_file.Axes.model_construct(
        torch=("latest",), python=(), build=("mine",), config=("default",), patch=("none",)
    )
    assert (changed.exclude, changed.include, changed.build) == (file.exclude, (), file.build)
    assert file.with_axes(torch=["latest"]).exclude == ()


def test_mistakes_in_other_axes_are_those_of_options(tmp_path: Path) -> None:
    """All of them are told at once, each with the axis and the remedy."""
    file = matrix_file.read_matrix_file(write(tmp_path, BOTH_ROWS))
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
        matrix_file.read_matrix_file(write(tmp_path, PATCHES))
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
    (patch,) = matrix_file.read_matrix_file(write(tmp_path, text)).patches.values()
    assert (patch.name, patch.option, patch.text) == ("fast", "fast", behaviour_patch("old", "new"))
