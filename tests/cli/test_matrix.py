"""`whichtorch matrix`, on stand-in wheels: exit codes, messages, interrupts, what is kept."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import FAILS_IN_OLD, User, alive_in, wait_for
from tests.patience import PATIENCE
from tests.test_schema import validator
from tests.wheels import build_wheel


def test_matrix_from_nothing_to_a_table(newcomer: User) -> None:
    """Two versions are installed, a script is run in both, and table, legend, red line and JSON agree."""
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    ended = newcomer.run("matrix", "--torch", "9.1.0,9.2.0", script, "--json", "result.json", "--markdown", "r.md")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "repro.py    FAIL!    pass" in ended.stdout
    assert "AssertionError: as it was, in <module> (repro.py:3)" in ended.stdout
    assert "build auto is pypi" in ended.stdout
    result = json.loads((newcomer.folder / "result.json").read_text())
    validator().validate(result)
    assert [(cell["scenario"], cell["outcome"], cell["expected"]) for cell in result["cells"]] == [
        ("repro.py", "fail", False),
        ("repro.py", "pass", True),
    ]
    log = Path(result["run"]["home"], result["cells"][0]["attempts"][0]["stderr"])
    assert "as it was" in log.read_text()
    assert "| `repro.py` | FAIL! | pass |" in (newcomer.folder / "r.md").read_text()


def test_second_run_costs_no_install_and_no_attempt(newcomer: User, wheels: Path) -> None:
    """What is known is told at once, even with the index gone and the environments evicted."""
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    first = newcomer.run("matrix", "--torch", "9.1.0,9.2.0", script)
    again = newcomer.run("matrix", "--torch", "9.1.0,9.2.0", script)
    assert newcomer.runs("repro.py") == 2
    assert again.stdout.count("known") == 1
    assert "2 environments, 2 cells; all known\n" in again.stdout
    assert again.returncode == first.returncode == 1
    assert "repro.py    FAIL!    pass" in again.stdout
    assert again.stdout.splitlines()[-2] == "2 cells, 1 not as expected"


@pytest.mark.thorough
@pytest.mark.parametrize("change", ["a module beside it", "a variable of the shell"])
def test_what_changes_a_script_from_outside_runs_it_again(user: User, change: str) -> None:
    """And what is known is shown again once it is as before."""
    user.script(
        "repro.py",
        "NOTE\nimport os\nimport torch\nimport helper\n"
        "assert helper.good and os.environ.get('CUDA_VISIBLE_DEVICES') != ''\n",
    )
    helper, asked = user.folder / "helper.py", ("matrix", "repro.py", "--torch", "9.1.0")
    environ = {}
    for code, runs in ((0, 1), (1, 2), (0, 2)):
        if change == "a module beside it":
            helper.write_text(f"good = {code == 0}\n")
        else:
            helper.write_text("good = True\n")
            environ = {"CUDA_VISIBLE_DEVICES": "" if code else "0"}
        ended = user.run(*asked, environ=environ)
        assert (ended.returncode, user.runs("repro.py")) == (code, runs), ended.stdout + ended.stderr


def test_list_runs_nothing_and_shows_what_is_known(newcomer: User) -> None:
    """--list is a look: known outcomes, what would run, what would be installed."""
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    newcomer.run("matrix", "--torch", "9.2.0", script)
    listed = newcomer.run("matrix", "--torch", "9.1.0,9.2.0", script, "--list")
    assert listed.returncode == 0
    assert "torch-9.1.0-pypi: to be installed; 1 of 1 cell to run" in listed.stdout
    assert "torch-9.2.0-pypi: installed; 0 of 1 cell to run" in listed.stdout
    assert newcomer.runs("repro.py") == 1


def test_rerun_command_of_a_red_cell_reruns_just_that(user: User) -> None:
    """The command printed for a red cell, given as it stands, runs that one variant again."""
    header = "# /// scenario\n# [variants]\n# case = ['good', 'bad']\n# ///\nimport os\n"
    script = user.script("repro.py", header + "NOTE\nassert os.environ['WHICHTORCH_CASE'] == 'good'\n")
    ended = user.run("matrix", "--torch", "9.2.0", script)
    (command,) = (
        line.rpartition("rerun: ")[2] for line in ended.stdout.splitlines() if "FAIL!" in line and "rerun: " in line
    )
    assert user.runs("repro.py") == 2
    again = user.run(*shlex.split(command)[1:])
    assert user.runs("repro.py") == 3
    assert "repro.py[case=bad]  FAIL!" in again.stdout


def test_existing_environment_is_taken_as_it_is(newcomer: User, tmp_path: Path) -> None:
    """--interpreter runs in an environment that whichtorch did not make, and changes nothing in it."""
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    newcomer.run("matrix", "--torch", "9.2.0", script)
    (python,) = (newcomer.folder / ".whichtorch" / "envs").glob("*/venv/bin/python")
    ended = newcomer.run("matrix", "--interpreter", str(python), script)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "python-venv" in ended.stdout
    assert newcomer.runs("repro.py") == 2


def test_dead_index_prevents_and_says_so(newcomer: User) -> None:
    """Without network the cells are unbuildable with the index named, and the exit code is 3."""
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    ended = newcomer.run(
        "matrix", "--torch", "9.2.0", script, environ={"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    )
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "unbuildable" in ended.stdout
    assert "127.0.0.1:9" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


def test_no_room_prevents_and_says_so(newcomer: User) -> None:
    """A budget that no environment fits is told with its figures, and the exit code is 3."""
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    ended = newcomer.run("matrix", "--torch", "9.2.0", script, "--disk", "0.001MB")
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "room" in ended.stdout or "disk" in ended.stdout


def test_unwritable_state_prevents_and_says_so(user: User) -> None:
    """Where no state can be kept nothing is run, and the way out is named."""
    (user.folder / "file").write_text("")
    ended = user.run("matrix", "--torch", "9.2.0", environ={"WHICHTORCH_HOME": str(user.folder / "file" / "state")})
    assert ended.returncode == 3
    assert "cannot write to" in ended.stderr
    assert "WHICHTORCH_HOME" in ended.stderr


def test_broken_environment_costs_only_its_own_cells(newcomer: User, wheels: Path) -> None:
    """An environment whose canary fails is told with its log; the others run, and a red cell still means 1."""
    build_wheel(wheels, "9.3.0", behaviour="fails to import")
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    ended = newcomer.run("matrix", "--torch", "9.2.0,9.3.0", script)
    assert ended.returncode == 3
    assert "broken  torch-9.3.0-pypi" in ended.stdout
    assert newcomer.run("matrix", "--torch", "9.1.0,9.3.0", script).returncode == 1


@pytest.mark.thorough
def test_matrix_larger_than_the_disk_completes(user: User, wheels: Path) -> None:
    """With room for one environment at a time, three are installed, used and evicted in turn."""
    for version in ("9.4.0", "9.5.0", "9.6.0"):
        build_wheel(wheels, version, behaviour="new", padding=8_000_000)
    script = user.script("repro.py", FAILS_IN_OLD)
    (user.folder / "matrix.toml").write_text(
        f'[axes]\ntorch = [">=9.4"]\nbuild = ["mine"]\n[build.mine]\nfind-links = "{wheels}"\n'
    )
    ended = user.run("matrix", "--matrix", "matrix.toml", script, "--disk", "30MB")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert user.runs("repro.py") == 3
    assert len(list((user.folder / ".whichtorch" / "envs").glob("*/venv"))) < 3


SLEEPS = "NOTE\nimport time\ntime.sleep(300)\n"


def test_interrupt_keeps_what_is_done_and_leaves_nothing(user: User) -> None:
    """Ctrl-C once: running cells are stopped, finished ones are kept, and the exit code is 130."""
    quick, endless = user.script("quick.py", "NOTE\n"), user.script("endless.py", SLEEPS)
    options = ["--torch", "9.2.0", quick, endless, "--jobs", "2"]
    process = user.start("matrix", *options)
    wait_for(lambda: user.runs(endless) == 1 and len(user.records()) == 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130, (user.folder / "output.txt").read_text()
    assert "interrupted" in (user.folder / "output.txt").read_text()
    wait_for(lambda: not alive_in(user.folder))
    (run,) = (user.folder / ".whichtorch" / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["interrupted"] is True
    assert [record["scenario"] for record in user.records()] == [quick]


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_tells_what_runs_and_the_run_goes_on(user: User, number: int) -> None:
    """Every running cell is told with its time and its Python line; what runs is not stopped."""
    waits = f"NOTE\nimport os, time\nwhile not os.path.exists({str(user.folder / 'go')!r}):\n    time.sleep(0.05)\n"
    script = user.script("repro.py", waits)
    process = user.start("matrix", "--torch", "9.2.0", script)
    output = user.folder / "output.txt"
    wait_for(lambda: user.runs(script) == 1)
    process.send_signal(number)
    wait_for(lambda: "running:\n  repro.py  torch-9.2.0-pypi  " in output.read_text())
    wait_for(lambda: "<module> (repro.py:" in output.read_text())
    (user.folder / "go").touch()
    assert process.wait(PATIENCE) == 0, output.read_text()
    assert user.runs(script) == 1


STUCK = """NOTE
import threading
lock = threading.Lock()
def take_twice():
    lock.acquire()
    lock.acquire()
