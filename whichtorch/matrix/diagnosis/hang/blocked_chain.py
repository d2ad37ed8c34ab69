"""What the wait-for graph shows: which threads matter, of what kind their hang is, and the sentence about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang.causes import WITH_GIL, HangCause, HangKind
from whichtorch.matrix.diagnosis.hang.reasons import held_by_coroutine, reason_of
from whichtorch.matrix.model import WaitEdge
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.hang.activity import ThreadState
    from whichtorch.matrix.diagnosis.hang.narration import Narration
    from whichtorch.matrix.diagnosis.hang.partners import PartnerLink
    from whichtorch.matrix.diagnosis.hang.wait_graph import Chain, WaitGraph
    from whichtorch.matrix.diagnosis.stacks import Process

_PARENTS = {Waiting.CHILD, Waiting.IO}  # waits of a process that only started those that matter
_NEED_FRAMES = {
    Waiting.THREAD,
    Waiting.LOCK,
    Waiting.SLEEP,
    Waiting.FUTEX,
    None,
}  # the kernel's word alone is too little for these
_LOCKS = {Waiting.LOCK, Waiting.SEMAPHORE}
_TELL_LITTLE = {Waiting.FUTEX, Waiting.OPENMP, None}
MOST = 4  # clauses of a chain in the sentence


def blocked(processes: Sequence[Process], graph: WaitGraph, narration: Narration) -> HangCause | None:
    """Follow who waits for whom from the first process's main thread; the end of the chain decides."""
    start = _start(processes, graph.states)
    if start is None:
        return None
    chain = graph.chain(start)
    told = _told(chain)
    last = told[-1]
    if not any(state.thread.frames for state in told) and all(state.awaits in _NEED_FRAMES for state in told):
        return None
    if last.awaits in _TELL_LITTLE and not last.activity and len(told) == 1:
        return None
    if chain.cycle or last.awaits is not Waiting.LOCK:
        reason = "" if chain.cycle else reason_of(narration, last, told)
        return _cause(_kind(told, chain), told, chain, narration, reason)
    if graph.is_forked_alone(last):
        return _cause(HangKind.FORKED_LOCK, told, chain, narration, reason_of(narration, last, told))
    if held := held_by_coroutine(narration, last):
        return _cause(HangKind.LOCK_CYCLE, told, chain, narration, held)
    if waiters := _waiters_for_locks(last, graph):
        told = [*(state for state in told if state not in waiters), *waiters]
        words = f"no thread of the process is left to release {'it' if len(waiters) == 1 else 'them'}"
        if len(waiters) == 1 and not any(other.user.is_known for other in graph.states if _is_beside(other, last)):
            words = "no other thread could release it: this thread has taken it before, or one that is no longer there"
        words = "; ".join([*narration.held_meanwhile(waiters), words, *narration.departed])
        cause = _cause(HangKind.LOCK_CYCLE, told, chain, narration, words)
        return replace(cause, stuck=last, is_closed=True)
    return _cause(_kind(told, chain), told, chain, narration, reason_of(narration, last, told))


def _waiters_for_locks(last: ThreadState, graph: WaitGraph) -> list[ThreadState]:
    """Return the threads of a process that wait for locks, if no thread of it is left that could release one."""
    own = [state for state in graph.states if state.process is last.process]
    if any(state.waiting not in WITH_GIL | {Waiting.GIL} and not state.is_idle for state in own):
        return []
    return sorted(
        (state for state in own if state.awaits is Waiting.LOCK and not state.is_idle), key=lambda state: state.tid
    )


def _is_beside(other: ThreadState, state: ThreadState) -> bool:
    return other.process is state.process and other is not state


