"""`whichtorch bisect` along configs, Pythons and builds, and through a git history."""

from __future__ import annotations

import json
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import FAILS_IN_OLD, User, alive_in, wait_for
from tests.patience import PATIENCE
from tests.repository import BUILDS, FAILS, SKIPS, Repository
from tests.wheels import build_wheel
from whichtorch.base.errors import UsageError
from whichtorch.bisect.search_request import AxisName
from whichtorch.cli.bisect import check_options
from whichtorch.environments.interpreters import DEFAULT_PYTHON
from whichtorch.matrix.options import SearchAxes

pytestmark = pytest.mark.thorough


def history(folder: Path, commits: int, fixed: int, builds: dict[int, str]) -> Repository:
    """Return a history in which one commit fixes torch, and some cannot be built."""
    repository = Repository.at(folder)
    for number in range(commits):
        repository.commit("old" if number < fixed else "new", builds.get(number, BUILDS))
    return repository


@pytest.fixture
def little(tmp_path: Path) -> Repository:
    """Return eight commits; the third last fixes it."""
    return history(tmp_path / "checkout", 8, 5, {})


def bisect_git(repository: Repository, script: str, first: str = "true") -> list[str]:
    """Return the command that finds what fixed a script."""
    options = ["--git", str(repository.folder), "--build-command", repository.command(first), "--json", "answer.json"]
    bounds = ["--bad", repository.commits[0], "--good", "main"]
    return ["bisect", script, *options, *bounds]


def written(user: User) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((user.folder / "answer.json").read_text())
    return answer


def test_commit_that_fixed_it_is_named(user: User, tmp_path: Path) -> None:
    """Around commits that cannot be built the fix is found, and asked again it costs no build and no run."""
    repository = history(tmp_path / "checkout", 20, 12, {6: SKIPS, 10: FAILS, 13: SKIPS})
    repository.branch_off(3, "side")
    repository.commit("old")
    repository.git("checkout", "--quiet", "main")
    repository.merge("side")
    repository.git("remote", "add", "origin", "git@github.com:someone/torch.git")
    script = user.script("repro.py", FAILS_IN_OLD)
    ended = user.run(*bisect_git(repository, script))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    before, after = repository.commits[11:13]
    answer = written(user)
    (boundary,) = answer["boundaries"]
    assert (answer["axis"], answer["answer"]) == ("commit", "boundary")
    assert (boundary["from"], boundary["to"], boundary["change"]) == (before, after, "fix")
    assert boundary["commits"] == f"https://github.com/someone/torch/compare/{before}...{after}"
    assert f"fixed in {after[:10]}: last that fails {before[:10]}" in ended.stdout
    assert f"pass     {after[:10]} change 12" in ended.stdout
    assert repository.state == ("main", "")
    builds, runs = repository.built, user.runs("repro.py")
    again = user.run(*bisect_git(repository, script))
    assert written(user)["boundaries"] == answer["boundaries"]
    assert (repository.built, user.runs("repro.py")) == (builds, runs), again.stdout
    assert (written(user)["installs"], written(user)["runs"]) == (0, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_during_a_build_it_goes_on_later(user: User, little: Repository, number: signal.Signals) -> None:
    """Stopped, it ends the build and builds nothing twice afterwards; the checkout is given back as it was."""
    gate = user.folder / "gate"
    script = user.script("repro.py", FAILS_IN_OLD)
    waiting = f"test -e {gate} || test $(wc -l < {little.builds}) -lt 3 || sleep 3600"
    command = bisect_git(little, script, waiting)
    process = user.start(*command)
    wait_for(lambda: len(little.built) == 3)
    process.send_signal(number)
    assert process.wait(PATIENCE) == (130 if number == signal.SIGINT else -number)
    wait_for(lambda: not alive_in(gate))
    if number == signal.SIGINT:
        assert little.state == ("main", "")
        partial = written(user)
        assert (partial["interrupted"], len(partial["probes"]), partial["reasons"][0]) == (True, 2, "interrupted")
        assert partial["boundaries"][0]["untried_between"]
    gate.touch()
    ended = user.run(*command)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert written(user)["boundaries"][0]["to"] == little.commits[5]
    assert little.state == ("main", "")
    first, second, stopped = little.built[:3]
    assert (first in little.built[3:], second in little.built[3:]) == (False, False)
    assert stopped in little.built[3:]


def test_configs_are_told_apart(newcomer: User) -> None:
    """Each config is tried once, the failing ones again, and what they have in common is said."""
    script = newcomer.script(
        "repro.py", "NOTE\nimport os\nassert os.environ.get('OMP_NUM_THREADS') == '1', 'threads'\n"
    )
    options = ["--axis", "config", "--config", "default,single-thread", "--config", "no-compile-threads"]
    ended = newcomer.run("bisect", script, *options, "--json", "answer.json", "--jobs", "2", "--report", "report.md")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    answer = written(newcomer)
    assert answer["groups"] == {
        "good": ["single-thread"],
        "bad": ["default", "no-compile-threads"],
        "different": [],
        "untestable": [],
    }
    assert (answer["answer"], answer["installs"]) == ("boundary", 1)
    assert answer["common"] == {"torch": "9.2.0", "build": "pypi", "python": answer["common"]["python"]}
    assert "fails with default, no-compile-threads; passes with single-thread" in ended.stdout
    report = (newcomer.folder / "report.md").read_text()
    assert "\nfails with default, no-compile-threads; passes with single-thread\n" in report
    assert newcomer.runs("repro.py") == 7


def test_builds_are_told_apart(user: User, tmp_path: Path) -> None:
    """The same version from two places; one whose canary fails is no evidence."""
    for name, behaviour in (("one", "old"), ("two", "new"), ("three", "fails to import")):
        build_wheel(tmp_path / name, "9.1.0", behaviour=behaviour)
    tables = "".join(f'[build.{name}]\nfind-links = "{tmp_path / name}"\n' for name in ("one", "two", "three"))
    (user.folder / "matrix.toml").write_text(f'[axes]\ntorch = ["latest"]\n{tables}')
    script = user.script("repro.py", FAILS_IN_OLD)
    options = ["--matrix", "matrix.toml", "--axis", "build", "--build", "one,two,three"]
    ended = user.run("bisect", script, *options, "--json", "answer.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert written(user)["groups"] == {"good": ["two"], "bad": ["one"], "different": [], "untestable": ["three"]}
    assert "fails with one; passes with two; could not be tested with three" in ended.stdout


def test_one_python_alone_can_be_compared_with_nothing(user: User) -> None:
    """Where all but one value cannot be tested the answer is inconclusive, and says why."""
    script = user.script("repro.py", FAILS_IN_OLD)
    own = DEFAULT_PYTHON
    ended = user.run("bisect", script, "--axis", "python", "--python", f"{own},3.99", "--json", "answer.json")
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert written(user)["groups"]["untestable"] == ["3.99"]
    assert "Python 3.99" in ended.stdout


def test_bounds_of_an_axis_without_order_are_refused(user: User) -> None:
    """What makes no sense is said before anything is run."""
    ended = user.run("bisect", "control/pass", "--axis", "config", "--good", "iomp")
    assert ended.returncode == 2
    assert "--axis config has no order" in ended.stderr


@pytest.mark.parametrize(
    ("named", "several", "message"),
    [
        ({"build": ("cpu,pypi",)}, "config", "--build names 2 for a search along another axis"),
        ({"config": ("default", "iomp")}, "", "--config names 2 for a search along another axis"),
    ],
)
def test_only_the_searched_axis_may_have_several_values(named: dict[str, Any], several: str, message: str) -> None:
    """All else is equal, or what differs could not be told."""
    with pytest.raises(UsageError, match=message):
        SearchAxes(**named).file(["latest"], several=several)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--build-command"], "--build-command is for a git history"),
        (["--interpreter"], "--interpreter is for a git history"),
        (["--git", "--interpreter"], "--interpreter cannot go with --git"),
        (["--torch", "--axis", "--git", "--build-command"], "--torch and --axis cannot go with --git"),
        (["--git", "--build-command", "--install"], "--install cannot go with --git"),
        (["--good FILE", "--bad FILE", "--with", "--constraint"], "--with and --constraint: two lock files or"),
        (["--good FILE", "--bad FILE", "--resolution"], "--resolution: two lock files or"),
        (["--package", "--resolution"], "--resolution cannot go with --axis date or --package"),
    ],
)
def test_history_and_how_to_build_it_belong_together(given: list[str], message: str) -> None:
    """One without the other is a mistake, and so are other axes beside it."""
    with pytest.raises(UsageError, match=message):
        check_options(AxisName.VERSION, given)


