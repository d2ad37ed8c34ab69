"""Start a task under a supervisor, read how it ended, and find the processes that a killed tool left over.

This is the tool's side. A small program per task (`supervisor.py`) does the work; it outlives a tool that is
killed, and ends the tree then. Should both be killed, the mark in the environment of each process tells whose it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from matrix.process import kernel
from matrix.process.evidence import capture

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = str(Path(__file__).resolve().parents[2])  # the folder that holds the package `matrix`
PROGRAM = "import sys; sys.path.insert(0, {!r}); from matrix.process.supervisor import main; main()"
OUTER_GRACE = 40.0  # seconds past the timeout: twice what a working supervisor can take
MARK_VARIABLE = "WHICHTORCH_ATTEMPT"
SWEEP_PATIENCE = 5.0  # seconds: after that, what is left cannot be killed (uninterruptible sleep)
INTERRUPT_PATIENCE = 2.5  # seconds from `interrupt` until the supervisor itself is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to run and what it may use."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]  # the whole environment; `start` adds the mark
    stdout: str  # path of a file; the same path as stderr merges them
    stderr: str
    timeout: float  # seconds, wall clock
    goal: float | None = None  # seconds with a core that are enough: had them, it ends as at the timeout
    memory_mb: int | None = None  # resident, whole tree, 1 MB = 10**6 bytes
    processes: int = 512  # alive at once, whole tree
    stall: bool = False  # stop early on evidence that nothing in the tree can go on
    idle_limit: float | None = None  # seconds without any headway that end it as the timeout does
    sample: bool = False  # over the last seconds of a busy process, sample its stacks: is it still moving?
    mark: str = ""  # value of WHICHTORCH_ATTEMPT in the environment: finds survivors of a killed tool
    py_spy: str | None = None  # path of py-spy for `sample`; None: searched for
    stacks: str | None = None  # folder for the stacks of a task stopped by stall or timeout; None: not taken
    collectors: dict[str, str] = field(default_factory=dict)  # paths for `stacks` by name; others are searched for
    name: str = ""  # for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a task ended."""

    stopped_by: str  # a value of model.StoppedBy
    seconds: float  # from start to end or to the decision to stop it; diagnosis not counted
    limit: float | None = None  # seconds it was given: its timeout, less where it had its goal before; None: not known
    exit_code: int | None = None  # of the leader; None where a signal ended it or it had to be killed
    signal: str | None = None  # that ended the leader, "SIGSEGV"; None where the supervisor sent it
    cpu_seconds: float = 0  # user + system, whole tree
    peak_rss_mb: float = 0  # whole tree
    survivors: tuple[str, ...] = ()  # processes that outlived the leader: "name (pid): command line"
    stdout_bytes: int = 0  # as written
    stderr_bytes: int = 0
    busy: bool | None = None  # did the tree use or queue for a core at its timeout? None: not looked at
    moving: bool | None = None  # did a busy process's innermost frames change at its timeout? None: not known
    note: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)  # kernel waits of a stall, sampled frames
    diagnosis_seconds: float = 0  # spent on `Task.stacks`, not counted elsewhere
    problem: str = ""  # why nothing is known about the task: it could not be started, or the supervisor died


class Supervised:
    """A running task, seen from the tool (thread-safe)."""

    def __init__(self, task: Task, program: subprocess.Popen[bytes]) -> None:
        self.task = task  # with its mark and the paths of its tools filled in
        self._program = program
        self._started = time.monotonic()
        self._deadline = self._started + task.timeout + OUTER_GRACE + (capture.LONGEST if task.stacks else 0)
        self._ending: Ending | None = None
        self._waiting = threading.Lock()
        self._closing = threading.Lock()

    @property
    def pid(self) -> int:
        """Process id of the supervisor, whose descendants the task's processes are."""
        return self._program.pid

    @property
    def elapsed(self) -> float:
        """Seconds since the task's start."""
        return time.monotonic() - self._started

    def wait(self) -> Ending:
        """Return how the task ended; wait at most for its timeout and a grace."""
        with self._waiting:
            if self._ending is None:
                self._ending = self._read()
            return self._ending

    def interrupt(self) -> None:
        """Stop the task now; `wait` then returns an Ending stopped by "interrupt" within 3 s."""
        with self._closing:
            stdin = self._program.stdin
            if stdin is not None and not stdin.closed:
                self._deadline = min(self._deadline, time.monotonic() + INTERRUPT_PATIENCE)
                stdin.close()

    def _read(self) -> Ending:
        """Read the supervisor's answer; whatever happens to it, leave nothing running."""
        stdout = self._program.stdout
        assert stdout is not None
        # Each wait takes a second at most, because `interrupt` may bring the deadline forward meanwhile.
        poll = select.poll()
        poll.register(stdout.fileno(), select.POLLIN)
        answer, part = b"", b"?"
        while part and (left := self._deadline - time.monotonic()) > 0:
            if poll.poll(min(left, 1.0) * 1000):
                part = os.read(stdout.fileno(), 1 << 16)
                answer += part
        try:
            fields = json.loads(answer)
            fields["survivors"] = tuple(fields.get("survivors", ()))
            ending = Ending(**fields)
        except (ValueError, TypeError):
            ending = self._give_up(late=bool(part))
        self._program.kill()  # it has ended, unless it hangs itself
        self._program.wait()
        self.interrupt()  # closes its stdin
        stdout.close()
        return ending

    def _give_up(self, *, late: bool) -> Ending:
        """End all processes that carry the task's mark, because the supervisor cannot."""
        self._program.kill()
        survivors = sweep(lambda mark: mark == self.task.mark)
        interrupted = self._program.stdin is not None and self._program.stdin.closed
        return Ending(
            stopped_by="interrupt" if interrupted else "timeout" if late else "exit",
            seconds=time.monotonic() - self._started,
            survivors=tuple(survivors[: kernel.SURVIVORS_NAMED]),
            problem="the supervisor did not answer in time" if late else "the supervisor died",
        )


