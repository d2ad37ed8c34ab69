"""Take the stacks of every process of a tree that is about to be stopped, and keep them raw in a folder.

Each collector is a process of its own with its own patience, in this order for each process of the tree: what the
kernel says (before anything disturbs it), py-spy, pystack, gdb where both failed, and faulthandler, whose signal
interrupts system calls, last. What fails is a note, and never more than that.

    kernel.txt  PID.pyspy.json  PID.pystack.txt  PID.gdb.txt  PID.faulthandler.txt
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.process import kernel
from matrix.process.evidence.kernel_lines import kernel_lines
from matrix.process.tools import find_tool as find_tool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

STACKS_SIGNAL = 59  # what matrix/environments/inside/startup/sitecustomize.py registers
PROCESSES = 16  # of a larger tree the first ones tell the story, and each costs some 0.3 s
AT_ONCE = 4  # processes read side by side
PATIENCE = 10.0  # seconds for one dump: with torch loaded the first reads 500 MB of symbols
BUDGET = 7.0  # seconds after which no further process is begun with: what it tells by itself must do
GDB_PATIENCE = 30.0  # seconds
LONGEST = 45.0  # seconds for all of it, after which nothing is waited for
WRITING = 0.5  # seconds for a process to write its own stacks: its handler runs at once, or its signals are blocked
STEP = 0.02  # seconds between two calls of `step`

_REFUSED = ("permission denied", "not permitted", "permissionerror", "ptrace_scope")
_QUIET = {"DEBUGINFOD_URLS": "", "NO_COLOR": "1", "PYTHONPATH": ""}  # no downloads of symbols, no sitecustomize
NOT_PERMITTED = "no permission to read stacks (ptrace): only what the process and the kernel tell by themselves is kept"


class Tools:
    """Paths of the collectors, None where one is missing."""

    __slots__ = ("gdb", "py_spy", "pystack")

    def __init__(self, *, py_spy: str | None = None, pystack: str | None = None, gdb: str | None = None) -> None:
        self.py_spy, self.pystack, self.gdb = py_spy, pystack, gdb

    @property
    def any(self) -> bool:
        """True where there is one."""
        return bool(self.py_spy or self.pystack or self.gdb)


def find_tools() -> Tools:
    """Return the collectors of this machine."""
    return Tools(py_spy=find_tool("py-spy"), pystack=find_tool("pystack"), gdb=find_tool("gdb"))


class _Dump:
    """One collector at work on one process."""

    def __init__(self, tool: str, argv: list[str], path: Path, patience: float) -> None:
        self.tool, self.path = tool, path
        self._part = path.with_name(path.name + ".part")
        self.errors = os.memfd_create(tool)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self._part), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666),
            (os.POSIX_SPAWN_DUP2, self.errors, 2),
        ]
        self.pid = os.posix_spawn(argv[0], argv, os.environ | _QUIET, file_actions=actions, setsid=True)
        self.end = time.monotonic() + patience

    def finish(self, status: int) -> str:
        """Keep what was written where it is of use; return what went wrong, "" for nothing."""
        size = self._part.stat().st_size
        text = os.pread(self.errors, 1 << 14, 0).decode(errors="replace").strip()
        os.close(self.errors)
        if size and (status == 0 or self.tool == "gdb"):
            self._part.replace(self.path)
        if size and status == 0:
            return ""
        return text or f"ended with status {os.waitstatus_to_exitcode(status)}"


class _Target:
    """One process whose stacks are taken, collector after collector."""

    def __init__(self, pid: int, *, is_python: bool) -> None:
        self.pid = pid
        self.left = ["py-spy", "pystack", "gdb"] if is_python else ["gdb"]
        self.dump: _Dump | None = None
        self.has_frames = False


class Collection:
    """The stacks of some processes on their way into a folder; `step` is called again and again and never waits.

    `helpers` are the children that the caller reaps for it: pid -> status, None while they run.
    """

    def __init__(
        self, pids: Sequence[int], folder: Path, tools: Tools, helpers: dict[int, int | None], *, ask: bool = True
    ) -> None:
        self._folder, self._tools, self._helpers = folder, tools, helpers
        self._began = time.monotonic()
        self._failures: dict[str, str] = {}
        self._given_up: set[str] = set()  # who was too slow once is not asked again
        self._refused = False
        self._asked: float | None = None  # when faulthandler was
        self._sizes: dict[int, int] = {}
        self._may_ask = ask
        folder.mkdir(parents=True, exist_ok=True)
        self._pids = list(pids)[:PROCESSES]
        self._left_out = len(pids) - len(self._pids)
        with (folder / "kernel.txt").open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(line + "\n" for line in kernel_lines(self._pids))
        self._waiting = [_Target(pid, is_python=_is_python(pid)) for pid in self._pids]
        self._active: list[_Target] = []

    def step(self, now: float) -> bool:
        """Take over what has ended, start what is next; return whether all is done."""
        if now - self._began > LONGEST:
            self._note("diagnosis", f"took longer than {LONGEST:.0f} s")
            return True
        for target in list(self._active):
            self._advance(target, now)
        if self._waiting and now - self._began > BUDGET:
            self._left_out += len(self._waiting)
            self._waiting.clear()
        while self._waiting and len(self._active) < AT_ONCE:
            target = self._waiting.pop(0)
            self._active.append(target)
            self._advance(target, now)
        return not self._active and self._is_told(now)

    def close(self) -> None:
        """End what is still under way, and remove what holds nothing."""
        for target in self._active:
            if target.dump:
                kernel.send(target.dump.pid, signal.SIGKILL)
                os.close(target.dump.errors)
        for path in self._folder.iterdir():
            if path.suffix == ".part" or not path.stat().st_size:
                path.unlink()

    @property
    def is_refused(self) -> bool:
        """True where no collector may read another process, and none could."""
        return self._refused

    @property
    def notes(self) -> list[str]:
        """What went wrong, each thing once."""
        found = [NOT_PERMITTED] if self._refused else []
        found += [f"{tool}: {why}" for tool, why in self._failures.items()]
        if self._left_out:
            found.append(f"of {self._left_out} processes no stacks were taken: there were too many")
        return found

    def _advance(self, target: _Target, now: float) -> None:
        """Take one process on to its next collector."""
        if target.dump and not self._collect(target, target.dump, now):
            return
        while target.left:
            tool = target.left.pop(0)
            if tool == "gdb" and target.has_frames:
                continue
            if self._start(target, tool):
                return
        self._active.remove(target)

    def _collect(self, target: _Target, dump: _Dump, now: float) -> bool:
        """Return whether a dump is over: it has ended, or its time has."""
        status = self._helpers.get(dump.pid)
        if status is None and now < dump.end:
            return False
        target.dump = None
        if status is None:
            kernel.send(dump.pid, signal.SIGKILL)
            os.close(dump.errors)
            self._given_up.add(dump.tool)
            self._note(dump.tool, "took too long")
            return True
        del self._helpers[dump.pid]
        why = dump.finish(status)
        if not why:
            target.has_frames = True
        elif any(word in why.lower() for word in _REFUSED):
            self._refused = True
        elif _is_alive(target.pid):
            self._note(dump.tool, f"could not read process {target.pid}: {_last_line(why)}")
        return True

    def _start(self, target: _Target, tool: str) -> bool:
        """Start a collector on a process; return whether it runs."""
        path = {"py-spy": self._tools.py_spy, "pystack": self._tools.pystack, "gdb": self._tools.gdb}[tool]
        if path is None or tool in self._given_up or not _is_alive(target.pid):
            return False
        pid = str(target.pid)
        argv, suffix, patience = {
            "py-spy": ([path, "dump", "--native", "--json", "--pid", pid], "pyspy.json", PATIENCE),
            "pystack": ([path, "remote", "--native", pid], "pystack.txt", PATIENCE),
            "gdb": ([path, "-nx", "-batch", "-p", pid, "-ex", "thread apply all bt"], "gdb.txt", GDB_PATIENCE),
        }[tool]
        try:
            target.dump = _Dump(tool, argv, self._folder / f"{pid}.{suffix}", patience)
        except OSError as error:
            self._given_up.add(tool)
            self._note(tool, f"could not be started: {error}")
            return False
        self._helpers[target.dump.pid] = None
        return True

    def _note(self, tool: str, why: str) -> None:
        self._failures.setdefault(tool, why)

    def _is_told(self, now: float) -> bool:
        """Ask every process that can for its Python stacks; return whether all have written them down."""
        if self._asked is None:
            self._asked = now
            self._sizes = {pid: 0 for pid in self._pids if self._may_ask and self._can_tell(pid)}
            for pid in self._sizes:
                kernel.send(pid, STACKS_SIGNAL)
        before, self._sizes = self._sizes, {pid: self._own(pid).stat().st_size for pid in self._sizes}
        is_still = before == self._sizes and all(self._sizes.values())
        return is_still or now - self._asked > WRITING

    def _can_tell(self, pid: int) -> bool:
        """Return whether a process has registered; any other would die of the signal."""
        return self._own(pid).exists() and catches(pid, STACKS_SIGNAL)

    def _own(self, pid: int) -> Path:
        return self._folder / f"{pid}.faulthandler.txt"


def of_task(task: dict[str, Any], pids: Sequence[int], helpers: dict[int, int | None]) -> Collection:
    """Return the collection of a supervisor's task, with the tools that it names."""
    tools = Tools(py_spy=task.get("py_spy"), pystack=task.get("pystack"), gdb=task.get("gdb"))
    return Collection(pids, Path(task["stacks"]), tools, helpers)


