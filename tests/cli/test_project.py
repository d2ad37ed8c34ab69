"""What a project needs: its dependencies, the versions that its lock file pins, and variables for what is run."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.shell import User
from tests.cli.test_packages import labels, result_of
from tests.wheels import build_companion, build_companions, build_wheel
from whichtorch.environments.interpreters import DEFAULT_PYTHON

SHOWS = "NOTE\nimport os, torch\nassert torch.behaviour == 'new', os.environ.get('COLOUR', 'no colour')\n"
PROJECT = "[project]\nname = 'tide'\ndependencies = ['torch>=2', 'einops']\n[dependency-groups]\ntest = ['rich']\n"


@pytest.fixture
def wheels(wheels: Path) -> Path:
    return build_companions(wheels, einops=("0.7.0", "0.8.0", "1.0.0"), rich=("2.0",))


def pinned(user: User, **versions: str) -> str:
    """Write a uv.lock that pins versions of packages, and return its name."""
    entries = (
        f"[[package]]\nname = '{name}'\nversion = '{version}'\nsource = {{ registry = 'https://pypi.org/simple' }}\n"
        for name, version in versions.items()
    )
    (user.folder / "uv.lock").write_text("version = 1\n" + "".join(entries))
    return "uv.lock"


def test_a_project_is_asked_for_and_asked_for_again(user: User) -> None:
    """Its dependencies and a group are installed, its torch is told; the command of the report asks for the same."""
    (user.folder / "pyproject.toml").write_text(PROJECT)
    script = user.script("repro.py", SHOWS)
    words = (script, "--torch", "9.1.0", "--group", "test", "--constraint", pinned(user, einops="0.7.0"))
    result = result_of(user, *words, "--project", code=1)
    (environment,) = result["environments"]
    assert labels(result) == ["torch-9.1.0-pypi+einops+rich"]
    assert (environment["packages"]["einops"], environment["packages"]["rich"]) == ("0.7.0", "2.0")
    assert "pyproject.toml: torch>=2 is left out: the matrix decides which torch is installed" in str(result["said"])
    (command,) = (line.rpartition("rerun: ")[2] for line in str(result["said"]).splitlines() if "rerun: " in line)
    assert "--project . --group test --constraint uv.lock" in command
    ended = user.run(*shlex.split(command.removesuffix(" --fresh"))[1:])
    assert "all known" in ended.stdout, ended.stdout


def test_the_python_of_a_project_counts(user: User) -> None:
    """A Python that it does not take is left out."""
    (user.folder / "pyproject.toml").write_text(
        f"{PROJECT}[x]\n".replace("'tide'\n", f"'tide'\nrequires-python = '<{DEFAULT_PYTHON}'\n")
    )
    script = user.script("repro.py", SHOWS)
    ended = user.run("matrix", script, "--torch", "9.2.0", "--python", DEFAULT_PYTHON, "--project")
    assert ended.returncode == 2
    assert f"Python {DEFAULT_PYTHON} is left out: the project requires <{DEFAULT_PYTHON}" in ended.stderr


@pytest.mark.thorough
def test_a_lock_holds_as_far_as_torch_allows(user: User, wheels: Path) -> None:
    """A pin on what torch needs gives way to another torch, and that is told; any other pin holds, or nothing runs."""
    for version in ("1.12", "1.14"):
        build_companion(wheels, "sympy", version)
    build_companion(wheels, "needy", "1.0", requires=("einops>=1",))
    build_wheel(wheels, "9.1.0", behaviour="old", requires=("sympy==1.12",))
    build_wheel(wheels, "9.2.0", behaviour="new", requires=("sympy>=1.12",))
    script = user.script("repro.py", "import torch\n")
    words = ("--torch", "9.1.0,9.2.0", script, "--with", "einops")
    locked = ("--constraint", pinned(user, einops="0.7.0", sympy="1.14", torch="9.2.0"))
    old, new = result_of(user, *words, *locked)["environments"]
    assert [each["packages"]["einops"] for each in (old, new)] == ["0.7.0", "0.7.0"]
    assert [each["packages"]["sympy"] for each in (old, new)] == ["1.12", "1.14"]
    assert old["notes"] == ["against constraints, because of torch 9.1.0: sympy 1.12, not ==1.14"]
    assert new["notes"] == []
    ended = user.run("matrix", *words, *locked, "--with", "needy")
    assert ended.returncode == 2
    assert "needy depend on einops>=1 and you require einops==0.7.0, and you require needy" in ended.stderr
    assert "; einops==0.7.0 is a constraint (likewise in 1 other environment)" in ended.stderr


@pytest.mark.parametrize("words", [("matrix",), ("bisect",), ("explain", "--run")])
def test_what_cannot_be_resolved_anywhere_is_a_mistake(user: User, words: tuple[str, ...]) -> None:
    """One line says what is in each other's way, without what the resolver concludes from it; the exit code is 2."""
    options = ("--torch", "9.1.0,9.2.0", "--with", "einops<0.8", "--with", "einops>0.8")
    ended = user.run(*words, *options, "--", "python", "-c", "import torch")
    assert ended.returncode == 2, ended.stdout + ended.stderr
    reason = "the requirements cannot be resolved: you require einops<0.8 and einops>0.8"
    assert f"error: {reason}" in ended.stderr


