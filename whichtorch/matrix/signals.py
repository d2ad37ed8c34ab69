"""Say what runs, and where it is: whenever SIGQUIT or SIGUSR1 asks for it, and every few seconds unasked."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Self

from whichtorch.matrix.test_session import VARIABLE, read_session
from whichtorch.model.events import Emit, StacksSeen, StatusShown, time_words
from whichtorch.process import kernel
from whichtorch.process.spawning import find_tool

if TYPE_CHECKING:
    from types import FrameType

    from whichtorch.process.supervision import Supervised

SIGNALS = tuple(getattr(signal, name) for name in ("SIGQUIT", "SIGUSR1") if hasattr(signal, name))
PATIENCE = 5.0  # seconds for one py-spy: somebody is waiting at a terminal
LOOK_FIRST = 10.0  # seconds that an attempt has run when it is first looked at: by then most have ended
LOOK = 5.0  # seconds between looks
LOOK_CHECK = 1.0  # seconds between checks for an attempt that has run so long
LOOK_SHARE = 20  # pause after a look, in multiples of how long it took: looks use at most a twentieth of a core


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that ask a program to stop, without SIGHUP if it is ignored, as `nohup` does."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [each for each in signals if each != signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]


class Lookout:
    """Where attempts were last seen. While it is entered, a thread looks at those that have run for a while."""

    def __init__(self, running: Callable[[], Iterable[Supervised]], emit: Emit = lambda _: None) -> None:
        self._running, self._emit = running, emit
        self._over = threading.Event()
        self._seen: dict[Supervised, str] = {}  # by the last look at any

    def __enter__(self) -> Self:
        threading.Thread(target=self._look, name="lookout", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def cut_off(self, name: str, begun: float) -> str:
        """Return in words how long an attempt that was stopped just now had run, and where it was last seen."""
        seconds = time.monotonic() - begun
        seen = [
            line for each, line in self._seen.items() if each.task.name.startswith(name) and each.elapsed <= seconds
        ]
        return f"the script had run for {seconds:.0f} s" + (f", at {seen[0]}" if seen else "")

    def _look(self) -> None:
        pause = LOOK_CHECK
        while not self._over.wait(pause):
            begun = time.monotonic()
            if seen := {each: _where(each) for each in self._running() if each.elapsed >= LOOK_FIRST}:
                self._seen = seen
                self._emit(StacksSeen(lines={each.task.name: line for each, line in seen.items()}))
            pause = max(LOOK, LOOK_SHARE * (time.monotonic() - begun)) if seen else LOOK_CHECK


@contextmanager
def answering(running: Callable[[], Iterable[str]], emit: Emit) -> Iterator[None]:
    """Emit `StatusShown` whenever one of SIGNALS comes, with the lines on what is running then.

    A thread of its own does it: the handler runs between any two instructions of the main one, which may hold locks.
    """
    one_at_a_time = threading.Lock()

    def answer() -> None:
        with one_at_a_time:
            emit(StatusShown(lines=tuple(running())))

    def handle(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=answer, name="asked", daemon=True).start()

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def running_lines(running: Sequence[Supervised]) -> list[str]:
    """Return for each running task its name, its elapsed time and the line of Python that it is in."""
    with ThreadPoolExecutor(max(1, len(running))) as pool:
        return list(pool.map(_line, running))


def _line(supervised: Supervised) -> str:
    task = supervised.task
    since = f"{task.name or task.argv[-1]}  {supervised.elapsed:.0f} of {time_words(task.timeout, task.goal)}"
    return f"{since}  {_where(supervised)}"


def _where(supervised: Supervised) -> str:
    leader, tests = leader_of(supervised.pid), supervised.task.env.get(VARIABLE, "")
    return ", ".join(filter(None, (_running_test(tests), current_line(leader)))) if leader else "starting"


def _running_test(folder: str) -> str:
    """Return which test of a command's pytest runs, and how many have ended; "" where none is known to run."""
    session = read_session(Path(folder).parent) if folder else None
    running = next(iter(session.running), "") if session else ""
    return f"{running}, {len(session.ended)} of {len(session.ids)} tests done" if session and running else ""


def leader_of(supervisor: int) -> int | None:
    """Return the process that a supervisor started first, None before that."""
    members = [member for member in kernel.Tree(supervisor).look(full=True) if member.parent == supervisor]
    return min(members, key=lambda member: member.started).pid if members else None


def current_line(pid: int) -> str:
    """Return `function (file:line)` of a process's main thread, read without stopping it, or why it is not known."""
    py_spy = find_tool("py-spy")
    if py_spy is None:
        return "no py-spy to tell where"
    command = [py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        dump = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
        threads = json.loads(dump.stdout)
        main = [thread for thread in threads if thread.get("os_thread_id") == pid] or threads
        frame = main[0]["frames"][0]
        return f"{frame['name']} ({PurePath(frame['filename']).name}:{frame['line']})"
    except subprocess.TimeoutExpired:
        return f"process {pid}: py-spy took too long"
    except (OSError, ValueError, LookupError, TypeError):
        return f"process {pid}: no Python to be read"
