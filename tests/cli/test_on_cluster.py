"""Searches through a scheduler and two workers: each gives the same answer as on the user's own machine."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.cluster import two_workers
from tests.cli.shell import FAILS_IN_OLD, User, alive_in, two_stacks, wait_for
from tests.cli.test_bisect_packages import BAD, DAYS, SCRIPT, locks
from tests.cli.test_chains import CURE, STALE_IN_OLD
from tests.patience import PATIENCE
from tests.wheels import build_companion, build_pytest

if TYPE_CHECKING:
    from tests.wheels import Index

pytestmark = pytest.mark.thorough

# of an answer: what it cost, what names a run, and what depends on how much was tried at once
BOUGHT = {"runs", "installs", "seconds", "run", "command", "order", "probes", "values", "reference", "timeline"}


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return two_stacks(tmp_path / "wheels", "old", "new")


def answer(user: User, home: str, *arguments: str) -> dict[str, Any]:
    """Give a command with a state folder of its own, and return what it writes as JSON."""
    ended = user.run(*arguments, "--json", "answer.json", environ={"WHICHTORCH_HOME": str(user.folder / home)})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads((user.folder / "answer.json").read_text())  # type: ignore[no-any-return]


def found(bisection: dict[str, Any]) -> dict[str, Any]:
    """Return what a bisection says of its subject, without what it cost."""
    kept = {name: value for name, value in bisection.items() if name not in BOUGHT}
    boundaries = [{name: each[name] for name in ("from", "to", "change")} for each in bisection["boundaries"]]
    return kept | {"boundaries": boundaries}


def installed_below(folder: Path) -> bool:
    return any((folder / "envs").glob("*/venv"))


def test_the_day_and_the_package_are_the_same(user: User, index: Index, tmp_path: Path) -> None:
    """The days are resolved here; what they mean is installed and run by the workers only. An override holds there."""
    for wheel in index.folder.glob("*.whl"):
        day = DAYS.get("-".join(wheel.name.split("-")[:2]), "2026-03-01")
        index.uploaded[wheel.name] = f"{day}T12:00:00Z"
    user.script("repro.py", SCRIPT)
    days = ("--axis", "date", "--since", "2026-03-02", "--until", "2026-03-25")
    asked = ("bisect", "repro.py", "--build", "pypi", "--torch", "9.1.0", *days, "--override", "cublas==13.1")
    here = answer(user, "here", *asked)
    with two_workers(user, tmp_path / "cluster") as (address, _):
        there = answer(user, "there", *asked, "--executor", address)
    assert there["changes"] == ["numpy 2.2.6 -> 2.3.0"]
    assert found(there) == found(here)
    assert not installed_below(user.folder / "there")


def test_the_packages_are_the_same(user: User, tmp_path: Path) -> None:
    """What packages require of each other is known from the workers; what lies on a disk here is refused."""
    user.script("repro.py", "NOTE\nimport torch\nassert torch.__version__ == '9.1.0'\n")
    asked = ("bisect", "repro.py", "--build", "pypi", *locks(user))
    here = answer(user, "here", *asked)
    with two_workers(user, tmp_path / "cluster") as (address, _):
        there = answer(user, "there", *asked, "--executor", address)
        local = build_companion(tmp_path / "local", "local", "1.0")
        (user.folder / "bad.txt").write_text(f"{BAD}local @ {local.as_uri()}\n")
        refused = user.run(*asked, "--executor", address)
    assert (there["changes"], there["along"]) == (["torch 9.1.0 -> 9.2.0"], ["cublas 12.1 -> 13.1"])
    assert found(there) == found(here)
    assert not installed_below(user.folder / "there")
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "is on this machine, and workers are not" in refused.stderr


def test_the_patch_is_the_same(user: User, tmp_path: Path) -> None:
    """The files of both releases come from the workers, and the trials are made there; here nothing is installed."""
    script = user.script("repro.py", FAILS_IN_OLD)
    asked = ("fix", script, "--bad", "9.1.0", "--good", "9.2.0", "--build", "pypi")
    here = answer(user, "here", *asked)
    runs = user.runs(script)
    with two_workers(user, tmp_path / "cluster") as (address, _):
        there = answer(user, "there", *asked, "--executor", address)
        said = user.run(*asked, "--executor", address).stdout
    assert f"--patch output/fix.diff --executor {address}" in said
    assert "+behaviour = 'new'" in there["fix"]["patch"]
    assert cure(there) == cure(here)
    assert user.runs(script) > runs
    assert not installed_below(user.folder / "there")
    assert (tmp_path / "cluster" / "one" / "envs").exists() or (tmp_path / "cluster" / "two" / "envs").exists()


def cure(fixed: dict[str, Any]) -> dict[str, Any]:
    """Return what an answer of `fix` says of its subject, without what it cost."""
    cost = {"seconds", "trials", "trials_ahead", "trials_to_cure"}
    return {name: value for name, value in fixed["fix"].items() if name not in cost}


def test_the_case_is_the_same(user: User, tmp_path: Path) -> None:
    """All steps are taken on the workers: the layer, the smallest script, the releases, the unit test, the patch."""
    (user.folder / "helper.py").write_text("wanted = 'new'\n")
    source = "NOTE\nimport torch, helper\nunused = 1\nassert torch.behaviour == helper.wanted, 'as it was'\n"
    script = user.script("repro.py", source)
    asked = ("triage", script, "--torch", "9.1.0", "--build", "pypi", "--fresh")
    here = answer(user, "here", *asked)
    with two_workers(user, tmp_path / "cluster") as (address, _):
        there = answer(user, "there", *asked, "--executor", address)
        replayed = user.run("replay", "output/cases/repro/case.zip", "--executor", address)
    assert "repro reproduces in torch-9.1.0-pypi" in replayed.stdout, replayed.stdout + replayed.stderr
    assert case(there) == case(here)
    assert there["unit_test"]["passes_in"] == "torch-9.2.0-pypi"
    assert "+behaviour = 'new'" in there["fix"]["fix"]["patch"]
    assert not installed_below(user.folder / "there")


def case(triaged: dict[str, Any]) -> dict[str, Any]:
    """Return what a case says of its subject, without what it cost and where files lie."""
    seen = {name: triaged["reproduction"][name] for name in ("failing", "runs", "outcome", "signature", "message")}
    parts = {
        name: triaged[name] for name in ("ladder", "classification", "unit_test", "newest", "bisected", "cold_because")
    }
    minimal = {name: triaged["minimal"][name] for name in ("source", "lines", "healthy_in", "is_verified")}
    return seen | parts | {"minimal": minimal, "change": found(triaged["bisection"]), "fix": cure(triaged["fix"])}


WAITS = """\
NOTE
import os, time, torch
while torch.behaviour == 'old' and os.path.exists('GATE'):
    time.sleep(0.05)