def test_what_cannot_be_resolved_in_one_environment_is_unbuildable_there(user: User, wheels: Path) -> None:
    """The other environments go on."""
    build_companion(wheels, "sympy", "1.12")
    build_companion(wheels, "sympy", "1.14")
    build_wheel(wheels, "9.1.0", behaviour="old", requires=("sympy==1.12",))
    words = ("--torch", "9.1.0,9.2.0", user.script("repro.py", "import torch\n"), "--with", "sympy>1.12")
    old, new = result_of(user, *words, code=3)["cells"]
    assert (old["outcome"], new["outcome"]) == ("unbuildable", "pass")
    assert old["reason"].startswith("the requirements cannot be resolved: ")


def test_variables_are_given_to_what_is_run(user: User) -> None:
    """They are part of what is tested, of the environment's identity and of the command that runs it again."""
    script = user.script("repro.py", SHOWS)
    words = ("--torch", "9.1.0", script)
    plain = result_of(user, *words, code=1)
    green = result_of(user, *words, "--env", "COLOUR=light green", code=1)
    assert [each["environments"][0]["label"] for each in (plain, green)] == ["torch-9.1.0-pypi"] * 2
    assert plain["environments"][0]["id"] != green["environments"][0]["id"]
    assert green["environments"][0]["variables"]["COLOUR"] == "light green"
    assert "AssertionError: light green" in str(green["said"])
    assert "rerun: whichtorch matrix repro.py --torch 9.1.0 --build pypi --env 'COLOUR=light green'" in str(
        green["said"]
    )
    assert user.runs(script) == 2
    assert "all known" in str(result_of(user, *words, code=1)["said"])
    assert "all known" in str(result_of(user, *words, "--env", "COLOUR=light green", code=1)["said"])


def test_a_variable_of_the_shell_is_passed_on(user: User) -> None:
    """Also one that would be kept from torch, and into a user's own Python; a secret is in no record."""
    script = user.script("repro.py", "import os\nprint(os.environ['TORCH_LOGS'], os.environ['MY_TOKEN'])\n")
    words = ("--interpreter", sys.executable, script, "--env", "TORCH_LOGS", "--env", "MY_TOKEN")
    environ = {"TORCH_LOGS": "+dynamo", "MY_TOKEN": "quite-a-secret"}
    ended = user.run("matrix", *words, environ=environ)
    assert ended.returncode == 3, ended.stdout  # the Python of the tests has no torch
    refused = user.run("matrix", *words, environ={"MY_TOKEN": "quite-a-secret"})
    assert refused.returncode == 2
    assert "--env TORCH_LOGS: this shell has no such variable" in refused.stderr
    ended = user.run("matrix", *words[2:], "--torch", "9.2.0", environ=environ)
    assert ended.returncode == 0, ended.stdout
    kept = "".join(path.read_text() for path in (user.folder / ".whichtorch" / "runs").rglob("*.*") if path.is_file())
    assert "+dynamo" in kept
    assert "quite-a-secret" not in kept


def test_mistakes_about_variables(user: User) -> None:
    """What is no name is no variable, and whoever means a known environment is told its option."""
    for words, told in (
        (("matrix", "--env", "1A=2"), "--env 1A=2: not NAME=VALUE"),
        (
            ("explain", "control/pass", "--env", "torch-9.1.0-pypi"),
            "hint: a known environment is named with --environment",
        ),
    ):
        ended = user.run(*words)
        assert ended.returncode == 2
        assert told in ended.stderr


