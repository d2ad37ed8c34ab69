"""Packages that a script needs: `--with`, `-r` and the script's own header, in every command that installs."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import User
from tests.test_schema import validator
from tests.wheels import build_companion, build_companions
from whichtorch.environments.interpreters import DEFAULT_PYTHON

NEEDS_EINOPS = "NOTE\nimport torch, einops\nassert torch.behaviour == 'new', 'einops was there'\n"
BLOCK = "# /// script\n# requires-python = '{python}'\n# dependencies = ['Einops<1', 'torch>=2', 'numpy']\n# ///\n"


@pytest.fixture
def wheels(wheels: Path) -> Path:
    return build_companions(wheels, einops=("0.7.0", "0.8.0", "1.0.0"))


def result_of(user: User, *words: str, code: int = 0) -> dict[str, Any]:
    """Give `matrix` with options, check its exit code, and return its JSON with what it said under "said"."""
    ended = user.run("matrix", "--json", "result.json", *words)
    assert ended.returncode == code, ended.stdout + ended.stderr
    result = json.loads((user.folder / "result.json").read_text())
    validator().validate(result)
    return {**result, "said": ended.stdout}


def labels(result: dict[str, Any]) -> list[str]:
    return [environment["label"] for environment in result["environments"]]


@pytest.mark.thorough
def test_a_package_is_installed_and_told(user: User) -> None:
    """It is in the label, in the identity, and in the command that runs a cell again, which then reruns just that."""
    script = user.script("repro.py", NEEDS_EINOPS)
    plain = result_of(user, "--torch", "9.1.0", script, code=1)
    added = result_of(user, "--torch", "9.1.0", script, "--with", "einops<1", code=1)
    assert (labels(plain), labels(added)) == (["torch-9.1.0-pypi"], ["torch-9.1.0-pypi+einops<1"])
    (before,), (after,) = plain["environments"], added["environments"]
    assert before["id"] != after["id"]
    assert after["packages"]["einops"] == "0.8.0"
    assert after["requirements"] == ["einops<1"]
    said = str(added["said"])
    assert "einops was there" in said
    assert "with einops<1" in said.partition("scenario")[0]
    (command,) = (line.rpartition("rerun: ")[2] for line in said.splitlines() if "rerun: " in line)
    assert "--with 'einops<1'" in command
    (following,) = (line for line in said.splitlines() if line.startswith("next: "))
    assert "--with 'einops<1'" in following
    assert "einops was there" in user.run(*shlex.split(command)[1:]).stdout
    assert "all known" in user.run("matrix", "--torch", "9.1.0", script, "--with", "Einops <1").stdout


def test_a_script_says_itself_what_it_needs(user: User) -> None:
    """Its PEP 723 block adds packages to its own environments only; its torch is the matrix's."""
    user.script("needy.py", BLOCK.format(python=">=3.8") + NEEDS_EINOPS)
    user.script("plain.py", "import torch\n")
    result = result_of(user, "--torch", "9.2.0", "plain.py", "needy.py")
    assert labels(result) == ["torch-9.2.0-pypi", "torch-9.2.0-pypi+einops<1+numpy"]
    assert [cell["scenario"] for cell in result["cells"]] == ["plain.py", "needy.py"]
    assert "needy.py: torch>=2 is left out: the matrix decides which torch is installed" in str(result["said"])
    options = [environment["options"] for environment in result["environments"]]
    assert all("--with" not in each for each in options)  # the script says it again


@pytest.mark.thorough
def test_requirements_files_are_read_as_pip_reads_them(user: User) -> None:
    """Includes, comments, continuations, hashes and markers; torch and indexes are left out, and told."""
    (user.folder / "more").mkdir()
    (user.folder / "more" / "base.txt").write_text(
        "-r ../r.txt\nEinOps == 0.7.0 \\\n    --hash=sha256:00  # the old one\n"
    )
    (user.folder / "r.txt").write_text(
        "# all\n--extra-index-url https://example.org/simple\n-r more/base.txt\ntorch==2.0\n"
        "colorama; sys_platform == 'win32'\n"
    )
    script = user.script("repro.py", NEEDS_EINOPS)
    result = result_of(user, "--torch", "9.2.0", script, "-r", "r.txt")
    (environment,) = result["environments"]
    assert environment["packages"]["einops"] == "0.7.0"
    assert "colorama" not in environment["packages"]
    assert environment["options"][-2:] == ["--requirements", "r.txt"]
    assert "r.txt:2: --extra-index-url is left out" in str(result["said"])
    assert "r.txt:4: torch==2.0 is left out" in str(result["said"])


