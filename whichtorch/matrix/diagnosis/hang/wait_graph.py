"""The wait-for graph over all processes of a tree: from a thread that waits to those that could end its wait.

A link says how it is known: the kernel names the partner, two frames mean the same object, the source shows who holds
a lock, or nobody else can be meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang import job
from whichtorch.matrix.diagnosis.hang.partners import FINDERS, PartnerLink
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.hang.activity import ThreadState
    from whichtorch.matrix.diagnosis.stacks import Process

_FORKS = re.compile(r"(?:^|/)multiprocessing/popen_fork\.py$")


@dataclass(frozen=True, slots=True)
class WaitChain:
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
        self._chains: dict[int, WaitChain] = {}
        self.members = job.find_members(processes, self.states)
        self.ranks = job.find_ranks(self.members, self.states)

    def links(self, state: ThreadState) -> list[PartnerLink]:
        """Return who could end a thread's wait, the most telling first."""
        finder = FINDERS.get(state.awaits) if state.awaits else None
        unique = dict[int, PartnerLink]()
        for link in finder(self, state) if finder else ():
            unique.setdefault(id(link.state), link)
        return sorted(unique.values(), key=lambda link: _by_relevance(link.state))

    def chain(self, start: ThreadState) -> WaitChain:
        """Follow who waits for whom, always to the most telling partner, to the end or round a cycle."""
        if id(start) not in self._chains:
            self._chains[id(start)] = self._chain(start)
        return self._chains[id(start)]

    def _chain(self, start: ThreadState) -> WaitChain:
        states, links = [start], list[PartnerLink]()
        while found := self.links(states[-1]):
            back = next((link for link in found if link.state in states), None)
            onward = next((link for link in found if link.state not in states), None)
            if back and (onward is None or len(found) == 1 or states[-1].awaits in {Waiting.LOCK, Waiting.PIPE}):
                return WaitChain(tuple(states), (*links, back), states.index(back.state))
            if onward is None:
                break
            links.append(onward)
            states.append(onward.state)
        return WaitChain(tuple(states), tuple(links))

    def mains(self, pid: int) -> list[ThreadState]:
        """Return a process's threads, the one that matters first: it runs the user's code, or is the main thread."""
        return sorted(self._own.get(pid, ()), key=_by_relevance)

    def others(self, state: ThreadState) -> list[ThreadState]:
        """Return all other threads but those of pools that wait for work."""
        return [other for other in self.states if other is not state and not other.is_idle]

    def beside(self, state: ThreadState) -> list[ThreadState]:
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
        others = self.beside(state)
        is_users = state.user.place is not None
        return is_users and self.is_forked(state.process) and not any(other.user.is_known for other in others)


def _by_relevance(state: ThreadState) -> tuple[bool, bool, bool, bool, int, int]:
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
