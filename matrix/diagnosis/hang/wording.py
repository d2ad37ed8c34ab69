"""Write a diagnosis for people: lines, so that a test needs no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.diagnosis.hang.waits import is_idle_worker
from matrix.diagnosis.symbols import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.diagnosis.dispatch.call_path import Place
    from matrix.diagnosis.hang.hang_diagnosis import Diagnosis
    from matrix.diagnosis.stacks import Process, Thread

DEPTH = 20  # frames of a thread that are written; the rest is counted


def diagnosis_lines(diagnosis: Diagnosis, processes: Sequence[Process] = (), *, depth: int = DEPTH) -> Iterator[str]:
    """Yield the kind, who waits for whom, the path in the dispatcher, and the stacks, the stuck thread's first."""
    yield f"{diagnosis.kind}: {diagnosis.summary}"
    if diagnosis.cycle:
        yield ""
        yield "who waits for whom" + (" (nothing in it can ever go on)" if diagnosis.closed else "")
        for at, edge in enumerate(diagnosis.cycle):
            why = f"  [{edge.evidence}]" if edge.evidence else ""
            yield f"  {edge.words(diagnosis.cycle[at - 1] if at else None)}{why}"
    if diagnosis.place:
        yield ""
        yield from place_lines(diagnosis.place)
    threads = [(process, thread) for process in processes for thread in process.threads]
    threads.sort(key=lambda one: (one[0].pid, one[1].tid) != (diagnosis.stuck_pid, diagnosis.stuck_thread))
    idle = [one for one in threads if is_idle_worker(one[1])]
    for process, thread in threads:
        if (process, thread) not in idle:
            yield ""
            yield from thread_lines(thread, process, depth=depth)
    if idle:
        yield ""
        yield f"and {len(idle)} idle worker{'s' if len(idle) > 1 else ''} of a pool"


def place_lines(place: Place) -> Iterator[str]:
    """Yield the path of a call, one stage a line: status, stage, what was seen, what the table expects."""
    head = f"path of {place.operator or 'the call'}, by {place.evidence}"
    keys = f", key set {', '.join(place.keys)}" if place.keys else ""
    under = f", under {' > '.join(place.enclosing)}" if place.enclosing else ""
    yield head + keys + under
    status = max(len(step.status) for step in place.steps)
    stage = max(len(step.stage) for step in place.steps)
    for step in place.steps:
        line = f"  {step.status:<{status}}  {step.stage:<{stage}}  {step.seen}".rstrip()
        yield line + (f"  (expected: {step.expected})" if step.expected else "")
    if place.note:
        yield f"  {place.note}"
    if place.missing:
        yield "  expected prints that did not come:"
        for name in place.missing:
            yield f"    {name}"


def thread_lines(thread: Thread, process: Process | None = None, *, depth: int = DEPTH) -> Iterator[str]:
    """Yield a thread's stack, innermost frame first."""
    facts = [thread.name] if thread.name else []
    facts += ["has the GIL"] if thread.has_gil else []
    facts += ["waits for the GIL"] if thread.wants_gil else []
    facts += [f"state {thread.state}"] if thread.state else []
    facts += [f"waits in {thread.kernel.wchan}"] if thread.kernel and thread.kernel.wchan else []
    of = f" of process {process.pid}" if process and process.pid != thread.tid else ""
    yield f"thread {thread.tid or hex(thread.ident or 0)}{of}" + (f" ({', '.join(facts)})" if facts else "")
    unnamed = 0
    for frame in thread.frames[:depth]:
        if frame.function == UNNAMED:
            unnamed += 1
            continue
        if unnamed:
            yield f"    … {unnamed} without a name"
            unnamed = 0
        yield f"    {frame.words}"
    left = len(thread.frames[depth:]) + unnamed
    if left:
        yield f"    … {left} more"
