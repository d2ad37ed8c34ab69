"""Write a diagnosis for people: lines, so that a test needs no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.diagnosis.hang.waits import is_idle_worker
from matrix.diagnosis.symbols import UNNAMED
from matrix.model import cycle_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.diagnosis.dispatch.call_path import Place
    from matrix.diagnosis.hang.hang_diagnosis import HangDiagnosis
    from matrix.diagnosis.stacks import Process, Thread

DEPTH = 20  # frames of a thread that are written; the rest is counted


def diagnosis_lines(diagnosis: HangDiagnosis, processes: Sequence[Process] = ()) -> Iterator[str]:
    """Yield the kind, who waits for whom, the path in the dispatcher, and the stacks, the stuck thread's first."""
    yield f"{diagnosis.kind}: {diagnosis.summary}"
    if diagnosis.cycle:
        yield ""
        yield "who waits for whom" + (" (nothing in it can ever go on)" if diagnosis.closed else "")
        for edge, sentence in zip(diagnosis.cycle, cycle_sentences(diagnosis.cycle), strict=True):
            yield f"  {sentence}" + (f"  [{edge.evidence}]" if edge.evidence else "")
    if diagnosis.place:
        yield ""
        yield from place_lines(diagnosis.place)
    stacks, left_out = stack_texts(diagnosis, processes)
    for text in (*stacks, left_out):
        if text:
            yield ""
            yield from text.split("\n")


def place_lines(place: Place) -> Iterator[str]:
    """Yield the path of a call, one stage a line: status, stage, what was seen, what the table expects."""
    keys = f", key set {', '.join(place.keys)}" if place.keys else ""
    under = f", under {' > '.join(place.enclosing)}" if place.enclosing else ""
    yield f"path of {place.operator or 'the call'}, by {place.evidence}{keys}{under}"
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


def stack_texts(
    diagnosis: HangDiagnosis, processes: Sequence[Process], most: int | None = None
) -> tuple[tuple[str, ...], str]:
    """Return the stacks of `most` threads, or of all, the stuck thread's first; and how many threads are left out."""
    stuck = (diagnosis.stuck_pid, diagnosis.stuck_thread)
    threads = [(process, thread) for process in processes for thread in process.threads]
    threads.sort(key=lambda pair: (pair[0].pid, pair[1].tid) != stuck)
    busy = [(process, thread) for process, thread in threads if not is_idle_worker(thread)]
    idle = len(threads) - len(busy)
    counts = [f"{len(busy[most:])} more"] if most is not None and busy[most:] else []
    counts += [f"{idle} idle worker{'s' if idle > 1 else ''} of a pool"] if idle else []
    stacks = tuple("\n".join(_thread_lines(thread, process)) for process, thread in busy[:most])
    return stacks, f"and {', '.join(counts)}" if counts else ""


def _thread_lines(thread: Thread, process: Process) -> Iterator[str]:
    """Yield a thread's stack, innermost frame first."""
    facts = [thread.name] if thread.name else []
    facts += ["has the GIL"] if thread.has_gil else []
    facts += ["waits for the GIL"] if thread.wants_gil else []
    facts += [f"state {thread.state}"] if thread.state else []
    facts += [f"waits in {thread.kernel.wchan}"] if thread.kernel and thread.kernel.wchan else []
    of = f" of process {process.pid}" if process.pid != thread.tid else ""
    yield f"thread {thread.tid or hex(thread.ident or 0)}{of}" + (f" ({', '.join(facts)})" if facts else "")
    unnamed = 0
    for frame in thread.frames[:DEPTH]:
        if frame.function == UNNAMED:
            unnamed += 1
            continue
        if unnamed:
            yield f"    … {unnamed} without a name"
            unnamed = 0
        yield f"    {frame.words}"
    left = len(thread.frames[DEPTH:]) + unnamed
    if left:
        yield f"    … {left} more"
