"""What the wait-for graph shows: which threads matter, of what kind their hang is, and the sentence about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from matrix.diagnosis.hang import job
from matrix.diagnosis.hang.causes import WITH_GIL, HangCause, HangKind
from matrix.diagnosis.hang.job import JOINT
from matrix.diagnosis.hang.reasons import held_by_coroutine, reason_of
from matrix.diagnosis.hang.user_call import is_own
from matrix.model import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.diagnosis.hang.account import Account
    from matrix.diagnosis.hang.activity import ThreadState
    from matrix.diagnosis.hang.partners import Link
    from matrix.diagnosis.hang.wait_graph import Chain, WaitGraph
    from matrix.diagnosis.stacks import Process
    from matrix.model import WaitEdge

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
_PLURALS = {"waits": "wait", "sleeps": "sleep", "runs": "run", "is": "are"}
_MOST = 4  # clauses of a chain in the sentence


def blocked(processes: Sequence[Process], graph: WaitGraph, account: Account) -> HangCause | None:
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
        return _cause(_kind(told, chain), told, chain, account, "" if chain.cycle else reason_of(account, last, told))
    if graph.is_forked_alone(last):
        return _cause(HangKind.FORKED_LOCK, told, chain, account, reason_of(account, last, told))
    if held := held_by_coroutine(account, last):
        return _cause(HangKind.LOCK_CYCLE, told, chain, account, held)
    if waiters := _waiters_for_locks(last, graph):
        told = [*(state for state in told if state not in waiters), *waiters]
        words = f"no thread of the process is left to release {'it' if len(waiters) == 1 else 'them'}"
        if len(waiters) == 1 and not any(other.user.is_known for other in graph.states if _is_beside(other, last)):
            words = "no other thread could release it: this thread has taken it before, or one that is no longer there"
        words = "; ".join([*account.held_meanwhile(waiters), words, *account.departed])
        cause = _cause(HangKind.LOCK_CYCLE, told, chain, account, words)
        return replace(cause, stuck=last, is_closed=True)
    return _cause(_kind(told, chain), told, chain, account, reason_of(account, last, told))


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


def _cause(kind: HangKind, told: Sequence[ThreadState], chain: Chain, account: Account, reason: str) -> HangCause:
    edges = _edges(told, chain, account)
    clauses = [edge.text for edge in edges][-_MOST:]
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


def _edges(told: Sequence[ThreadState], chain: Chain, account: Account) -> list[WaitEdge]:
    edges = []
    for state in told:
        position = chain.states.index(state) if state in chain.states else len(chain.states)
        link = chain.links[position] if position < len(chain.links) else None
        partner = None if link is None else link.state.pid if state.waiting is Waiting.CHILD else link.state.tid
        edges.append(edge_of(state, account.clause(state, link), partner, link))
    return edges


def edge_of(state: ThreadState, text: str, partner: int | None = None, link: Link | None = None) -> WaitEdge:
    """Return a thread's wait as a record keeps it."""
    if state.wait is None:
        from matrix.model import WaitEdge

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
    if last.awaits is None:
        return HangKind.UNKNOWN
    return HangKind.__members__.get(last.awaits.name, HangKind.UNKNOWN)


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


def disagreement(processes: Sequence[Process], graph: WaitGraph, account: Account) -> HangCause | None:
    """Compare the ranks of a distributed job: what each waits for, and who is elsewhere."""
    if not graph.members:
        return None
    ordered = sorted(graph.members, key=lambda pid: graph.ranks.get(pid, pid))
    members = {pid: _representative(graph, pid) for pid in ordered}
    states = [state for state in members.values() if state is not None]
    groups = _by_place(states, account)
    clauses = [_group_clause(predicate, group, graph, account) for predicate, group in groups.items()]
    edges = [edge_of(group[0], clause) for group, clause in zip(groups.values(), clauses, strict=True)]
    elsewhere = [group for group in groups.values() if group[0].awaits not in JOINT]
    clauses += _beyond(elsewhere, graph, account)
    clauses += _conclusion(groups, elsewhere, processes, graph)
    clauses += account.departed
    odd = min([*elsewhere, *([] if elsewhere else groups.values())], key=len)[0]
    kinds = {state.awaits for state in states}
    kind = HangKind.RENDEZVOUS if kinds == {Waiting.RENDEZVOUS} else HangKind.COLLECTIVE
    edges.sort(key=lambda edge: (edge.pid, edge.tid) != (odd.pid, odd.tid))
    return HangCause(kind=kind, stuck=odd, cycle=tuple(edges[:_MOST]), words="; ".join(clauses))


def _representative(graph: WaitGraph, pid: int) -> ThreadState | None:
    """Return the thread of a rank that matters: one that waits for other ranks, else the one that tells most."""
    own = graph.mains(pid)
    joint = [state for state in own if state.awaits in JOINT]
    with_place = [state for state in joint if state.user.place]
    return next(iter([*with_place, *([] if own and own[0].user.place else joint), *own]), None)


