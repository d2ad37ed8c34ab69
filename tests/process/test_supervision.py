"""Supervision of real processes: every program ends, is accounted for, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.process.running import PROGRAMS, begin, family, is_alive, run, until
from whichtorch.inside.startup import FOLDER
from whichtorch.process import kernel, marks, supervision
from whichtorch.process.supervisor import TERMINATE_GRACE, Supervisor

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and subreapers")


def test_exit_code_of_a_program(tmp_path: Path) -> None:
    """A program that ends by itself is stopped by "exit", with its exit code and what it used."""
    ending = run(tmp_path, "tells", "125")
    assert (ending.stopped_by, ending.exit_code, ending.signal) == ("exit", 125, None)
    assert (ending.survivors, ending.note, ending.problem) == ((), "", "")
    assert (tmp_path / "err").read_text() == "told\n"
    assert ending.stderr_bytes == 5
    assert ending.seconds > 0
    assert ending.cpu_seconds > 0
    assert ending.peak_rss_mb > 1


def test_a_program_that_asks_to_be_traced_hangs(tmp_path: Path) -> None:
    """It waits for a tracer that never comes: that is its ending, and none of the supervisor's."""
    source = "import ctypes, os, signal; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGUSR1)"
    ending = run(tmp_path, "tells", argv=(sys.executable, "-c", source), timeout=1.0)
    assert (ending.stopped_by, ending.problem) == ("timeout", "")


def test_suspended_time_is_no_time_of_the_task(tmp_path: Path) -> None:
    """A supervisor that was stopped with its task gives it that time back; what is merely late is not told."""
    supervisor = Supervisor({"timeout": 10.0, "is_hard": False, "processes": 9, "memory_mb": None})
    supervisor.begun, supervisor.deadline = 100.0, 110.0
    supervisor._give_back(0.5)
    assert (supervisor.deadline, supervisor.notes) == (110.0, [])
    supervisor._give_back(600.0)
    assert (supervisor.begun, supervisor.deadline) == (700.0, 710.0)
    assert supervisor.machine == ["it was suspended for 600 s"]


@pytest.mark.parametrize("seconds", [-3600, 86400])
def test_a_clock_that_is_set_is_told(seconds: float) -> None:
    """The time of day and the time since the start differ by the same, unless the one is set or the other stands."""
    supervisor = Supervisor({"timeout": 10.0, "is_hard": False, "processes": 9, "memory_mb": None, "stacks": None})
    supervisor.clocks -= seconds
    ending = supervisor._ending("exit", 1.0, (), [0])
    assert ending["machine"] == f"the machine slept, or its clock was set, by {seconds} s"


SENDERS = {
    "itself": ("os.kill(os.getpid(), 9)", "SIGKILL", ["SIGKILL"]),
    "its group": ("os.killpg(0, 15)", "SIGTERM", ["SIGTERM"]),
    "its child": (
        "pid = os.getpid()\nif not os.fork(): os.kill(pid, signal.SIGKILL)\ntime.sleep(60)",
        "SIGKILL",
        ["SIGKILL"],
    ),
    "another program, after it killed its child": (
        "child = subprocess.Popen(['sleep', '60'])\nchild.kill()\n"
        "subprocess.run(['sh', '-c', f'kill -9 {os.getpid()}'])\ntime.sleep(60)",
        "SIGKILL",
        [],
    ),
    "nobody, and it ends a child": (
        "child = subprocess.Popen(['sleep', '60'])\nos.kill(child.pid, 0)\nchild.terminate()\nchild.wait()\n",
        None,
        ["SIGTERM"],
    ),
}


@pytest.mark.parametrize("sender", SENDERS)
def test_the_signals_that_python_code_sent_are_known(tmp_path: Path, sender: str) -> None:
    """Those of the leader, its children and its forks; the one that ended the leader only if it was for the leader."""
    source, signal_, sent = SENDERS[sender]
    (tmp_path / "stacks").mkdir()
    environ = os.environ | {"PYTHONPATH": str(FOLDER), "WHICHTORCH_STACKS": str(tmp_path / "stacks")}
    argv = (sys.executable, "-c", f"import os, signal, subprocess, time\n{source}")
    ending = run(tmp_path, "tells", argv=argv, env=environ, stacks=str(tmp_path / "stacks"))
    assert (ending.signal, [*ending.sent]) == (signal_, sent)


def test_pages_that_processes_share_count_once(tmp_path: Path) -> None:
    """Three forks that use a parent's memory use no more than the parent: so counts the kernel, too."""
    source = (
        "import os, time\nheld = bytearray(200_000_000)\n"
        "for _ in range(3):\n    if not os.fork():\n        sum(held[::4096]); time.sleep(2); os._exit(0)\n"
        "for _ in range(3): os.wait()\n"
    )
    ending = run(tmp_path, "tells", argv=(sys.executable, "-c", source), memory_mb=4000)
    assert ending.exit_code == 0
    assert 200 <= ending.peak_rss_mb < 400


