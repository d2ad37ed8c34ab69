"""The kinds of hang, and those in which threads or processes wait for each other: cycles, and chains of waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from matrix.model import WaitEdge, Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.diagnosis.hang.activity import ThreadState
    from matrix.diagnosis.stacks import Process


class HangKind(StrEnum):
    """What kind of hang it is."""

    GIL_CYCLE = "GIL cycle"
    LOCK_CYCLE = "lock cycle"
    FORK_AFTER_THREADS = "fork after threads"
    CHILD = "wait for a child"
    PIPE = "wait for a pipe"
    CONDITION = "wait for a condition"
    SPIN_PYTHON = "spin in Python"
    SPIN_NATIVE = "spin in native code"
    SLOW_COMPILE = "slow compile"
    ENDLESS_COMPILE = "endless compile"  # the same in what is a hang: the longer look, or a stall, says so
    IO = "wait for I/O"
    DEVICE = "wait for the GPU"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class HangCause:
    """A kind of hang with its evidence."""

    kind: HangKind
    stuck: ThreadState  # the thread that decides
    cycle: tuple[WaitEdge, ...] = ()  # from the stuck thread on; or the chain of waits that leads to it
    is_closed: bool = False  # `cycle` comes back to its start: nothing in it can ever go on
    words: str = ""  # shown instead of the cycle's sentences


# A holder of the GIL can wait in these ways only: waiting for a Python lock releases the GIL.
_WITH_GIL = {Waiting.THREAD, Waiting.LOCK, Waiting.CONDITION, Waiting.OPENMP, Waiting.FUTEX, Waiting.DEVICE}
_NO_END = {Waiting.FUTEX, Waiting.SLEEP, Waiting.OPENMP}  # a chain of waits stops before these: they tell too little
_ENDS = (Waiting.PIPE, Waiting.CHILD, Waiting.CONDITION, Waiting.IO, Waiting.DEVICE)
_KINDS = {waiting: HangKind[waiting.name] for waiting in _ENDS}


def gil_cycle(states: Sequence[ThreadState]) -> HangCause | None:
    """Return the cycle, in one process, of a thread that waits for the GIL and its holder, which waits for it."""
    waiters = [state for state in states if state.waiting is Waiting.GIL]
    holder, evidence = _gil_holder(states, waiters)
    if not waiters or holder is None or holder.waiting not in _WITH_GIL:
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
    has_released = state.waiting not in _WITH_GIL or any(frame.function.startswith(locks) for frame in frames[:10])
    return not has_released and (runs_python or (is_alone and not frames))


def fork_after_threads(processes: Sequence[Process], states: Sequence[ThreadState]) -> HangCause | None:
    """Return a child that waits in OpenMP for threads that fork did not copy, while its parent waits for it."""
    for state in states:
        is_waiting = state.waiting is Waiting.OPENMP and not state.is_idle
        if is_waiting and (parent := _waiting_parent(state.process, processes, states)):
            evidence = "it has no other thread" if len(state.process.threads) == 1 else "fork copies one thread only"
            edges = (state.edge(evidence=evidence), parent.edge(state.pid, evidence="waits for this child"))
            words = f"thread {state.tid} of the forked child waits in OpenMP for threads that fork did not copy; "
            words += edges[1].words()
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


def blocked(processes: Sequence[Process], states: Sequence[ThreadState]) -> HangCause | None:
    """Follow who waits for whom from the first process's main thread; the end of the chain decides."""
    start = _start(processes, states)
    if start is None:
        return None
    chain: list[ThreadState] = [start]
    edges: list[WaitEdge] = []
    while (step := _next(chain[-1], processes, states)) is not None:
        following, evidence = step
        if following in chain or following.waiting is None or following.waiting in _NO_END:
            break
        partner = following.pid if chain[-1].waiting is Waiting.CHILD else following.tid
        edges.append(chain[-1].edge(partner, evidence=evidence))
        chain.append(following)
    last = chain[-1]
    if last.waiting is Waiting.LOCK:
        return _lock_cycle(last, processes, states, edges)
    if last.waiting not in _KINDS:
        return None
    edges.append(last.edge(last.partner, evidence="the kernel names it" if last.partner else ""))
    return HangCause(kind=_KINDS[last.waiting], stuck=last, cycle=tuple(edges[::-1]))


