"""The wait-for graph over all processes of a tree: from a thread that waits to those that could end its wait.

A link says how it is known: the kernel names the partner, two frames mean the same object, the source shows who holds
a lock, or nobody else can be meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.diagnosis.hang import job
from matrix.diagnosis.hang.source_text import read_site
from matrix.diagnosis.hang.user_call import is_own
from matrix.model import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matrix.diagnosis.hang.activity import ThreadState
    from matrix.diagnosis.stacks import Descriptor, Frame, Process

_NAME = re.compile(r"[A-Za-z_]\w*")
# Functions of libraries in which a worker of a pool runs a task: end of the path, name.
_WORKERS = (
    ("concurrent/futures/thread.py", "_worker"),
    ("concurrent/futures/process.py", "_process_worker"),
    ("multiprocessing/pool.py", "worker"),
    ("torch/utils/data/_utils/worker.py", "_worker_loop"),
)
_EVENT_LOOP = "asyncio/base_events.py", "_run_once"
_FORKS = re.compile(r"(?:^|/)multiprocessing/popen_fork\.py$")


@dataclass(frozen=True, slots=True)
class Link:
    """Somebody who could end a wait."""

    state: ThreadState
    evidence: str
    since: str = ""  # of the holder of a lock, where it took it: "transfer.py:16"


@dataclass(frozen=True, slots=True)
class Chain:
    """Who waits for whom, from one thread on, as far as it is known."""

    states: tuple[ThreadState, ...]
    links: tuple[Link, ...]  # from each state to the next; the last leads back into the chain where it is closed
    closed_at: int | None = None  # position of the state that the last link leads back to

    @property
    def cycle(self) -> tuple[ThreadState, ...]:
        """The states that wait for each other."""
        return self.states[self.closed_at :] if self.closed_at is not None else ()


class WaitGraph:
    """Threads as nodes; edges are found when they are asked for."""

    def __init__(self, processes: Sequence[Process], states: Sequence[ThreadState]) -> None:
        self.processes = {process.pid: process for process in processes}
        roots = [process.pid for process in processes if process.parent not in self.processes]
        self.root = next(iter(roots), None)  # the process that no other one here has started
        self.all_states = states
        self.states = [state for state in states if not state.process.ended]
        self._own: dict[int, list[ThreadState]] = {}
        for state in self.states:
            self._own.setdefault(state.pid, []).append(state)
        self._chains: dict[int, Chain] = {}
        self.members = job.find_members(processes, self.states)
        self.ranks = job.find_ranks(self.members, self.states)
        self._finders: dict[Waiting, Callable[[ThreadState], Iterator[Link]]] = {
            Waiting.THREAD: self._joined,
            Waiting.CHILD: self._children,
            Waiting.LOCK: self._holders,
            Waiting.SEMAPHORE: self._holders,
            Waiting.CONDITION: self._holders,
            Waiting.FILE_LOCK: self._other_ends,
            Waiting.PIPE: self._other_ends,
            Waiting.SOCKET: self._other_ends,
            Waiting.IO: self._other_ends,
            Waiting.QUEUE: self._workers,
            Waiting.FUTURE: self._workers,
            Waiting.GIL: self._gil_holder,
        }

    def links(self, state: ThreadState) -> list[Link]:
        """Return who could end a thread's wait, the most telling first."""
        finder = self._finders.get(state.awaits) if state.awaits else None
        links = list(finder(state)) if finder else []
        unique = dict[int, Link]()
        for link in links:
            unique.setdefault(id(link.state), link)
        return sorted(unique.values(), key=lambda link: _telling(link.state))

    def chain(self, start: ThreadState) -> Chain:
        """Follow who waits for whom, always to the most telling partner, to the end or round a cycle."""
        if id(start) not in self._chains:
            self._chains[id(start)] = self._chain(start)
        return self._chains[id(start)]

    def _chain(self, start: ThreadState) -> Chain:
        states, links = [start], list[Link]()
        while found := self.links(states[-1]):
            back = next((link for link in found if link.state in states), None)
            onward = next((link for link in found if link.state not in states), None)
            if back and (onward is None or len(found) == 1 or states[-1].awaits in {Waiting.LOCK, Waiting.PIPE}):
                return Chain(tuple(states), (*links, back), states.index(back.state))
            if onward is None:
                break
            links.append(onward)
            states.append(onward.state)
        return Chain(tuple(states), tuple(links))

    def mains(self, pid: int) -> list[ThreadState]:
        """Return a process's threads, the one that matters first: it runs the user's code, or is the main thread."""
        return sorted(self._own.get(pid, ()), key=_telling)

    def _others(self, state: ThreadState) -> list[ThreadState]:
        """Return the other threads of a thread's process."""
        return [other for other in self._own.get(state.pid, ()) if other is not state]

    def is_forked(self, process: Process) -> bool:
        """Return whether a process is a fork of its parent, which has started no other program since."""
        others = [other for other in self.processes.values() if other is not process]
        only = others[0] if len(others) == 1 and process.parent is None else None
        parent = self.processes.get(process.parent or 0, only)
        frames = [frame for thread in process.threads for frame in thread.frames]
        has_trace = any(frame.is_python and _FORKS.search(frame.file or "") for frame in frames)
        return has_trace or (parent is not None and bool(parent.command) and parent.command == process.command)

    def is_forked_alone(self, state: ThreadState) -> bool:
        """Return whether a thread waits for a lock in a forked process that has no other thread to release it."""
        others = self._others(state)
        return self.is_forked(state.process) and not any(other.user.is_known for other in others)

    def is_in_event_loop(self, state: ThreadState) -> bool:
        """Return whether a thread waits inside a callback or coroutine: its event loop stands still meanwhile."""
        return state.user.place is not None and _runs(state.user.frames, *_EVENT_LOOP)

    def is_pool_worker(self, state: ThreadState) -> bool:
        """Return whether a thread runs a task of a pool."""
        return any(_runs(state.user.frames, file, name) for file, name in _WORKERS)

    def is_in_full_pool(self, state: ThreadState) -> bool:
        """Return whether a thread runs a task of a pool of threads, while no worker of its process is free."""
        file, name = _WORKERS[0]
        own = [other for other in self.states if other.process is state.process]
        return _runs(state.user.frames, file, name) and not any(
            other.is_idle and _runs(other.user.frames, file, name) for other in own
        )

    def _joined(self, state: ThreadState) -> Iterator[Link]:
        others = self._others(state)
        own = _address(state.user.frame, "self") if state.user.frame else 0
        for other in others:
            if state.partner is not None and other.tid == state.partner:
                yield Link(other, "its futex holds that thread's number")
                return
            if own and any(_address(frame, "self") == own for frame in _thread_frames(other)):
                yield Link(other, "the same Thread object")
                return
        if state.user.call and state.user.call.name == "Queue.join_thread":
            yield from (
                Link(other, "the thread that feeds a queue")
                for other in others
                if _runs(other.user.frames, "multiprocessing/queues.py", "_feed")
            )
            return
        busy = [other for other in others if not other.is_idle and (other.user.place or other.awaits)]
        kinds = {other.awaits for other in busy}
        if len(busy) == 1 or (len(kinds) == 1 and None not in kinds) or state.user.is_exit:
            evidence = "the only other thread" if len(busy) == 1 else "all others wait alike"
            yield from (
                Link(other, evidence) for other in busy if other.user.place or len(busy) == 1 or not state.user.is_exit
            )

    def _children(self, state: ThreadState) -> Iterator[Link]:
        if state.partner is not None:
            yield from (Link(other, "the number that it waits for") for other in self.mains(state.partner)[:1])
            return
        children = [pid for pid, process in self.processes.items() if process.parent == state.pid and not process.ended]
        if not children and len(self.processes) == 2:
            children = [pid for pid, process in self.processes.items() if pid != state.pid and process.parent is None]
        evidence = "its only child" if len(children) == 1 else "one of its children"
        for pid in children:
            yield from (Link(other, evidence) for other in self.mains(pid)[:1] if not _is_helper(other))

    def _holders(self, state: ThreadState) -> Iterator[Link]:
        if state.thread.owner is not None:
            yield from (
                Link(other, "the mutex names its owner") for other in self.states if other.tid == state.thread.owner
            )
            return
        if state.user.call and state.awaits is Waiting.LOCK:
            yield from self._holders_in_library(state)
            return
        place, wanted = state.user.place, state.user.site.wanted
        if place is None or not wanted or state.awaits is Waiting.CONDITION:
            return
        identity = lock_identity(wanted, place)
        for other in self.states:
            is_near = other.process is state.process or state.awaits is Waiting.SEMAPHORE
            if not is_near or other.process.host != state.process.host:
                continue
            outer = other.user.frames
            if other is state:
                outer = outer[outer.index(place) :]
            for frame in filter(is_own, outer):
                for held in read_site(frame).held:
                    if lock_identity(held.expression, frame) == identity:
                        yield Link(other, "the source shows that it holds it", f"{frame.file_name}:{held.line}")
                        return

    def _holders_in_library(self, state: ThreadState) -> Iterator[Link]:
        """Find the thread that is in the middle of a method of the object whose lock is waited for."""
        call, within = state.user.call, state.user.frame
        if call and within and call.is_innermost:
            for other in self.states:
                inside = [frame for frame in other.user.frames if frame.is_python][1:]
                if other.process is state.process and any(_is_same(frame, within) for frame in inside):
                    yield Link(other, "it is inside the same function")
            return
        known = {_address(frame, "self") for frame in state.user.frames if not is_own(frame)} - {0}
        for other in self.states:
            if other.process is state.process and other is not state:
                for frame in other.user.frames:
                    if not is_own(frame) and _address(frame, "self") in known and frame.method != "join":
                        yield Link(other, "it is in a method of the same object")
                        return

    def _workers(self, state: ThreadState) -> Iterator[Link]:
        """Find the workers of pools that are at a task, in this process and in its children."""
        if state.awaits is Waiting.QUEUE and not (state.user.call and state.user.call.waiting is Waiting.FUTURE):
            return
        children = {pid for pid, process in self.processes.items() if process.parent == state.pid}
        children |= {pid for pid, process in self.processes.items() if process.parent in children}
        for other in self.states:
            is_near = other.process is state.process or other.pid in children
            if other is state or not is_near:
                continue
            if other.waiting is Waiting.STOPPED and other.is_main and other.pid in children:
                yield Link(other, "a child that is stopped")
            elif not other.is_idle and other.user.place and self.is_pool_worker(other):
                yield Link(other, "a worker at a task")

    def _other_ends(self, state: ThreadState) -> Iterator[Link]:
        row = descriptor_of(state)
        holders = [pid for pid in row.holders if pid != state.pid] if row else []
        verb = "holds the lock" if state.awaits is Waiting.FILE_LOCK else "holds the other end"
        for pid in holders:
            threads = self.mains(pid)
            # Of a process with several threads, that matters which serves sockets.
            serving = [other for other in threads if other.awaits is Waiting.SOCKET and not other.is_idle]
            yield from (
                Link(other, verb)
                for other in (serving if state.awaits is Waiting.SOCKET else threads)[:1] or threads[:1]
            )
        if row is None and state.awaits is Waiting.IO and state.user.call and state.user.call.waiting is Waiting.IO:
            yield from self._children(state)

    def _gil_holder(self, state: ThreadState) -> Iterator[Link]:
        for other in self.states:
            if other.process is state.process and other.thread.has_gil and other is not state:
                yield Link(other, "marked as the holder of the GIL")