assert torch.behaviour == 'new', 'as it was'
"""


def waiting(user: User) -> tuple[str, Path]:
    """Return a script that waits in the old release while a file is there, and the file."""
    gate = user.folder / "gate"
    gate.touch()
    return user.script("repro.py", WAITS.replace("GATE", str(gate))), gate


def test_a_worker_that_is_killed_costs_a_search_nothing(user: User, tmp_path: Path) -> None:
    """Its trial is made again on the other one, and the patch is what it would have been."""
    script, gate = waiting(user)
    with two_workers(user, tmp_path / "cluster") as (address, workers):
        asked = ("fix", script, "--bad", "9.1.0", "--good", "9.2.0", "--build", "pypi", "--jobs", "1")
        process = user.start(*asked, "--executor", address, "--json", "answer.json")
        wait_for(lambda: user.runs(script) == 2)  # it has passed in the good release, and waits in the bad one
        (busy,) = {name for name in workers for line in alive_in(tmp_path / "cluster" / name) if script in line}
        workers[busy].kill()
        gate.unlink()
        assert process.wait(PATIENCE) == 0, (user.folder / "output.txt").read_text()
    assert "+behaviour = 'new'" in json.loads((user.folder / "answer.json").read_text())["fix"]["patch"]


@pytest.mark.parametrize("command", ["fix", "triage"])
def test_ctrl_c_ends_what_runs_on_the_workers(user: User, tmp_path: Path, command: str) -> None:
    """Nothing of the command is left running there, and the same command goes on."""
    script, gate = waiting(user)
    options = ("--bad", "9.1.0", "--good", "9.2.0") if command == "fix" else ("--torch", "9.1.0")
    cluster = tmp_path / "cluster"
    with two_workers(user, cluster) as (address, _):
        asked = (command, script, *options, "--build", "pypi", "--executor", address)
        process = user.start(*asked)
        wait_for(lambda: user.runs(script) == (2 if command == "fix" else 1))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130, (user.folder / "output.txt").read_text()
        wait_for(lambda: not [line for line in alive_in(cluster) if script in line])
        gate.unlink()
        again = user.run(*asked)
        assert again.returncode == 0, again.stdout + again.stderr


def test_what_cannot_travel_is_refused_with_its_reason(user: User, tmp_path: Path) -> None:
    """An interpreter of this machine is not on the workers."""
    script = user.script("repro.py", FAILS_IN_OLD)
    with two_workers(user, tmp_path / "cluster") as (address, _):
        ended = user.run("triage", script, "--interpreter", sys.executable, "--executor", address)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "is on this machine, and workers are not" in ended.stderr


PROJECT = """
import pathlib
import torch, pytest

