"""explain, dispatch and doctor as a user gives them, on stand-in wheels."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from matrix import checkup
from matrix.controls import Control, control_lines, run_controls
from matrix.errors import UsageError
from matrix.events import Event
from matrix.model import Attempt, Cell, Outcome, StoppedBy
from matrix.process.collect import NOT_PERMITTED
from tests.test_cli import FAILS_IN_OLD, PATIENCE, User, user, wheels  # noqa: F401  the last two are fixtures
from tests.wheels import build_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAILS_BY_CONFIG = "NOTE\nimport os, torch\nassert os.environ.get('OMP_NUM_THREADS') == '1', 'too many'\n"


def call(user: User, *arguments: str) -> subprocess.CompletedProcess[str]:  # noqa: F811
    return subprocess.run(
        [sys.executable, "-m", "matrix", *arguments],
        cwd=user.folder,
        env=user.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_version_is_explained_from_what_is_recorded(user: User) -> None:  # noqa: F811
    """After a matrix the answer costs no run, and the JSON holds it with its evidence."""
    script = user.script("repro.py", FAILS_IN_OLD)
    user.matrix("--torch", "9.1.0,9.2.0", "--script", script)
    ended = call(user, "explain", script, "--json", "why.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "last version that fails: 9.1.0, first that passes: 9.2.0" in ended.stdout
    assert user.runs(script) == 2
    why = json.loads((user.folder / "why.json").read_text())
    (answer,) = why["explanations"][0]["answers"]
    assert (why["schema_version"], answer["kind"]) == (1, "version")


def test_config_is_found_by_running_what_it_takes(user: User) -> None:  # noqa: F811
    """From nothing, --run runs a red cell, its neighbour in the config, and both again: four of eight."""
    script = user.script("repro.py", FAILS_BY_CONFIG)
    options = ["--torch", "9.1.0,9.2.0", "--config", "default,single-thread", "--build", "pypi"]
    ended = call(user, "explain", script, *options, "--run")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "environment: config" in ended.stdout
    assert "changing config from default to single-thread makes it pass" in ended.stdout
    assert user.runs(script) == 4


def test_here_is_asked_about_by_its_python(user: User) -> None:  # noqa: F811
    """An environment of the user's, in which it passes, is told by what sets it apart."""
    script = user.script("repro.py", FAILS_IN_OLD)
    user.matrix("--torch", "9.2.0", "--script", script)
    (python,) = (user.folder / ".whichtorch" / "envs").glob("*/venv/bin/python")
    before = call(user, "explain", script, "--here", str(python))
    assert before.returncode == 4
    assert "the test has not run here" in before.stdout
    ended = call(user, "explain", script, "--here", str(python), "--run", "--torch", "9.1.0", "--build", "pypi")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "makes it pass" in ended.stdout


def test_too_little_evidence_names_what_to_run(user: User) -> None:  # noqa: F811
    """Exit code 4 comes with a command."""
    script = user.script("repro.py", FAILS_IN_OLD)
    ended = call(user, "explain", script)
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert "or let it find out: whichtorch explain repro.py --run" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "nowhere.py"], "no such script: nowhere.py"),
        (["explain", "control/pass", "--env", "torch-0"], "no known environment has the label or id 'torch-0'"),
        (["explain", "control/pass", "--here", "p", "--env", "q"], "name one environment each"),
        (["explain", "control/pass", "--here", "nowhere/python"], "--here takes the path of a Python"),
        (["dispatch", "aten::mm", "torch-0"], "no known environment has the label or id 'torch-0'"),
        (["dispatch", "aten::mm", "a", "b", "c"], "3 environments cannot be compared"),
    ],
)
def test_mistake_gives_one_clear_message(user: User, arguments: list[str], message: str) -> None:  # noqa: F811
    """A user's mistake ends with exit code 2 and a remedy, never with a traceback."""
    ended = call(user, *arguments)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_dispatch_tables_are_compared_live(user: User, wheels: Path) -> None:  # noqa: F811
    """Two known environments by their labels, one of them with its Meta kernel registered from Python."""
    build_wheel(wheels, "9.3.0", behaviour="Python meta kernels")
    user.matrix("--torch", "9.2.0,9.3.0", "--script", user.script("repro.py", "NOTE\n"))
    ended = call(user, "dispatch", "mm", "torch-9.2.0-pypi", "torch-9.3.0-pypi", "--json", "tables.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[2:] == [
        "1 of 2 dispatch keys lead to another kernel:",
        "Meta:",
        "    C++, RegisterMeta.cpp:7 [kernel]",
        "    Python, boxed, _meta_registrations.py:7 [kernel]",
    ]
    written = json.loads((user.folder / "tables.json").read_text())
    assert [one["key"] for one in written["differences"]] == ["Meta"]


