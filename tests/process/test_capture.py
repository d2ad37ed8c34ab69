"""The stacks of what is stopped are taken before that, and whatever a collector does changes no verdict."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.process.running import begin, family, is_alive, until
from whichtorch.hangs import stack_folder
from whichtorch.hangs.stack_readers import parse_facts, parse_faulthandler, parse_kernel
from whichtorch.inside.startup import FOLDER, sitecustomize
from whichtorch.process import kernel, supervision
from whichtorch.process.evidence import capture, facts, sampler
from whichtorch.process.spawning import find_tool
from whichtorch.process.supervision import Ending, Supervised

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
    pytest.mark.xdist_group("collect"),  # they share what they start
]
needs_collectors = pytest.mark.skipif(
    find_tool("py-spy") is None or find_tool("pystack") is None, reason="needs py-spy and pystack"
)

SPUN = 4.0  # seconds after which what spins is stopped
KINDS = {
    "stuck_locks": "lock cycle",
    "stuck_gil": "GIL cycle",
    "stuck_c_held": "lock cycle",
    "stuck_c_released": "lock cycle",
    "stuck_child": "lock cycle",
    "stuck_thread_of_child": "lock cycle",
    "spins": "spin in Python",
    "spins_in_c": "spin in native code",
    "spins_c_released": "spin in native code",
    "spins_child": "spin in Python",
    "spins_thread_of_child": "spin in Python",
}
NO_OTHERS = {"pystack": "/no/such/tool", "gdb": "/no/such/tool"}  # collectors beside py-spy


def begin_watched(folder: Path, program: str, **fields: object) -> Supervised:
    """Start a program as a cell is: with the start-up folder, and a folder for its stacks."""
    stacks = folder / "stacks"
    stacks.mkdir(parents=True)
    environ = os.environ | {"PYTHONPATH": str(FOLDER), "WHICHTORCH_STACKS": str(stacks)}
    return begin(folder, program, env=environ, stacks=str(stacks), **fields)


def fake(folder: Path, name: str, text: str) -> str:
    """Return the path of a script that stands in for a collector."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def make_impatient(monkeypatch: pytest.MonkeyPatch, name: str, seconds: float = 0.3) -> None:
    """Give one collector little time, and the others as much as ever."""
    rows = (replace(row, patience=seconds) if row.name == name else row for row in capture.COLLECTORS)
    monkeypatch.setattr(capture, "COLLECTORS", tuple(rows))


def test_signal_is_the_registered_one() -> None:
    """The supervisor sends what the start-up file registers."""
    assert capture.STACKS_SIGNAL == sitecustomize.STACKS_SIGNAL < signal.SIGRTMAX


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Ending, Path]]:
    """Run the stuck and the busy programs, some at once."""
    folder = tmp_path_factory.mktemp("stuck")
    endings: dict[str, tuple[Ending, Path]] = {}
    names = list(KINDS)
    for batch in (names[:4], names[4:8], names[8:]):
        started = {
            name: begin_watched(folder / name, name, timeout=SPUN, stall=not name.startswith("spins")) for name in batch
        }
        endings |= {name: (supervised.wait(), folder / name / "stacks") for name, supervised in started.items()}
    return endings


@pytest.mark.thorough
@needs_collectors
@pytest.mark.parametrize("name", KINDS)
def test_kind_of_a_real_hang(endings: dict[str, tuple[Ending, Path]], name: str) -> None:
    """What hangs or spins, in Python, in C, in a child or its thread, is told from its stacks."""
    ending, folder = endings[name]
    assert ending.stopped_by in {"stall", "timeout"}
    assert ending.note == ""
    found = stack_folder.diagnose_folder(folder)
    assert found is not None
    assert found[0].kind == KINDS[name]
    assert (folder / stack_folder.READABLE).read_text().startswith(KINDS[name])