@pytest.mark.thorough
def test_a_search_has_all_of_it(user: User, wheels: Path) -> None:
    """The packages and the variables are in each release, and in the command that tries the patch of a fix."""
    (user.folder / "pyproject.toml").write_text(PROJECT)
    source = "import einops, os, torch\nassert os.environ['COLOUR'] == 'green'\nassert einops.__version__ == '0.7.0'\n"
    script = user.script("repro.py", source + SHOWS)
    words = [script, "--project", ".", "--constraint", pinned(user, einops="0.7.0"), "--env", "COLOUR=green"]
    ended = user.run("bisect", *words, "--json", "answer.json")
    assert "fixed in 9.2.0" in ended.stdout, ended.stdout
    assert json.loads((user.folder / "answer.json").read_text())["common"]["env"] == "COLOUR=green"
    ended = user.run("fix", "--bad", "9.1.0", "--good", "9.2.0", *words)
    assert ended.returncode == 0, ended.stdout
    (line,) = (line for line in ended.stdout.splitlines() if "to try it: " in line)
    assert "--project . --constraint uv.lock --env COLOUR=green" in line
    tried = user.run(*shlex.split(line.partition("to try it: ")[2])[1:])
    assert tried.returncode == 0, tried.stdout


BACKEND = """
import base64, hashlib, pathlib, zipfile
here = pathlib.Path(__file__).parent

def build_wheel(folder, config_settings=None, metadata_directory=None):
    (here / "built.txt").write_text("a build may write where it is")
    info = "tide-1.0.dist-info"
    files = {"tide.py": (here / "tide.py").read_text()}
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\\nName: tide\\nVersion: 1.0\\nRequires-Dist: absent-package\\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    hashes = {name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for name, text in files.items()}
    files[f"{info}/RECORD"] = "".join(f"{name},sha256={h.decode().rstrip('=')},9\\n" for name, h in hashes.items())
    with zipfile.ZipFile(pathlib.Path(folder, "tide-1.0-py3-none-any.whl"), "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "tide-1.0-py3-none-any.whl"
"""


@pytest.mark.thorough
def test_a_project_is_installed_from_a_copy(user: User) -> None:
    """Without what it depends on; its folder stays as it was, and a change of it is another environment."""
    folder = user.folder / "tide"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        "[project]\nname = 'tide'\nversion = '1.0'\ndependencies = ['absent-package']\n"
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    (folder / "backend.py").write_text(BACKEND)
    (folder / "tide.py").write_text("LEVEL = 1\n")
    before = sorted(folder.iterdir())
    script = user.script("repro.py", "NOTE\nimport tide, torch\nassert torch.behaviour == 'new', tide.LEVEL\n")
    words = ("--torch", "9.1.0,9.2.0", script, "--install", "tide")
    first = result_of(user, *words, code=1)
    assert [cell["outcome"] for cell in first["cells"]] == ["fail", "pass"]
    assert all(each["packages"]["tide"] == "1.0" for each in first["environments"])
    assert "--install tide" in str(first["said"])
    assert sorted(folder.iterdir()) == before
    assert "all known" in str(result_of(user, *words, code=1)["said"])
    (folder / "tide.py").write_text("LEVEL = 2\n")
    again = result_of(user, *words, code=1)
    assert "AssertionError: 2" in str(again["said"])
    assert {each["id"] for each in first["environments"]}.isdisjoint(each["id"] for each in again["environments"])
    for options, told in (
        (["--install", "nowhere"], "--install: there is no "),
        (["--install", script], f"--install: {script} is no folder; --with takes a wheel"),
        (["--install", "tide", "--interpreter", sys.executable], "--install: for what whichtorch installs"),
    ):
        refused = user.run("matrix", script, *options)
        assert refused.returncode == 2
        assert told in refused.stderr


@pytest.mark.thorough
def test_a_case_has_the_variables(user: User) -> None:
    """With other variables it is another case, and `replay` sets those of the case."""
    script = user.script("repro.py", "import os, torch\nassert os.environ.get('COLOUR', 'grey') == 'grey'\n")
    words = ("triage", script, "--torch", "9.2.0", "--only", "reproduce")
    assert user.run(*words).returncode == 4  # it passes
    ended = user.run(*words, "--env", "COLOUR=green", "--env", "MY_TOKEN=quite-a-secret")
    case = json.loads((user.folder / "output" / "cases" / "repro" / "case.json").read_text())
    assert case["reproduction"]["outcome"] == "fail", ended.stdout
    assert case["variables"] == {"COLOUR": "green"}
    replayed = user.run("replay", str(user.folder / "output" / "cases" / "repro" / "case.zip"), "--whole")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
