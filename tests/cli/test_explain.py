"""`whichtorch explain`, on stand-in wheels."""

import json
import signal

import pytest

from tests.cli.shell import FAILS_IN_OLD, User, wait_for
from tests.patience import PATIENCE

pytestmark = pytest.mark.thorough

FAILS_BY_CONFIG = "NOTE\nimport os, torch\nassert os.environ.get('OMP_NUM_THREADS') == '1', 'too many'\n"


def test_version_is_explained_from_what_is_recorded(user: User) -> None:
    """After a matrix the answer costs no run, and the JSON holds it with its evidence."""
    script = user.script("repro.py", FAILS_IN_OLD)
    user.run("matrix", "--torch", "9.1.0,9.2.0", script)
    ended = user.run("explain", script, "--json", "why.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "last version that fails: 9.1.0, first that passes: 9.2.0" in ended.stdout
    assert user.runs(script) == 2
    why = json.loads((user.folder / "why.json").read_text())
    (answer,) = why["explanations"][0]["answers"]
    assert (why["schema_version"], answer["kind"]) == (1, "version")


def test_config_is_found_by_running_what_it_takes(user: User) -> None:
    """From nothing, --run runs a red cell, its neighbour in the config, and both again: four of eight."""
    script = user.script("repro.py", FAILS_BY_CONFIG)
    options = ["--torch", "9.1.0,9.2.0", "--config", "default,single-thread", "--build", "pypi"]
    ended = user.run("explain", script, *options, "--run")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "environment: config" in ended.stdout
    assert "changing config from default to single-thread makes it pass" in ended.stdout
    assert user.runs(script) == 4


def test_here_is_asked_about_by_its_python(newcomer: User) -> None:
    """An environment of the user's, in which it passes, is told by what sets it apart."""
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    newcomer.run("matrix", "--torch", "9.2.0", script)
    (python,) = (newcomer.folder / ".whichtorch" / "envs").glob("*/venv/bin/python")
    before = newcomer.run("explain", script, "--here", str(python))
    assert before.returncode == 4
    assert "the test has not run here" in before.stdout
    ended = newcomer.run("explain", script, "--here", str(python), "--run", "--torch", "9.1.0", "--build", "pypi")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "makes it pass" in ended.stdout


def test_too_little_evidence_names_what_to_run(user: User) -> None:
    """Exit code 4 comes with a command."""
    script = user.script("repro.py", FAILS_IN_OLD)
    ended = user.run("explain", script)
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert "or let it find out: whichtorch explain repro.py --run" in ended.stdout


def test_interrupted_it_answers_from_what_has_run(user: User) -> None:
    """Ctrl-C during --run gives the answer that the records allow, with --json, and the exit code 130."""
    waits = "if torch.behaviour == 'new':\n    import time\n    time.sleep(300)\n"
    script = user.script("repro.py", FAILS_IN_OLD.replace("assert", f"{waits}assert"))
    options = ("--torch", "9.1.0,9.2.0", "--build", "pypi", "--run", "--json", "why.json")
    process = user.start("explain", script, *options)
    wait_for(lambda: user.runs(script) == 2 or (user.runs(script) == 1 and not user.records()))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130, (user.folder / "output.txt").read_text()
    why = json.loads((user.folder / "why.json").read_text())
    assert (why["interrupted"], len(why["explanations"])) == (True, 1)
