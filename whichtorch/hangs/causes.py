"""Why a tree hangs: cycles of waits, and chains of them; which threads matter, and the sentence about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whichtorch.hangs.narration import Narration, edge_sentence
from whichtorch.hangs.reasons import held_by_coroutine, reason_of, waiters_and_others
from whichtorch.hangs.stacks import Process, number_on_host
from whichtorch.hangs.thread_state import has_timer
from whichtorch.model import WaitEdge
from whichtorch.process.evidence.waiting import HangKind, Waiting

if TYPE_CHECKING:
    from whichtorch.hangs.thread_state import ThreadState
    from whichtorch.hangs.wait_graph import PartnerLink, WaitChain, WaitGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class HangCause:
    """A kind of hang with its evidence."""

    kind: HangKind
    stuck: ThreadState  # the thread that decides
    cycle: tuple[WaitEdge, ...] = ()  # from the stuck thread on; or the chain of waits that leads to it
    is_closed: bool = False  # `cycle` comes back to its start: nothing in it can ever go on
    is_proven: bool = False  # the main thread waits for those in `cycle` alone, and they never go on; others may run
    words: str = ""  # shown instead of the cycle's sentences


# A holder of the GIL can wait in these ways only: waiting for a Python lock releases the GIL.
WITH_GIL = {Waiting.THREAD, Waiting.LOCK, Waiting.CONDITION, Waiting.OPENMP, Waiting.FUTEX, Waiting.DEVICE}


def gil_cycle(states: Sequence[ThreadState]) -> HangCause | None:
    """Return the cycle, in one process, of a thread that waits for the GIL and its holder, which waits for it."""
    waiters = [state for state in states if state.waiting is Waiting.GIL]
    holder, evidence = _gil_holder(states, waiters)
    if not waiters or holder is None or holder.waiting not in WITH_GIL:
        return None
    if target := next((state for state in waiters if holder.partner and state.tid == holder.partner), None):
        evidence += "; its futex holds that thread's number"
    elif holder.partner is None and len(waiters) == 1 and holder.waiting is not Waiting.DEVICE:
        target = waiters[0]
        evidence += "; the only thread that waits for the GIL"
    else:
        return None
    cycle = (target.edge(holder.tid), holder.edge(target.tid, holds=Waiting.GIL, evidence=evidence))
    return HangCause(kind=HangKind.GIL_CYCLE, stuck=target, cycle=cycle, is_closed=True)


def _gil_holder(states: Sequence[ThreadState], waiters: Sequence[ThreadState]) -> tuple[ThreadState | None, str]:
    """Return the thread marked as the GIL's holder, else the only thread that can hold it."""
    others = [state for state in states if state not in waiters]
    marked = [state for state in others if state.thread.has_gil]
    if marked:
        return marked[0], "marked as the holder of the GIL"
    candidates = [state for state in others if _may_hold_gil(state, is_alone=len(others) == 1)]
    is_running = any(state.activity for state in others)
    if waiters and len(candidates) == 1 and not is_running:
        return candidates[0], "the only other thread that runs Python and has not released the GIL"
    return None, ""


def _may_hold_gil(state: ThreadState, *, is_alone: bool) -> bool:
    frames, locks = state.thread.frames, ("PyThread_acquire_lock", "lock_PyThread")
    runs_python = any(frame.is_python or frame.function.startswith("_PyEval_") for frame in frames)
    # Waiting for a Python lock, or in a system call of Python's, releases the GIL first.
    has_released = state.waiting not in WITH_GIL or any(frame.function.startswith(locks) for frame in frames[:10])
    return not has_released and (runs_python or (is_alone and not frames))


def fork_after_threads(processes: Sequence[Process], states: Sequence[ThreadState]) -> HangCause | None:
    """Return a child that waits in OpenMP for threads that fork did not copy, while its parent waits for it."""
    for state in states:
        is_waiting = state.waiting is Waiting.OPENMP and not state.is_idle
        if is_waiting and (parent := _waiting_parent(state.process, processes, states)):
            evidence = "it has no other thread" if len(state.process.threads) == 1 else "fork copies one thread only"
            edges = (state.edge(evidence=evidence), parent.edge(state.pid, evidence="waits for this child"))
            at = f" ({state.place})" if state.place else ""
            words = f"thread {number_on_host(state.tid)} of the forked child waits in OpenMP{at} for threads that fork"
            words += f" did not copy; {edge_sentence(edges[1])}"
            return HangCause(kind=HangKind.FORK_AFTER_THREADS, stuck=state, cycle=edges, words=words)
    return None