def test_controls_run_without_torch(tmp_path: Path) -> None:
    """The pipeline runs controls in any Python, and tells a wrong outcome from a control's own."""

    @contextmanager
    def quiet(_cache: object, _total: int) -> Iterator[Callable[[Event], None]]:
        yield lambda event: None

    globs = ("control/pass", "control/skip", "control/fail", "control/crash[signal=SIGABRT]")
    found = list(run_controls(tmp_path, Path(sys.executable), 2, quiet, globs))
    assert [control.cell.outcome for control in found] == ["crash", "fail", "fail", "pass", "skip"]
    assert [control.problem for control in found] == [None] * 5
    assert all(line.startswith("good") for line in control_lines(found))
    with pytest.raises(UsageError, match="does not run as a Python"):
        next(run_controls(tmp_path, tmp_path / "nowhere", 1, quiet, globs))


def test_wrong_outcome_of_a_control_is_a_problem_with_a_remedy(tmp_path: Path) -> None:
    """A hang that was not recognised makes the doctor say so."""
    fields = {"environment": "e", "scenario": "control/gil_deadlock", "expected": False, "seconds": 1}
    wrong = Control(cell=Cell(**fields, outcome=Outcome.SLOW), own=Outcome.HANG)  # type: ignore[arg-type]
    assert [line.split()[0] for line in control_lines([wrong])] == ["PROBLEM", "remedy:"]
    hung = Cell(**fields, outcome=Outcome.HANG)  # type: ignore[arg-type]
    assert Control(cell=hung, own=Outcome.HANG, kind="GIL cycle", is_diagnosed=True).problem is None
    assert Control(cell=hung, own=Outcome.HANG, kind="unknown", is_diagnosed=True).problem == (
        "explained as unknown, not as GIL cycle"
    )
    attempt = Attempt(outcome=Outcome.HANG, seconds=1, stopped_by=StoppedBy.STALL, note=NOT_PERMITTED)
    blind = Control(cell=hung.model_copy(update={"attempts": (attempt,)}), own=Outcome.HANG, kind="unknown")
    assert (blind.problem or "").endswith("not as GIL cycle, for want of permission to read stacks")
    assert blind.remedy == "see ptrace"


def test_every_problem_comes_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with no tools on its PATH and no index, each check that fails says what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("WHICHTORCH_PYTORCH_INDEX", "http://127.0.0.1:9/whl")
    monkeypatch.setattr(checkup, "find_py_spy", lambda: None)
    checks = {check.name: check for check in checkup.check_up(tmp_path / "state")}
    problems = {name for name, check in checks.items() if check.state is checkup.State.PROBLEM}
    assert {"C++ compiler", "py-spy", "ptrace", "index"} <= problems
    assert all(checks[name].remedy for name in problems)
    assert checks["PyTorch index"].state is checkup.State.INFORMATION


@pytest.mark.skipif(sys.platform != "linux", reason="ptrace is Linux's")
def test_ptrace_is_really_tried() -> None:
    """The check looks at a process of its own with py-spy, whatever comes of it."""
    check = checkup._ptrace()
    assert check.name == "ptrace"
    assert "py-spy" in check.found
    assert (check.state is checkup.State.PROBLEM) == bool(check.remedy)
