"""Where no process may read another, as in a container without ptrace: what is told of a hang all the same."""

import json
import re
import subprocess
import sys

import pytest

from tests.cli.shell import User
from tests.patience import PATIENCE
from tests.process.running import PROGRAMS
from tests.process.test_capture import needs_collectors
from whichtorch.process.evidence.capture import NOT_PERMITTED

WITHOUT = (sys.executable, str(PROGRAMS / "without_ptrace.py"))


def is_deniable() -> bool:
    return sys.platform == "linux" and subprocess.run((*WITHOUT, "true"), check=False).returncode == 0


pytestmark = [pytest.mark.skipif(not is_deniable(), reason="needs seccomp"), needs_collectors]


def call(user: User, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program so that it may read no other process."""
    return subprocess.run(
        [*WITHOUT, sys.executable, *arguments],
        cwd=user.folder,
        env=user.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_hangs_are_judged_and_diagnosed(user: User) -> None:
    """What the processes and the kernel tell by themselves gives verdict, stacks and diagnosis; once it says why."""
    options = [f"control/{name}" for name in ("deadlock", "gil_deadlock")]
    ended = call(user, "-m", "whichtorch", "matrix", "--torch", "9.2.0", "--json", "result.json", *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (ended.stdout + ended.stderr).count(NOT_PERMITTED) == 1
    cells = {cell["scenario"]: cell for cell in json.loads((user.folder / "result.json").read_text())["cells"]}
    for cell in cells.values():
        (attempt,) = cell["attempts"]
        assert (cell["outcome"], attempt["stopped_by"], attempt["note"]) == ("hang", "stall", NOT_PERMITTED)
        names = {path.name.partition(".")[2] for path in (user.folder / ".whichtorch" / attempt["stacks"]).iterdir()}
        assert names == {"faulthandler.txt", "json", "txt"}
    assert cells["control/gil_deadlock"]["attempts"][0]["diagnosis"]["kind"] == "GIL cycle"
    # The threads wait for each other, which their Python frames alone do not tell; that one is joined, they do.
    assert cells["control/deadlock"]["attempts"][0]["diagnosis"]["kind"] == "wait for a thread"
    folder = user.folder / ".whichtorch" / cells["control/deadlock"]["attempts"][0]["stacks"]
    text = (folder / "diagnosis.txt").read_text()
    assert text.count("take (deadlock.py:17)") == 1, text  # of both threads, as they stand at the same place
    assert re.search(r"^threads \d+ and \d+", text, re.MULTILINE), text


def test_a_process_that_may_not_be_read(user: User) -> None:
    """`stacks PID` says so, and what to do."""
    with subprocess.Popen([sys.executable, PROGRAMS / "stuck_pipe.py"]) as program:
        ended = call(user, "-m", "whichtorch", "stacks", str(program.pid))
        program.kill()
    assert ended.returncode == 3
    assert f"no permission to read the stacks of process {program.pid}" in ended.stderr
    assert "hint: run it as root" in ended.stderr


def test_the_doctor_names_the_cause(user: User) -> None:
    """The lack of ptrace is a problem, with what the collector said, what the kernel says, and the remedy."""
    imported = "from pathlib import Path; from whichtorch.watch.checkup import check_up"
    ended = call(user, "-c", f"{imported}; print(*(c for c in check_up(Path(), Path('python')) if c.name == 'ptrace'))")
    assert ended.returncode == 0, ended.stderr
    assert "py-spy cannot read another process: EPERM: Operation not permitted (" in ended.stdout
    assert "a seccomp filter)" in ended.stdout
    assert "--security-opt seccomp=unconfined" in ended.stdout