def _waiting_parent(child: Process, processes: Sequence[Process], states: Sequence[ThreadState]) -> ThreadState | None:
    """Return the thread that waits for `child`, of the process that forked it."""
    for state in states:
        if state.pid == child.pid or state.waiting is not Waiting.CHILD:
            continue
        command = state.process.command
        if command and child.command and command != child.command:
            continue  # the child has started another program since
        is_parent = child.parent == state.pid or len(processes) == 2
        if state.partner == child.pid or (state.partner is None and is_parent):
            return state
    return None


_PARENTS = {Waiting.CHILD, Waiting.IO}  # waits of a process that only started those that matter
# The kernel's word alone is too little for these.
_NEED_FRAMES = {Waiting.THREAD, Waiting.LOCK, Waiting.SLEEP, Waiting.FUTEX, None}
_LOCKS = {Waiting.LOCK, Waiting.SEMAPHORE}
_OF_OTHERS = {Waiting.EVENT, Waiting.QUEUE, Waiting.BARRIER, Waiting.SEMAPHORE}  # waits that a lock's holder may be in
_TELL_LITTLE = {Waiting.FUTEX, Waiting.OPENMP, None}
MOST = 4  # clauses of a chain in the sentence
_CYCLES = {1: "it waits for itself", 2: "each waits for the other, and neither can go on"}  # by their length


def blocked(narration: Narration) -> HangCause | None:
    """Follow who waits for whom from the first process's main thread; the end of the chain decides."""
    graph = narration.graph
    start = _start(graph)
    if start is None:
        return None
    chain = graph.chain(start)
    narrated = _relevant(chain)
    last = narrated[-1]
    if not any(state.thread.frames for state in narrated) and all(state.awaits in _NEED_FRAMES for state in narrated):
        return None
    if last.awaits in _TELL_LITTLE and not last.activity and len(narrated) == 1:
        return None
    kind = _kind(narrated, chain) if chain.cycle or not has_timer(last) else HangKind.SLEEP
    if last.awaits is Waiting.LOCK and not chain.cycle:
        if graph.is_forked_alone(last):
            kind = HangKind.FORKED_LOCK
        elif held := held_by_coroutine(narration, last):
            return _cause(HangKind.LOCK_CYCLE, narrated, chain, narration, held)
        elif waiters := _waiters_for_locks(last, graph):
            narrated = [*(state for state in narrated if state not in waiters), *waiters]
            cause = _cause(HangKind.LOCK_CYCLE, narrated, chain, narration, _never_released(waiters, narration))
            return replace(cause, stuck=last, is_closed=True)
    elif not chain.cycle and kind is HangKind.of(last.awaits):
        _, others = waiters_and_others(narration, last, narrated)
        kinds = {_kind_of_lock(graph, other) for other in others}
        kind = (kinds.pop() if len(kinds) == 1 else None) or kind
    return _cause(kind, narrated, chain, narration, "" if chain.cycle else reason_of(narration, last, narrated))


def _kind_of_lock(graph: WaitGraph, state: ThreadState) -> HangKind | None:
    """Return the kind of hang that a thread is in which waits for a lock that it has itself, or a fork has copied."""
    chain = graph.chain(state)
    if state.awaits is Waiting.LOCK and chain.cycle == (state,):
        return HangKind.LOCK_CYCLE
    is_copy = state.awaits is Waiting.LOCK and not chain.links and graph.is_forked_alone(state)
    return HangKind.FORKED_LOCK if is_copy else None


def _waiters_for_locks(last: ThreadState, graph: WaitGraph) -> list[ThreadState]:
    """Return the threads of a process that wait for locks, if no thread of it is left that could release one."""
    own = [state for state in (last, *graph.beside(last)) if not state.is_idle]
    if any(state.waiting not in WITH_GIL | {Waiting.GIL} or state.awaits in _OF_OTHERS for state in own):
        return []
    return sorted((state for state in own if state.awaits is Waiting.LOCK), key=lambda state: state.tid)