def test_all_mistakes_are_told_at_once(newcomer: User) -> None:
    """Each has its place; nothing is installed."""
    (newcomer.folder / "r.txt").write_text("-r gone.txt\n-c limits.txt\neinops =< 1\n-e ./nothing\n")
    script = newcomer.script("repro.py", NEEDS_EINOPS)
    words = ["--with", "torch==2.5", "--with", "a b", "-r", "r.txt", "-r", "missing.txt"]
    for command in (["matrix", "--torch", "9.2.0", script], ["bisect", script], ["fix", script]):
        ended = newcomer.run(*command, *words)
        assert ended.returncode == 2
        for told in (
            "--with torch==2.5: torch is chosen by --torch and --build",
            "--with: 'a b' is not a requirement",
            "r.txt:1: cannot read the requirements file gone.txt",
            "r.txt:2: cannot read the requirements file limits.txt",
            "r.txt:3: 'einops =< 1' is not a requirement",
            "r.txt:4: there is no nothing",
            "missing.txt: cannot read the requirements file missing.txt: No such file",
        ):
            assert told in ended.stderr, ended.stderr
    assert not (newcomer.folder / ".whichtorch" / "envs").exists()


def test_what_cannot_be_resolved_is_unbuildable(user: User, wheels: Path) -> None:
    """The resolver's reason is told, and what else asked for a package; no other release is kept from running."""
    build_companion(wheels, "numpy", "1.26.0")
    build_companion(wheels, "torchlike", "1.0", requires=("torch==9.2.0",))
    script = user.script("repro.py", "import torch\n")
    result = result_of(user, "--torch", "9.1.0,9.2.0", script, "--with", "torchlike", code=3)
    assert [cell["outcome"] for cell in result["cells"]] == ["unbuildable", "pass"]
    assert "torchlike" in result["cells"][0]["reason"]
    assert "torch==9.2.0" in result["cells"][0]["reason"]


@pytest.mark.thorough
def test_a_project_and_a_wheel_are_installed_by_their_paths(user: User, wheels: Path) -> None:
    """What changes there is another environment, whose script runs again."""
    wheel = build_companion(user.folder / "dist", "einops", "0.9.0")
    script = user.script("repro.py", "NOTE\nimport torch, einops\nassert einops.__version__ == '0.9.0'\n")
    words = ("--torch", "9.2.0", script, "--with", "dist/einops-0.9.0-py3-none-any.whl")
    first = result_of(user, *words)
    assert "all known" in str(result_of(user, *words)["said"])
    build_companion(user.folder / "dist", "einops", "0.9.0", padding=10)
    again = result_of(user, *words)
    assert user.runs(script) == 2
    assert [each["id"] for each in first["environments"]] != [each["id"] for each in again["environments"]]
    assert wheel.exists()


def test_a_python_that_the_script_does_not_take(user: User) -> None:
    """It is left out where others are named, and refused where there is no other."""
    below = f"<{DEFAULT_PYTHON}"
    user.script("repro.py", BLOCK.format(python=below) + "import torch\n")
    ended = user.run("matrix", "--torch", "9.2.0", "repro.py", "--python", DEFAULT_PYTHON)
    assert ended.returncode == 2
    assert f"Python {DEFAULT_PYTHON} is left out: repro.py requires {below}" in ended.stderr
    listed = user.run("matrix", "--torch", "9.2.0", "repro.py", "--python", f"3.9,{DEFAULT_PYTHON}", "--list")
    assert "torch-9.2.0-pypi-py3.9" in listed.stdout
    assert f"py{DEFAULT_PYTHON}" not in listed.stdout
    user.script("repro.py", BLOCK.format(python=">=3.19,<3.20") + "import torch\n")
    ended = user.run("matrix", "--torch", "9.2.0", "repro.py")
    assert ended.returncode == 2
    assert "repro.py requires Python >=3.19,<3.20, and there is none on this machine" in ended.stderr


