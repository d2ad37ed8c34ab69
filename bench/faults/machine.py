"""What the machine does to a script, which is never what the script did: an `error` that says so, and is made again.

The script waits until the fault has struck, asks for what it needs, and fails where it is refused. Once it has ended,
the machine is as before, and the attempt that is made then passes.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from bench.faults.disk import mounted, remount
from bench.faults.fault import Fault, Moment, NotHereError, NotStruckError
from bench.faults.ground import BrokenError, Fields, Ground, matrix
from bench.faults.shim import preloaded

ODD = matrix("odd.py", "passes.py", torch="9.2.0", more=("--jobs", "1"))
WAITS = """
# /// scenario
# timeout = 100
# ///
import os, subprocess, sys, threading, time
from pathlib import Path
folder = Path({folder!r})
child = subprocess.Popen(["sleep", "100"])
(folder / "up").write_text(str(os.getpid()))
gap, last = 0, time.monotonic()
while not (folder / "go").exists():
    time.sleep(0.01)
    gap, last = max(gap, time.monotonic() - last), time.monotonic()
{action}
child.kill()
"""
GROUPS = Path("/sys/fs/cgroup")
ROOM = 200_000_000  # bytes that a group may still use: the kernel counts it against a task, as if that used it
NEEDS_MEMORY = "import time; held = bytearray(600_000_000); time.sleep(600)"
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")


@dataclass(frozen=True)
class Victim:
    """A script that waits, and the command that runs it."""

    pid: int
    command: psutil.Process
    folder: Path


Strike = Callable[[Victim], AbstractContextManager[None]]


def strike(strike: Strike, action: str, words: str, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Strike while the script waits, let it go on until it has ended, and take the fault away."""
    folder = ground.user.folder.parent / "meeting"
    folder.mkdir()
    (ground.user.folder / "odd.py").write_text(WAITS.format(folder=str(folder), action=action).lstrip())
    process = ground.start(ODD.words)
    up = folder / "up"  # with the script's process id, once it is written
    while not up.exists() or not up.read_text():
        if process.poll() is not None:
            raise NotStruckError(f"the command ended first: {ground.said()[-500:]}")
        time.sleep(0.01)
    pid = int(up.read_text())
    with strike(Victim(pid, psutil.Process(process.pid), folder)):
        (folder / "go").touch()
        while psutil.pid_exists(pid) and process.poll() is None:
            time.sleep(0.01)
    ended = ground.ended(process)
    ground.check_line(ended, 0)
    attempts = [each["attempt"] for each in ground.records() if each["scenario"] == "odd.py"]
    # the error was made once more, and the note of what came of that says why
    if [each["outcome"] for each in attempts] != ["pass"] or words not in attempts[0]["note"]:
        raise BrokenError(f"{[(each['outcome'], each['note']) for each in attempts]}: {ended.output[-800:]}")
    if "1/2" in ended.output.partition("Everywhere")[2]:
        raise BrokenError(f"what the machine did counts as flaky: {ended.output[-800:]}")
    ground.wait_until_quiet()
    ground.check_left(mounted=True)


@contextmanager
def signalled(number: signal.Signals, victim: Victim) -> Iterator[None]:
    os.kill(victim.pid, number)
    yield


@contextmanager
def grouped_with(controller: str, victim: Victim) -> Iterator[Path]:
    """Put a command into a control group of its own."""
    root = next((each for each in (GROUPS / controller, GROUPS) if (each / "cgroup.procs").exists()), None)
    group = root / f"fault-{victim.pid}" if root else GROUPS
    try:
        group.mkdir()
    except OSError as error:
        raise NotHereError(f"no control group can be made: {error}") from None
    try:
        for each in (victim.command, *victim.command.children(recursive=True)):
            (group / "cgroup.procs").write_text(str(each.pid))
        yield group
    finally:
        assert root is not None
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            group.rmdir()


def limited(group: Path, names: tuple[str, ...], limit: int) -> None:
    """Write a limit of a group, whose file has a name in each version of control groups."""
    file = next((group / name for name in names if (group / name).exists()), None)
    if file is None:
        raise NotHereError(f"a control group has none of {names}")
    file.write_text(str(limit))


@contextmanager
def memory_taken(victim: Victim) -> Iterator[None]:
    """Let another program use up the memory of a machine: the kernel kills what it likes least, a task."""
    with grouped_with("memory", victim) as group:
        used = next(group / each for each in ("memory.usage_in_bytes", "memory.current") if (group / each).exists())
        hog = subprocess.Popen([sys.executable, "-c", f"import sys; sys.stdin.read()\n{NEEDS_MEMORY}"], stdin=-1)
        (group / "cgroup.procs").write_text(str(hog.pid))
        limited(group, ("memory.limit_in_bytes", "memory.max"), int(used.read_text()) + ROOM)
        try:
            assert hog.stdin is not None
            hog.stdin.close()
            yield
        finally:
            hog.kill()
            hog.wait()


