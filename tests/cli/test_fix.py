"""`fix` at the shell: a patch that cures, what is not in Python, and what cannot be asked."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.cli.shell import FAILS_IN_OLD, User
from tests.test_schema import generated

pytestmark = pytest.mark.shell

# what no file of Python says: the metadata of the installation
OF_THE_WHEEL = """\
import importlib.metadata
import torch
assert importlib.metadata.version("torch") >= "9.2"
"""


def test_a_script_is_cured_by_a_patch(user: User) -> None:
    """The releases are found, the patch is the change that matters, and cures the bad release wherever it is tried."""
    script = user.script("repro.py", FAILS_IN_OLD)
    ended = user.run("fix", script, "--json", "fix.json", "--report", "fix.md")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "repro.py, 9.1.0 (bad) and 9.2.0 (good): cured by 2 lines of Python" in ended.stdout
    assert "with the patch 3 of 3 runs pass, without it 0 of 3 runs" in ended.stdout
    patch = (user.folder / "output" / "fix.diff").read_text()
    assert [line for line in patch.splitlines() if line[:1] in "+-"][2:] == ["-behaviour = 'old'", "+behaviour = 'new'"]
    answer = json.loads((user.folder / "fix.json").read_text())
    jsonschema.validate(answer, json.loads(generated("fix")))
    assert (answer["bad"], answer["good"], answer["fix"]["with_patch"]) == ("9.1.0", "9.2.0", [3, 3])
    assert "+behaviour = 'new'" in (user.folder / "fix.md").read_text()
    tried = user.run("matrix", "--torch", "9.1.0", "--patch", "output/fix.diff", "--script", script)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_what_is_not_in_python_is_said_to_be(user: User) -> None:
    """Where no change of Python cures a script, the answer says so, with what speaks for it; no patch is written."""
    script = user.script("wheel.py", OF_THE_WHEEL)
    ended = user.run("fix", script, "--bad", "9.1.0", "--good", "9.2.0")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "wheel.py, 9.1.0 (bad) and 9.2.0 (good): not in Python alone" in ended.stdout
    assert not (user.folder / "output").exists()


def test_what_is_wrong_is_told(user: User) -> None:
    """A release that does not pass, one that does not exist, and a search without a change are no fix."""
    script = user.script("repro.py", FAILS_IN_OLD)
    assert "it does not pass in torch-9.1.0" in user.run("fix", script, "--bad", "9.2.0", "--good", "9.1.0").stderr
    lost = user.run("fix", script, "--bad", "8.1.0", "--good", "9.2.0")
    assert lost.returncode in {2, 3}
    assert "8.1.0" in lost.stderr
    same = user.run("fix", user.script("passes.py", "import torch\n"))
    assert same.returncode == 4
    assert "no two releases could be told apart" in same.stdout
