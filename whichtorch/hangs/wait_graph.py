"""The wait-for graph over all processes of a tree: from a thread that waits to those that could end its wait.

A link says how it is known: the kernel names the partner, two frames mean the same object, the source shows who holds
a lock, or nobody else can be meant. The processes of a distributed job are found here, too, and their ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.hangs.source_text import keeps_lock, read_site, shared_lock
from whichtorch.hangs.thread_state import (
    ThreadState,
    descriptor_of,
    is_answering,
    is_at_task,
    is_in_event_loop,
    is_own,
    is_pool_worker,
    runs,
)
from whichtorch.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from whichtorch.hangs.stacks import Descriptor, Frame, Process


_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class PartnerLink:
    """Somebody who could end a wait."""

    state: ThreadState
    evidence: str
    since: str = ""  # of the holder of a lock, where it took it: "transfer.py:16"


def _links(evidence: str, states: Iterable[ThreadState]) -> Iterator[PartnerLink]:
    return (PartnerLink(state, evidence) for state in states)


def lock_holders(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the holder of a lock: the mutex names it, or the source of the user's code shows it."""
    if state.thread.owner is not None:
        yield from _links("the mutex names its owner", (o for o in graph.states if o.tid == state.thread.owner))
        return
    if state.user.call and state.awaits is Waiting.LOCK:
        yield from _holders_in_library(graph, state)
        return
    place = state.user.place
    if place is None or state.awaits is Waiting.CONDITION:
        return
    wanted = set(_wanted_locks(state))
    for other in graph.states if wanted else ():
        is_near = other.process is state.process or state.awaits is Waiting.SEMAPHORE
        if not is_near or other.process.host != state.process.host:
            continue
        outer = other.user.frames
        if other is state:
            outer = outer[outer.index(place) :]
        given_back = _given_back(other)
        places = (
            f"{frame.file_name}:{held.line}"
            for frame in filter(is_own, outer)
            for held in (other.user.site if frame is other.user.place else read_site(frame)).held
            # A permit of a semaphore may be taken by one thread and given back by another.
            if (held.is_returned or state.awaits is Waiting.LOCK)
            and (identity := lock_identity(held.expression, frame)) in wanted
            and identity != given_back
        )
        if since := next(places, ""):
            yield PartnerLink(other, "the source shows that it holds it", since)
            if state.awaits is Waiting.LOCK:
                return  # a semaphore may have more holders


def _given_back(state: ThreadState) -> tuple[object, ...] | None:
    """Return what names the lock that a thread has given back while it waits: that of its condition."""
    if state.awaits is not Waiting.CONDITION or state.user.place is None:
        return None
    return lock_identity(state.user.site.target, state.user.place)


def _wanted_locks(state: ThreadState) -> Iterator[tuple[object, ...]]:
    """Yield what names the lock that a thread wants: on its line, and where a context manager of the user takes it."""
    for frame in filter(is_own, state.user.frames):
        wanted = (state.user.site if frame is state.user.place else read_site(frame)).wanted
        if wanted:
            yield lock_identity(wanted, frame)
        if not (wanted and keeps_lock(frame, wanted)):
            return