@pytest.mark.thorough
@needs_collectors
def test_every_process_is_asked_in_every_way(endings: dict[str, tuple[Ending, Path]]) -> None:
    """Parent and child each have their raw stacks of each collector, and the child its own faulthandler file."""
    _, folder = endings["stuck_thread_of_child"]
    pids = [process.pid for process in parse_kernel((folder / "kernel.txt").read_text())]
    assert len(pids) == 2
    suffixes = ("faulthandler.txt", "pyspy.json", "pystack.txt")
    wanted = {f"{pid}.{suffix}" for pid in pids for suffix in suffixes} | {"kernel.txt", "facts.json"}
    assert {path.name for path in folder.iterdir()} - {stack_folder.READABLE} == wanted
    parent, child = (parse_faulthandler((folder / f"{pid}.faulthandler.txt").read_text()) for pid in pids)
    assert [len(process.threads) for process in (*parent, *child)] == [1, 2]


@pytest.mark.thorough
@needs_collectors
def test_diagnosis_is_not_counted(endings: dict[str, tuple[Ending, Path]]) -> None:
    """The clock of a task stands still while its stacks are taken, as far as it can tell."""
    ending, _ = endings["spins"]
    assert SPUN <= ending.seconds < SPUN + ending.diagnosis_seconds / 2


def test_collectors_that_fail_change_no_verdict(tmp_path: Path) -> None:
    """A collector that fails is a note, one that is missing is none, and faulthandler is still kept."""
    broken = fake(tmp_path, "py-spy", "echo no sense >&2; exit 1")
    supervised = begin_watched(
        tmp_path / "a", "ignores_sigterm", timeout=1.0, collectors=NO_OTHERS | {"py-spy": broken}
    )
    ending = supervised.wait()
    assert (ending.stopped_by, ending.exit_code) == ("timeout", None)
    assert "py-spy: could not read process" in ending.note
    assert "no sense" in ending.note
    files = {path.name.partition(".")[2] for path in (tmp_path / "a" / "stacks").iterdir()}
    assert files == {"txt", "json", "faulthandler.txt"}
    assert stack_folder.diagnose_folder(tmp_path / "a" / "stacks") is not None


def test_lack_of_permission_is_said_once(tmp_path: Path) -> None:
    """Two collectors without ptrace make one sentence."""
    refused = fake(tmp_path, "refused", "echo 'Error: Permission denied (os error 13)' >&2; exit 1")
    supervised = begin_watched(
        tmp_path / "a", "stuck_child", timeout=1.0, collectors=dict.fromkeys(("py-spy", "pystack", "gdb"), refused)
    )
    assert supervised.wait().note == capture.NOT_PERMITTED


@pytest.mark.parametrize("name", ["py-spy", "pystack"])
def test_a_collector_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It costs its patience once, is killed, and the next collector has its turn."""
    make_impatient(monkeypatch, name)
    started = tmp_path / "started"
    slow = fake(tmp_path, "slow", f"echo $$ >> {started}; exec sleep 600")
    good = fake(tmp_path, "good", "echo some text")
    tools = {"py-spy": good, "pystack": good} | {name: slow}
    running = begin(tmp_path / "a", "forks_and_waits")
    assert until(lambda: len(family(running.pid)) == 2)
    pids = sorted(family(running.pid))
    collection = capture.collect(pids, tmp_path / "stacks", tools)
    running.interrupt()
    running.wait()
    assert collection.notes == [f"{name}: took too long"]
    assert not any(is_alive(int(line)) for line in started.read_text().split())
    suffix = "pystack.txt" if name == "py-spy" else "pyspy.json"
    assert {f"{pid}.{suffix}" for pid in pids} <= {path.name for path in (tmp_path / "stacks").iterdir()}


GLANCE = """
case "$*" in
    *--native*) echo native ;;
    *) echo '[{"frames": [{"filename": "a.py", "name": "f", "line": LINE}]}]' | sed "s/LINE/$LINE/" ;;
