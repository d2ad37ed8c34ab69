"""`--sandbox` as a user gives it: what a script sees, what is told of it, and that its records are its own."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import User
from whichtorch.process import sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are of Linux")


@pytest.fixture
def _sandboxed() -> None:
    """Skip where the kernel allows no sandbox."""
    if problem := sandbox.why_not():
        pytest.skip(problem)


def attempt(user: User, script: str, *options: str) -> dict[str, Any]:
    """Run a script in a release, and return its last attempt, with what it wrote."""
    ended = user.run("matrix", "--torch", "9.1.0", script, "--json", "result.json", *options)
    assert ended.returncode in {0, 1}, ended.stdout + ended.stderr
    made: dict[str, Any] = json.loads((user.folder / "result.json").read_text())["cells"][0]["attempts"][-1]
    home = user.folder / ".whichtorch"
    return made | {name: (home / made[name]).read_text() for name in ("stdout", "stderr")} | {"said": ended.stdout}


@pytest.mark.usefixtures("_sandboxed")
def test_records_are_apart(user: User) -> None:
    """What ran in a sandbox answers nothing without one, nor the other way round; its rerun is in a sandbox."""
    (user.folder / "own").mkdir()
    script = user.script("own/repro.py", "import os\nraise SystemExit('HOME' in os.environ and os.getpid() == 2)\n")
    confined = attempt(user, script, "--sandbox")
    assert (confined["outcome"], confined["evidence"]["sandbox"]) == ("fail", "bubblewrap")
    assert "--sandbox bubblewrap" in confined["said"]
    assert attempt(user, script)["outcome"] == "pass"
    assert "all known" in attempt(user, script, "--sandbox", "bubblewrap")["said"]
    first, second = user.records()
    assert first["key"] != second["key"]


@pytest.mark.usefixtures("_sandboxed")
def test_accesses_are_told(user: User) -> None:
    """What it tried to reach is in the note; a socket of its own processes is none of that."""
    (user.folder / "own").mkdir()
    text = (
        "import os, socket\n"
        "for path in ('~/.ssh/id_rsa', '/etc/shadow'):\n"
        "    try: open(os.path.expanduser(path))\n"
        "    except OSError: pass\n"
        "try: socket.create_connection(('203.0.113.7', 443), timeout=1)\n"
        "except OSError: pass\n"
        "try: socket.socket(socket.AF_UNIX).connect('/tmp/listener')\n"
        "except OSError: print('it has ended')\n"
    )
    made = attempt(user, user.script("own/repro.py", text), "--sandbox")
    assert (made["outcome"], made["stdout"]) == ("pass", "it has ended\n"), made["stderr"]
    assert made["evidence"]["tried"] == ["read ~/.ssh/id_rsa", "read /etc/shadow", "connect to 203.0.113.7:443"]
    assert made["note"].startswith("tried to read ~/.ssh/id_rsa, ")


@pytest.mark.usefixtures("_sandboxed")
def test_own_folder_is_a_copy(user: User) -> None:
    """It reads what lies beside it and writes there, and nothing of that is left."""
    own = user.folder / "own"
    own.mkdir()
    (own / "data.txt").write_text("beside")
    script = user.script(
        "own/repro.py", "print(open('data.txt').read(), file=open('new.txt', 'w'))\nprint(open('new.txt').read())\n"
    )
    assert attempt(user, script, "--sandbox")["stdout"] == "beside\n\n"
    assert sorted(path.name for path in own.iterdir()) == ["data.txt", "repro.py"]


@pytest.mark.usefixtures("_sandboxed")
def test_state_folder_below_its_own_is_hidden(user: User) -> None:
    """A script beside the state folder reads its folder, and no records."""
    script = user.script("repro.py", "import glob\nprint(glob.glob('.whichtorch/runs/*/*.json*'), glob.glob('*.py'))\n")
    assert attempt(user, script, "--sandbox")["stdout"] == "[] ['repro.py']\n"


@pytest.mark.usefixtures("_sandboxed")
def test_script_in_a_folder_of_all_is_alone(user: User) -> None:
    """Of a script that lies in /tmp itself, nothing else there is seen."""
    script = Path(f"/tmp/whichtorch-test-{os.getpid()}.py")
    script.write_text(
        "import glob, os\nprint(sorted(set(glob.glob('/tmp/whichtorch*'))) == [os.path.abspath(__file__)])\n"
    )
    try:
        assert attempt(user, str(script), "--sandbox")["stdout"] == "True\n"
    finally:
        script.unlink()


def test_none_that_works(user: User, tmp_path: Path) -> None:
    """Where no sandbox can be built, nothing runs, and what bubblewrap says is told with the remedy."""
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho bwrap: no permissions to create a new namespace >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    script = user.script("repro.py", "NOTE\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    ended = user.run("matrix", "--torch", "9.1.0", script, "--sandbox", "bubblewrap", environ={"PATH": path})
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "no sandbox works here: " in ended.stderr
    assert "no permissions to create a new namespace" in ended.stderr
    assert "hint: " in ended.stderr
    assert user.runs(script) == 0
