"""Versions that replace what packages ask for: `--override`, in every command that installs, and in a matrix file."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.cluster import two_workers
from tests.cli.shell import User
from tests.cli.test_packages import labels, result_of
from tests.wheels import build_companion, build_companions, build_wheel

SHOWS = "NOTE\nimport sympy, torch\nassert sympy.__version__ == '1.14', sympy.__version__\n"


@pytest.fixture
def wheels(wheels: Path) -> Path:
    """Return an index whose old torch asks for one version of sympy, and whose new one for any but the oldest."""
    build_companions(wheels, sympy=("1.12", "1.13.1", "1.14"), numpy=("1.26.4",))
    build_wheel(wheels, "9.1.0", behaviour="old", requires=("sympy==1.13.1",))
    build_wheel(wheels, "9.2.0", behaviour="new", requires=("sympy>=1.13",))
    return wheels


@pytest.mark.thorough
def test_a_version_that_torch_does_not_allow(user: User) -> None:
    """It is installed and told, part of the identity, and of the command that runs a cell again."""
    words = ("--torch", "9.1.0", user.script("repro.py", SHOWS))
    plain = result_of(user, *words, code=1)
    changed = result_of(user, *words, "--override", "SymPy == 1.12", code=1)
    assert (labels(plain), labels(changed)) == (["torch-9.1.0-pypi"], ["torch-9.1.0-pypi+override-sympy==1.12"])
    (before,), (after,) = plain["environments"], changed["environments"]
    assert before["id"] != after["id"]
    assert (after["packages"]["sympy"], after["overrides"]) == ("1.12", ["sympy==1.12"])
    assert after["notes"] == ["sympy 1.12, by --override: torch 9.1.0 asks for sympy==1.13.1"]
    said = str(changed["said"])
    assert "with override-sympy==1.12" in said.partition("scenario")[0]
    (command,) = (line.rpartition("rerun: ")[2] for line in said.splitlines() if "rerun: " in line)
    assert "--override sympy==1.12" in command
    assert "AssertionError: 1.12" in user.run(*shlex.split(command)[1:]).stdout
    assert "all known" in user.run("matrix", *words, "--override", "sympy==1.12").stdout


@pytest.mark.thorough
def test_alternatives_and_what_applies_together(user: User) -> None:
    """Several versions of one package are environments; different packages apply together; a range stays whole."""
    script = user.script("repro.py", SHOWS)
    given = (
        "--override",
        "sympy==1.12,sympy>=1.13.1,<1.14",
        "--override",
        "sympy==1.14",
        "--override",
        "numpy==1.26.4",
    )
    result = result_of(user, "--torch", "9.1.0", script, *given, code=1)
    found = [(each["packages"]["sympy"], each["packages"]["numpy"]) for each in result["environments"]]
    assert found == [("1.12", "1.26.4"), ("1.13.1", "1.26.4"), ("1.14", "1.26.4")]
    assert [cell["outcome"] for cell in result["cells"]] == ["fail", "fail", "pass"]
    assert labels(result)[0] == "torch-9.1.0-pypi+override-numpy==1.26.4+sympy==1.12"
    ended = user.run("plan", "--torch", "9.1.0", *given)
    assert all(label in ended.stdout for label in labels(result)), ended.stdout + ended.stderr
    for command in ("bisect", "fix"):
        refused = user.run(command, script, *given)
        assert refused.returncode == 2
        assert "--override gives 3 combinations, and a search takes one" in refused.stderr


@pytest.mark.thorough
def test_a_matrix_file_overrides(user: User) -> None:
    """An option for the same package replaces it; all mistakes of a file are told with their place."""
    (user.folder / "whichtorch.toml").write_text(
        'overrides = ["sympy==1.12", "numpy==1.26.4"]\n[axes]\ntorch = ["9.2.0"]\n'
    )
    script = user.script("repro.py", SHOWS)
    for words, version in (((), "1.12"), (("--override", "sympy==1.13.1"), "1.13.1")):
        (environment,) = result_of(user, script, *words, code=1)["environments"]
        assert (environment["packages"]["sympy"], environment["packages"]["numpy"]) == (version, "1.26.4")
        (again,) = result_of(user, script, *environment["options"], code=1)["environments"]
        assert again["id"] == environment["id"]
    (user.folder / "whichtorch.toml").write_text('overrides = ["foo=", "torch==9.1.0"]\n')
    refused = user.run("matrix", script)
    assert refused.returncode == 2
    assert "whichtorch.toml:1: overrides: foo=: 'foo=' is not a requirement" in refused.stderr
    assert "whichtorch.toml:1: overrides: torch==9.1.0: torch is chosen by --torch and --build" in refused.stderr


def test_all_mistakes_are_told_at_once(newcomer: User) -> None:
    """What names no version of a package is refused, before anything is installed."""
    script = newcomer.script("repro.py", SHOWS)
    mistakes = {
        "foo=": "'foo=' is not a requirement",
        "Torch==9.1.0": "torch is chosen by --torch and --build",
        "a @ file:///gone/a-1-py3-none-any.whl": "there is no /gone/a-1-py3-none-any.whl",
        "./gone.whl": "there is no gone.whl",
        "sympy": "it names no version; write sympy==VERSION",
        "sympy==1.12; python_version < '3'": "an override has no marker",
    }
    ended = newcomer.run("matrix", script, *(word for text in mistakes for word in ("--override", text)))
    assert ended.returncode == 2
    assert all(f"--override {text}: {told}" in ended.stderr for text, told in mistakes.items()), ended.stderr
    ended = newcomer.run("matrix", script, "--override", "sympy==1.12", "--interpreter", sys.executable)
    assert ended.returncode == 2
    assert "--override: for what whichtorch installs, not for --interpreter" in ended.stderr
    assert not (newcomer.folder / ".whichtorch" / "envs").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--override", "sympy==1.99"), "there is no version of sympy==1.99 and torch>=9.2.0 depends on sympy==1.99"),
        (("--override", "sympy==1.99"), "; sympy==1.99 is an override"),
        (("--override", "einops==1"), "nothing here needs einops: add it with --with einops; einops==1 is an override"),
        (("--with", "broken", "--override", "./broken"), "Failed to build `broken @ "),
        (("--with", "sympy==1.12"), "torch>=9.2.0 depends on sympy>=1.13 and you require torch==9.2.0"),
        (("--with", "sympy==1.12"), "; to install it anyway, add --override sympy==1.12"),
    ],
)
def test_what_cannot_be_had_is_a_mistake(user: User, wheels: Path, words: tuple[str, ...], told: str) -> None:
    """One line names the override and what is wrong; nothing else is tested in its place."""
    if "broken" in words:
        folder = user.folder / "broken"
        folder.mkdir()
        (folder / "pyproject.toml").write_text(
            "[project]\nname = 'broken'\nversion = '2'\n[build-system]\nrequires = []\n"
            "build-backend = 'nothing'\nbackend-path = ['.']\n"
        )
        build_companion(wheels, "broken", "1")
    script = user.script("repro.py", SHOWS)
    ended = user.run("matrix", "--torch", "9.2.0", script, *words)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("error: "))
    assert line.startswith("error: the requirements cannot be resolved: ")
    assert told in line
    assert user.runs("repro.py") == 0


def test_a_constraint_gives_way(user: User) -> None:
    """A lock file need not be edited to try one other version; the note says so."""
    (user.folder / "limits.txt").write_text("sympy==1.14\nnumpy==1.26.4\n")
    words = ("--torch", "9.1.0,9.2.0", user.script("repro.py", SHOWS), "--constraint", "limits.txt")
    old, new = result_of(user, *words, "--override", "sympy==1.12", code=1)["environments"]
    assert [each["packages"]["sympy"] for each in (old, new)] == ["1.12", "1.12"]
    assert old["packages"]["numpy"] == "1.26.4"
    torch, limit = "torch 9.1.0 asks for sympy==1.13.1", "a constraint asks for sympy==1.14"
    assert old["notes"] == [f"sympy 1.12, by --override: {torch}; {limit}"]


@pytest.mark.thorough
def test_a_search_has_it(user: User) -> None:
    """It holds in each release, and the answer names it."""
    source = "import sympy\nassert sympy.__version__ == '1.12'\n" + SHOWS.partition("\n")[0]
    script = user.script("repro.py", f"{source}\nimport torch\nassert torch.behaviour == 'new', 'old'\n")
    ended = user.run("bisect", script, "--override", "sympy==1.12", "--json", "answer.json")
    assert "fixed in 9.2.0" in ended.stdout, ended.stdout + ended.stderr
    assert json.loads((user.folder / "answer.json").read_text())["common"]["override"] == "sympy==1.12"


@pytest.mark.thorough
def test_an_explanation_tells_alternatives_apart(user: User) -> None:
    """Environments that differ in an override are run, and what it changed is the answer."""
    script = user.script("repro.py", SHOWS)
    words = ("--torch", "9.2.0", "--override", "sympy==1.13.1,sympy==1.14")
    ended = user.run("explain", script, "--run", *words)
    assert "fails in 1 of 1 environment with sympy up to 1.13.1, passes in 1 of 1 without" in ended.stdout, ended.stdout


@pytest.mark.thorough
def test_a_case_has_it(user: User) -> None:
    """`replay` installs what the case had."""
    script = user.script("repro.py", "import sympy, torch\nassert sympy.__version__ != '1.12'\n")
    ended = user.run("triage", script, "--torch", "9.2.0", "--only", "reproduce", "--override", "sympy==1.12")
    folder = user.folder / "output" / "cases" / "repro"
    assert json.loads((folder / "case.json").read_text())["overrides"] == ["sympy==1.12"], ended.stdout + ended.stderr
    replayed = user.run("replay", str(folder / "case.zip"), "--whole")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "torch-9.2.0-pypi+override-sympy==1.12" in replayed.stdout


@pytest.mark.thorough
def test_workers_have_it(user: User, tmp_path: Path) -> None:
    """What a cluster installs, tells and knows again is the same as here."""
    words = ("--torch", "9.1.0", user.script("repro.py", SHOWS), "--override", "sympy==1.12,sympy==1.14")
    with two_workers(user, tmp_path / "cluster") as (address, _):
        there = result_of(user, *words, "--executor", address, code=1)
        assert "all known" in str(result_of(user, *words, "--executor", address, code=1)["said"])
    assert [each["packages"]["sympy"] for each in there["environments"]] == ["1.12", "1.14"]
    notes = [f"sympy {version}, by --override: torch 9.1.0 asks for sympy==1.13.1" for version in ("1.12", "1.14")]
    assert [each["notes"] for each in there["environments"]] == [[note] for note in notes]
    assert labels(there)[1] == "torch-9.1.0-pypi+override-sympy==1.14"