def _holders_in_library(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the thread that is in the middle of a method of the object whose lock is waited for."""
    call, within = state.user.call, state.user.frame
    if call and within and call.is_innermost:
        own = within.file, within.function
        for other in graph.states:
            inside = [frame for frame in other.user.frames if frame.is_python][1:]
            if other.process is state.process and any((frame.file, frame.function) == own for frame in inside):
                yield PartnerLink(other, "it is inside the same function")
        return
    known = {frame.address("self") for frame in state.user.frames if not is_own(frame)} - {0}
    for other in graph.beside(state):
        for frame in other.user.frames:
            if not is_own(frame) and frame.address("self") in known and frame.method != "join":
                yield PartnerLink(other, "it is in a method of the same object")
                return


def workers(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the workers of pools that are at a task, in this process and in its children; else the loop of a future."""
    if state.awaits is Waiting.QUEUE and not (state.user.call and state.user.call.waiting is Waiting.FUTURE):
        yield from _links("it waits for an item of the same queue", _readers(graph, state))
        return
    children = {pid for pid, process in graph.processes.items() if process.parent == state.pid}
    children |= {pid for pid, process in graph.processes.items() if process.parent in children}
    found = False
    for other in graph.states:
        is_near = other.process is state.process or other.pid in children
        if other is state or not is_near:
            continue
        if other.waiting is Waiting.STOPPED and other.is_main and other.pid in children:
            yield PartnerLink(other, "a child that is stopped")
        elif (
            not other.is_idle
            and is_pool_worker(other)
            and (other.user.place or is_at_task(other) or other.thread.missing_owner)
        ):
            found = True
            yield PartnerLink(other, "a worker at a task")
    if not found and state.awaits is Waiting.FUTURE:
        yield from _links("a thread with an event loop", filter(is_in_event_loop, graph.beside(state)))


def _readers(graph: WaitGraph, state: ThreadState) -> Iterator[ThreadState]:
    """Yield those who wait for an item of a queue, of a thread that waits for the lock of its reading end.

    What was made before a fork has the same address in all processes that were forked then.
    """
    call, own = state.user.call, state.user.frame.address("self") if state.user.frame else 0
    for other in graph.states if call and call.inside and own else ():
        there, frame = other.user.call, other.user.frame
        is_reading = call is not None and there is not None and there.name == call.name and not there.inside
        if is_reading and frame and frame.address("self") == own and other.process.host == state.process.host:
            yield other


def tasks_of_loop(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find what an idle event loop may wait for: tasks that it has given to a pool, programs that it has started."""
    yield from workers(graph, state)
    for pid, process in graph.processes.items():
        if process.parent == state.pid and not process.ended:
            yield from _links("a child of the loop's process", graph.mains(pid)[:1])


def other_ends(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find who has the other end of a pipe or socket, or the lock of a file."""
    row = descriptor_of(state)
    if state.awaits is Waiting.FILE_LOCK:
        yield from _file_lockers(graph, state, row)
        return
    for other in graph.states:
        end = descriptor_of(other) if other is not state and other.awaits is Waiting.SOCKET else None
        is_near = other.process.host == state.process.host
        if row and end and is_near and row.peer and (end.local, end.peer) == (row.peer, row.local):
            yield PartnerLink(other, "it waits at the socket's other end")
    holders = [pid for pid in row.holders if pid != state.pid] if row else []
    for pid in holders:
        threads = graph.mains(pid)
        # Of a process with several threads, that matters which serves sockets.
        serving = [other for other in threads if other.awaits is Waiting.SOCKET and not other.is_idle]
        telling = serving if serving and state.awaits is Waiting.SOCKET else threads
        yield from _links("holds the other end", telling[:1])


def _file_lockers(graph: WaitGraph, state: ThreadState, row: Descriptor | None) -> Iterator[PartnerLink]:
    path = row.link if row else state.user.value(*(state.user.call.values if state.user.call else ()))
    holders = set(row.holders) if row else set[int]()
    for pid, process in graph.processes.items():
        if any(file.link == path and pid in file.holders for file in process.descriptors):
            holders.add(pid)
    for pid in sorted(holders):
        yield from _links("holds the lock", graph.mains(pid)[:1] if pid != state.pid else ())


def ready_ends(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the other end of what a thread polls; the children, where a library polls what they send."""
    yield from other_ends(graph, state)
    if descriptor_of(state) is None and state.user.call and state.user.call.waiting is Waiting.IO:
        yield from child_threads(graph, state)


def joined_threads(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the thread whose end is waited for."""
    others = graph.beside(state)
    own = state.user.frame.address("self") if state.user.frame else 0
    for other in others:
        if state.partner is not None and other.tid == state.partner:
            return _links("its futex holds that thread's number", [other])
        if own and any(frame.address("self") == own for frame in _thread_frames(other)):
            return _links("the same Thread object", [other])
    if state.user.call and state.user.call.name == "Queue.join_thread":
        feeders = (other for other in others if runs(other.user.frames, "multiprocessing/queues.py", "_feed"))
        return _links("the thread that feeds a queue", feeders)
    busy = [other for other in others if not other.is_idle and (other.user.place or other.awaits)]
    kinds = {other.awaits for other in busy}
    if len(busy) == 1:
        return _links("the only other thread", busy)
    if state.user.is_exit:
        return _links("all others wait alike", (other for other in busy if other.user.place))
    return _links("all others wait alike", busy if len(kinds) == 1 and None not in kinds else ())


def _thread_frames(state: ThreadState) -> Iterator[Frame]:
    """Yield the frames of `threading` in which a thread was started."""
    names = {"run", "_bootstrap"}
    return (frame for frame in state.user.frames if frame.file_name == "threading.py" and frame.method in names)


def child_threads(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the child that is waited for, or all of them; of a manager's process, the thread that answers."""
    if state.user.call and state.user.call.is_of_manager:
        return answering_threads(graph, state)
    if state.partner is not None:
        return _links("the number that it waits for", graph.mains(state.partner)[:1])
    pids = [pid for pid, process in graph.processes.items() if process.parent == state.pid and not process.ended]
    if not pids and len(graph.processes) == 2:
        pids = [pid for pid, process in graph.processes.items() if pid != state.pid and process.parent is None]
    mains = (other for pid in pids for other in graph.mains(pid)[:1] if not _is_helper(other))
    return _links("its only child" if len(pids) == 1 else "one of its children", mains)


def _is_helper(state: ThreadState) -> bool:
    """Return whether a process serves multiprocessing itself: it ends with the others, and holds nobody up."""
    return any(name in state.process.command for name in ("resource_tracker", "forkserver", "semaphore_tracker"))


def serving_threads(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the thread that serves requests of a server which is told to shut down."""
    own = _server_of(state, "shutdown")
    own_process = (other for other in graph.states if other.process is state.process)
    others = (other for other in own_process if own and _server_of(other, "serve_forever") == own)
    return _links("it serves the same server's requests", others)


def _server_of(state: ThreadState, method: str) -> int:
    """Return the address of the server of `socketserver` one of whose methods a thread is in; 0 if it is in none."""
    frames = (frame for frame in state.user.frames if frame.file_name == "socketserver.py" and frame.method == method)
    return next((frame.address("self") for frame in frames), 0)


def gil_holder(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the thread of the process that holds the GIL."""
    return _links("marked as the holder of the GIL", (other for other in graph.beside(state) if other.thread.has_gil))


def answering_threads(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the threads of a manager's process that wait on behalf of a caller."""
    others = (other for other in graph.states if other.process is not state.process and is_answering(other))
    return _links("the thread of the manager that answers", others)


def lock_identity(expression: str, frame: Frame) -> tuple[object, ...]:
    """Return what makes two expressions mean the same lock: the object that they start from, else file and text."""
    expression = shared_lock(frame.file, expression) or expression
    values = {value.name: value for value in frame.values}
    match = _NAME.match(expression)
    root = values.get(match[0]) if match else None
    rest = expression[match.end() :] if match else expression
    rest = re.sub(r"(?<=\[)\w+(?=\])", lambda index: values[index[0]].text if index[0] in values else index[0], rest)
    if root and root.address:
        return (root.address, rest)
    # Two frames without values may be methods of two objects: their locks are not known to be the same.
    is_unknown_object = match is not None and match[0] in {"self", "cls"}
    return (frame.file_name, expression, id(frame)) if is_unknown_object else (frame.file_name, expression)


# Who could end a wait is searched for so.
FINDERS: dict[Waiting, Callable[[WaitGraph, ThreadState], Iterator[PartnerLink]]] = {
    Waiting.THREAD: joined_threads,
    Waiting.CHILD: child_threads,
    Waiting.LOCK: lock_holders,
    Waiting.SEMAPHORE: lock_holders,
    Waiting.CONDITION: lock_holders,
    Waiting.FILE_LOCK: other_ends,
    Waiting.PIPE: other_ends,
    Waiting.SOCKET: other_ends,
    Waiting.IO: ready_ends,
    Waiting.QUEUE: workers,
    Waiting.FUTURE: workers,
    Waiting.EVENT: serving_threads,
    Waiting.EVENT_LOOP: tasks_of_loop,
    Waiting.GIL: gil_holder,
}


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
            backs = [link for link in found if link.state in states]
            back = next((link for link in backs if link.state is not states[-1]), next(iter(backs), None))
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
        if state.thread.missing_owner:
            return self.is_forked(state.process)
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
