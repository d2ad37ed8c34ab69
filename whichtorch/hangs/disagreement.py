"""Compare the ranks of a distributed job: what each waits for, who is elsewhere, and the sentence about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from whichtorch.hangs.causes import MOST, HangCause, edge_of
from whichtorch.hangs.reasons import reason_of
from whichtorch.hangs.thread_state import ThreadState, is_own
from whichtorch.hangs.wait_graph import JOINT, WaitGraph, is_spread, world_size
from whichtorch.process.evidence.waiting import HangKind, Waiting

if TYPE_CHECKING:
    from whichtorch.hangs.narration import Narration

_PLURALS = {"waits": "wait", "sleeps": "sleep", "runs": "run", "is": "are"}


def disagreement(narration: Narration) -> HangCause | None:
    """Compare the ranks of a distributed job: what each waits for, and who is elsewhere."""
    graph = narration.graph
    if not graph.members:
        return None
    ordered = sorted(graph.members, key=lambda pid: graph.ranks.get(pid, pid))
    members = {pid: _representative(graph, pid) for pid in ordered}
    states = [state for state in members.values() if state is not None]
    groups = _by_place(states, narration)
    clauses = [_group_clause(predicate, group, narration) for predicate, group in groups.items()]
    edges = [edge_of(group[0], clause) for group, clause in zip(groups.values(), clauses, strict=True)]
    elsewhere = [group for group in groups.values() if group[0].awaits not in JOINT]
    clauses += _beyond(elsewhere, narration)
    conclusion = _without_threads(states, graph) or _conclusion(groups, elsewhere, graph)
    if not conclusion and len(states) == 1 and states[0].user.native and states[0].user.native.ender:
        clauses.append(reason_of(narration, states[0], states))  # it names those who have departed, too
    else:
        clauses += [*conclusion, *narration.departed]
    odd = min([*elsewhere, *([] if elsewhere else groups.values())], key=len)[0]
    kinds = {state.awaits for state in states}
    kind = HangKind.RENDEZVOUS if kinds == {Waiting.RENDEZVOUS} else HangKind.COLLECTIVE
    edges.sort(key=lambda edge: (edge.pid, edge.tid) != (odd.pid, odd.tid))
    return HangCause(kind=kind, stuck=odd, cycle=tuple(edges[:MOST]), words="; ".join(clauses))


def _representative(graph: WaitGraph, pid: int) -> ThreadState | None:
    """Return the thread of a rank that matters: one that waits for other ranks, else the one that tells most."""
    own = graph.mains(pid)
    joint = [state for state in own if state.awaits in JOINT]
    with_place = [state for state in joint if state.user.place]
    return next(iter([*with_place, *([] if own and own[0].user.place else joint), *own]), None)


def _group_clause(predicate: str, group: Sequence[ThreadState], narration: Narration) -> str:
    if len(group) == 1:
        found = narration.graph.links(group[0]) if group[0].awaits not in JOINT else []
        return narration.clause(group[0], found[0]) if found else f"{narration.label(group[0])} {predicate}"
    verb, _, rest = predicate.partition(" ")
    return f"{_named_together(group, narration.graph)} {_PLURALS.get(verb, verb)} {rest}"


def _by_place(states: Sequence[ThreadState], narration: Narration) -> dict[str, list[ThreadState]]:
    """Group the threads of ranks by what they do; those that came there on other ways by their callers, too."""
    groups: dict[str, list[ThreadState]] = {}
    for state in states:
        groups.setdefault(narration.predicate(state), []).append(state)
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


def number_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as people write them: "0-2, 4 and 6"."""
    words: list[str] = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        row = [str(number) for _, number in group]
        words += [f"{row[0]}-{row[-1]}"] if len(row) > 2 else row
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _beyond(elsewhere: Sequence[Sequence[ThreadState]], narration: Narration) -> list[str]:
    """Return what ranks that are elsewhere wait for in turn: their workers, their threads."""
    clauses: list[str] = []
    for group in elsewhere:
        states = narration.graph.chain(group[0]).states[1:]
        others = [state for state in states if state.user.place and state.awaits not in JOINT]
        clauses += map(narration.clause, others[:2])
    return clauses


def _without_threads(states: Sequence[ThreadState], graph: WaitGraph) -> list[str]:
    """Return why collectives in forked processes cannot finish: fork did not copy the threads that run them."""
    waiting = [state for state in states if state.awaits is Waiting.COLLECTIVE]
    alone = [state for state in waiting if len(state.process.threads) == 1 and graph.is_forked(state.process)]
    was, its = ("was", "its") if len(alone) == 1 else ("were", "their")
    why = f"{was} forked: fork did not copy the threads that run {its} collectives"
    return [f"{_named_together(alone, graph)} {why}"] if alone else []


def _conclusion(
    groups: dict[str, list[ThreadState]], elsewhere: Sequence[Sequence[ThreadState]], graph: WaitGraph
) -> list[str]:
    states = [state for group in groups.values() for state in group]
    processes = list(graph.processes.values())
    size = world_size(processes, graph.states, {state.pid for state in states})
    if size is not None and size > len(states):
        present = set(graph.ranks.values())
        gone = [number for number in range(size) if number not in present] if len(present) == len(states) else []
        here = f"{len(states)} of {size} ranks {_is(states)} here"
        if is_spread(processes, graph.ranks):
            others = _ranks(gone) if gone else "the other ranks"
            told = f"{here}; of {others}, on other machines, `whichtorch stacks --merge` tells"
            return [told, *_elsewhere(groups, elsewhere, graph)]
        return [f"{here}, and {_ranks(gone) if gone else 'the other ranks'} {_has(gone)} not come or {_has(gone)} gone"]
    if elsewhere:
        return _elsewhere(groups, elsewhere, graph)
    waiting = [state for state in states if state.awaits in JOINT]
    if all(state.user.native and state.user.native.ender for state in waiting):
        return ["none of them sets what another waits for, as all of them wait"] if len(waiting) > 1 else []
    calls = set(map(_operation, waiting))
    if len(groups) == 1:
        if calls <= {"recv", "irecv", "recv_object_list"}:
            return ["each waits for a message of another rank, and none of them sends one"]
        if calls <= {"send", "isend", "send_object_list"}:
            return ["each waits for another rank to receive, and none of them does"]
        if calls <= {"batch_isend_irecv"}:
            return ["each waits for another rank, and no send of theirs meets a receive"]
        same = "all ranks are in the same call; they may be in different groups or turns"
        return [same] if len(states) > 1 else []
    if len({state.place for state in waiting}) == 1:
        return ["the ranks came to the same line from different places, and may be in different groups or turns"]
    where = "not in the same call" if len(calls) > 1 else "in calls at different places"
    return [f"the ranks are {where}", "each waits for the others"]


def _operation(state: ThreadState) -> str:
    """Return the name of the operation of torch.distributed that a thread waits for; of a work, what began it."""
    site, frame = state.user.site, state.user.frame
    if site.origin and site.call.rpartition(".")[2] == "wait":
        return site.origin.rpartition(".")[2]
    return frame.method if frame else ""


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
    return f"rank{'s' if len(numbers) > 1 else ''} {number_ranges(numbers)}"