def _start(processes: Sequence[Process], states: Sequence[ThreadState]) -> ThreadState | None:
    """Return the main thread of the process that no other process here has started."""
    pids = {process.pid for process in processes}
    awaited = {state.partner for state in states if state.waiting is Waiting.CHILD}
    roots = [process for process in processes if process.parent not in pids and process.pid not in awaited]
    mains = [state for state in states if state.process in (roots or processes) and state.is_main]
    # Where parents are not known, a process that waits for a child comes first.
    return min(mains, key=lambda state: state.waiting is not Waiting.CHILD, default=None)


def _next(
    state: ThreadState, processes: Sequence[Process], states: Sequence[ThreadState]
) -> tuple[ThreadState, str] | None:
    """Return the thread that a thread waits for, and how that is known."""
    if state.waiting is Waiting.CHILD:
        return _awaited_child(state, processes, states)
    if state.waiting is not Waiting.THREAD:
        return None
    others = [other for other in states if other.process is state.process and other is not state and not other.is_idle]
    if known := next((other for other in others if state.partner is not None and other.tid == state.partner), None):
        return known, "its futex holds that thread's number"
    # Which thread is joined is not known. Where all of them wait for the same kind of thing, that decides.
    kinds = {other.waiting for other in others}
    if len(others) == 1 or (len(kinds) == 1 and None not in kinds):
        first = min(others, key=lambda other: other.tid)
        return first, "the only other thread" if len(others) == 1 else "all others wait alike"
    return None


def _awaited_child(
    state: ThreadState, processes: Sequence[Process], states: Sequence[ThreadState]
) -> tuple[ThreadState, str] | None:
    """Return the main thread of the child that a thread waits for, and how that is known."""
    children = [other for other in states if other.pid == state.partner]
    evidence = "the number that it waits for"
    if state.partner is None:
        others = [process for process in processes if process.pid != state.pid]
        own = [process for process in others if process.parent == state.pid]
        only = own if len(own) == 1 else others if len(others) == 1 and others[0].parent is None else []
        children = [other for other in states if other.process in only]
        evidence = "its only child"
        if len(own) > 1 and len({other.waiting for other in states if other.process in own and other.is_main}) == 1:
            children = [other for other in states if other.process in own and other.waiting]
            evidence = "all its children wait alike"
    return next(((other, evidence) for other in children if other.is_main), None)


def _lock_cycle(
    last: ThreadState, processes: Sequence[Process], states: Sequence[ThreadState], edges: Sequence[WaitEdge]
) -> HangCause | None:
    """Return the lock cycle, if no thread of the process is left that could release a lock."""
    own = [state for state in states if state.process is last.process]
    if any(state.waiting not in _WITH_GIL | {Waiting.GIL} and not state.is_idle for state in own):
        return None
    waiters = [state for state in own if state.waiting is Waiting.LOCK and not state.is_idle]
    waiters.sort(key=lambda state: state.tid)
    if len(waiters) == 2:
        evidence = "the only other thread that waits for a lock"
        cycle = [state.edge(other.tid, evidence=evidence) for state, other in (waiters, waiters[::-1])]
    else:
        cycle = [state.edge(evidence="every thread of the process waits") for state in waiters]
    sentences = [f"thread {edge.tid} in {edge.function} waits for a lock" for edge in cycle]
    sentences.append("no thread of the process is left to release " + ("it" if len(cycle) == 1 else "them"))
    awaiting = {state.pid for state in states if state.waiting is Waiting.CHILD and state.partner == last.pid}
    parents = [process for process in processes if process.pid in {last.process.parent, *awaiting}]
    if len(own) == 1 and parents and len(parents[0].threads) > 1 and parents[0].command == last.process.command:
        sentences.append("a forked child: fork copies a locked lock, but not the thread that would release it")
    whole, words = (*cycle, *reversed(edges)), "; ".join(sentences)
    return HangCause(kind=HangKind.LOCK_CYCLE, stuck=last, cycle=whole, is_closed=True, words=words)