def test_only_a_checkout_is_not_searched_on_other_machines() -> None:
    """A checkout and its build are not on the workers; all else is resolved here and installed there."""
    with pytest.raises(UsageError, match="--executor cannot go with --git: the checkout and what is built in it"):
        check_options(AxisName.VERSION, ["--git", "--build-command", "--executor"])
    assert check_options(AxisName.DATE, ["--since", "--executor"]) is AxisName.DATE
    assert check_options(AxisName.VERSION, ["--good FILE", "--bad FILE", "--executor"]) is AxisName.LOCK
    for searched in (AxisName.VERSION, AxisName.CONFIG, AxisName.PYTHON, AxisName.BUILD):
        assert check_options(searched, ["--executor"]) is searched


@pytest.mark.parametrize(
    ("axis", "given", "searched"),
    [
        (AxisName.VERSION, [], AxisName.VERSION),
        (AxisName.CONFIG, ["--axis"], AxisName.CONFIG),
        (AxisName.VERSION, ["--good FILE", "--bad FILE"], AxisName.LOCK),
        (AxisName.VERSION, ["--git", "--build-command", "--good", "--bad"], AxisName.COMMIT),
        (AxisName.COMMIT, ["--axis", "--git", "--package", "--torch"], AxisName.COMMIT),
    ],
)
def test_options_choose_the_axis(axis: AxisName, given: list[str], searched: AxisName) -> None:
    """Each axis is named by --axis, or chosen by options of its own; each can be searched."""
    assert check_options(axis, given) is searched
    assert callable(import_module(f"whichtorch.bisect.axes.{searched.row.module}").search)


def test_interrupted_values_are_told(user: User) -> None:
    """Ctrl-C while configs are compared tells those that were tried."""
    waits = "import os, time\nwhile os.environ.get('OMP_NUM_THREADS') == '1':\n    time.sleep(0.05)\n"
    script = user.script("repro.py", f"NOTE\n{waits}")
    options = ("--axis", "config", "--config", "default,single-thread", "--json", "answer.json")
    process = user.start("bisect", script, *options)
    wait_for(lambda: user.runs("repro.py") == 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    answer = written(user)
    assert (answer["interrupted"], answer["groups"]["good"], answer["answer"]) == (True, ["default"], "inconclusive")
