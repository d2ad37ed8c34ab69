"""Say what kind of hang a picture of processes shows, who waits for whom, and where the stuck thread is.

Every kind needs evidence of its own; without any the answer is "unknown". Who is waited for is taken from the kernel
(a join's futex holds the thread's number, wait4 has the child's), or by elimination where only one can be meant; each
edge says which.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from matrix.diagnosis.dispatch import debug_prints, dispatch_frames, dispatch_trace
from matrix.diagnosis.dispatch.call_path import Place  # noqa: TC001 - pydantic resolves it
from matrix.diagnosis.hang.activity import awaits_compiler, is_compiler, is_compiling, is_interpreter
from matrix.diagnosis.hang.chains import blocked
from matrix.diagnosis.hang.cycles import forked, gil_cycle
from matrix.diagnosis.hang.kinds import Edge, HangAnswer, HangKind, ThreadFinding, short
from matrix.diagnosis.hang.waits import Waiting, is_lock, is_openmp, is_plumbing
from matrix.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.diagnosis.dispatch.operator_table import Table
    from matrix.diagnosis.stacks import Frame, Process, Thread

__all__ = ["Diagnosis", "Edge", "HangKind", "diagnose", "signature_frames"]

SIGNATURE_FRAMES = 5  # innermost named ones: down to the operator, not to who happened to call it

_LAMBDA = re.compile(r"\{lambda#\d+\}")
_CPU_LEVEL = re.compile(r"::(?:DEFAULT|AVX2|AVX512|SVE\d*|VSX|ZVECTOR)::")  # of the machine, not of the hang
# How a program or a thread is started, which says nothing of where it is stuck and differs between builds of Python.
_STARTS = re.compile(
    r"^(?:run_eval_code_obj|run_mod|pyrun_\w+|pymain_\w+|thread_run|pythread_wrapper|start_thread|_*clone\d?|_start|__libc_start\w*)$"
)
_STARTS_PYTHON = {"_bootstrap", "_bootstrap_inner", "run"}  # of threading.py
_FOR_COMPILER = {Waiting.CHILD, Waiting.IO, Waiting.PIPE, Waiting.CONDITION}


class Diagnosis(Model):
    """What a picture of processes shows."""

    kind: HangKind
    place: Place | None = None
    operator: str | None = None
    key: str | None = None
    cycle: tuple[Edge, ...] = ()  # from the stuck thread on; for the kinds without a cycle, the chain that leads to it
    closed: bool = False  # `cycle` comes back to its start: nothing in it can ever go on
    summary: str = ""
    stuck_pid: int | None = None
    stuck_thread: int | None = None
    signature_frames: tuple[str, ...] = ()


def diagnose(processes: Sequence[Process], *, tables: Mapping[str, Table] | None = None, stderr: str = "") -> Diagnosis:
    """Return the diagnosis of a merged picture.

    `tables` holds the environment's dispatch tables by operator. `stderr` is what the program wrote: a dispatch
    trace or debug prints in it give the place where no frame does.
    """
    seen = [ThreadFinding(process, thread) for process in processes for thread in process.threads]
    answer = _answer(processes, seen)
    stuck = _stuck(answer, seen)
    place = dispatch_frames.place_of(stuck.thread, tables) if stuck else None
    place = place or dispatch_trace.place_of(dispatch_trace.parse(stderr), tables)
    place = place or debug_prints.place_of(stderr, tables)
    return Diagnosis(
        kind=answer.kind if answer else HangKind.UNKNOWN,
        place=place,
        operator=place.operator if place else None,
        key=place.key if place else None,
        cycle=answer.cycle if answer else (),
        closed=answer.closed if answer else False,
        summary=_summary(answer, place),
        stuck_pid=stuck.process.pid if stuck else None,
        stuck_thread=stuck.thread.tid if stuck else None,
        signature_frames=signature_frames(stuck.thread) if stuck else (),
    )


def _stuck(answer: HangAnswer | None, seen: Sequence[ThreadFinding]) -> ThreadFinding | None:
    """Return the thread of an answer; without one, a thread that waits inside the dispatcher."""
    if answer:
        return next(one for one in seen if (one.process.pid, one.thread.tid) == (answer.pid, answer.tid))
    return next((one for one in seen if one.wait and dispatch_frames.place_of(one.thread)), None)


def _answer(processes: Sequence[Process], seen: Sequence[ThreadFinding]) -> HangAnswer | None:
    for process in processes:
        if answer := gil_cycle([one for one in seen if one.process.pid == process.pid]):
            return answer
    return (
        forked(processes, seen)
        or _compiling(processes, seen)
        or _running(seen)
        or _stopped(seen)
        or blocked(processes, seen)
    )


def _compiling(processes: Sequence[Process], seen: Sequence[ThreadFinding]) -> HangAnswer | None:
    """Return the compilation that goes on: torch's own, or a compiler that was started."""
    at_work = [one for one in seen if one.activity and is_compiling(one.thread)]
    if at_work:
        one = min(at_work, key=lambda one: not one.is_main)
        words = f"thread {one.thread.tid} compiles, in {_frame_words(is_compiling(one.thread))}"
        return HangAnswer(kind=HangKind.SLOW_COMPILE, pid=one.process.pid, tid=one.thread.tid, words=words)
    waiting = [one for one in seen if is_compiling(one.thread) and one.waiting in _FOR_COMPILER]
    alive = [process for process in processes if is_compiler(process)]
    if waiting and (alive or any(one.activity for one in seen) or awaits_compiler(waiting[0].thread)):
        one = waiting[0]
        compiler = f"{alive[0].command.split()[0]} ({alive[0].pid})" if alive else "a compiler"
        words = f"thread {one.thread.tid} waits for {compiler}, in {_frame_words(is_compiling(one.thread))}"
        return HangAnswer(kind=HangKind.SLOW_COMPILE, pid=one.process.pid, tid=one.thread.tid, words=words)
    return None


