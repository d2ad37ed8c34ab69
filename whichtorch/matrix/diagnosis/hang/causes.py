"""Hangs in which threads or processes wait for each other: cycles, and chains of waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang.hang_kind import HangKind
from whichtorch.matrix.diagnosis.hang.narration import edge_sentence
from whichtorch.matrix.diagnosis.stacks import number_on_host
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.hang.activity import ThreadState
    from whichtorch.matrix.diagnosis.stacks import Process
    from whichtorch.matrix.model import WaitEdge


@dataclass(frozen=True, slots=True, kw_only=True)
class HangCause:
    """A kind of hang with its evidence."""

    kind: HangKind
    stuck: ThreadState  # the thread that decides
    cycle: tuple[WaitEdge, ...] = ()  # from the stuck thread on; or the chain of waits that leads to it
    is_closed: bool = False  # `cycle` comes back to its start: nothing in it can ever go on
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
