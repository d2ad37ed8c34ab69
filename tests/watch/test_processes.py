"""`stacks PID`: what any process is doing, taken from outside."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.process.running import PROGRAMS, family, until
from tests.process.test_capture import fake, needs_collectors
from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.process.kernel import command_line
from whichtorch.watch import process_report

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def waiting() -> Iterator[int]:
    """Return a process that waits for its child, which waits for ever."""
    with subprocess.Popen([sys.executable, PROGRAMS / "forks_and_waits.py"], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        child = int(program.stdout.readline())
        yield program.pid
        os.kill(child, 9)


def whichtorch(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-m", "whichtorch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@needs_collectors
def test_stacks_of_a_process_and_its_child(waiting: int) -> None:
    """Both are shown, frame by frame, for people and programs, and the process goes on as before."""
    ended = whichtorch("stacks", waiting, "--json", "-")  # what people read goes to stderr then
    assert ended.returncode == 0, ended.stderr
    assert "in_parent (forks_and_waits.py:" in ended.stderr
    assert "in_child (forks_and_waits.py:" in ended.stderr
    shown = json.loads(ended.stdout)
    assert {process["pid"] for process in shown["processes"]} == {waiting, *family(waiting)}
    assert (bool(shown["diagnosis"]["kind"]), shown["notes"], len(family(waiting))) == (True, [], 1)


def test_wrong_usage() -> None:
    """What was meant is said: files without --merge, several processes, none with that number, whichtorch itself."""
    ended = whichtorch("stacks", "host1.json", "host2.json")
    assert (ended.returncode, "--merge" in ended.stderr) == (2, True)
    assert "host1.json, host2.json: no number of a process" in ended.stderr
    assert "2 processes are given" in whichtorch("stacks", 1, 2).stderr
    ended = whichtorch("stacks", 2**22 - 1)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "there is no process" in ended.stderr
    with pytest.raises(UsageError):  # it would stop itself for ever
        process_report.inspect_process(os.getpid())


@pytest.mark.thorough
@needs_collectors
def test_what_is_written_can_be_merged(waiting: int, tmp_path: Path) -> None:
    """The answer names the machine as its file is called; the name of this machine is in none of it."""
    written = whichtorch("stacks", waiting, "--json", "-").stdout
    (tmp_path / "left.json").write_text(written)
    ended = whichtorch("stacks", "--merge", tmp_path / "left.json")
    assert ended.returncode == 0, ended.stderr
    assert "on left" in ended.stdout
    assert "in_child (forks_and_waits.py:" in ended.stdout


def test_lack_of_permission_has_a_remedy(waiting: int, tmp_path: Path) -> None:
    """Who may not read another process is told how to."""
    refused = fake(tmp_path, "refused", "echo 'Operation not permitted' >&2; exit 1")
    with pytest.raises(PreventedError, match="no permission") as caught:
        process_report.inspect_process(waiting, {"py-spy": refused, "pystack": refused})
    assert "ptrace_scope" in caught.value.hint
    assert caught.value.exit_code == 3


def test_missing_collectors_are_said(waiting: int) -> None:
    """Without any collector the kernel's view is what there is, and the notes say why."""
    shown = process_report.inspect_process(waiting, {})
    assert shown.notes == ("no collector is installed: py-spy, pystack or gdb",)
    assert any(f"{waiting}" in line for line in shown.lines)


def test_leader_is_found_below_its_supervisor(waiting: int) -> None:
    """The oldest child is the one that was started first."""
    from whichtorch.matrix.signals import leader_of

    assert until(lambda: leader_of(waiting) is not None)
    assert {leader_of(waiting)} == family(waiting)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Return what starts a shell that waits for the programs of a line; all of them end with the test."""
    shells: list[subprocess.Popen[bytes]] = []

    def start(line: str) -> int:
        ready = tmp_path / "ready"
        text = f"{line} echo > {ready}; wait"
        shells.append(subprocess.Popen(["sh", "-c", text], start_new_session=True))
        until(ready.exists)
        return shells[-1].pid

    yield start
    for shell in shells:
        for pid in (*family(shell.pid), shell.pid):
            with suppress(ProcessLookupError):  # a shell whose program was killed ends by itself
                os.kill(pid, 9)
        shell.wait()


def test_a_process_that_keeps_foreign_programs_is_refused(keeper: Callable[[str], int]) -> None:
    """As init does: nothing is paused, and the programs that may be meant are named."""
    program = f"{sys.executable} -c 'import time; time.sleep(300)'"
    pid = keeper(f"setsid {program} & setsid sleep 300 &")
    until(lambda: any("time.sleep" in command_line(child) for child in family(pid)))
    ended = whichtorch("stacks", pid)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"process {pid} keeps programs that have nothing to do with each other" in ended.stderr
    assert "time.sleep(300)" in ended.stderr


@pytest.mark.thorough
@needs_collectors
def test_a_shell_that_runs_one_program_is_not_refused(keeper: Callable[[str], int]) -> None:
    """A launcher's ranks may have sessions of their own: they are one program."""
    program = f"{sys.executable} {PROGRAMS / 'forks_and_waits.py'}"
    pid = keeper(f"setsid {program} & setsid {program} &")
    until(lambda: len(family(pid)) == 4)
    ended = whichtorch("stacks", pid)
    assert "in_child (forks_and_waits.py:" in ended.stdout, ended.stderr