take_twice()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_hang_is_shown_with_its_place(user: User) -> None:
    """The stacks of a hung cell are kept, and its place is on its line, in its signature and in the JSON."""
    script = user.script("repro.py", STUCK)
    ended = user.run("matrix", "--torch", "9.2.0", script, "--json", "result.json")
    assert ended.returncode == 1
    said = "the main thread waits (repro.py:6) for the lock `lock`, which the same thread has held since line 5"
    assert ended.stdout.count(said) == 2, ended.stdout  # as it ends, and below the table
    result = json.loads((user.folder / "result.json").read_text())
    validator().validate(result)
    (cell,) = result["cells"]
    (attempt,) = cell["attempts"]
    assert cell["signature"] == "stuck: lock cycle in repro.py:6"
    assert attempt["diagnosis"]["kind"] == "lock cycle"
    assert attempt["diagnosis"]["stuck"]["tid"]
    names = {path.name for path in Path(result["run"]["home"], attempt["stacks"]).iterdir()}
    assert {"kernel.txt", "diagnosis.txt"} <= names
    assert str(Path(attempt["stacks"])) in ended.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1, 2])
def test_killed_tool_loses_nothing_and_leaves_nothing(newcomer: User, times: int) -> None:
    """After kill -9 the same command runs just what had not finished, and nothing of the first run is alive."""
    gate = newcomer.folder / "go"
    waits = f"NOTE\nimport os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.05)\n"
    first, second = newcomer.script("first.py", "NOTE\n"), newcomer.script("second.py", waits)
    options = ["--torch", "9.2.0", first, second, "--jobs", "1"]
    for killed in range(1, times + 1):
        process = newcomer.start("matrix", *options)
        wait_for(lambda killed=killed: newcomer.runs(second) == killed)  # type: ignore[misc]
        process.kill()
        process.wait(PATIENCE)
    gate.touch()
    ended = newcomer.run("matrix", *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert newcomer.runs(first) == 1
    assert newcomer.runs(second) == times + 1
    assert len(newcomer.records()) == 2
    assert not alive_in(newcomer.folder)


def test_output_that_nobody_reads_is_no_error(user: User) -> None:
    """`whichtorch matrix | head -1` ends quietly."""
    script = user.script("repro.py", "NOTE\n")
    command = shlex.join(user.command("matrix", "--torch", "9.2.0", script)) + " | head -1"
    ended = subprocess.run(  # noqa: S602  a shell's pipe is what this is about
        command,
        shell=True,
        cwd=user.folder,
        env=user.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert "Traceback" not in ended.stderr


def test_a_forecast_says_what_it_depends_on(newcomer: User) -> None:
    """Tests that nobody has timed may hang, so the time is announced with that; what was timed is known."""
    script = newcomer.script("repro.py", "import torch\n")
    first = newcomer.run("matrix", "--torch", "9.1.0,9.2.0", script)
    assert "longer if a test that never ran takes more than 3 s\n" in first.stdout
    again = newcomer.run("matrix", "--torch", "9.1.0,9.2.0", script, "--fresh")
    assert "about 10 seconds with" in again.stdout
    assert "never ran" not in again.stdout
