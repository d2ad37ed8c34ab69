"""The wait-for graph over all processes of a tree: from a thread that waits to those that could end its wait.

A link says how it is known: the kernel names the partner, two frames mean the same object, the source shows who holds
a lock, or nobody else can be meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang import job, partners
from whichtorch.matrix.diagnosis.hang.activity import descriptor_of
from whichtorch.matrix.diagnosis.hang.partners import PartnerLink, runs
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from whichtorch.matrix.diagnosis.hang.activity import ThreadState
    from whichtorch.matrix.diagnosis.stacks import Frame, Process

_FORKS = re.compile(r"(?:^|/)multiprocessing/popen_fork\.py$")


@dataclass(frozen=True, slots=True)
class Chain:
    """Who waits for whom, from one thread on, as far as it is known."""

    states: tuple[ThreadState, ...]
    links: tuple[PartnerLink, ...]  # from each state to the next; the last leads back into the chain where it is closed
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
        self._finders: dict[Waiting, Callable[[ThreadState], Iterator[PartnerLink]]] = {
            Waiting.THREAD: self._joined,
            Waiting.CHILD: self._children,
            Waiting.LOCK: partial(partners.lock_holders, self),
            Waiting.SEMAPHORE: partial(partners.lock_holders, self),
            Waiting.CONDITION: partial(partners.lock_holders, self),
            Waiting.FILE_LOCK: partial(partners.other_ends, self),
            Waiting.PIPE: partial(partners.other_ends, self),
            Waiting.SOCKET: partial(partners.other_ends, self),
            Waiting.IO: self._ready_ends,
            Waiting.QUEUE: partial(partners.workers, self),
            Waiting.FUTURE: partial(partners.workers, self),
            Waiting.EVENT: self._serving,
            Waiting.EVENT_LOOP: partial(partners.tasks_of_loop, self),
            Waiting.GIL: self._gil_holder,
        }

    def links(self, state: ThreadState) -> list[PartnerLink]:
        """Return who could end a thread's wait, the most telling first."""
        finder = self._finders.get(state.awaits) if state.awaits else None
        links = list(finder(state)) if finder else []
        unique = dict[int, PartnerLink]()
        for link in links:
            unique.setdefault(id(link.state), link)
        return sorted(unique.values(), key=lambda link: _telling(link.state))

    def chain(self, start: ThreadState) -> Chain:
        """Follow who waits for whom, always to the most telling partner, to the end or round a cycle."""
        if id(start) not in self._chains:
            self._chains[id(start)] = self._chain(start)
        return self._chains[id(start)]

    def _chain(self, start: ThreadState) -> Chain:
        states, links = [start], list[PartnerLink]()
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
        is_users = state.user.place is not None
        return is_users and self.is_forked(state.process) and not any(other.user.is_known for other in others)

    def _joined(self, state: ThreadState) -> Iterator[PartnerLink]:
        others = self._others(state)
        own = state.user.frame.address("self") if state.user.frame else 0
        for other in others:
            if state.partner is not None and other.tid == state.partner:
                yield PartnerLink(other, "its futex holds that thread's number")
                return
            if own and any(frame.address("self") == own for frame in _thread_frames(other)):
                yield PartnerLink(other, "the same Thread object")
                return
        if state.user.call and state.user.call.name == "Queue.join_thread":
            yield from (
                PartnerLink(other, "the thread that feeds a queue")
                for other in others
                if runs(other.user.frames, "multiprocessing/queues.py", "_feed")
            )
            return
        busy = [other for other in others if not other.is_idle and (other.user.place or other.awaits)]
        kinds = {other.awaits for other in busy}
        if len(busy) == 1 or (len(kinds) == 1 and None not in kinds) or state.user.is_exit:
            evidence = "the only other thread" if len(busy) == 1 else "all others wait alike"
            yield from (
                PartnerLink(other, evidence)
                for other in busy
                if other.user.place or len(busy) == 1 or not state.user.is_exit
            )

    def _children(self, state: ThreadState) -> Iterator[PartnerLink]:
        if state.user.call and state.user.call.is_of_manager:
            yield from partners.answering_threads(self, state)
            return
        if state.partner is not None:
            yield from (PartnerLink(other, "the number that it waits for") for other in self.mains(state.partner)[:1])
            return
        children = [pid for pid, process in self.processes.items() if process.parent == state.pid and not process.ended]
        if not children and len(self.processes) == 2:
            children = [pid for pid, process in self.processes.items() if pid != state.pid and process.parent is None]
        evidence = "its only child" if len(children) == 1 else "one of its children"
        for pid in children:
            yield from (PartnerLink(other, evidence) for other in self.mains(pid)[:1] if not _is_helper(other))

    def _ready_ends(self, state: ThreadState) -> Iterator[PartnerLink]:
        """Find the other end of what a thread polls; the children, where a library polls what they send."""
        yield from partners.other_ends(self, state)
        is_known = descriptor_of(state) is not None
        if not is_known and state.user.call and state.user.call.waiting is Waiting.IO:
            yield from self._children(state)

    def _serving(self, state: ThreadState) -> Iterator[PartnerLink]:
        """Find the thread that serves requests of a server which is told to shut down."""
        own = partners.server_of(state, "shutdown")
        for other in self.states:
            if own and other.process is state.process and partners.server_of(other, "serve_forever") == own:
                yield PartnerLink(other, "it serves the same server's requests")

    def _gil_holder(self, state: ThreadState) -> Iterator[PartnerLink]:
        for other in self.states:
            if other.process is state.process and other.thread.has_gil and other is not state:
                yield PartnerLink(other, "marked as the holder of the GIL")


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


def _thread_frames(state: ThreadState) -> Iterator[Frame]:
    """Yield the frames of `threading` in which a thread was started."""
    return (
        frame
        for frame in state.user.frames
        if frame.file_name == "threading.py" and frame.method in {"run", "_bootstrap"}
    )
