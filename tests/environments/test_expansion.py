"""Matrix file -> the environments that it asks for."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.environments.test_matrix_file import write
from tests.wheels import behaviour_patch, build_wheel
from whichtorch.base.errors import UsageError
from whichtorch.environments import interpreters, matrix_file
from whichtorch.environments.expansion import expand, request_for
from whichtorch.model import Request


def folder_of_wheels(tmp_path: Path, *versions: str) -> str:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in versions:
        build_wheel(wheels, version)
    return f'[build.mine]\nfind-links = "{wheels}"\n'


def requests_of(tmp_path: Path, text: str, interpreters_given: Sequence[Path] = ()) -> list[Request]:
    """Return the environments that a matrix file asks for; with interpreters only these."""
    file = matrix_file.read_matrix_file(write(tmp_path, text))
    expansion = expand(
        file, cache=tmp_path / "cache", interpreters_given=interpreters_given, product=not interpreters_given
    )
    return list(expansion.requests)


def test_axes_are_multiplied_oldest_torch_first(tmp_path: Path) -> None:
    """Torch x Python x build x config, each environment once, in the order of torch."""
    text = folder_of_wheels(tmp_path, "9.2.0", "9.1.0") + (
        '[axes]\ntorch = ["9.2.0", ">=9.1"]\nbuild = ["mine"]\nconfig = ["default", "single-thread"]\n'
    )
    assert [request.label for request in requests_of(tmp_path, text)] == [
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
    assert [request.label for request in requests_of(tmp_path, text)] == ["torch-9.2.0-mine", "torch-9.3.0-mine-iomp"]


def test_unknown_version_is_a_usage_error_with_the_nearest(tmp_path: Path) -> None:
    """A version that no index lists is a typing mistake, not an environment."""
    text = folder_of_wheels(tmp_path, "9.1.0") + '[axes]\ntorch = ["9.7.0"]\nbuild = ["mine"]\n'
    with pytest.raises(UsageError, match=r"9\.7\.0") as caught:
        requests_of(tmp_path, text)
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
    good, bad = requests_of(tmp_path, text)
    assert (good.python, good.problem) == ("3.11", None)
    assert bad.python == "3.12"
    assert bad.problem is not None


def test_index_that_does_not_answer_costs_only_its_own_environments(tmp_path: Path) -> None:
    """A dead index is a problem of the environments asked of it; the rest of the matrix is planned."""
    text = folder_of_wheels(tmp_path, "9.1.0") + (
        '[build.dead]\nindex-url = "http://127.0.0.1:9/simple"\n[axes]\ntorch = ["9.1.0"]\nbuild = ["mine", "dead"]\n'
    )
    by_build = {request.build.name: request for request in requests_of(tmp_path, text)}
    assert by_build["mine"].problem is None
    assert "127.0.0.1:9" in (by_build["dead"].problem or "")


def test_interpreters_are_taken_as_they_are(tmp_path: Path) -> None:
    """Existing environments need no index; without --torch they are all that runs."""
    python = tmp_path / "conda" / "bin" / "python"
    (request,) = requests_of(tmp_path, '[axes]\ntorch = ["latest"]\n', interpreters_given=(python,))
    assert request.label == "python-conda"
    assert request.options == ("--matrix", str(tmp_path / "matrix.toml"), "--interpreter", str(python))


def test_interpreters_in_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """By as much of their paths as that takes; configs of one are named as ever."""
    pythons = [tmp_path / name / ".venv" / "bin" / "python" for name in ("first", "second")]
    text = '[axes]\ntorch = ["latest"]\nconfig = ["default", "single-thread"]\n'
    labels = [each.label for each in requests_of(tmp_path, text, interpreters_given=pythons)]
    assert labels == [
        f"python-{name}-.venv{config}" for name in ("first", "second") for config in ("", "-single-thread")
    ]
    (request,) = requests_of(tmp_path, '[axes]\ntorch = ["latest"]\n', interpreters_given=pythons[:1])
    assert request.label == "python-.venv"


def test_python_is_part_of_the_label_where_it_is_an_axis(tmp_path: Path) -> None:
    """With one Python, that of the tool, labels stay short; a named one shows."""
    base = folder_of_wheels(tmp_path, "9.1.0") + '[axes]\ntorch = ["9.1.0"]\nbuild = ["mine"]\n'
    assert [request.label for request in requests_of(tmp_path, base)] == ["torch-9.1.0-mine"]
    python = interpreters.DEFAULT_PYTHON
    named = base + f'python = ["{python}"]\n'
    assert [request.label for request in requests_of(tmp_path, named)] == [f"torch-9.1.0-mine-py{python}"]
    free = base + 'python = ["3.13t"]\n'
    assert [request.label for request in requests_of(tmp_path, free)] == ["torch-9.1.0-mine-py3.13t"]


def test_an_environment_is_asked_for_again_with_the_file_that_says_what_it_is(tmp_path: Path) -> None:
    """A build, config or requirement of the file's own means nothing without the file."""
    text = '[axes]\ntorch = ["9.1.0"]\nbuild = ["mine"]\n' + folder_of_wheels(tmp_path, "9.1.0")
    (request,) = requests_of(tmp_path, text)
    matrix = str(tmp_path / "matrix.toml")
    assert request.options == ("--matrix", matrix, "--torch", "9.1.0", "--build", "mine")
    assert request.install_key == request.model_copy(update={"matrix": None}).install_key