@pytest.mark.parametrize("text", ["a b", "c/d"])
def test_text(text):
    pathlib.Path("left.txt").write_text(text)

def test_new():
    assert torch.behaviour == "new", "as it was"

def test_crash():
    import os
    os.abort()

def test_last(): pass
"""


def test_the_tests_of_a_command_are_the_same(user: User, wheels: Path, tmp_path: Path) -> None:
    """Its project travels: each test has its outcome and files; the same command again runs nothing."""
    build_pytest(wheels)
    (user.folder / "tests").mkdir()
    (user.folder / "tests" / "test_it.py").write_text(PROJECT)
    asked = ("--torch", "9.1.0,9.2.0", "--with", "pytest", "--json", "answer.json")
    command = ("--", "pytest", "tests")

    def outcomes(home: str, *options: str) -> dict[tuple[str, str], tuple[str, str, bool]]:
        state = user.folder / home
        ended = user.run("matrix", *asked, *options, *command, environ={"WHICHTORCH_HOME": str(state)})
        assert ended.returncode == 1, ended.stdout + ended.stderr
        result = json.loads((user.folder / "answer.json").read_text())
        torch = {environment["id"]: environment["torch"] for environment in result["environments"]}
        return {
            (torch[cell["environment"]], cell["scenario"]): (
                cell["outcome"],
                cell["signature"],
                all((state / attempt["stderr"]).is_file() for attempt in cell["attempts"]),
            )
            for cell in result["cells"]
        }

    here = outcomes("here")
    assert {outcome for outcome, _, _ in here.values()} == {"pass", "fail", "crash"}
    with two_workers(user, tmp_path / "cluster") as (address, _):
        assert outcomes("there", "--executor", address) == here
        known = len(user.records("there"))
        assert outcomes("there", "--executor", address) == here
        assert len(user.records("there")) == known
        bisected = user.run("bisect", *asked, "--executor", address, *command)
        assert bisected.returncode == 0, bisected.stdout + bisected.stderr
        found = json.loads((user.folder / "answer.json").read_text())["tests"]
        assert found["tests/test_it.py::test_new"]["answer"] == "boundary"
        refused = user.run("matrix", *asked, "--in-place", "--executor", address, *command)
        assert refused.returncode == 2
        assert "leave out --in-place" in refused.stderr
    assert not installed_below(user.folder / "there")


def test_chains_run_there(user: User, tmp_path: Path) -> None:
    """All runs of a chain are made on one worker, which finds the cache; caches from elsewhere are refused here."""
    script = user.script("repro.py", STALE_IN_OLD)
    build = ("--build", "pypi", "--runs", "2")
    asked = ("--torch", "9.1.0,9.2.0", *build)
    with two_workers(user, tmp_path / "cluster") as (address, _):
        ended = user.run("matrix", script, *asked, "--executor", address)
        cured = user.run("fix", script, "--bad", "9.1.0", "--good", "9.2.0", *build, "--executor", address)
        written = user.run("matrix", script, *asked, "--cache", "from=9.1.0", "--executor", address)
        named = user.run("matrix", f"{script}[runs=2,written-by=9.2.0]", *asked[:4], "--executor", address)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "repro.py[runs=2]  FAIL!    pass" in ended.stdout
    assert f"run 2 of 2; run 1 passes; {CURE}" in ended.stdout
    assert "cured by 2 lines of Python" in cured.stdout, cured.stdout + cured.stderr
    assert (written.returncode, "error: --cache cannot go with --executor\n" in written.stderr) == (2, True)
    assert (named.returncode, "error: a test with written-by cannot go with --exec" in named.stderr) == (2, True)
