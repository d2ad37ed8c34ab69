"""Run tasks on this machine: a bounded number at once, memory permitting, and those that import torch by a fork.

Most of a small script's time is `import torch`. A fork server pays for it once: one is kept for each interpreter, level
of imports and set of variables, below a supervisor that watches what is forked from it as if it had started it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import psutil

from whichtorch import inside
from whichtorch.process.marks import MARK_VARIABLE, mark_for, new_temporary_folder, sweep
from whichtorch.process.script_reading import read_script
from whichtorch.process.supervision import Ending, ForkServer, Supervised, Task, launch, marked, start

if TYPE_CHECKING:
    from collections.abc import Callable


MEMORY_PER_JOB_MB = 3000  # what a compiling torch process and its workers take, measured up to 2.6 GB
HEADROOM_MB = 1000  # left to the machine: no task starts below it while another runs
MEMORY_RECHECK = 0.5  # seconds between looks at the memory while a task waits for it


class Executor(Protocol):
    """Something that runs tasks. Its methods may be called from several threads."""

    @property
    def running(self) -> tuple[Supervised, ...]:
        """The tasks that run now."""

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        """Run a task to its end, or until `cancelled` is set; None if it was interrupted before it could start."""

    def interrupt(self) -> None:
        """Stop all tasks that run, and start no other."""


def usable_cores() -> int:
    """Return how many cores of this machine programs may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_slowdown() -> float:
    """Estimate how much longer a run takes than on an idle machine: the one-minute load per core, at least 1."""
    return max(1.0, os.getloadavg()[0] / usable_cores())


def default_jobs() -> int:
    """Return how many attempts fit this machine at once: its cores, memory permitting."""
    return max(1, min(usable_cores(), int(_available_mb() / MEMORY_PER_JOB_MB)))


def _available_mb() -> float:
    return psutil.virtual_memory().available / 2**20


class LocalExecutor:
    """Runs tasks on this machine, each under its own supervisor."""

    def __init__(self) -> None:
        self._running: set[Supervised] = set()
        self._changed = threading.Condition()
        self._interrupted = False

    @property
    def running(self) -> tuple[Supervised, ...]:
        """The tasks that run now."""
        with self._changed:
            return tuple(self._running)

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        """Run a task to its end, or until `cancelled` is set; None if it was interrupted before it could start."""
        return self.attend(lambda: start(task), cancelled)

    def attend(self, begin: Callable[[], Supervised], cancelled: threading.Event | None = None) -> Ending | None:
        """Begin a task when memory permits, and wait for its end; see `run`."""
        with self._changed:
            while self._running and not self._is_over(cancelled) and _available_mb() < HEADROOM_MB:
                self._changed.wait(MEMORY_RECHECK)
            if self._is_over(cancelled):
                return None
            supervised = begin()
            self._running.add(supervised)
        try:
            return supervised.wait(cancelled)
        finally:
            with self._changed:
                self._running.discard(supervised)
                self._changed.notify_all()

    def _is_over(self, cancelled: threading.Event | None) -> bool:
        return self._interrupted or (cancelled is not None and cancelled.is_set())

    def interrupt(self) -> None:
        """Stop all tasks that run, and start no other."""
        with self._changed:
            self._interrupted = True
            running = tuple(self._running)
            self._changed.notify_all()
        for supervised in running:
            supervised.interrupt()


PROGRAM = inside.path("fork_server.py")  # runs in the environments
SERVERS = 2  # alive at once: each holds some 300 MB
USES = 200  # forks of a server, after which another takes its place
FAILURES = 2  # of servers for the same interpreter, level and variables, after which none is tried any more
SHADOWED = "beside the script shadows a module"  # a server says so of a script, and can fork others
END_PATIENCE = 10.0  # seconds for a supervisor to end its server
# Variables that differ between attempts, and that nothing reads while it is imported: no part of what a server is.
PER_ATTEMPT = {"TMPDIR", "HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"}
# Of Python's own variables, those that do the same for a fork; the others act, or print, while Python starts or ends.
PYTHON_PREFIX = "PYTHON"
FORK_SAFE_PYTHON_VARIABLES = {
    *("PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "PYTHONWARNINGS"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONNOUSERSITE"),
    *("PYTHONSAFEPATH", "PYTHONOPTIMIZE", "PYTHONCOERCECLOCALE", "PYTHONBREAKPOINT", "PYTHONSTARTUP"),
}
OWN_PREFIX, HOOKS = "WHICHTORCH_", "WHICHTORCH_HOOKS"
# A forked script runs to its end, exit handlers included, but is not taken apart then: what frees the memory of torch
# and of compilers takes longer than a small script. A crash of that part is not seen.
BRIEF_EXIT = "WHICHTORCH_BRIEF_EXIT"
WRITING_HOOKS = {"note_functions", "last_operator"}  # they begin at the first import, with files of one attempt
FORKED_HOOKS = {"observe", "note_numbers"}  # they begin after the import of torch, in what is forked


class ForkSlot:
    """A supervisor that has a fork server, or will have one with its first task; it serves a task at a time."""

    def __init__(self, key: object, server: ForkServer) -> None:
        self.key = key  # what tells servers apart
        self._server = server
        self._program = launch(server.mark)
        self.uses = 0

    def begin(self, task: Task) -> Supervised:
        """Hand a task over."""
        self.uses += 1
        return Supervised(marked(replace(task, server=self._server)), self._program)

    def close(self) -> None:
        """End the server, and all that is below its supervisor; what its imports wrote goes, however that ended."""
        assert self._program.stdin is not None
        self._program.stdin.close()
        with self._program:
            try:
                self._program.wait(END_PATIENCE)
            except subprocess.TimeoutExpired:
                self._program.kill()
                sweep(lambda mark: mark == self._server.mark)
        shutil.rmtree(self._server.scratch, ignore_errors=True)