def test_patches_are_multiplied(tmp_path: Path) -> None:
    """Each release is there with each patch; rows of the file name patches, too, and the same request comes back."""
    (tmp_path / "mine.diff").write_text(behaviour_patch("old", "new"))
    text = folder_of_wheels(tmp_path, "9.1.0", "9.2.0") + (
        '[axes]\ntorch = ["9.1.0"]\nbuild = ["mine"]\npatch = ["none", "fix"]\nconfig = ["default", "iomp"]\n'
        '[patch.fix]\nfile = "mine.diff"\n'
        '[[exclude]]\npatch = "none"\nconfig = "iomp"\n'
        '[[include]]\ntorch = "9.2.0"\nbuild = "mine"\npatch = "fix"\n'
    )
    requests = requests_of(tmp_path, text)
    assert [request.label for request in requests] == [
        "torch-9.1.0-mine",
        "torch-9.1.0-mine+fix",
        "torch-9.1.0-mine-iomp+fix",
        "torch-9.2.0-mine+fix",
    ]
    fixed = requests[1]
    assert fixed.options[-2:] == ("--patch", "fix")
    assert fixed.install_key not in {requests[0].install_key, requests[3].install_key}
    assert fixed.install_key == requests[2].install_key
    assert fixed.unpatched == requests[0]
    file = matrix_file.read_matrix_file(tmp_path / "matrix.toml")
    assert request_for(file, tmp_path, fixed.axes | {"patch": "fix"}, None) == fixed


def test_two_patches_of_one_name(tmp_path: Path) -> None:
    """Two patches that labels could not tell apart are a mistake; the same file twice is one patch."""
    for folder, behaviour in (("a", "new"), ("b", "newer")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fix.diff").write_text(behaviour_patch("old", behaviour))
    file = matrix_file.checked({"axes": {"torch": ["9.1.0"]}}, "a test")
    with pytest.raises(UsageError, match="two patches are called 'fix'"):
        expand(file.with_axes(patch=[str(tmp_path / name / "fix.diff") for name in "ab"]), cache=tmp_path)


def test_hardware_is_an_axis(tmp_path: Path) -> None:
    """Each kind is asked for; labels, options and keys tell them apart, but the installation is one."""
    kinds = '[hardware.fast]\ngpu = "*H100*"\n[hardware.slow]\narch = "x86_64"\n'
    axes = '[axes]\ntorch = ["9.1.0"]\nbuild = ["mine"]\nhardware = ["fast", "slow"]\n'
    fast, slow = requests_of(tmp_path, folder_of_wheels(tmp_path, "9.1.0") + kinds + axes)
    assert (fast.label, slow.label) == ("torch-9.1.0-mine@fast", "torch-9.1.0-mine@slow")
    assert fast.install_key == slow.install_key
    assert fast.key != slow.key
    assert fast.options[-2:] == ("--hardware", "fast")
    assert fast.hardware is not None
    assert fast.hardware.gpu == "*H100*"


def test_a_kind_that_the_file_does_not_define_is_a_mistake(tmp_path: Path) -> None:
    """The message names those that it defines."""
    text = '[hardware.fast]\ngpu = "*"\n[axes]\ntorch = ["9.1.0"]\nhardware = ["fats"]\n'
    with pytest.raises(UsageError, match="no hardware is called 'fats'; known are fast"):
        requests_of(tmp_path, text)
