"""Take the stacks of every process of a tree that is about to be stopped, and keep them raw in a folder.

Each collector is a program of its own with its own patience. For each process of the tree they run in the order of
`COLLECTORS`: what the kernel says comes first (before anything disturbs the process), faulthandler last, whose signal
interrupts system calls. What fails is a note, and never more than that.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.grouping import grouped
from whichtorch.process import kernel
from whichtorch.process.evidence.sampler import kernel_lines
from whichtorch.process.spawning import Helper, find_tool

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

STACKS_SIGNAL = 59  # what whichtorch/inside/startup/sitecustomize.py registers
MEMBERS = 512  # processes of a tree of which the kernel is asked
PROCESSES = 256  # of a larger tree the first ones tell the story
FEW = 8  # processes that are all read in full, 1 to 2 s of a core each; of more, one of each kind: see `_choose`
AT_ONCE = 4  # processes read side by side
PATIENCE = 10.0  # seconds for one dump: with torch loaded the first reads 500 MB of symbols
BUDGET = 7.0  # seconds after which no further process is read in full
GLANCES = 20.0  # seconds after which no further process of a large tree is glanced at: 64 need 2 on two idle cores
LONGEST = 45.0  # seconds for all of it, after which nothing is waited for
WRITING = 0.5  # seconds for a process to write its own stacks: its handler runs at once, or its signals are blocked
STEP = 0.02  # seconds between two calls of `step`
STOPPED = "T"  # state of a process

_REFUSED = ("permission denied", "not permitted", "permissionerror", "ptrace_scope")
NOT_PERMITTED = "no permission to read stacks (ptrace): only what the process and the kernel tell by themselves is kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """One source of stacks: what it runs, on which processes, for how long, and who reads its output."""

    name: str  # of the program, which is looked for beside the running interpreter and on PATH
    arguments: tuple[str, ...] = ()  # {pid} is the process; () where the kernel or the process writes by itself
    file: str  # in the folder of stacks
    parser: str  # a function of whichtorch.hangs.stack_readers
    rank: int  # of two collectors that know a fact, the lower rank is believed
    patience: float = PATIENCE  # seconds for one process
    is_fallback: bool = False  # reads any process whose frames no other has read; a partial output of it is kept
    is_glance: bool = False  # reads the Python frames only, which costs next to nothing: of all processes of many

    @property
    def is_per_process(self) -> bool:
        """True where each process has a file of its own."""
        return "{pid}" in self.file


KERNEL = Collector(name="kernel", file="kernel.txt", parser="parse_kernel", rank=0)
FACTS = Collector(name="facts", file="facts.json", parser="parse_facts", rank=0)
TASKS = Collector(name="tasks", file="{pid}.tasks.json", parser="parse_tasks", rank=5)
FAULTHANDLER = Collector(name="faulthandler", file="{pid}.faulthandler.txt", parser="parse_faulthandler", rank=4)
COLLECTORS = (
    KERNEL,
    FACTS,
    Collector(
        name="py-spy", file="{pid}.pyspy.json", parser="parse_pyspy", rank=2,
        arguments=("dump", "--native", "--locals", "--json", "--pid", "{pid}"),
    ),
    Collector(
        name="py-spy", file="{pid}.python.json", parser="parse_pyspy", rank=2, is_glance=True,
        arguments=("dump", "--locals", "--json", "--pid", "{pid}"),
    ),
    Collector(
        name="pystack", file="{pid}.pystack.txt", parser="parse_pystack", rank=1,
        arguments=("remote", "--native", "{pid}"),
    ),
    Collector(
        name="gdb", file="{pid}.gdb.txt", parser="parse_gdb", rank=3, patience=30.0, is_fallback=True,
        arguments=("-nx", "-batch", "-p", "{pid}", "-ex", "thread apply all bt"),
    ),
    TASKS,
    FAULTHANDLER,
)  # fmt: skip


def find_tools(known: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the paths of the collectors' programs by name: the known ones, and those that are installed."""
    programs = [collector.name for collector in COLLECTORS if collector.arguments]
    paths = {name: (known or {}).get(name) or find_tool(name) for name in programs}
    return {name: path for name, path in paths.items() if path}


