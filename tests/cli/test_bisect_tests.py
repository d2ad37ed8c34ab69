"""`whichtorch bisect -- pytest`: all tests that changed, in one search."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import User
from tests.patience import PATIENCE
from tests.test_schema import validator
from tests.wheels import build_companion, build_pytest, build_wheel

pytestmark = pytest.mark.thorough

SIZE = 6
SESSIONS = 5  # times the patience that a command with one run of pytest needs
OPTIONS = ("--build", "pypi", "--json", "answer.json", "--markdown", "answer.md")
PYTEST = ("--with", "pytest", "--", "pytest", "-q", "tests")
HERE = "import pytest, torch\nminor = int(torch.__version__.split('.')[1])\n"
TESTS = """
@pytest.mark.parametrize("size", [1, 2, 3])
def test_broken(size):
    if minor >= 4:
        raise ValueError("no such size")

def test_fixed():
    assert minor >= 2, "as it was"

def test_passes(): pass

def test_fails(): assert False

if minor >= 1:
    def test_new():
        assert minor < 4, "not any more"
"""
LATER = "if minor < 3: import nowhere\ndef test_in_file(): pass\n"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return the folder that the index serves: six releases, and the pytest of these tests."""
    folder = tmp_path / "wheels"
    build_companion(folder, "numpy", "2.2.0")
    build_pytest(folder)
    for minor in range(SIZE):
        build_wheel(folder, f"9.{minor}.0")
    return folder


def project(user: User, **files: str) -> None:
    """Write the modules of a project's tests."""
    (user.folder / "tests").mkdir()
    for name, source in files.items():
        (user.folder / "tests" / f"{name}.py").write_text(HERE + source)