esac
"""


def test_of_a_large_tree_one_process_of_each_kind_is_read_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python frames of all are read; those at the same lines as another one need no more."""
    monkeypatch.setattr(capture, "FEW", 3)
    running = [begin(tmp_path / name, "forks_and_waits") for name in "ab"]
    assert until(lambda: all(len(family(program.pid)) == 2 for program in running))
    pids = [pid for program in running for pid in sorted(family(program.pid))]
    odd = f'LINE=$(case "$*" in *"{pids[2]}"*) echo 2 ;; *) echo 1 ;; esac)'
    tool = fake(tmp_path, "py-spy", f"{odd}\n{GLANCE}")
    collection = capture.collect(pids, tmp_path / "stacks", {"py-spy": tool})
    for program in running:
        program.interrupt()
        program.wait()
    assert collection.notes == []
    names = {path.name for path in (tmp_path / "stacks").iterdir()} - {"kernel.txt", "facts.json"}
    assert names == {f"{pid}.python.json" for pid in pids} | {f"{pid}.pyspy.json" for pid in (pids[0], pids[2])}


def test_what_cannot_be_glanced_at_is_read_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of which nothing is known counts as like no other; past the budget a note says what is missing."""
    monkeypatch.setattr(capture, "FEW", 1)
    tool = fake(tmp_path, "py-spy", 'case "$*" in *--native*) echo x ;; *) echo "no sense" ;; esac')
    running = begin(tmp_path / "a", "forks_and_waits")
    assert until(lambda: len(family(running.pid)) == 2)
    pids = sorted(family(running.pid))
    collection = capture.collect(pids, tmp_path / "stacks", {"py-spy": tool})
    monkeypatch.setattr(capture, "GLANCES", -1.0)
    late = capture.collect(pids, tmp_path / "late", {"py-spy": tool})
    running.interrupt()
    running.wait()
    assert collection.notes == []
    assert {f"{pid}.pyspy.json" for pid in pids} <= {path.name for path in (tmp_path / "stacks").iterdir()}
    assert late.notes == ["of 2 processes no stacks were taken: there were too many"]


def test_who_was_stopped_by_a_collector_that_is_ended_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is killed while it reads a process may leave it stopped; who was stopped before stays so."""
    slow = fake(tmp_path, "slow", f"for last; do :; done; kill -STOP $last; touch {tmp_path}/stopped; exec sleep 600")
    make_impatient(monkeypatch, "py-spy", 2.0)  # enough to begin
    running = begin(tmp_path / "a", "forks_and_waits")
    assert until(lambda: len(family(running.pid)) == 2)
    pid = min(family(running.pid))

    def state() -> str:
        process = kernel.process(pid)
        return process.state if process else ""

    capture.collect([pid], tmp_path / "stacks", {"py-spy": slow})
    assert (tmp_path / "stopped").exists()
    went_on = until(lambda: state() != "T")
    kernel.send(pid, signal.SIGSTOP)
    assert until(lambda: state() == "T")
    capture.collect([pid], tmp_path / "later", {"py-spy": slow})
    stays = state()
    kernel.send(pid, signal.SIGCONT)
    running.interrupt()
    running.wait()
    assert (went_on, stays) == (True, "T")


def test_many_processes_cost_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the budget no further process is begun with, and a note says how many went without."""
    monkeypatch.setattr(capture, "AT_ONCE", 1)
    monkeypatch.setattr(capture, "BUDGET", 0.0)
    good = fake(tmp_path, "good", "sleep 0.1; echo x")
    pids = [os.getpid(), os.getppid(), os.getpid()]
    collection = capture.Collection(pids, tmp_path / "a", {"py-spy": good}, {}, ask=False)
    assert collection.step(time.monotonic())
    collection.close()
    assert collection.notes == ["of 3 processes no stacks were taken: there were too many"]


def test_the_kernel_is_asked_of_more_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel knows costs little: it is kept of processes of which no stacks are taken."""
    monkeypatch.setattr(capture, "PROCESSES", 1)
    running = begin(tmp_path / "a", "forks_and_waits")
    assert until(lambda: len(family(running.pid)) == 2)
    pids = sorted(family(running.pid))
    collection = capture.collect(pids, tmp_path / "stacks", {})
    running.interrupt()
    running.wait()
    assert collection.notes == ["of 1 processes no stacks were taken: there were too many"]
    assert [process.pid for process in parse_kernel((tmp_path / "stacks" / "kernel.txt").read_text())] == pids
    assert [process.pid for process in parse_facts((tmp_path / "stacks" / "facts.json").read_text())] == pids