def start(task: Task) -> Supervised:
    """Start a task under a supervisor process of its own.

    Return at once. What keeps the task from starting (no such program or folder) is its Ending's `problem`.
    """
    mark = task.mark or mark_for(Path(task.cwd), os.urandom(6).hex())
    fields = asdict(task)
    fields["mark"] = mark
    fields["env"] = task.env | {MARK_VARIABLE: mark}
    if task.sample or task.stacks:
        fields["py_spy"] = task.py_spy or capture.find_tool("py-spy")
    if task.stacks:
        fields["collectors"] = capture.find_tools({"py-spy": fields["py_spy"]} | task.collectors)
    program = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM.format(ROOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {MARK_VARIABLE: mark},
        start_new_session=True,  # Ctrl-C at the terminal is the tool's business
        bufsize=0,
    )
    assert program.stdin is not None
    text = memoryview(json.dumps(fields).encode() + b"\n")
    with contextlib.suppress(BrokenPipeError):  # it died; `wait` says so
        while text:
            text = text[program.stdin.write(text) or 0 :]
    return Supervised(Task(**fields), program)


def state_id(state: Path) -> str:
    """Return a short name of a state folder, the same for every tool on this machine that uses it.

    The pid namespace is part of the name: process ids of another container mean nothing here.
    """
    with contextlib.suppress(OSError):
        state = state.resolve()
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path
    return hashlib.sha256(f"{state}\0{namespace}".encode(errors="replace")).hexdigest()[:12]


def mark_for(state: Path, attempt: str) -> str:
    """Return the mark of one attempt of this very process: "<state id>:<tool pid>:<tool start>:<attempt>"."""
    pid = os.getpid()
    return f"{state_id(state)}:{pid}:{_start_time(pid)}:{attempt}"


def owner_is_dead(mark: str) -> bool:
    """Return whether the tool that made `mark` has gone; False for a text that is not a mark."""
    parts = mark.split(":", 3)
    if len(parts) != 4 or not parts[1].isdigit() or not parts[2].isdigit():
        return False
    return _start_time(int(parts[1])) != int(parts[2])


def _start_time(pid: int) -> int:
    """Return when a process started: ticks since boot, 0 without /proc, -1 if it is a zombie or has gone."""
    if kernel.HAS_PROC:
        process = kernel.process(pid)
        return process.started if process and process.is_alive else -1
    return 0 if psutil.pid_exists(pid) else -1


def sweep_left_behind(state: Path) -> None:
    """SIGKILL what killed tools with the same state folder have left running."""
    ours = state_id(state)
    sweep(lambda mark: mark.startswith(ours) and owner_is_dead(mark))


def sweep(is_stale: Callable[[str], bool]) -> list[str]:
    """SIGKILL all processes whose mark `is_stale`, and their descendants; return their descriptions.

    Spare this process and its ancestors. Without /proc, no process is found.
    """
    if not kernel.HAS_PROC:
        return []
    killed: dict[int, str] = {}
    end = time.monotonic() + SWEEP_PATIENCE
    while time.monotonic() < end:
        stale = _stale(is_stale)
        if not stale:
            break
        fresh = stale - killed.keys()
        for pid in fresh:
            kernel.send(pid, signal.SIGSTOP)
            killed[pid] = kernel.describe(pid)
        if fresh:
            continue  # until no new process turns up: a frozen process cannot fork
        for pid in stale:
            kernel.send(pid, signal.SIGKILL)
        time.sleep(0.01)  # only a parent is notified of the end
    return list(killed.values())


def _stale(is_stale: Callable[[str], bool]) -> set[int]:
    """Return the living processes that carry a stale mark, and their descendants."""
    processes = {pid: process for pid in kernel.pids() if (process := kernel.process(pid)) and process.is_alive}
    spared = {os.getpid()}
    ancestor = os.getppid()
    while ancestor in processes:
        spared.add(ancestor)
        ancestor = processes[ancestor].parent
    marks = {pid: _read_mark(pid) for pid in processes.keys() - spared}
    stale = fresh = {pid for pid, mark in marks.items() if mark is not None and is_stale(mark)}
    while fresh:
        fresh = {pid for pid, process in processes.items() if process.parent in stale} - stale - spared
        stale = stale | fresh
    return stale


def _read_mark(pid: int) -> str | None:
    """Return the mark that a process was started with, None where it has none or may not be read."""
    try:
        environment = kernel.read(f"/proc/{pid}/environ", 1 << 22)
    except OSError:
        return None
    _, name, rest = (b"\0" + environment).partition(b"\0" + MARK_VARIABLE.encode() + b"=")
    return os.fsdecode(rest.partition(b"\0")[0]) if name else None