def _cause(kind: HangKind, told: Sequence[ThreadState], chain: Chain, narration: Narration, reason: str) -> HangCause:
    edges = _edges(told, chain, narration)
    clauses = [edge.text for edge in edges][-MOST:]
    if chain.cycle:
        clauses.append(
            "each waits for the other, and neither can go on"
            if len(chain.cycle) == 2
            else "they wait for each other in a circle"
            if len(chain.cycle) > 2
            else "it waits for itself"
        )
    words = "; ".join([*clauses, *([reason] if reason else [])])
    stuck = next((state for state in reversed(told) if state.thread.frames), told[-1])
    if chain.cycle:
        stuck = next((state for state in chain.cycle if state.user.place), chain.cycle[0])
    cycle = tuple(edges[::-1])
    return HangCause(
        kind=kind, stuck=stuck, cycle=cycle, is_closed=bool(chain.cycle) and kind is not HangKind.UNKNOWN, words=words
    )


def _edges(told: Sequence[ThreadState], chain: Chain, narration: Narration) -> list[WaitEdge]:
    edges = []
    for state in told:
        position = chain.states.index(state) if state in chain.states else len(chain.states)
        link = chain.links[position] if position < len(chain.links) else None
        partner = None if link is None else link.state.pid if state.waiting is Waiting.CHILD else link.state.tid
        edges.append(edge_of(state, narration.clause(state, link), partner, link))
    return edges


def edge_of(state: ThreadState, text: str, partner: int | None = None, link: PartnerLink | None = None) -> WaitEdge:
    """Return a thread's wait as a record keeps it."""
    if state.wait is None:
        return WaitEdge(pid=state.pid, tid=state.tid, place=state.place, text=text)
    edge = state.edge(partner, evidence=link.evidence if link else "")
    return edge.model_copy(update={"waiting": state.awaits or edge.waiting, "text": text})


def _told(chain: Chain) -> list[ThreadState]:
    """Return the states of a chain that matter, without parents that only wait for the processes that do."""
    if chain.closed_at == 0:
        return list(chain.states)
    told = list(chain.states)
    while (
        len(told) > 1
        and told[0] not in chain.cycle
        and told[0].awaits in _PARENTS
        and not told[0].user.is_exit
        and not _has_started_program(told[0])
        and any(state.user.is_known and state.pid != told[0].pid for state in told[1:])
    ):
        told.pop(0)
    return [
        state for state in told if state in chain.cycle or state.user.is_known or state is told[-1] or state is told[0]
    ]


def _has_started_program(state: ThreadState) -> bool:
    """Return whether a thread waits for another program: its user's line is then in the caller, too."""
    return state.user.call is not None and state.user.call.file == "subprocess.py"


def _kind(told: Sequence[ThreadState], chain: Chain) -> HangKind:
    if chain.cycle:
        kinds = {state.awaits for state in chain.cycle}
        if kinds <= {*_LOCKS, Waiting.THREAD} and kinds & _LOCKS:
            return HangKind.LOCK_CYCLE
        if Waiting.GIL in kinds:
            return HangKind.GIL_CYCLE
        told = [next((state for state in chain.cycle if state.user.place), chain.cycle[0])]
    last = told[-1]
    while len(told) > 1 and (last.awaits in _TELL_LITTLE or last.awaits is Waiting.SLEEP):
        told = told[:-1]
        last = told[-1]
    return HangKind.of(last.awaits)


def _start(processes: Sequence[Process], states: Sequence[ThreadState]) -> ThreadState | None:
    """Return the main thread of the process that no other process here has started."""
    pids = {process.pid for process in processes}
    awaited = {state.partner for state in states if state.waiting is Waiting.CHILD}
    roots = [process for process in processes if process.parent not in pids and process.pid not in awaited]
    mains = [state for state in states if state.process in (roots or processes) and state.is_main]
    # Where parents are not known, a process that waits for a child comes first.
    start = min(mains, key=lambda state: state.waiting is not Waiting.CHILD, default=None)
    if start is not None and start.awaits in _TELL_LITTLE and not start.user.place:
        others = [
            state for state in states if state.user.place and state.awaits not in _TELL_LITTLE and not state.is_idle
        ]
        return others[0] if others else start
    return start
