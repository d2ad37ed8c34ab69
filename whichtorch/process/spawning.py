"""The programs that a supervisor starts: a task's leader, and helpers such as py-spy that read it from outside."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time

from whichtorch.process import kernel

TYPE_CHECKING = False  # typing takes 3 ms to import, and a supervisor starts in 20
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

# Python ignores the first two, and exec keeps that; the others may be ignored since the tool's own start.
DEFAULTED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
HIGHEST = -20  # niceness
QUIET = {"DEBUGINFOD_URLS": "", "NO_COLOR": "1", "PYTHONPATH": ""}  # no downloads of symbols, no sitecustomize
TEXT_READ = 1 << 24  # bytes of what a helper writes


def find_tool(name: str) -> str | None:
    """Return the path of a program that the tool starts: beside the running interpreter, else on PATH."""
    import shutil  # here: most supervisors look for none

    folders = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    return shutil.which(name, path=folders)


def spawn(argv: Sequence[str], environ: Mapping[str, str], *outputs: str | int) -> int:
    """Start a program in a session of its own and return its process id; raise OSError where that fails.

    Its stdin is empty. Its stdout and its stderr are descriptors, or files that it appends to.
    """
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    for number, output in enumerate(outputs, 1):
        if isinstance(output, int):
            actions.append((os.POSIX_SPAWN_DUP2, output, number))
        else:
            actions.append((os.POSIX_SPAWN_OPEN, number, output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666))
    return os.posix_spawnp(
        argv[0], list(argv), environ, file_actions=actions, setsid=True, setsigmask=(), setsigdef=DEFAULTED
    )


def start_leader(task: dict[str, Any]) -> int:
    """Start a task's program."""
    outputs = (os.path.abspath(task["stdout"]), os.path.abspath(task["stderr"]))
    # The supervisor itself takes on what the leader inherits: no code can run between fork and exec.
    with leader_settings():
        os.chdir(task["cwd"])
        return spawn(task["argv"], task["env"], *outputs)


def raise_priority() -> None:
    """Be scheduled before other processes, where that is allowed; children do not inherit it.

    A deadline must fire on a crowded machine too, and the faster side wins against a fork bomb. The supervisor
    uses a few thousandths of a core.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)


@contextlib.contextmanager
def leader_settings() -> Iterator[None]:
    """Take on the core-dump limit and the OOM score that the leader inherits, and give them up again."""
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    score_path = "/proc/self/oom_score_adj"
    score = b""
    with contextlib.suppress(OSError, ValueError):
        # Where cores go to a program, the kernel ignores a limit of 0 but takes 1 as "none" (core(5)).
        piped = kernel.read("/proc/sys/kernel/core_pattern").startswith(b"|")
        resource.setrlimit(resource.RLIMIT_CORE, (min(int(piped), limits[1] if limits[1] >= 0 else 1), limits[1]))
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) == HIGHEST:
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # it was raised for an earlier task
    with contextlib.suppress(OSError):
        score = kernel.read(score_path)
        _write(score_path, b"1000")  # when the machine is out of memory, a task is killed first
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _write(score_path, score)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, limits)


def _write(path: str, text: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(text)


class Helper:
    """A program that reads a process from outside. Nobody blocks on it, and it is killed if it is too slow.

    The supervisor reaps it like all its children: `statuses` has its status, None while it runs. It writes into
    memory; with `stdout`, only its stderr goes there.
    """

    def __init__(
        self, argv: Sequence[str], patience: float, statuses: dict[int, int | None], stdout: str | None = None
    ) -> None:
        self._statuses = statuses
        self._text = os.memfd_create("helper")
        self._pid = spawn(argv, os.environ | QUIET, stdout or self._text, self._text)
        statuses[self._pid] = None
        self.started = time.monotonic()
        self._end = self.started + patience

    @property
    def is_running(self) -> bool:
        """Whether it has not ended and still has time."""
        return self._statuses[self._pid] is None and time.monotonic() < self._end

    def finish(self) -> tuple[int | None, str]:
        """Return its status, and what it wrote. One that has not ended is killed, and has no status."""
        status = self._statuses[self._pid]
        if status is None:
            kernel.send(self._pid, signal.SIGKILL)
        else:
            del self._statuses[self._pid]
        text = os.pread(self._text, TEXT_READ, 0).decode(errors="replace")
        os.close(self._text)
        return status, text