def test_a_kill_for_want_of_memory_is_counted_in_its_own_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other groups of a machine lose counts only where the kernel does not count by group."""
    told = {"/proc/self/cgroup": b"/mine", "/sys/fs/cgroup/mine/memory.events": b"2", "/proc/vmstat": b"7"}
    monkeypatch.setattr(kernel, "field", lambda path, _name: told.get(path, b""))
    assert kernel.oom_kills() == 2
    del told["/sys/fs/cgroup/mine/memory.events"]
    assert kernel.oom_kills() == 7
    told.clear()
    assert kernel.oom_kills() == 0


def test_surroundings_of_a_program(tmp_path: Path) -> None:
    """A program leads its session, has an empty stdin, no other descriptors and no priority, and dumps no core."""
    run(tmp_path, "tells", "0", mark="a:1:2:b")
    surroundings = json.loads((tmp_path / "out").read_text())
    assert surroundings["stdin"] == ""
    assert surroundings["cwd"] == str(tmp_path)
    assert surroundings["mark"] == "a:1:2:b"
    assert surroundings["leads"]
    assert surroundings["core"] in (0, 1)
    assert surroundings["oom_score_adj"] == 1000
    assert surroundings["scheduler"] == os.SCHED_OTHER
    assert [number for number in surroundings["descriptors"] if number > 3] == []


def test_same_path_merges_the_outputs(tmp_path: Path) -> None:
    """A stdout and a stderr with the same path are written to one file."""
    ending = run(tmp_path, "tells", "0", stderr=str(tmp_path / "out"))
    assert "told\n" in (tmp_path / "out").read_text()
    assert ending.stderr_bytes == 0


@pytest.mark.parametrize("change", [{"argv": ("/no/such/program",)}, {"cwd": "/no/such/folder"}])
def test_failed_start_is_a_problem(tmp_path: Path, change: dict[str, object]) -> None:
    """The ending of a task whose program or folder is missing says so, and has no exit code."""
    ending = run(tmp_path, "tells", "0", **change)
    assert "could not start" in ending.problem
    assert ending.exit_code is None


def test_ignoring_sigterm_does_not_help(tmp_path: Path) -> None:
    """A program that ignores SIGTERM is killed after the grace, which does not count as its time."""
    begun = time.monotonic()
    ending = run(tmp_path, "ignores_sigterm", timeout=1.0)
    assert (ending.stopped_by, ending.exit_code, ending.signal) == ("timeout", None, None)
    assert 1.0 <= ending.seconds <= time.monotonic() - begun - TERMINATE_GRACE


def test_detached_grandchild_is_named_and_killed(tmp_path: Path) -> None:
    """A double-forked grandchild in a session of its own is named as a survivor and killed."""
    ending = run(tmp_path, "leaves_grandchild")
    pid = int((tmp_path / "out").read_text())
    assert (ending.stopped_by, ending.exit_code) == ("exit", 0)
    assert len(ending.survivors) == 1
    assert f"({pid}): " in ending.survivors[0]
    assert "leaves_grandchild.py" in ending.survivors[0]
    assert not is_alive(pid)


@pytest.mark.thorough
def test_five_gigabytes_of_output(tmp_path: Path) -> None:
    """Head and tail are kept, the disk never holds the middle, and the writer is not disturbed."""
    running = begin(tmp_path, "prints_much", str(5 * 1024))
    largest = 0

    def is_over() -> bool:
        nonlocal largest
        if (tmp_path / "out").exists():
            largest = max(largest, (tmp_path / "out").stat().st_blocks * 512)
        return not family(running.pid) and largest > 0

    until(is_over)
    ending = running.wait()
    assert (ending.stopped_by, ending.exit_code) == ("exit", 0)
    assert ending.stdout_bytes == 5 * 1024**3 + len(b"first\nlast \xc3\xa9\n")
    kept = (tmp_path / "out").read_bytes()
    assert kept.startswith(b"first\nxxx")
    assert kept.endswith(b"xxxlast \xc3\xa9\n")
    assert b" bytes cut here ..." in kept
    assert len(kept) < 3_000_000
    assert largest < 2 * 1024**3


def test_memory_limit(tmp_path: Path) -> None:
    """A program that eats memory is stopped soon after its limit."""
    ending = run(tmp_path, "eats_memory", memory_mb=300)
    assert (ending.stopped_by, ending.exit_code, ending.signal) == ("memory", None, None)
    assert 300 <= ending.peak_rss_mb < 1500


def test_closing_stdout_changes_nothing(tmp_path: Path) -> None:
    """A program that closes its stdout goes on to its own end."""
    ending = run(tmp_path, "closes_stdout")
    assert (ending.stopped_by, ending.exit_code) == ("exit", 3)
    assert (tmp_path / "out").read_text() == "before\n"
    assert (tmp_path / "err").read_text() == "after\n"


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGFPE", "SIGKILL"])
def test_crashes_are_named(tmp_path: Path, name: str) -> None:
    """A signal that ends the program by itself is named."""
    ending = run(tmp_path, "dies", name)
    assert (ending.stopped_by, ending.exit_code, ending.signal) == ("exit", None, name)


@pytest.mark.parametrize("program", ["forks_endlessly", "setsid_forks"])
def test_fork_bomb(tmp_path: Path, program: str) -> None:
    """A program that forks without end is stopped, in one process group or in thousands of sessions."""
    running = begin(tmp_path, program, processes=60)
    ending = running.wait()
    assert ending.stopped_by == "processes"
    assert ending.note == ""
    assert family(running.pid) == set()


def test_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt ends all of a tree, and a second one changes nothing."""
    monkeypatch.setattr(supervision, "INTERRUPT_PATIENCE", PATIENCE)  # the machine may be busy
    running = begin(tmp_path, "tree", timeout=600)
    assert until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text())
    pids = family(running.pid)
    assert len(pids) == 3
    running.interrupt()
    running.interrupt()
    ending = running.wait()
    assert ending.stopped_by == "interrupt"
    assert ending.problem == ""
    assert [pid for pid in pids if is_alive(pid)] == []
    assert running.wait() is ending


