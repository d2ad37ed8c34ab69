"""Find who could end a wait: holders of locks, workers of pools, threads of an event loop, other ends of pipes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.hangs.source_text import keeps_lock, read_site
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
    from whichtorch.hangs.stacks import Descriptor, Frame
    from whichtorch.hangs.wait_graph import WaitGraph

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
        for frame in filter(is_own, outer):
            for held in read_site(frame).held:
                identity = lock_identity(held.expression, frame)
                if identity in wanted and identity != given_back:
                    yield PartnerLink(other, "the source shows that it holds it", f"{frame.file_name}:{held.line}")
                    return


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
        elif not other.is_idle and is_pool_worker(other) and (other.user.place or is_at_task(other)):
            found = True
            yield PartnerLink(other, "a worker at a task")
    if not found and state.awaits is Waiting.FUTURE:
        yield from _links("a thread with an event loop", filter(is_in_event_loop, graph.beside(state)))


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
