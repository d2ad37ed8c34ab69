"""`fix` at the shell: a patch that cures, what is not in Python, and what cannot be asked."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.shell import FAILS_IN_OLD, User, wait_for
from tests.patience import PATIENCE
from tests.repository import Repository
from tests.test_schema import validator

pytestmark = pytest.mark.thorough

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
    validator("fix").validate(answer)
    assert (answer["bad"], answer["good"], answer["fix"]["with_patch"]) == ("9.1.0", "9.2.0", [3, 3])
    assert "+behaviour = 'new'" in (user.folder / "fix.md").read_text()
    tried = user.run("matrix", "--torch", "9.1.0", "--patch", "output/fix.diff", script)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_commits_of_the_patch_are_named(user: User, tmp_path: Path) -> None:
    """With a checkout that has both releases' tags, the answer names the commit that brought the patch."""
    checkout = Repository.at(tmp_path / "pytorch", with_python=False)
    for tag, behaviour in (("v9.1.0", "old"), ("v9.2.0", "new")):
        fix = checkout.commit(behaviour)
        checkout.git("tag", tag)
    script = user.script("repro.py", FAILS_IN_OLD)
    ended = user.run("fix", script, "--git", str(checkout.folder), "--json", "fix.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"  brought by {fix[:7]} change 1: 2 of 2 lines" in ended.stdout
    answer = json.loads((user.folder / "fix.json").read_text())
    validator("fix").validate(answer)
    assert [origin["commit"] for origin in answer["fix"]["origins"]] == [fix]


def test_a_wrong_checkout_is_told_before_anything_runs(user: User, tmp_path: Path) -> None:
    """A folder without a history, and a checkout without the tags, end the command before the script is run."""
    script = user.script("repro.py", FAILS_IN_OLD)
    ended = user.run("fix", script, "--git", str(tmp_path))
    assert (ended.returncode, user.runs(script)) == (2, 0)
    assert "is no git checkout" in ended.stderr
    checkout = Repository.at(tmp_path / "pytorch", with_python=False)
    checkout.commit("old")
    ended = user.run("fix", script, "--bad", "9.1.0", "--good", "9.2.0", "--git", str(checkout.folder))
    assert (ended.returncode, user.runs(script)) == (2, 0)
    assert "has no tag v9.1.0" in ended.stderr
    assert "git fetch --tags" in ended.stderr


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
    other = user.run("fix", script, "--bad", "9.1.0", "--good", "9.2.0", "--failure", "deadlock")
    assert other.returncode == 2
    assert "it fails in another way in torch-9.1.0" in other.stderr
    same = user.run("fix", user.script("passes.py", "import torch\n"))
    assert same.returncode == 4
    assert "no two releases could be told apart" in same.stdout


@pytest.mark.parametrize(("at_run", "has_patch"), [(1, False), (5, False), (6, True)])
def test_an_interrupted_fix_tells_what_is_known(user: User, at_run: int, has_patch: bool) -> None:
    """Ctrl-C before the first trial, and after a cure was found, writes the answer so far; the command goes on."""
    count = f"len(open({str(user.folder / 'repro.py.runs')!r}).readlines())"
    gate = f"not os.path.exists({str(user.folder / 'gate')!r})"
    waits = f"import os, time\nif {count} == {at_run} and {gate}:\n    time.sleep(300)\n"
    script = user.script("repro.py", FAILS_IN_OLD.replace("assert", f"{waits}assert"))
    asked = ("fix", script, "--bad", "9.1.0", "--good", "9.2.0", "--json", "fix.json")
    process = user.start(*asked)
    wait_for(lambda: user.runs("repro.py") == at_run)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 130, (user.folder / "output.txt").read_text()
    answer = json.loads((user.folder / "fix.json").read_text())
    validator("fix").validate(answer)
    assert (answer["interrupted"], answer["fix"]["stopped"]) == (True, "interrupted")
    assert bool(answer["fix"]["patch"]) is has_patch
    assert ("it was not confirmed" in (user.folder / "output.txt").read_text()) is has_patch
    (user.folder / "gate").touch()
    assert user.run(*asked).returncode == 0


def test_the_time_of_a_fix_ends_what_runs(user: User) -> None:
    """With --max-time a run that would take longer is stopped, and the answer so far is told."""
    script = user.script("repro.py", "import time, torch\nif torch.behaviour == 'old':\n    time.sleep(300)\n")
    ended = user.run("fix", script, "--bad", "9.1.0", "--good", "9.2.0", "--max-time", "16", "--timeout", "50")
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert "note: the time limit of 16 s is over" in ended.stdout
    assert "repro.py  torch-9.1.0-pypi was stopped: the script had run for " in ended.stdout
    assert ", at <module> (repro.py:3)" in ended.stdout


def test_an_interrupted_search_of_a_fix_tells_its_answer(user: User) -> None:
    """Ctrl-C while the two releases are searched tells what is known of them."""
    script = user.script("repro.py", "NOTE\nimport time, torch\nassert torch.behaviour == 'new'\ntime.sleep(300)\n")
    process = user.start("fix", script, "--json", "fix.json")
    wait_for(lambda: "probe 2: 9.2.0" in (user.folder / "output.txt").read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130, (user.folder / "output.txt").read_text()
    answer = json.loads((user.folder / "fix.json").read_text())
    assert [probe["value"] for probe in answer["bisection"]["probes"]] == ["9.1.0"]
    assert "the two releases have not been found yet" in (user.folder / "output.txt").read_text()