def descriptor_of(state: ThreadState) -> Descriptor | None:
    """Return the open file that a thread's system call works on, or the only one that its process waits on."""
    rows = state.process.descriptors
    if state.thread.descriptor is not None:
        return next((row for row in rows if row.number == state.thread.descriptor), None)
    return rows[0] if len(rows) == 1 else None


def lock_identity(expression: str, frame: Frame) -> tuple[object, ...]:
    """Return what makes two expressions mean the same lock: the object that they start from, else file and text."""
    values = {value.name: value for value in frame.values}
    match = _NAME.match(expression)
    root = values.get(match[0]) if match else None
    rest = expression[match.end() :] if match else expression
    rest = re.sub(r"(?<=\[)\w+(?=\])", lambda index: values[index[0]].text if index[0] in values else index[0], rest)
    return (root.address, rest) if root and root.address else (frame.file_name, expression)


def _telling(state: ThreadState) -> tuple[bool, bool, bool, bool, int, int]:
    """Order threads by how much they tell of a hang."""
    is_stopped = state.waiting is Waiting.STOPPED
    return (
        state.is_idle and not is_stopped,
        not state.user.is_known and not is_stopped,
        not state.is_main,
        state.awaits is None,
        state.pid,
        state.tid,
    )


def _is_helper(state: ThreadState) -> bool:
    """Return whether a process serves multiprocessing itself: it ends with the others, and holds nobody up."""
    return any(name in state.process.command for name in ("resource_tracker", "forkserver", "semaphore_tracker"))


def _runs(frames: Sequence[Frame], file: str, name: str) -> bool:
    return any(frame.is_python and frame.method == name and (frame.file or "").endswith(file) for frame in frames)


def _is_same(frame: Frame, other: Frame) -> bool:
    return (frame.file, frame.function) == (other.file, other.function)


def _address(frame: Frame, name: str) -> int:
    return next((value.address for value in frame.values if value.name == name), 0)


def _thread_frames(state: ThreadState) -> Iterator[Frame]:
    """Yield the frames of `threading` in which a thread was started."""
    return (
        frame
        for frame in state.user.frames
        if frame.file_name == "threading.py" and frame.method in {"run", "_bootstrap"}
    )