def test_packages_are_not_put_into_a_users_environment(user: User) -> None:
    """--interpreter is used as it is: --with is refused there; a script's own requirements change nothing."""
    script = user.script("repro.py", BLOCK.format(python=">=3.8") + "import sys\n")
    refused = user.run("matrix", "--interpreter", sys.executable, script, "--with", "einops")
    assert refused.returncode == 2
    assert "not for --interpreter" in refused.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [["bisect"], ["fix", "--bad", "9.1.0", "--good", "9.2.0"], ["triage", "--torch", "9.1.0"]]
)
def test_searches_install_the_packages(user: User, words: list[str]) -> None:
    """Without them the script fails everywhere; the answer says what was added, and a case has it elsewhere."""
    script = user.script("repro.py", NEEDS_EINOPS)
    ended = user.run(words[0], script, *words[1:], "--with", "einops<1", "--json", "answer.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    answer = json.loads((user.folder / "answer.json").read_text())
    bisection = {"bisect": answer, "triage": answer.get("bisection")}.get(words[0])
    if bisection is not None:
        assert [(each["from"], each["to"]) for each in bisection["boundaries"]] == [("9.1.0", "9.2.0")]
        assert bisection["common"]["with"] == "einops<1"
    if words[0] == "triage":
        assert answer["requirements"] == ["einops<1"]
        archive = str(user.folder / "output" / "cases" / "repro" / "case.zip")
        refused = user.run(
            "replay", archive, "--whole"
        )  # a stranger's package could run its code outside of the sandbox
        assert (refused.returncode, "--with 'einops<1'" in refused.stderr) == (2, True)
        assert user.run("replay", archive, "--whole", "--with", "einops<1").returncode == 0


@pytest.mark.thorough
def test_explain_runs_where_the_packages_are(user: User) -> None:
    """The cells that it runs have them."""
    script = user.script("repro.py", NEEDS_EINOPS)
    ended = user.run("explain", script, "--torch", "9.1.0,9.2.0", "--with", "einops", "--run", "--json", "answer.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (explanation,) = json.loads((user.folder / "answer.json").read_text())["explanations"]
    labels = {each["environment"]["label"] for each in explanation["observations"]}
    assert labels == {"torch-9.1.0-pypi+einops", "torch-9.2.0-pypi+einops"}


@pytest.mark.parametrize(
    ("source", "is_told"),
    [
        ("", True),
        ("print('torch')\n", True),
        ("try:\n    import json\nfinally:\n    pass\n", True),
        ("import torch\n", False),
        ("def late():\n    import torch\nlate()\n", False),
        ("import os, sys, subprocess\nsubprocess.run([sys.executable, '-c', 'import torch'], check=True)\n", False),
        ("import os\nif os.fork() == 0:\n    import torch\n    os._exit(0)\nos.wait()\n", False),
        ('# /// scenario\n# tags = ["control"]\n# ///\n', False),
    ],
)
def test_a_pass_without_torch_is_told(user: User, source: str, is_told: bool) -> None:
    """Below the table and in the last line; it is as expected all the same."""
    script = user.script("repro.py", source)
    result = result_of(user, "--torch", "9.2.0", script)
    (cell,) = result["cells"]
    assert (cell["outcome"], cell["expected"], cell["doubt"]) == ("pass", True, "unused" if is_told else None)
    assert ("pass (expected)  repro.py  torch-9.2.0-pypi: never imported torch" in result["said"]) is is_told
    assert ("1 never imported torch" in result["said"]) is is_told


def test_a_script_that_only_defines_tests_is_doubted(user: User) -> None:
    """Its pass says nothing, and that is told."""
    script = user.script("repro.py", "import torch\ntorch.ones(1)\ndef test_it():\n    assert False\n")
    result = result_of(user, "--torch", "9.2.0", script)
    (cell,) = result["cells"]
    assert (cell["outcome"], cell["doubt"]) == ("pass", "uncalled")
    assert "it only defines test_it, and nothing calls a test" in str(result["said"])
    assert "1 doubted pass" in str(result["said"])