def test_death_of_the_supervisor(tmp_path: Path) -> None:
    """When the supervisor itself is killed, the tool ends the tree."""
    running = begin(tmp_path, "tree", timeout=600)
    assert until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text())
    pids = family(running.pid)
    os.kill(running.pid, signal.SIGKILL)
    ending = running.wait()
    assert "supervisor" in ending.problem
    assert len(ending.survivors) == 3
    assert until(lambda: not any(map(is_alive, pids)))


def test_a_sweep_without_time_kills_what_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine so busy that one look takes all of its time, nothing is left stopped."""
    monkeypatch.setattr(marks, "SWEEP_PATIENCE", -1.0)
    mark = marks.mark_for(Path("here"), "late")
    with subprocess.Popen(["sleep", "60"], env=os.environ | {marks.MARK_VARIABLE: mark}) as process:
        environ = Path(f"/proc/{process.pid}/environ")  # empty for a moment after a program's start
        assert until(lambda: mark.encode() in environ.read_bytes())
        assert len(marks.sweep(mark.__eq__)) == 1
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_supervisor_that_hangs_does_not_hang_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that never answers is killed, and the tool ends the tree."""
    monkeypatch.setattr(supervision, "OUTER_GRACE", 1.0)
    running = begin(tmp_path, "tree", timeout=5.0)  # on a busy machine it takes seconds until the tree is there
    assert until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text())
    os.kill(running.pid, signal.SIGSTOP)
    pids = family(running.pid)
    ending = running.wait()
    assert ending.stopped_by == "timeout"
    assert "did not answer" in ending.problem
    assert until(lambda: not any(map(is_alive, pids)))


def _start_tool(folder: Path) -> tuple[subprocess.Popen[bytes], int, set[int]]:
    """Start a tool with a running task; return it, its supervisor and the task's processes."""
    tool = subprocess.Popen([sys.executable, str(PROGRAMS / "tool.py"), str(ROOT), str(folder)], stdout=subprocess.PIPE)
    assert tool.stdout is not None
    supervisor = int(tool.stdout.readline())
    tool.stdout.close()
    assert until(lambda: (folder / "out").exists() and (folder / "out").read_text())
    return tool, supervisor, family(supervisor)


def test_killing_the_tool_leaves_nothing(tmp_path: Path) -> None:
    """`kill -9` of the tool ends the supervisor and the whole tree."""
    tool, supervisor, pids = _start_tool(tmp_path)
    assert len(pids) == 3
    tool.kill()
    tool.wait()
    assert until(lambda: not any(map(is_alive, [supervisor, *pids])))


def test_sweep_finds_processes_without_owner(tmp_path: Path) -> None:
    """When tool and supervisor are both killed, the next run finds their processes by their mark."""
    tool, supervisor, pids = _start_tool(tmp_path)
    state = marks.state_id(tmp_path)

    def is_stale(mark: str) -> bool:
        return mark.startswith(state + ":") and marks.owner_is_dead(mark)

    assert marks.sweep(is_stale) == []  # its owner is alive
    os.kill(supervisor, signal.SIGSTOP)  # so that it cannot see the tool die
    tool.kill()
    tool.wait()
    os.kill(supervisor, signal.SIGKILL)
    assert until(lambda: not is_alive(supervisor))
    assert all(map(is_alive, pids))
    killed = marks.sweep(is_stale)
    assert len(killed) == 3
    assert all("tree.py" in line for line in killed)
    assert until(lambda: not any(map(is_alive, pids)))


def test_marks() -> None:
    """A mark names state folder, tool and attempt; its owner is this very process."""
    mark = marks.mark_for(Path(), "attempt:1")
    assert mark.split(":")[0] == marks.state_id(Path.cwd())
    assert mark.split(":")[1] == str(os.getpid())
    assert mark.endswith(":attempt:1")
    assert not marks.owner_is_dead(mark)
    parts = mark.split(":", 3)
    assert marks.owner_is_dead(":".join([parts[0], parts[1], "1", parts[3]]))
    assert not marks.owner_is_dead("no mark")