def _running(seen: Sequence[ThreadFinding]) -> HangAnswer | None:
    """Return the thread that uses a core: the holder of the GIL or the main thread before others."""
    running = [one for one in seen if one.activity and not one.idle]
    if not running:
        return None
    one = min(running, key=lambda one: (not one.thread.has_gil, not one.is_main))
    assert one.activity is not None
    frame = one.activity.frame.words
    if one.activity.is_python is None:
        kind, words = HangKind.UNKNOWN, f"thread {one.thread.tid} runs, in {frame} or in native code that it calls"
    else:
        kind = HangKind.SPIN_PYTHON if one.activity.is_python else HangKind.SPIN_NATIVE
        words = f"thread {one.thread.tid} runs {'Python' if one.activity.is_python else 'native'} code in {frame}"
    caller = next((frame for frame in one.thread.frames if frame.is_python), None)
    if kind is HangKind.SPIN_NATIVE and caller:
        words += f", called from {caller.words}"
    others = sum(other.waiting is Waiting.GIL for other in seen)
    if others and one.thread.has_gil:
        words += f"; it holds the GIL, for which {others} wait" + ("s" if others == 1 else "")
    return HangAnswer(kind=kind, pid=one.process.pid, tid=one.thread.tid, words=words)


def _stopped(seen: Sequence[ThreadFinding]) -> HangAnswer | None:
    for one in seen:
        if one.waiting is Waiting.STOPPED:
            words = f"process {one.process.pid} is stopped by a signal and waits for SIGCONT"
            return HangAnswer(kind=HangKind.STOPPED, pid=one.process.pid, tid=one.thread.tid, words=words)
    return None


def signature_frames(thread: Thread) -> tuple[str, ...]:
    """Return what makes two hangs the same one: the innermost named frames, without numbers, paths and plumbing."""
    return tuple(dict.fromkeys(_signature(thread)))[:SIGNATURE_FRAMES]


def _signature(thread: Thread) -> Iterator[str]:
    for frame in thread.frames:
        if frame.is_python and "<frozen" in (frame.file or ""):
            continue  # runpy, importlib: how a program was started
        name, file = frame.function.rpartition(".")[2], PurePath(frame.file or "").name
        if frame.is_python and not (file == "threading.py" and name in _STARTS_PYTHON):
            yield f"{name} ({file})"
        elif frame.is_python or is_openmp(frame) or _STARTS.match(frame.function):
            continue
        elif frame.is_named and not (is_plumbing(frame) or is_lock(frame) or is_interpreter(frame)):
            name = _LAMBDA.sub("{lambda}", _CPU_LEVEL.sub("::", short(frame.function)))
            yield name.removesuffix("_impl")


def _frame_words(frame: Frame | None) -> str:
    return frame.words if frame else "?"


def _summary(answer: HangAnswer | None, place: Place | None) -> str:
    parts = [place.words] if place else []
    if answer is None:
        return "; ".join([*parts, "who waits for whom is not known"])
    if answer.words:
        parts.append(answer.words)
    else:
        edges = answer.cycle
        parts += [edge.words(edges[at - 1] if at else None) for at, edge in enumerate(edges)]
    return "; ".join(parts)