def test_facts_that_cannot_be_taken_are_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong with them, the stacks are taken."""
    monkeypatch.setattr(facts, "write_facts", lambda pids, path: 1 / 0)
    collection = capture.Collection([os.getpid()], tmp_path, {}, {}, ask=False)
    assert collection.notes == ["facts: ZeroDivisionError('division by zero')"]
    assert (tmp_path / "kernel.txt").stat().st_size > 0


def test_gdb_only_where_the_others_failed(tmp_path: Path) -> None:
    """gdb, which is slow, is not asked about a process that another collector has read."""
    good, bad, gdb = (fake(tmp_path, name, text) for name, text in (("g", "echo x"), ("b", "exit 1"), ("d", "echo y")))
    for py_spy, wanted in ((good, False), (bad, True)):
        folder = tmp_path / str(wanted)
        begin_watched(
            folder, "ignores_sigterm", timeout=1.0, collectors={"py-spy": py_spy, "pystack": bad, "gdb": gdb}
        ).wait()
        assert any(path.name.endswith(".gdb.txt") for path in (folder / "stacks").iterdir()) is wanted


def test_interrupt_ends_the_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool's interrupt is heard while a collector hangs: half of the stacks prove nothing, and nothing is left."""
    monkeypatch.setattr(supervision, "INTERRUPT_PATIENCE", PATIENCE)  # the machine may be busy
    pid_file = tmp_path / "pid"
    slow = fake(tmp_path, "slow", f"echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}; exec sleep 600")
    supervised = begin_watched(tmp_path / "a", "ignores_sigterm", timeout=0.5, collectors=NO_OTHERS | {"py-spy": slow})
    assert until(pid_file.exists)
    supervised.interrupt()
    ending = supervised.wait()
    assert (ending.stopped_by, ending.problem) == ("interrupt", "")
    assert not is_alive(int(pid_file.read_text()))


def test_other_programs_are_not_sent_the_signal(tmp_path: Path) -> None:
    """A process without a handler would die of the signal: it is not sent."""
    good = fake(tmp_path, "good", "echo x")
    supervised = begin_watched(tmp_path / "a", "shell_child", timeout=2.0, collectors=NO_OTHERS | {"py-spy": good})
    assert supervised.wait().stopped_by == "timeout"
    assert "ended" not in (tmp_path / "a" / "out").read_text()


def test_kernel_lines_are_read_back() -> None:
    """What is written of this process names its parent and all its threads, as the parser reads it."""
    (process,) = parse_kernel("\n".join(sampler.kernel_lines([os.getpid()])))
    assert (process.pid, process.parent) == (os.getpid(), os.getppid())
    assert os.getpid() in {thread.tid for thread in process.threads}


def test_who_was_seen_asleep_sleeps() -> None:
    """A thread that wakes up at four looks of five, and uses no CPU, waits."""
    row = sampler.ThreadRow()
    for state in "RRSRR":
        row.look(f"1 state={state} wchan=0", 1.0)
    assert (row.line, row.works(0.06), row.is_settled(0.06)) == ("1 state=S wchan=0", False, True)


def test_who_only_queues_for_a_core_is_looked_at_again() -> None:
    """Ready to run without running tells nothing; CPU time does."""
    row = sampler.ThreadRow()
    row.look("1 state=R", 1.0)
    row.look("1 state=R", 1.0)
    assert not row.is_settled(0.06)
    row.look("1 state=R", 1.01)
    assert (row.works(0.06), row.is_settled(0.06)) == (True, True)


def test_who_uses_a_core_between_naps_runs() -> None:
    """Threads that hand the GIL to each other sleep in between."""
    row = sampler.ThreadRow()
    for cpu in (1.0, 1.02, 1.04):
        row.look("1 state=S", cpu)
    assert row.works(0.06)