class ForkingExecutor(LocalExecutor):
    """Runs tasks on this machine: forked where that gives the same result as a start, else cold.

    It is a context manager: what it keeps alive ends with it. `servers` is how many may live at once.
    """

    def __init__(self, servers: int = SERVERS) -> None:
        super().__init__()
        self._most = servers
        self._lock = threading.Lock()  # of all below
        self._idle: list[ForkSlot] = []  # the one used last is the last
        self._alive = 0  # idle ones and those at work
        self._is_closed = False
        self._failures: Counter[object] = Counter()  # by key of a slot

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        """Run a task to its end, or until `cancelled` is set; None if it was interrupted before it could start."""
        level, because = level_of(task)
        slot = None
        if level:
            slot, because = self._take(task, task.fork_level or level)
        if slot is None:
            ending = super().run(task, cancelled)
            return replace(ending, cold_because=because) if ending else None
        ending = None
        try:
            ending = self.attend(lambda: slot.begin(task), cancelled)
            return ending
        finally:
            self._give_back(slot, ending)

    def interrupt(self) -> None:
        """Stop all tasks that run, and start no other."""
        super().interrupt()
        self.close()

    def close(self) -> None:
        """End the servers that are idle now, and each other one with its task; later tasks start cold."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._alive -= len(idle)
        for slot in idle:
            slot.close()

    def _take(self, task: Task, level: str) -> tuple[ForkSlot | None, str]:
        """Return a slot for a task, or why there is none; never wait for one."""
        key = (task.argv[0], level, tuple(sorted(_lasting(task.env).items())))
        left = None
        with self._lock:
            if self._is_closed:
                return None, "the executor is closed"
            if self._failures[key] >= FAILURES:
                return None, "its fork server has failed before"
            fitting = [slot for slot in self._idle if slot.key == key]
            if fitting:
                self._idle.remove(fitting[-1])
                return fitting[-1], ""
            if self._alive >= self._most:
                if not self._idle:
                    return None, "as many fork servers as may live are at work"
                left = self._idle.pop(0)
            else:
                self._alive += 1
        if left is not None:
            left.close()
        server = self._server(task, level)
        try:
            return ForkSlot(key, server), ""
        except BaseException:  # its supervisor could not be started
            shutil.rmtree(server.scratch, ignore_errors=True)
            with self._lock:
                self._alive -= 1
            raise

    def _give_back(self, slot: ForkSlot, ending: Ending | None) -> None:
        """Keep a slot for the next task, unless its server failed, grew old, or is not wanted any more."""
        is_shadowed = ending is not None and SHADOWED in ending.cold_because
        is_fit = ending is not None and not ending.problem and (ending.start != "cold" or is_shadowed)
        with self._lock:
            if ending is not None and ending.cold_because and not is_shadowed:
                self._failures[slot.key] += 1
            if is_fit and slot.uses < USES and not self._is_closed:
                self._idle.append(slot)
                return
            self._alive -= 1
        slot.close()

    def _server(self, task: Task, level: str) -> ForkServer:
        owner = task.mark.rpartition(":")[0]
        name = f"fork-{os.urandom(6).hex()}"
        mark = f"{owner}:{name}" if owner else mark_for(Path(task.cwd), name)
        return ForkServer(
            argv=(task.argv[0], str(PROGRAM), level),
            env=_lasting(task.env) | {MARK_VARIABLE: mark},
            level=level,
            mark=mark,
            scratch=str(new_temporary_folder()),
        )


def level_of(task: Task) -> tuple[str, str]:
    """Return how much a task's script may find imported, or "" and why it has to start cold."""
    hooks = set(_hooks(task.env)) & WRITING_HOOKS
    if len(task.argv) < 2 or not Path(task.argv[0]).name.startswith(("python", "pypy")):
        return "", "it is no script of Python"
    if not task.argv[1].endswith(".py") or not Path(task.argv[1]).is_absolute():
        return "", "it is no script with an absolute path"
    python = {
        name for name, text in task.env.items() if name.startswith(PYTHON_PREFIX) and text
    } - FORK_SAFE_PYTHON_VARIABLES
    if python:
        return "", f"{min(python)} is set"
    if hooks:
        return "", f"the hook {min(hooks)} begins at the first import"
    reading = read_script(Path(task.argv[1]))
    return reading.level, reading.cold_because


def _lasting(environ: dict[str, str]) -> dict[str, str]:
    """Return the variables that may act while torch is imported: a server must share them with a task."""
    hooks = ",".join(name for name in _hooks(environ) if name not in FORKED_HOOKS)
    lasting = {
        name: text
        for name, text in environ.items()
        if name not in PER_ATTEMPT and (name == BRIEF_EXIT or not name.startswith(OWN_PREFIX))
    }
    return lasting | ({HOOKS: hooks} if hooks else {})


def _hooks(environ: dict[str, str]) -> list[str]:
    """Return the names of the hooks that a process applies when it starts."""
    return [name.strip() for name in environ.get(HOOKS, "").split(",") if name.strip()]