def collect(pids: Sequence[int], folder: Path, tools: Tools) -> Collection:
    """Take the stacks of processes that are not this tool's, without asking themselves; return when that is done."""
    helpers: dict[int, int | None] = {}
    collection = Collection(pids, folder, tools, helpers, ask=False)
    try:
        while not collection.step(time.monotonic()):
            for child in [pid for pid, status in helpers.items() if status is None]:
                found, status = os.waitpid(child, os.WNOHANG)
                if found:
                    helpers[found] = status
            time.sleep(STEP)
    finally:
        collection.close()
        for child in [pid for pid, status in helpers.items() if status is None]:
            kernel.send(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return collection


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        status = kernel.read(f"/proc/{pid}/status")
        return bool(int(status.partition(b"\nSigCgt:")[2].split(None, 1)[0], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False


def _is_python(pid: int) -> bool:
    """Return whether a process runs Python: by its program, or by the library that it has loaded."""
    try:
        if Path(f"/proc/{pid}/exe").readlink().name.startswith("python"):
            return True
        return b"/libpython" in kernel.read(f"/proc/{pid}/maps", 1 << 22)
    except OSError:
        return True  # nobody can tell: let the collectors say what is wrong


def _is_alive(pid: int) -> bool:
    found = kernel.process(pid)
    return found is not None and found.is_alive


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:200]