class Collection:
    """The stacks of some processes on their way into a folder; `step` is called again and again and never waits.

    `tools` are paths of programs by the collectors' names. `helpers` are the children that the caller reaps for it:
    pid -> status, None while they run. Processes are asked to write their own stacks unless `ask` is False. Then `told`
    is the folder that they were started with, where they are to write their tasks of asyncio; None: they are not asked.
    """

    def __init__(
        self,
        pids: Sequence[int],
        folder: str | Path,
        tools: Mapping[str, str],
        helpers: dict[int, int | None],
        *,
        ask: bool = True,
        told: Path | None = None,
    ) -> None:
        self._told = Path(folder) if ask else told
        self._folder, self._tools, self._helpers, self._may_ask = Path(folder), tools, helpers, ask
        self._folder.mkdir(parents=True, exist_ok=True)
        self._began = time.monotonic()
        self._pids = list(pids)[:PROCESSES]
        self._beyond = len(pids) - len(self._pids)
        self._dropped: list[int] = []  # processes for which no time was left
        self._failures: dict[str, str] = {}  # by collector
        self._given_up: set[str] = set()  # collectors that were too slow once, and are not run again
        self.is_refused = False  # no collector may read another process
        self._write_kernel_view(list(pids)[:MEMBERS])
        self._going = {pid for pid in self._pids if kernel.state(pid) != STOPPED}
        self._broken_off: set[int] = set()  # processes of which a collector was ended while it read them
        self.has_frames: set[int] = set()  # processes that a collector has read
        self._work = self._steps()

    def step(self, now: float) -> bool:
        """Take over what has ended, start what is next; return whether all is done."""
        if now - self._began > LONGEST:
            self._failures["diagnosis"] = f"took longer than {LONGEST:.0f} s"
            return True
        return next(self._work, self) is not None

    def close(self) -> None:
        """End the collectors that still run, and remove empty files."""
        self._work.close()
        is_to_be_asked = not (self._may_ask or self.has_frames)  # they write their files later
        kept = {self._own(pid) for pid in self._pids} if is_to_be_asked else set()
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # a process has just renamed it
                if path.suffix == ".part" or not (path.stat().st_size or path in kept):
                    path.unlink()

    def resume(self) -> None:
        """Continue the processes that killed collectors have left stopped; call it once the collectors have ended."""
        for pid in self._broken_off & self._going:
            if kernel.state(pid) == STOPPED:
                kernel.send(pid, signal.SIGCONT)

    @property
    def notes(self) -> list[str]:
        """What went wrong, each thing once."""
        notes = [NOT_PERMITTED] if self.is_refused else []
        notes += [f"{name}: {why}" for name, why in self._failures.items()]
        glanced_at = len(self.has_frames.intersection(self._dropped))
        if left_out := self._beyond + len(self._dropped) - glanced_at:
            notes.append(f"of {left_out} processes no stacks were taken: there were too many")
        if glanced_at:
            notes.append(f"of {glanced_at} processes only the Python frames were read: there were too many")
        return notes

    def _write_kernel_view(self, pids: Sequence[int]) -> None:
        """Write what /proc knows. A failure beyond states and system calls is only a note."""
        with (self._folder / KERNEL.file).open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(line + "\n" for line in kernel_lines(pids))
        from whichtorch.process.evidence import facts  # here: the tool imports this module without needing facts

        try:
            facts.write_facts(pids, self._folder / FACTS.file)
        except Exception as error:  # noqa: BLE001 - a hang can be explained without facts
            self._failures[FACTS.name] = repr(error)

    def _steps(self) -> Generator[None]:
        """Read the processes, at a glance first where there are many, and have them write their own stacks."""
        chosen = self._pids
        if len(chosen) > FEW:
            yield from self._read_all(chosen, GLANCES, is_glance=True)
            chosen = self._one_of_each_kind()
        yield from self._read_all(chosen, BUDGET, is_glance=False)
        yield from self._ask_for_tasks()
        if self._may_ask:
            yield from self._ask()

    def _one_of_each_kind(self) -> list[int]:
        """Return which processes of a large tree are read in full: one of each kind, of the rarest kind first.

        Processes of a kind are at the same places in the same program, as the ranks of a job are that wait for one.
        """
        glance = next(collector for collector in COLLECTORS if collector.is_glance)
        pids = (pid for pid in self._pids if pid not in self._dropped)
        kinds = grouped(pids, lambda pid: stack_shape(self._folder / glance.file.format(pid=pid)) or pid)
        return [own[0] for own in sorted(kinds.values(), key=lambda own: (own[0] not in self.has_frames, len(own)))]

    def _read_all(self, pids: Sequence[int], seconds: float, *, is_glance: bool) -> Generator[None]:
        """Read processes in parallel; start no more of them after so many seconds."""
        end = time.monotonic() + seconds
        waiting = list(pids)
        active: list[Generator[None]] = []
        try:
            while waiting or active:
                if time.monotonic() >= end:
                    self._dropped += waiting
                    waiting.clear()
                active = [reading for reading in active if next(reading, self) is None]
                while waiting and len(active) < AT_ONCE:
                    reading = self._read(waiting.pop(0), is_glance=is_glance)
                    if next(reading, self) is None:
                        active.append(reading)
                if active:
                    yield
        finally:
            for reading in active:
                reading.close()

    def _read(self, pid: int, *, is_glance: bool) -> Generator[None]:
        """Take the stacks of one process, collector after collector; yield while one works."""
        is_python = _is_python(pid)
        for collector in (row for row in COLLECTORS if row.is_glance == is_glance):
            name, path = collector.name, self._folder / collector.file.format(pid=pid)
            is_wanted = pid not in self.has_frames if collector.is_fallback else is_python
            if name not in self._tools or not is_wanted or name in self._given_up or not _is_alive(pid):
                continue
            part = path.with_name(path.name + ".part")
            argv = [self._tools[name], *(argument.format(pid=pid) for argument in collector.arguments)]
            try:
                helper = Helper(argv, collector.patience, self._helpers, str(part))
            except OSError as error:
                self._given_up.add(name)
                self._failures.setdefault(name, f"could not be started: {error}")
                continue
            status = None
            try:
                while helper.is_running:
                    yield
            finally:
                status, text = helper.finish()
                if status is None:  # it is too slow, or the collection is over
                    self._broken_off.add(pid)
            if status is None:
                self._given_up.add(name)
                self._failures.setdefault(name, "took too long")
                continue
            size = part.stat().st_size
            if size and (status == 0 or collector.is_fallback):
                part.replace(path)
            if size and status == 0:
                self.has_frames.add(pid)
            elif _is_alive(pid):  # failing to read a process that has ended is no lack of permission
                self._take_failure(name, pid, text.strip() or f"ended with status {os.waitstatus_to_exitcode(status)}")

    def _take_failure(self, collector: str, pid: int, why: str) -> None:
        if any(word in why.lower() for word in _REFUSED):
            self.is_refused = True
        else:
            self._failures.setdefault(collector, f"could not read process {pid}: {why.splitlines()[-1][:200]}")

    def _ask_for_tasks(self) -> Generator[None]:
        """Have the processes whose main thread may be in an idle event loop write its tasks: no collector sees them."""
        from whichtorch.process.evidence import loop_watch, snapshots  # here: as facts

        files: list[Path] = []
        if (told := self._told) is None:
            return
        for pid in self._pids:
            yield
            with suppress(OSError, ValueError, KeyError):  # it has ended, or there is no room
                own, file = (told / each.file.format(pid=pid) for each in (FAULTHANDLER, TASKS))
                is_idle = (snapshots.read_thread(pid, pid).call or "").startswith("epoll")
                if is_idle and own.exists() and kernel.catches(pid, loop_watch.LOOP_SIGNAL):
                    file.write_bytes(b"")
                    files.append(file)
                    kernel.send(pid, loop_watch.LOOP_SIGNAL)
        end = time.monotonic() + WRITING
        with suppress(OSError):
            while time.monotonic() < end and not all(file.stat().st_size for file in files):
                yield
            for file in files:
                file.replace(self._folder / file.name)

    def _ask(self) -> Generator[None]:
        """Signal every process that can write its Python stacks, until all have written them."""
        asked = [pid for pid in self._pids if self._own(pid).exists() and kernel.catches(pid, STACKS_SIGNAL)]
        for pid in asked:
            kernel.send(pid, STACKS_SIGNAL)
        sizes, end = [0 for _ in asked], time.monotonic() + WRITING
        while time.monotonic() < end:
            before, sizes = sizes, [self._own(pid).stat().st_size for pid in asked]
            if before == sizes and all(sizes):
                return
            yield

    def _own(self, pid: int) -> Path:
        return self._folder / FAULTHANDLER.file.format(pid=pid)


