"""Follow who waits for whom, from the program's main thread to the thread that decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.diagnosis.hang.cycles import lock_cycle
from matrix.diagnosis.hang.kinds import HangAnswer, HangKind
from matrix.diagnosis.hang.waits import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.diagnosis.hang.kinds import ThreadFinding
    from matrix.diagnosis.stacks import Process

_NO_ANSWER = {Waiting.FUTEX, Waiting.SLEEP, Waiting.OPENMP}  # then what is known is that somebody waits for it


_KINDS = {
    Waiting.PIPE: HangKind.PIPE,
    Waiting.CHILD: HangKind.CHILD,
    Waiting.CONDITION: HangKind.CONDITION,
    Waiting.IO: HangKind.IO,
    Waiting.DEVICE: HangKind.DEVICE,
}


def blocked(processes: Sequence[Process], seen: Sequence[ThreadFinding]) -> HangAnswer | None:
    """Follow who waits for whom from the first process's main thread; the end of the chain decides."""
    start = _start(processes, seen)
    if start is None:
        return None
    chain, edges = [start], []
    while (found := _next(chain[-1], processes, seen)) is not None:
        following, evidence = found
        if following in chain or following.wait is None or following.waiting in _NO_ANSWER:
            break
        partner = following.process.pid if chain[-1].waiting is Waiting.CHILD else following.thread.tid
        edges.append(chain[-1].edge(partner, evidence=evidence))
        chain.append(following)
    last = chain[-1]
    if last.wait is None:
        return None
    if last.waiting is Waiting.LOCK:
        return lock_cycle(last, processes, seen, edges)
    kind = _KINDS.get(last.wait.waiting)
    if kind is None:
        return None
    edges.append(last.edge(last.wait.partner, evidence="the kernel names it" if last.wait.partner else ""))
    return HangAnswer(kind=kind, pid=last.process.pid, tid=last.thread.tid, cycle=tuple(edges[::-1]))


def _start(processes: Sequence[Process], seen: Sequence[ThreadFinding]) -> ThreadFinding | None:
    """Return the main thread of the process that no other one in the picture has started."""
    pids = {process.pid for process in processes}
    waited = {one.wait.partner for one in seen if one.wait and one.waiting is Waiting.CHILD}
    roots = [one for one in processes if one.parent not in pids and one.pid not in waited] or list(processes)
    # Without parents known: who waits for a child comes first.
    mains = [one for one in seen if one.process in roots and one.is_main]
    return min(mains, key=lambda one: one.waiting is not Waiting.CHILD, default=None)


def _next(
    one: ThreadFinding, processes: Sequence[Process], seen: Sequence[ThreadFinding]
) -> tuple[ThreadFinding, str] | None:
    """Return the thread that another one waits for, and how that is known."""
    partner = one.wait.partner if one.wait else None
    if one.waiting is Waiting.CHILD:
        children = [other for other in seen if other.process.pid == partner]
        evidence = "the number that it waits for"
        if partner is None:
            others = [process for process in processes if process.pid != one.process.pid]
            mine = [process for process in others if process.parent == one.process.pid]
            only = mine if len(mine) == 1 else others if len(others) == 1 and others[0].parent is None else []
            children = [other for other in seen if other.process in only]
            evidence = "its only child"
            if len(mine) > 1 and len({other.waiting for other in seen if other.process in mine and other.is_main}) == 1:
                children = [other for other in seen if other.process in mine and other.waiting]
                evidence = "all its children wait alike"
        main = next((other for other in children if other.is_main), None)
        return (main, evidence) if main else None
    if one.waiting is not Waiting.THREAD:
        return None
    threads = [other for other in seen if other.process is one.process and other is not one and not other.idle]
    known = [other for other in threads if partner is not None and other.thread.tid == partner]
    if known:
        return known[0], "its futex holds that thread's number"
    # Which one is joined is not known. If all of them wait for one and the same kind of thing, it is that.
    kinds = {other.waiting for other in threads}
    if len(threads) == 1 or (len(kinds) == 1 and None not in kinds):
        first = min(threads, key=lambda other: other.thread.tid)
        return (first, "the only other thread" if len(threads) == 1 else "all others wait alike")
    return None
