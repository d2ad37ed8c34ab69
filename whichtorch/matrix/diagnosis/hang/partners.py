"""Find who could end a wait: holders of locks, workers of pools, threads of an event loop, other ends of pipes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang.activity import descriptor_of
from whichtorch.matrix.diagnosis.hang.source_text import keeps_lock, read_site
from whichtorch.matrix.diagnosis.hang.user_call import is_own
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.diagnosis.hang.activity import ThreadState
    from whichtorch.matrix.diagnosis.hang.wait_graph import WaitGraph
    from whichtorch.matrix.diagnosis.stacks import Descriptor, Frame

_NAME = re.compile(r"[A-Za-z_]\w*")
# Functions of libraries in which a worker of a pool runs a task: end of the path, name.
_WORKERS = (
    ("concurrent/futures/thread.py", "_worker"),
    ("concurrent/futures/process.py", "_process_worker"),
    ("multiprocessing/pool.py", "worker"),
    ("torch/utils/data/_utils/worker.py", "_worker_loop"),
)
_QUEUES = {"queues.py", "connection.py", "synchronize.py"}
_EVENT_LOOP = "asyncio/base_events.py", "_run_once"
_MANAGER = "multiprocessing/managers.py"


@dataclass(frozen=True, slots=True)
class PartnerLink:
    """Somebody who could end a wait."""

    state: ThreadState
    evidence: str
    since: str = ""  # of the holder of a lock, where it took it: "transfer.py:16"


def lock_holders(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the holder of a lock: the mutex names it, or the source of the user's code shows it."""
    if state.thread.owner is not None:
        yield from (
            PartnerLink(other, "the mutex names its owner") for other in graph.states if other.tid == state.thread.owner
        )
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
    site = state.user.site
    for frame in state.user.frames:
        if is_own(frame):
            site = state.user.site if frame is state.user.place else read_site(frame)
            if not site.wanted:
                return
            yield lock_identity(site.wanted, frame)
            if not keeps_lock(frame, site.wanted):
                return


def _holders_in_library(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the thread that is in the middle of a method of the object whose lock is waited for."""
    call, within = state.user.call, state.user.frame
    if call and within and call.is_innermost:
        for other in graph.states:
            inside = [frame for frame in other.user.frames if frame.is_python][1:]
            if other.process is state.process and any(_is_same(frame, within) for frame in inside):
                yield PartnerLink(other, "it is inside the same function")
        return
    known = {frame.address("self") for frame in state.user.frames if not is_own(frame)} - {0}
    for other in graph.states:
        if other.process is state.process and other is not state:
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
        yield from (
            PartnerLink(other, "a thread with an event loop")
            for other in graph.states
            if other.process is state.process and other is not state and is_in_event_loop(other)
        )


def tasks_of_loop(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find what an idle event loop may wait for: tasks that it has given to a pool, programs that it has started."""
    yield from workers(graph, state)
    for pid, process in graph.processes.items():
        if process.parent == state.pid and not process.ended:
            yield from (PartnerLink(other, "a child of the loop's process") for other in graph.mains(pid)[:1])


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
        yield from (PartnerLink(other, "holds the other end") for other in telling[:1])


def _file_lockers(graph: WaitGraph, state: ThreadState, row: Descriptor | None) -> Iterator[PartnerLink]:
    path = row.link if row else state.user.value(*(state.user.call.values if state.user.call else ()))
    holders = set(row.holders) if row else set[int]()
    holders |= {
        pid
        for pid, process in graph.processes.items()
        for file in process.descriptors
        if file.link == path and pid in file.holders
    }
    for pid in sorted(holders):
        others = [other for other in graph.mains(pid) if other is not state]
        yield from (PartnerLink(other, "holds the lock") for other in others[:1] if pid != state.pid)


def answering_threads(graph: WaitGraph, state: ThreadState) -> Iterator[PartnerLink]:
    """Find the threads of a manager's process that wait on behalf of a caller."""
    for other in graph.states:
        if other.process is not state.process and is_answering(other):
            yield PartnerLink(other, "the thread of the manager that answers")


def is_answering(state: ThreadState) -> bool:
    """Return whether a thread of a manager's process runs a method for a caller, and is not waiting for a request."""
    frames = state.user.frames
    at = next((at for at, frame in enumerate(frames) if frame.method == "serve_client"), None)
    if at is None or not (frames[at].file or "").endswith(_MANAGER):
        return False
    return not any(frame.file_name == "connection.py" for frame in frames[:at])


def is_in_event_loop(state: ThreadState) -> bool:
    """Return whether a thread waits inside a callback or coroutine: its event loop stands still meanwhile."""
    return state.user.place is not None and _is_inside(state, *_EVENT_LOOP)


def is_at_task(state: ThreadState) -> bool:
    """Return whether a worker process of a pool runs a task of which no line is the user's: a function of a library."""
    file, name = _WORKERS[1]
    frames = [frame for frame in state.user.frames if frame.is_python]
    at = next((at for at, frame in enumerate(frames) if runs([frame], file, name)), None)
    return at is not None and not any(frame.file_name in _QUEUES for frame in frames[:at])


def is_pool_worker(state: ThreadState) -> bool:
    """Return whether a thread runs a task of a pool."""
    return any(runs(state.user.frames, file, name) for file, name in _WORKERS)


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


def runs(frames: Sequence[Frame], file: str, name: str) -> bool:
    """Return whether a function of a library is among frames."""
    return any(frame.is_python and frame.method == name and (frame.file or "").endswith(file) for frame in frames)


def _is_inside(state: ThreadState, file: str, name: str) -> bool:
    """Return whether a thread's own place lies inside a call of a function of a library."""
    place = state.user.place
    frames = state.user.frames
    return place is not None and runs(frames[frames.index(place) :], file, name)


def server_of(state: ThreadState, method: str) -> int:
    """Return the address of the server of `socketserver` one of whose methods a thread is in; 0 if it is in none."""
    frames = (frame for frame in state.user.frames if frame.file_name == "socketserver.py" and frame.method == method)
    return next((frame.address("self") for frame in frames), 0)


def _is_same(frame: Frame, other: Frame) -> bool:
    return (frame.file, frame.function) == (other.file, other.function)