@contextmanager
def processes_taken(victim: Victim) -> Iterator[None]:
    with grouped_with("pids", victim) as group:
        limited(group, ("pids.max",), int((group / "pids.current").read_text()))
        try:
            yield
        finally:
            (group / "pids.max").write_text("max")


@contextmanager
def disk_taken(victim: Victim) -> Iterator[None]:
    with mounted(victim.folder / "disk", "size=1m"):
        with suppress(OSError), (victim.folder / "disk" / "of_others").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield
        remount(victim.folder / "disk", "size=9m")


@contextmanager
def instances_taken(victim: Victim) -> Iterator[None]:
    """Use up the instances of inotify that a user may have."""
    libc, held = ctypes.CDLL(None), []
    if int(INSTANCES.read_text()) > 10_000:
        raise NotHereError("a user may have too many instances of inotify")
    while (each := libc.inotify_init()) >= 0:
        held.append(each)
    try:
        yield
    finally:
        for each in held:
            os.close(each)


@contextmanager
def suspended(victim: Victim) -> Iterator[None]:
    """Stop all processes of a command, as a laptop does that sleeps."""
    stopped = [*victim.command.children(recursive=True), victim.command]
    for each in stopped:
        each.suspend()
    time.sleep(8)
    (victim.folder / "go").touch()
    for each in stopped:
        each.resume()
    yield


def child_killed(victim: Victim) -> AbstractContextManager[None]:
    (child,) = psutil.Process(victim.pid).children()
    return signalled(signal.SIGKILL, Victim(child.pid, victim.command, victim.folder))


def clock_set(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Let the clock jump by a day while a script runs that goes by it, as its supervisor sees."""
    (ground.user.folder / "odd.py").write_text("raise TimeoutError('it took a day')\n")
    environ = preloaded(fields.folder) | {"FAULT_CLOCK": "86400", "FAULT_AFTER": "1"}
    ended = ground.give(ODD.words, environ)
    ground.check_line(ended)
    outcomes = [each["attempt"]["outcome"] for each in ground.records() if each["scenario"] == "odd.py"]
    if outcomes != ["error"] or "its clock was set" not in ended.output:
        raise BrokenError(f"{outcomes}: {ended.output[-800:]}")


INOTIFY = "import ctypes\nif ctypes.CDLL(None).inotify_init() < 0: raise OSError(24, 'inotify instance limit reached')"
WAITS_FOR_CHILD = "if child.poll(): raise subprocess.CalledProcessError(child.returncode, child.args)"
WRITES = "(folder / 'disk').mkdir(exist_ok=True)\n(folder / 'disk' / 'mine').write_bytes(bytes(300_000))"
ROWS: dict[str, tuple[Strike, str, str]] = {  # what the machine does, what the script does then, and what is said
    "somebody kills a script": (partial(signalled, signal.SIGKILL), "", "not known who ended it by SIGKILL"),
    "somebody terminates a script": (partial(signalled, signal.SIGTERM), "", "not known who ended it by SIGTERM"),
    "the terminal of a script hangs up": (partial(signalled, signal.SIGHUP), "", "not known who ended it by SIGHUP"),
    "somebody kills a script's child": (child_killed, WAITS_FOR_CHILD, "not known who killed a process of it"),
    "another program uses up the memory": (
        memory_taken,
        "time.sleep(9)",
        "the machine ran out of memory; this test used",
    ),
    "other programs use up the processes": (
        processes_taken,
        "for _ in range(20): subprocess.Popen(['sleep', '1'])",
        "the machine has no more processes: [Errno 11]",
    ),
    "other programs use up the threads": (
        processes_taken,
        "threading.Thread(target=print).start()",
        "the machine has no more processes: can't start new thread",
    ),
    "other programs fill a disk": (disk_taken, WRITES, "could not write to the disk"),
    "other programs use up the instances of inotify": (instances_taken, INOTIFY, "the machine has no more files"),
    "the machine sleeps": (suspended, "assert gap < 5, 'its heart stood still'", "it was suspended for"),
}
FAULTS = [
    *(Fault("machine", name, partial(strike, *row)) for name, row in ROWS.items()),
    Fault("machine", "the clock is set", clock_set),
]
