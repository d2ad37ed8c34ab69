"""The wait-for graph over all processes of a tree: from a thread that waits to those that could end its wait.

A link says how it is known: the kernel names the partner, two frames mean the same object, the source shows who holds
a lock, or nobody else can be meant. The processes of a distributed job are found here, too, and their ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.hangs.partners import FINDERS, PartnerLink
from whichtorch.hangs.thread_state import ThreadState, is_own, runs
from whichtorch.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from whichtorch.hangs.stacks import Process


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
        self.members = find_members(processes, self.states)
        self.ranks = find_ranks(self.members, self.states)

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


_RANKS = ("rank", "global_rank", "world_rank", "rank_id", "my_rank")  # variables, the surest first
_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_SIZES = ("world_size", "WORLD_SIZE", "nprocs", "num_ranks", "n_ranks")
_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
JOINT = {Waiting.COLLECTIVE, Waiting.RENDEZVOUS}


def find_members(processes: Sequence[Process], states: Sequence[ThreadState]) -> list[int]:
    """Return the processes of a distributed job: those with a thread that waits for others, and those like them."""
    waiting = {state.pid for state in states if state.awaits in JOINT and not _is_agent(state)}
    parents = {process.pid: process.parent for process in processes}
    siblings = {parents.get(pid) for pid in waiting} - {None}
    started = {process.pid for process in processes if _is_started_as_rank(process, processes, waiting)}
    return sorted(
        process.pid
        for process in processes
        if process.pid in waiting | started
        or (parents.get(process.pid) in siblings and _is_like(process, processes, waiting))
    )


def find_ranks(members: Sequence[int], states: Sequence[ThreadState]) -> dict[int, int]:
    """Return the rank of each process of a distributed job, by pid; none where nothing tells all of them.

    The ranks are told by variables of the program, by the environment, by the order in which torch.multiprocessing
    started them, or by a variable that counts them.
    """
    for text in (_variable, _environ, _local_variable, _position):
        known = {pid: rank for pid in members if (rank := _number(states, pid, text)) is not None}
        if known and len(known) == len(members) and len(set(known.values())) == len(known):
            return known
        free = set(range(len(members))) - set(known.values())
        if known and len(known) == len(members) - 1 and len(free) == 1:  # one process cannot be read, one rank is left
            return {pid: known.get(pid, min(free)) for pid in members}
    return _counted(members, states) if len(members) > 1 else {}


def _counted(members: Sequence[int], states: Sequence[ThreadState]) -> dict[int, int]:
    """Return the values of a variable of the user's outermost function that numbers the processes from 0 on."""
    mains = {state.pid: state for state in states if state.is_main and state.pid in members}
    entries = {pid: [frame for frame in state.user.frames if is_own(frame)][-1:] for pid, state in mains.items()}
    values = {pid: {value.name: value.text for frame in own for value in frame.values} for pid, own in entries.items()}
    for name in next(iter(values.values()), {}):
        numbers = {pid: int(row[name]) for pid, row in values.items() if row.get(name, "").isdigit()}
        if sorted(numbers.values()) == list(range(len(members))):
            return numbers
    return {}


def _is_agent(state: ThreadState) -> bool:
    """Return whether a thread is torchrun's own, which is no rank."""
    return bool(state.user.call) and any(frame.method == "launch_agent" for frame in state.user.frames)


def _is_started_as_rank(process: Process, processes: Sequence[Process], waiting: set[int]) -> bool:
    """Return whether a process was given its rank by a launcher, as those that wait were; children inherit it."""
    rank = process.environ.get("RANK")
    parent = next((other for other in processes if other.pid == process.parent), None)
    is_first = parent is None or parent.environ.get("RANK") != rank
    have_ranks = any("RANK" in other.environ for other in processes if other.pid in waiting)
    return bool(rank) and is_first and not process.ended and have_ranks


def is_spread(processes: Sequence[Process], ranks: Container[int]) -> bool:
    """Return whether all ranks that were started on the machines of a picture are in it, and others run elsewhere."""
    members = [process for process in processes if process.pid in ranks]
    hosts = {process.host: process.environ.get("LOCAL_WORLD_SIZE", "") for process in members}
    sizes = [int(size) for size in hosts.values() if size.isdigit()]
    return len(sizes) == len(hosts) and 0 < sum(sizes) <= len(members)


def _is_like(process: Process, processes: Sequence[Process], waiting: set[int]) -> bool:
    """Return whether a process was started like those that wait: by the same command, or with a rank of its own."""
    commands = {_without_numbers(other.command) for other in processes if other.pid in waiting}
    return not process.ended and (_without_numbers(process.command) in commands or "RANK" in process.environ)


def _without_numbers(command: str) -> str:
    """Return a command without its numbers: ranks, ports, and the descriptors that multiprocessing hands over."""
    return re.sub(r"\d+", "0", command)


def world_size(processes: Sequence[Process], states: Sequence[ThreadState], pids: Container[int]) -> int | None:
    """Return how many ranks the job has, where a variable or the environment tells."""
    members = [process for process in processes if process.pid in pids]
    sizes = [state.user.value(*_SIZES) for state in states if state.pid in pids]
    sizes += [process.environ.get(name, "") for name in _SIZE_VARIABLES for process in members]
    parents = {process.parent for process in members}
    sizes += [state.user.value("nprocs", "world_size") for state in states if state.pid in parents]
    numbers = [int(size) for size in sizes if size.isdigit()]
    return numbers[0] if numbers else None


def _number(states: Sequence[ThreadState], pid: int, text: Callable[[ThreadState], str]) -> int | None:
    texts = [text(state) for state in states if state.pid == pid and state.is_main]
    return next((int(word) for word in texts if word.isdigit()), None)


def _variable(state: ThreadState) -> str:
    return state.user.value(*_RANKS)


def _environ(state: ThreadState) -> str:
    return next((state.process.environ[name] for name in _VARIABLES if name in state.process.environ), "")


def _local_variable(state: ThreadState) -> str:  # on one machine only: the same numbers on each
    return state.user.value("local_rank") or state.process.environ.get("LOCAL_RANK", "")


def _position(state: ThreadState) -> str:
    """Return the index under which torch.multiprocessing started a process: a variable of its own frame."""
    frames = (frame for frame in state.user.frames if runs([frame], "torch/multiprocessing/spawn.py", "_wrap"))
    return next(filter(None, (frame.text("i") for frame in frames)), "")