def bisect(user: User, *words: str, code: int = 0) -> dict[str, Any]:
    """Search; return the JSON, with what was said."""
    words = ("bisect", *OPTIONS, *words)
    ended = subprocess.run(
        user.command(*words),
        cwd=user.folder,
        env=user.environ,
        capture_output=True,
        text=True,
        timeout=SESSIONS * PATIENCE,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    answer: dict[str, Any] = json.loads((user.folder / "answer.json").read_text())
    validator("bisect").validate(answer)
    return answer | {"said": ended.stdout}


def changes(answer: dict[str, Any]) -> dict[str, list[list[str]]]:
    return {id_: test["boundaries"] for id_, test in answer["tests"].items() if test["answer"] == "boundary"}


def test_every_test_that_changed_has_its_release(user: User, wheels: Path) -> None:
    """Each is told with its change, those alike together; the same command again runs nothing."""
    project(user, test_it=TESTS, test_later=LATER)
    answer = bisect(user, *PYTEST)
    broken = [f"tests/test_it.py::test_broken[{size}]" for size in (1, 2, 3)]
    assert changes(answer) == {id_: [["9.3.0", "9.4.0"]] for id_ in [*broken, "tests/test_it.py::test_new"]} | {
        "tests/test_it.py::test_fixed": [["9.1.0", "9.2.0"]],
        "tests/test_later.py::test_in_file": [["9.2.0", "9.3.0"]],
    }
    assert answer["others"] == {"fail": ["tests/test_it.py::test_fails"], "pass": ["tests/test_it.py::test_passes"]}
    assert "\n9.3.0 -> 9.4.0: broken, 3 tests, ValueError: no such size; confidence 0.99" in answer["said"]
    assert "\n9.2.0 -> 9.3.0: fixed, 1 test, ModuleNotFoundError: No module named 'nowhere'" in answer["said"]
    groups = [(boundary["from"], len(boundary["tests"])) for boundary in answer["boundaries"]]
    assert groups == [("9.1.0", 1), ("9.2.0", 1), ("9.3.0", 3), ("9.3.0", 1)]
    assert answer["tests"][broken[0]]["outcomes"]["9.4.0"] == "fail"
    assert "### 9.3.0 to 9.4.0: ValueError: no such size" in (user.folder / "answer.md").read_text()
    before = len(user.records())
    again = bisect(user, *PYTEST)
    assert (again["installs"], again["runs"], len(user.records())) == (0, 0, before)
    assert changes(again) == changes(answer)
    assert user.run("report", answer["run"]).returncode == 0
    assert "9.3.0 -&gt; 9.4.0: broken, 3 tests" in (user.folder / "output" / "index.html").read_text()


def test_a_limit_tells_what_is_known_and_more_goes_on(user: User, wheels: Path) -> None:
    """With too few installs, each test has the releases that it changes between; without the limit it goes on."""
    project(user, test_it=TESTS)
    begun = bisect(user, "--max-installs", "1", *PYTEST, code=4)  # nothing is known of the newest release
    assert {test["answer"] for test in begun["tests"].values()} == {"inconclusive"}
    assert "pass -> not run: 4 tests" in begun["said"]
    limited = bisect(user, "--max-installs", "2", *PYTEST, code=4)
    assert limited["reasons"][0] == "the limit of 2 installs is reached"
    assert limited["tests"]["tests/test_it.py::test_broken[1]"]["answer"] == "inconclusive"
    runs = len(user.records())
    answer = bisect(user, "--jobs", "2", *PYTEST)
    assert answer["installs"] <= SIZE - 3
    assert changes(answer)["tests/test_it.py::test_fixed"] == [["9.1.0", "9.2.0"]]
    assert len(user.records()) > runs


def test_a_conftest_that_cannot_be_imported_speaks_for_all_tests(user: User, wheels: Path) -> None:
    """Where the command fails before it has found its tests, each of them fails."""
    project(user, conftest="if minor < 2: import nowhere\n", test_it="def test_a(): pass\ndef test_b(): pass\n")
    answer = bisect(user, *PYTEST)
    ids = ["tests/test_it.py::test_a", "tests/test_it.py::test_b"]
    assert changes(answer) == {id_: [["9.1.0", "9.2.0"]] for id_ in ids}


def test_two_failures_of_one_test_are_told(user: User, wheels: Path) -> None:
    """Where it fails at both ends in two ways, there is no good side; the answer says so, with both."""
    source = "    raise ValueError('one') if minor < 2 else KeyError('two')\n"
    project(user, test_it=f"def test_a():\n{source}\ndef test_b(): assert minor < 4\n")
    answer = bisect(user, *PYTEST)
    assert answer["tests"]["tests/test_it.py::test_a"]["reasons"][0] == (
        "it fails in 9.0.0 with ValueError: one, and in 9.5.0 with KeyError: 'two': two failures; "
        "--failure WORDS searches for one of them"
    )


def test_releases_without_the_command_cannot_be_tested(user: User, wheels: Path) -> None:
    """The search goes on between the others, and says which these are and why."""
    for minor in range(2, SIZE):
        build_wheel(wheels, f"9.{minor}.0", requires=("pytest",))
    project(user, test_it="def test_a(): assert minor < 4\n")
    answer = bisect(user, *PYTEST[2:])
    assert changes(answer) == {"tests/test_it.py::test_a": [["9.3.0", "9.4.0"]]}
    (note,) = (
        note for note in answer["reasons"] if note.startswith("no test could be run in 9.0.0: pytest: there is no")
    )
    assert note.endswith("; 9.3.0 is the bound instead")
    plain = bisect(user, "--", "pytest", "--version")
    assert plain["answer"] == "none"


def test_a_command_without_tests_is_one_test(newcomer: User, wheels: Path) -> None:
    """Its exit code decides, as that of a script does."""
    words = ("--", "python", "-c", "import torch; assert torch.__version__ < '9.3'")
    answer = bisect(newcomer, *words)
    assert [(found["from"], found["to"], found["tests"]) for found in answer["boundaries"]] == [("9.2.0", "9.3.0", [])]
    assert answer["tests"] == {}
    assert len(answer["probes"]) == answer["installs"]


def test_tests_are_told_apart_along_releases_only(user: User, wheels: Path) -> None:
    """An axis that cannot tell the tests of a command apart does not take its exit code for an answer."""
    project(user, test_it="def test_a(): pass\n")
    answer = bisect(user, "--axis", "config", "--torch", "9.1.0", "--config", "default,single-thread", *PYTEST, code=4)
    assert "the command has 1 test of pytest, which are told apart only along releases and days" in answer["said"]
