"""Matrix file -> environments, with every mistake told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.environments import interpreters
from matrix.errors import UsageError
from matrix.model import Request
from matrix.plan import matrix_file
from tests.wheels import build_wheel

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


def folder_of_wheels(tmp_path: Path, *versions: str) -> str:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in versions:
        build_wheel(wheels, version)
    return f'[build.mine]\nfind-links = "{wheels}"\n'


def expand(tmp_path: Path, text: str, **options: object) -> list[Request]:
    file = matrix_file.read_matrix_file(write(tmp_path, text))
    return list(matrix_file.expand(file, cache=tmp_path / "cache", **options).requests)  # type: ignore[arg-type]


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
        ("", "axes: is missing"),
        ("[axes]\ntorch = '2.11.0'\n", "must be a list"),
        ("[axes]\ntorch = []\n", "axes.torch"),
        ("[axes]\ntorch = ['latest']\nconfig = ['singel-thread']\n", "single-thread"),
        ("[axes]\ntorch = ['latest']\n[[exclude]]\ntorch = 'old'\n", "is not a specifier"),
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


def test_axes_are_multiplied_oldest_torch_first(tmp_path: Path) -> None:
    """Torch x Python x build x config, each environment once, in the order of torch."""
    text = folder_of_wheels(tmp_path, "9.2.0", "9.1.0") + (
        '[axes]\ntorch = ["9.2.0", ">=9.1"]\nbuild = ["mine"]\nconfig = ["default", "single-thread"]\n'
    )
    assert [request.label for request in expand(tmp_path, text)] == [
        "torch-9.1.0-mine",
        "torch-9.1.0-mine-single-thread",
        "torch-9.2.0-mine",
        "torch-9.2.0-mine-single-thread",
    ]


def test_exclude_and_include(tmp_path: Path) -> None:
    """Rows of the file take single environments out of the product and add others to it."""
    text = folder_of_wheels(tmp_path, "9.1.0", "9.2.0", "9.3.0") + (
        '[axes]\ntorch = ["9.1.0", "9.2.0"]\nbuild = ["mine"]\n'
        '[[exclude]]\ntorch = "<9.2"\n'
        '[[include]]\ntorch = "9.3.0"\nbuild = "mine"\nconfig = "iomp"\n'
    )
    assert [request.label for request in expand(tmp_path, text)] == ["torch-9.2.0-mine", "torch-9.3.0-mine-iomp"]


def test_unknown_version_is_a_usage_error_with_the_nearest(tmp_path: Path) -> None:
    """A version that no index lists is a typing mistake, not an environment."""
    text = folder_of_wheels(tmp_path, "9.1.0") + '[axes]\ntorch = ["9.7.0"]\nbuild = ["mine"]\n'
    with pytest.raises(UsageError, match=r"9\.7\.0") as caught:
        expand(tmp_path, text)
    assert "9.1.0" in str(caught.value)


def test_version_missing_for_one_python_is_a_problem_of_that_environment(tmp_path: Path) -> None:
    """Where another Python has the wheel the version exists, and the gap is told in its own environment."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    build_wheel(wheels, "9.1.0", tag="cp311-cp311-linux_x86_64")
    text = (
        f'[build.mine]\nfind-links = "{wheels}"\n'
        '[axes]\ntorch = ["9.1.0"]\nbuild = ["mine"]\npython = ["3.11", "3.12"]\n'
    )
    good, bad = expand(tmp_path, text)
    assert (good.python, good.problem) == ("3.11", None)
    assert bad.python == "3.12"
    assert bad.problem is not None


def test_index_that_does_not_answer_costs_only_its_own_environments(tmp_path: Path) -> None:
    """A dead index is a problem of the environments asked of it; the rest of the matrix is planned."""
    text = folder_of_wheels(tmp_path, "9.1.0") + (
        '[build.dead]\nindex-url = "http://127.0.0.1:9/simple"\n[axes]\ntorch = ["9.1.0"]\nbuild = ["mine", "dead"]\n'
    )
    by_build = {request.build.name: request for request in expand(tmp_path, text)}
    assert by_build["mine"].problem is None
    assert "127.0.0.1:9" in (by_build["dead"].problem or "")


def test_interpreters_are_taken_as_they_are(tmp_path: Path) -> None:
    """Existing environments need no index; without --torch they are all that runs."""
    python = tmp_path / "conda" / "bin" / "python"
    (request,) = expand(tmp_path, '[axes]\ntorch = ["latest"]\n', interpreters_given=(python,), product=False)
    assert request.label == "python-conda"
    assert request.options == ("--interpreter", str(python))


def test_python_is_part_of_the_label_where_it_is_an_axis(tmp_path: Path) -> None:
    """With one Python, that of the tool, labels stay short; a named one shows."""
    base = folder_of_wheels(tmp_path, "9.1.0") + '[axes]\ntorch = ["9.1.0"]\nbuild = ["mine"]\n'
    assert [request.label for request in expand(tmp_path, base)] == ["torch-9.1.0-mine"]
    python = interpreters.default_python()
    named = base + f'python = ["{python}"]\n'
    assert [request.label for request in expand(tmp_path, named)] == [f"torch-9.1.0-mine-py{python}"]


def test_an_environment_is_asked_for_again_with_the_file_that_says_what_it_is(tmp_path: Path) -> None:
    """A build, config or requirement of the file's own means nothing without the file."""
    text = '[axes]\ntorch = ["9.1.0"]\nbuild = ["mine"]\n' + folder_of_wheels(tmp_path, "9.1.0")
    (request,) = expand(tmp_path, text, path=Path("matrix.toml"))
    assert request.options == ("--matrix", "matrix.toml", "--torch", "9.1.0", "--build", "mine")
    (bare,) = expand(tmp_path, text)
    assert request.install_key == bare.install_key