def stack_shape(path: Path) -> tuple[object, ...] | None:
    """Return the functions and lines that the threads of a process are in, as py-spy has written them to a file.

    Two processes of the same shape are at the same places in the same program. None where the file tells nothing.
    """
    try:
        rows = json.loads(path.read_bytes())
        stacks = [
            tuple((frame["filename"], frame["name"], frame["line"]) for frame in thread["frames"]) for thread in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return tuple(sorted(stacks, key=repr)) or None


def collect(pids: Sequence[int], folder: Path, tools: Mapping[str, str], told: Path | None = None) -> Collection:
    """Take the stacks of processes that may go on, and return when done.

    The only signal that is sent asks idle event loops for their tasks, in processes that write to a folder `told`.
    """
    helpers: dict[int, int | None] = {}
    collection = Collection(pids, folder, tools, helpers, ask=False, told=told)

    def reap(options: int) -> None:
        for child in [pid for pid, status in helpers.items() if status is None]:
            ended, status = os.waitpid(child, options)
            helpers[child] = status if ended else None

    try:
        while not collection.step(time.monotonic()):
            reap(os.WNOHANG)
            time.sleep(STEP)
    finally:
        collection.close()
        reap(0)  # all that still ran were killed
        collection.resume()
    return collection


def _is_python(pid: int) -> bool:
    """Return whether a process runs Python, by its program or by a library that it has loaded."""
    try:
        is_interpreter = Path(kernel.link(f"/proc/{pid}/exe")).name.startswith("python")
        return is_interpreter or b"/libpython" in kernel.read(f"/proc/{pid}/maps", 1 << 22)
    except OSError:
        return True  # not known: let the collectors say what is wrong


def _is_alive(pid: int) -> bool:
    return kernel.state(pid) not in {"", "Z", "X"}