def _group_clause(predicate: str, group: Sequence[ThreadState], graph: WaitGraph, account: Account) -> str:
    if len(group) == 1:
        found = graph.links(group[0]) if group[0].awaits not in JOINT else []
        return account.clause(group[0], found[0]) if found else f"{account.label(group[0])} {predicate}"
    verb, _, rest = predicate.partition(" ")
    return f"{_named_together(group, graph)} {_PLURALS.get(verb, verb)} {rest}"


def _by_place(states: Sequence[ThreadState], account: Account) -> dict[str, list[ThreadState]]:
    """Group the threads of ranks by what they do; those that came there on other ways by their callers, too."""
    groups: dict[str, list[ThreadState]] = {}
    for state in states:
        groups.setdefault(account.predicate(state), []).append(state)
    found: dict[str, list[ThreadState]] = {}
    for predicate, group in groups.items():
        ways = {state.pid: [frame.where for frame in state.user.frames if is_own(frame)] for state in group}
        depth = min(map(len, ways.values()))
        other = next((at for at in range(1, depth) if len({way[at] for way in ways.values()}) > 1), None)
        for state in group:
            called = f", called from {ways[state.pid][other]}" if other else ""
            found.setdefault(predicate + called, []).append(state)
    return found


def _named_together(group: Sequence[ThreadState], graph: WaitGraph) -> str:
    """Return how several threads are called at once: "ranks 0-2", "processes 17 and 18"."""
    if all(state.pid in graph.ranks for state in group):
        return _ranks([graph.ranks[state.pid] for state in group])
    pids = [str(state.pid) for state in group]
    return f"processes {', '.join(pids[:-1])} and {pids[-1]}" if len(pids) > 1 else f"process {pids[0]}"


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as people write them: "0-2, 4 and 6"."""
    rows = list[list[int]]()
    for number in sorted(numbers):
        if rows and number == rows[-1][1] + 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in rows]
    words = [
        word
        for row, text in zip(rows, words, strict=True)
        for word in ([str(row[0]), str(row[1])] if row[1] == row[0] + 1 else [text])
    ]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def _beyond(elsewhere: Sequence[Sequence[ThreadState]], graph: WaitGraph, account: Account) -> list[str]:
    """Return what ranks that are elsewhere wait for in turn: their workers, their threads."""
    clauses = []
    for group in elsewhere:
        chain = graph.chain(group[0])
        clauses += [
            account.clause(state) for state in chain.states[1:] if state.user.place and state.awaits not in JOINT
        ][:2]
    return clauses


def _conclusion(
    groups: dict[str, list[ThreadState]],
    elsewhere: Sequence[Sequence[ThreadState]],
    processes: Sequence[Process],
    graph: WaitGraph,
) -> list[str]:
    states = [state for group in groups.values() for state in group]
    size = job.world_size(processes, graph.states, {state.pid: 0 for state in states})
    if size is not None and size > len(states):
        present = set(graph.ranks.values())
        gone = [number for number in range(size) if number not in present] if len(present) == len(states) else []
        here = f"{len(states)} of {size} ranks {_is(states)} here"
        if job.is_spread(processes, graph.ranks):
            others = _ranks(gone) if gone else "the other ranks"
            told = f"{here}; of {others}, on other machines, `whichtorch stacks --merge` tells"
            return [told, *_elsewhere(groups, elsewhere, graph)]
        return [f"{here}, and {_ranks(gone) if gone else 'the other ranks'} {_has(gone)} not come or {_has(gone)} gone"]
    if elsewhere:
        return _elsewhere(groups, elsewhere, graph)
    waiting = [state for state in states if state.awaits in JOINT]
    if all(state.user.native and state.user.native.ender for state in waiting):
        return ["none of them sets what another waits for, as all of them wait"] if len(waiting) > 1 else []
    calls = {state.user.frame.method if state.user.frame else "" for state in waiting}
    if len(groups) == 1:
        if calls <= {"recv", "irecv", "recv_object_list"}:
            return ["each waits for a message of another rank, and none of them sends one"]
        if calls <= {"send", "isend", "send_object_list"}:
            return ["each waits for another rank to receive, and none of them does"]
        return ["all ranks are in the same call"] if len(states) > 1 else []
    if len({state.place for state in waiting}) == 1:
        return ["the ranks came to the same line from different places, and may be in different groups or turns"]
    where = "not in the same call" if len(calls) > 1 else "in calls at different places"
    return [f"the ranks are {where}", "each waits for the others"]


def _elsewhere(
    groups: dict[str, list[ThreadState]], elsewhere: Sequence[Sequence[ThreadState]], graph: WaitGraph
) -> list[str]:
    """Say which ranks the others wait for."""
    is_awaited = any(group[0].awaits in JOINT for group in groups.values())
    odd = [state for group in elsewhere for state in group]
    them = "it" if len(odd) == 1 else "them"
    who = _named_together(odd, graph)
    return [f"{who} {_is(odd)} not there, and the others wait for {them}"] if is_awaited and odd else []


def _is(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _has(things: Sequence[object]) -> str:
    return "has" if len(things) == 1 else "have"


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {spans(numbers)}"
