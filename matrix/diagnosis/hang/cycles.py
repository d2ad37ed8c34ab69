"""The hangs in which nobody can ever go on: GIL cycles, lock cycles, children that fork left without threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.diagnosis.hang.kinds import HangAnswer, HangKind
from matrix.diagnosis.hang.waits import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.diagnosis.hang.kinds import Edge, ThreadFinding
    from matrix.diagnosis.stacks import Process, Thread

# A Python lock's wait releases the GIL: a holder of the GIL cannot be in one.
HOLDING = {Waiting.THREAD, Waiting.LOCK, Waiting.CONDITION, Waiting.OPENMP, Waiting.FUTEX, Waiting.DEVICE}


_BLOCKED = HOLDING | {Waiting.GIL}


def gil_cycle(seen: Sequence[ThreadFinding]) -> HangAnswer | None:
    """Return the cycle of a thread that waits for the GIL and its holder, who waits for that thread."""
    waiters = [one for one in seen if one.waiting is Waiting.GIL]
    holder, evidence = _gil_holder(seen, waiters)
    if not waiters or holder is None or holder.waiting not in HOLDING:
        return None
    assert holder.wait is not None
    numbers = {one.thread.tid: one for one in waiters}
    target = numbers.get(holder.wait.partner or 0)
    if target is not None:
        evidence += "; its futex holds that thread's number"
    elif holder.wait.partner is None and len(waiters) == 1 and holder.waiting is not Waiting.DEVICE:
        target = waiters[0]
        evidence += "; the only thread that waits for the GIL"
    if target is None:
        return None
    first = target.edge(holder.thread.tid)
    second = holder.edge(target.thread.tid, holds=Waiting.GIL, evidence=evidence)
    return HangAnswer(
        kind=HangKind.GIL_CYCLE,
        pid=target.process.pid,
        tid=target.thread.tid,
        cycle=(first, second),
        closed=True,
    )


def _gil_holder(seen: Sequence[ThreadFinding], waiters: Sequence[ThreadFinding]) -> tuple[ThreadFinding | None, str]:
    """Return who holds the GIL: as marked, or the only other thread in which Python is."""
    others = [one for one in seen if one not in waiters]
    marked = [one for one in others if one.thread.has_gil]
    if marked:
        return marked[0], "marked as the holder of the GIL"
    candidates = [one for one in others if _uses_python(one.thread) or (len(others) == 1 and not one.thread.frames)]
    # Whoever waits in a Python lock, or by a system call of Python's, has released the GIL first.
    candidates = [one for one in candidates if one.waiting in HOLDING and not _released_gil(one)]
    running = any(one.activity for one in others)
    if waiters and len(candidates) == 1 and not running:
        return candidates[0], "the only other thread that runs Python and has not released the GIL"
    return None, ""


def _uses_python(thread: Thread) -> bool:
    return any(frame.is_python or frame.function.startswith("_PyEval_") for frame in thread.frames)


def _released_gil(one: ThreadFinding) -> bool:
    names = {frame.function for frame in one.thread.frames[:10]}
    return any(name.startswith(("PyThread_acquire_lock", "lock_PyThread")) for name in names)


def forked(processes: Sequence[Process], seen: Sequence[ThreadFinding]) -> HangAnswer | None:
    """Return a child that waits in OpenMP for threads that fork left behind, while its parent waits for it."""
    for one in seen:
        if one.waiting is not Waiting.OPENMP or one.idle:
            continue
        parent = _waiting_parent(one.process, processes, seen)
        if parent is None:
            continue
        alone = "it has no other thread" if len(one.process.threads) == 1 else "fork copies one thread only"
        edges = (one.edge(evidence=alone), parent.edge(one.process.pid, evidence="waits for this child"))
        words = (
            f"thread {one.thread.tid} of the forked child waits in OpenMP for threads that fork did not copy; "
            + edges[1].words()
        )
        return HangAnswer(
            kind=HangKind.FORK_AFTER_THREADS, pid=one.process.pid, tid=one.thread.tid, cycle=edges, words=words
        )
    return None


def _waiting_parent(
    child: Process, processes: Sequence[Process], seen: Sequence[ThreadFinding]
) -> ThreadFinding | None:
    """Return the thread of the process that forked `child` and waits for it."""
    for one in seen:
        other = one.process
        if other.pid == child.pid or one.waiting is not Waiting.CHILD:
            continue
        if other.command and child.command and other.command != child.command:
            continue  # it has started another program since
        partner = one.wait.partner if one.wait else None
        if partner == child.pid or (partner is None and (child.parent == other.pid or len(processes) == 2)):
            return one
    return None


def lock_cycle(
    last: ThreadFinding, processes: Sequence[Process], seen: Sequence[ThreadFinding], edges: Sequence[Edge]
) -> HangAnswer | None:
    """Return the lock cycle, if nobody in the process is left who could release a lock."""
    mine = [one for one in seen if one.process is last.process]
    if any(one.waiting not in _BLOCKED and not one.idle for one in mine):
        return None
    waiters = [one for one in mine if one.waiting is Waiting.LOCK and not one.idle]
    waiters.sort(key=lambda one: one.thread.tid)
    if len(waiters) == 2:
        alone = "the only other thread that waits for a lock"
        cycle = [one.edge(other.thread.tid, evidence=alone) for one, other in (waiters, waiters[::-1])]
    else:
        cycle = [one.edge(evidence="every thread of the process waits") for one in waiters]
    sentences = [f"thread {edge.tid} in {edge.function} waits for a lock" for edge in cycle] + [
        "no thread of the process is left to release " + ("it" if len(cycle) == 1 else "them")
    ]
    parents = [one for one in processes if one.pid == last.process.parent or _is_waited(one, last.process, seen)]
    if len(mine) == 1 and parents and len(parents[0].threads) > 1 and parents[0].command == last.process.command:
        sentences.append("a forked child: fork copies a locked lock, but not the thread that would release it")
    return HangAnswer(
        kind=HangKind.LOCK_CYCLE,
        pid=last.process.pid,
        tid=last.thread.tid,
        cycle=(*cycle, *reversed(edges)),
        closed=True,
        words="; ".join(sentences),
    )


def _is_waited(parent: Process, child: Process, seen: Sequence[ThreadFinding]) -> bool:
    waits = [one.wait for one in seen if one.process is parent and one.waiting is Waiting.CHILD]
    return any(wait is not None and wait.partner == child.pid for wait in waits)