def _never_released(waiters: Sequence[ThreadState], narration: Narration) -> str:
    """Return why the locks that threads wait for are never released, where these are all that is left of a process."""
    words = f"no thread of the process is left to release {'it' if len(waiters) == 1 else 'them'}"
    if len(waiters) == 1 and not any(other.user.is_known for other in narration.graph.beside(waiters[0])):
        words = "no other thread could release it: this thread has taken it before, or one that is no longer there"
    return "; ".join([*narration.held_meanwhile(waiters), words, *narration.departed])


def _cause(
    kind: HangKind, states: Sequence[ThreadState], chain: WaitChain, narration: Narration, reason: str
) -> HangCause:
    edges = _edges(states, chain, narration)
    clauses = [edge.text for edge in edges][-MOST:]
    stuck = next((state for state in reversed(states) if state.thread.frames), states[-1])
    if chain.cycle:
        clauses.append(_CYCLES.get(len(chain.cycle), "they wait for each other in a circle"))
        stuck = _with_place(chain.cycle)
    words = "; ".join(filter(None, [*clauses, reason]))
    is_closed = bool(chain.cycle) and kind is not HangKind.UNKNOWN
    return HangCause(kind=kind, stuck=stuck, cycle=tuple(edges[::-1]), is_closed=is_closed, words=words)


def _with_place(cycle: Sequence[ThreadState]) -> ThreadState:
    """Return the first thread of a cycle that runs the user's code, else the first."""
    return next((state for state in cycle if state.user.place), cycle[0])


def _edges(states: Sequence[ThreadState], chain: WaitChain, narration: Narration) -> list[WaitEdge]:
    edges, links = [], dict(zip(chain.states, chain.links, strict=False))
    for state in states:
        link = links.get(state)
        partner = None if link is None else link.state.pid if state.waiting is Waiting.CHILD else link.state.tid
        edges.append(edge_of(state, narration.clause(state, link), partner, link))
    return edges


def edge_of(state: ThreadState, text: str, partner: int | None = None, link: PartnerLink | None = None) -> WaitEdge:
    """Return a thread's wait as a record keeps it."""
    if state.wait is None:
        return WaitEdge(pid=state.pid, tid=state.tid, place=state.place, text=text)
    edge = state.edge(partner, evidence=link.evidence if link else "")
    return edge.model_copy(update={"waiting": state.awaits or edge.waiting, "text": text})


def _relevant(chain: WaitChain) -> list[ThreadState]:
    """Return the states of a chain that matter, without parents that only wait for the processes that do."""
    states = list(chain.states)
    while (
        len(states) > 1
        and states[0] not in chain.cycle
        and states[0].awaits in _PARENTS
        and not states[0].user.is_exit
        # a thread that waits for another program stays: the user's line is in its caller
        and not (states[0].user.call and states[0].user.call.file == "subprocess.py")
        and any(state.user.is_known and state.pid != states[0].pid for state in states[1:])
    ):
        states.pop(0)
    kept = (*chain.cycle, states[0], states[-1])
    return [state for state in states if state in kept or state.user.is_known]


def _kind(states: Sequence[ThreadState], chain: WaitChain) -> HangKind:
    if chain.cycle:
        kinds = {state.awaits for state in chain.cycle}
        if kinds <= {*_LOCKS, Waiting.THREAD} and kinds & _LOCKS:
            return HangKind.LOCK_CYCLE
        if Waiting.GIL in kinds:
            return HangKind.GIL_CYCLE
        return HangKind.of(_with_place(chain.cycle).awaits)
    informative = (state.awaits for state in reversed(states) if state.awaits not in _TELL_LITTLE | {Waiting.SLEEP})
    return HangKind.of(next(informative, states[0].awaits))


def _start(graph: WaitGraph) -> ThreadState | None:
    """Return the main thread of the process that no other process here has started."""
    states, processes = graph.states, list(graph.processes.values())
    awaited = {state.partner for state in states if state.waiting is Waiting.CHILD}
    roots = [process for process in processes if process.parent not in graph.processes and process.pid not in awaited]
    mains = [state for state in states if state.process in (roots or processes) and state.is_main]
    # Where parents are not known, a process that waits for a child comes first.
    start = min(mains, key=lambda state: state.waiting is not Waiting.CHILD, default=None)
    if start is None or start.awaits not in _TELL_LITTLE or start.user.place:
        return start
    others = (state for state in states if state.user.place and not state.is_idle)
    return next((state for state in others if state.awaits not in _TELL_LITTLE), start)
