"""Say what kind of hang a picture of processes shows, who waits for whom, and where the stuck thread is.

Every kind needs evidence of its own; without any the kind is "unknown". The kernel names whom a thread waits for (a
join's futex holds the thread's number, wait4 has the child's), or only one can be meant; each edge says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from pydantic import Field

from whichtorch.failures.failure import STUCK, Signature
from whichtorch.hangs.causes import HangCause, blocked, fork_after_threads, gil_cycle
from whichtorch.hangs.disagreement import disagreement
from whichtorch.hangs.dispatch import dispatch_frames
from whichtorch.hangs.dispatch.call_path import Place, Table  # noqa: TC001 - pydantic resolves Place
from whichtorch.hangs.dispatch.written_calls import prints_place, trace_place
from whichtorch.hangs.narration import Narration, cycle_sentences
from whichtorch.hangs.reasons import without_deadlock_claim
from whichtorch.hangs.stacks import Process, Thread, number_on_host
from whichtorch.hangs.thread_state import (
    ThreadState,
    awaits_compiler,
    compiling_frame,
    is_compiler,
    is_interpreter,
    is_own_native,
    short,
    source_line,
)
from whichtorch.hangs.wait_graph import WaitGraph
from whichtorch.hangs.waits import is_lock, is_means, is_openmp
from whichtorch.model import BusyLoop, Model, Outcome, WaitEdge
from whichtorch.process.evidence.polls import loops_for_ever
from whichtorch.process.evidence.waiting import HangKind, Waiting

SIGNATURE_FRAMES = 5  # innermost named ones: down to the operator, not to who happened to call it

_LAMBDA = re.compile(r"\{lambda#\d+\}")
_CPU_LEVEL = re.compile(r"::(?:DEFAULT|AVX2|AVX512|SVE\d*|VSX|ZVECTOR)::")  # of the machine, not of the hang
# How a program or a thread is started. It says nothing of where it is stuck, and differs between builds of Python.
_STARTS = re.compile(
    r"^(?:run_eval_code_obj|run_mod|pyrun_\w+|pymain_\w+|thread_run|pythread_wrapper|start_thread|_*clone\d?|_start|__libc_start\w*)$"
)
_STARTS_PYTHON = {"_bootstrap", "_bootstrap_inner", "run"}  # of threading.py
_FOR_COMPILER = {Waiting.CHILD, Waiting.IO, Waiting.PIPE, Waiting.CONDITION}
_COMPILES = {HangKind.SLOW_COMPILE, HangKind.ENDLESS_COMPILE}
RUNNING = {HangKind.ENDLESS_LOOP, HangKind.SPIN_PYTHON, HangKind.SPIN_NATIVE, *_COMPILES}


class HangDiagnosis(Model):
    """What a picture of processes shows."""

    kind: HangKind
    place: Place | None = None
    operator: str | None = None
    key: str | None = None
    cycle: tuple[WaitEdge, ...] = ()  # from the stuck thread on; or the chain of waits that leads to it
    closed: bool = False  # `cycle` comes back to its start: nothing in it can ever go on
    proven: bool = False  # the main thread waits for those in `cycle` alone, and they never go on; others may run
    summary: str = ""
    stuck_pid: int | None = None
    stuck_thread: int | None = None
    signature_frames: tuple[str, ...] = ()
    places: tuple[str, ...] = ()  # the user's lines that wait: "train.py:18"
    ranks: dict[int, int] = Field(default_factory=dict)  # of a distributed job's processes, by pid

    @property
    def signature(self) -> str | None:
        """Its kind and the user's lines that wait, or native frames; None for a spin: its samples tell better."""
        if self.kind in RUNNING or not (self.places or self.signature_frames):
            return None
        if self.kind is HangKind.UNKNOWN or not self.places:
            return str(Signature(STUCK, self.signature_frames))
        return str(Signature(f"{STUCK}: {self.kind}", tuple(filter(None, (self.operator, *self.places)))))


def diagnose(
    processes: Sequence[Process], *, tables: Mapping[str, Table] | None = None, stderr: str = ""
) -> HangDiagnosis:
    """Return the diagnosis of a merged picture.

    `tables` holds the environment's dispatch tables by operator. `stderr` is what the program wrote: a dispatch
    trace or debug prints in it give the place where no frame does.
    """
    states = [ThreadState(process, thread) for process in processes for thread in process.threads]
    graph = WaitGraph(processes, states)
    cause = _cause(processes, graph, stderr)
    # Without a cause, a thread that waits inside the dispatcher is shown.
    waiting = (state for state in states if state.wait and dispatch_frames.place_of(state.thread))
    stuck = cause.stuck if cause else next(waiting, None)
    place = dispatch_frames.place_of(stuck.thread, tables) if stuck else None
    place = place or trace_place(stderr, tables) or prints_place(stderr, tables)
    lines = {cause.stuck.place, *(edge.place for edge in cause.cycle)} if cause else set()
    return HangDiagnosis(
        kind=cause.kind if cause else HangKind.UNKNOWN,
        place=place,
        operator=place.operator if place else None,
        key=place.key if place else None,
        cycle=cause.cycle if cause else (),
        closed=cause is not None and cause.is_closed,
        proven=cause is not None and cause.is_proven,
        summary="; ".join([_summary(cause, place), *_openmp_notes(states)]),
        stuck_pid=stuck.pid if stuck else None,
        stuck_thread=stuck.tid if stuck else None,
        signature_frames=signature_frames(stuck.thread) if stuck else (),
        places=tuple(sorted(filter(None, lines))),
        ranks=graph.ranks,
    )


def _cause(processes: Sequence[Process], graph: WaitGraph, stderr: str) -> HangCause | None:
    states, narration = graph.all_states, Narration(graph, stderr)
    cycles = (gil_cycle([state for state in states if state.pid == process.pid]) for process in processes)
    return (
        next(filter(None, cycles), None)
        or fork_after_threads(processes, states)
        or _compiling(processes, states, narration)
        or disagreement(narration)
        or _deadlocked(narration)
        or _running(states, narration)
        or _stopped(narration)
        or blocked(narration)
    )


def _compiling(processes: Sequence[Process], states: Sequence[ThreadState], narration: Narration) -> HangCause | None:
    """Return the compilation that goes on: torch's own, or a compiler that was started."""
    frames = {state: frame for state in states if (frame := compiling_frame(state.thread))}
    if state := min((state for state in frames if state.activity), key=lambda state: not state.is_main, default=None):
        words = f"{narration.label(state)} compiles{_at(state)}, in {frames[state].words}"
        return HangCause(kind=HangKind.SLOW_COMPILE, stuck=state, words=words)
    waiters = [state for state in frames if state.waiting in _FOR_COMPILER]
    waiters.sort(key=lambda state: not awaits_compiler(state.thread, frames[state]))
    waiter = next(iter(waiters), None)
    compiler = next(filter(is_compiler, processes), None)
    if waiter and (
        compiler or any(state.activity for state in states) or awaits_compiler(waiter.thread, frames[waiter])
    ):
        compiler = compiler or next((process for process in processes if process.pid == waiter.partner), None)
        compiler = compiler or _started_by(waiter, processes)
        sleeper = _sleeper(compiler, processes)
        awaited = f"the compiler {_named(compiler)}" if compiler else "a compiler"
        awaited += f", which waits for {_named(sleeper)}, and that one sleeps" if sleeper else ""
        callers = (state for state in frames if state.process is waiter.process and state.place)
        caller = waiter if waiter.place else next(callers, waiter)
        words = f"{narration.label(caller)} compiles{_at(caller)}, and waits for {awaited}, in {frames[waiter].words}"
        return HangCause(kind=HangKind.CHILD if sleeper else HangKind.SLOW_COMPILE, stuck=waiter, words=words)
    return None


def _at(state: ThreadState) -> str:
    return f" ({state.place})" if state.place else ""


def _started_by(waiter: ThreadState, processes: Sequence[Process]) -> Process | None:
    """Return the only child of a process that runs another program, and no Python."""
    children = [process for process in processes if process.parent == waiter.pid and not process.ended]
    others = [child for child in children if not any(each.is_python for own in child.threads for each in own.frames)]
    return others[0] if len(others) == 1 else None


def _sleeper(compiler: Process | None, processes: Sequence[Process]) -> Process | None:
    """Return the program that sleeps at the end of the chain of programs that a compiler has started."""
    last = compiler
    while last and (child := next((process for process in processes if process.parent == last.pid), None)):
        last = child
    if last is None or last is compiler:
        return None
    return last if any(thread.kernel and "nanosleep" in thread.kernel.wchan for thread in last.threads) else None


def _named(process: Process) -> str:
    """Return the program of a process, and the script that a shell runs."""
    words = process.command.split()
    is_shell = len(words) > 1 and PurePath(words[0]).name in {"sh", "bash", "dash"} and not words[1].startswith("-")
    return f"`{' '.join(words[: 2 if is_shell else 1])}` (process {number_on_host(process.pid)})"


def _deadlocked(narration: Narration) -> HangCause | None:
    """Return why the main thread waits for locks that nobody releases, although other threads may run.

    A lock that one thread takes twice does not count if another thread runs, because that one may release it. Nor does
    a worker that is stuck where another one works, whose result may be what is waited for.
    """
    waits, graph = blocked(narration), narration.graph
    if waits is None or not (waits.is_closed or waits.kind is HangKind.FORKED_LOCK):
        return None
    circle = graph.chain(waits.stuck).cycle
    is_of_locks = {state.awaits for state in circle} <= {Waiting.LOCK, Waiting.THREAD, Waiting.CHILD}
    may_be_ended = len(circle) == 1 and any(state.activity for state in graph.beside(waits.stuck))
    by_number = {state.tid: state for state in graph.states}
    states = [by_number[edge.tid] for edge in waits.cycle]
    others = (link.state for state in states for link in graph.links(state))
    is_endless = all(_waits_for_ever(state.thread) for state in states) and not any(each.activity for each in others)
    return replace(waits, is_proven=True) if is_of_locks and is_endless and not may_be_ended else None


def _waits_for_ever(thread: Thread) -> bool:
    """Return whether a thread waits without a deadline, or in a loop that begins the wait anew."""
    if thread.kernel and thread.kernel.has_no_deadline:
        return True
    own = (frame for frame in thread.frames if frame.is_python)
    rows = [{"filename": frame.file or "", "name": frame.function, "line": frame.line or 0} for frame in own]
    return loops_for_ever(rows, is_seen=True)


def _running(states: Sequence[ThreadState], narration: Narration) -> HangCause | None:
    """Return the thread that uses a core: the holder of the GIL or the main thread before others."""
    running = [(state, state.activity) for state in states if state.activity and not state.is_idle]
    if not running:
        return None
    state, (is_python, innermost) = min(running, key=lambda pair: (not pair[0].thread.has_gil, not pair[0].is_main))
    frame = f"{innermost.function} ({source_line(innermost)})" if is_own_native(innermost) else innermost.words
    who = narration.label(state)
    if is_python is None:
        kind, words = HangKind.UNKNOWN, f"{who} runs, in {frame} or in native code that it calls"
    else:
        kind = HangKind.SPIN_PYTHON if is_python else HangKind.SPIN_NATIVE
        words = f"{who} runs {'Python' if is_python else 'native'} code in {frame}"
    caller = state.user.place or next((frame for frame in state.thread.frames if frame.is_python), None)
    if caller and caller is not innermost:
        words += f", called from {caller.words}"
    waiters = sum(other.waiting is Waiting.GIL for other in states)
    if waiters and state.thread.has_gil:
        words += f"; it holds the GIL, for which {waiters} wait" + ("s" if waiters == 1 else "")
    return HangCause(kind=kind, stuck=state, words=words)


def _stopped(narration: Narration) -> HangCause | None:
    """Return a process that a signal has stopped, with the thread that waits for it."""
    for state in narration.graph.states:
        if state.waiting is Waiting.STOPPED and state.is_main:
            waits = blocked(narration)
            if waits and waits.kind is HangKind.STOPPED:
                return waits
            words = f"process {number_on_host(state.pid)} is stopped by a signal and waits for SIGCONT"
            words = f"{narration.clause(waits.stuck)}; {words}" if waits else words
            return HangCause(kind=HangKind.STOPPED, stuck=state, words=words)
    return None


def signature_frames(thread: Thread) -> tuple[str, ...]:
    """Return what makes two hangs the same: the innermost named frames, without numbers, paths and means of waits."""
    return tuple(dict.fromkeys(_signature_names(thread)))[:SIGNATURE_FRAMES]


def _signature_names(thread: Thread) -> Iterator[str]:
    for frame in thread.frames:
        if frame.is_python and "<frozen" in (frame.file or ""):
            continue  # runpy, importlib: how a program was started
        if frame.is_python and not (frame.file_name == "threading.py" and frame.method in _STARTS_PYTHON):
            yield f"{frame.method} ({frame.file_name})"
        elif frame.is_python or is_openmp(frame) or _STARTS.match(frame.function):
            continue
        elif frame.is_named and not (is_means(frame) or is_lock(frame) or is_interpreter(frame)):
            name = _LAMBDA.sub("{lambda}", _CPU_LEVEL.sub("::", short(frame.function)))
            yield name.removesuffix("_impl")


def _summary(cause: HangCause | None, place: Place | None) -> str:
    # Where in the dispatcher a rank waits for others says nothing of why they do not come.
    is_told = cause is None or cause.kind not in {HangKind.COLLECTIVE, HangKind.RENDEZVOUS}
    parts = [place.words] if place and is_told else []
    if cause is None:
        parts.append("who waits for whom is not known")
    elif cause.words:
        parts.append(cause.words)
    else:
        parts += cycle_sentences(cause.cycle)
    return "; ".join(parts)


def _openmp_notes(states: Sequence[ThreadState]) -> Iterator[str]:
    """Yield the words on a process that waits in OpenMP, and has loaded two runtimes of it."""
    for state in states:
        if state.waiting is Waiting.OPENMP and not state.is_idle and state.process.has_two_openmps:
            names = " and ".join(state.process.openmp)
            yield f"process {number_on_host(state.pid)} has loaded {names}: OpenMP of two makers, which can deadlock"
            return


def agreeing(diagnosis: HangDiagnosis, outcome: Outcome, loop: BusyLoop | None) -> HangDiagnosis:
    """Return a diagnosis that does not contradict its outcome.

    What hangs does not compile slowly, but without end. What is slow is not without anybody to end its wait. What was
    busy is told by the user's own line first, then by what that called.
    """
    if loop is not None and loop.repeats:
        diagnosis = diagnosis.model_copy(update={"kind": HangKind.ENDLESS_LOOP})
    if loop is not None and not diagnosis.proven:
        diagnosis = diagnosis.model_copy(update={"summary": f"{loop.words}; {diagnosis.summary}"})
    if outcome is Outcome.SLOW and (summary := without_deadlock_claim(diagnosis.summary)) != diagnosis.summary:
        return diagnosis.model_copy(update={"summary": summary})
    if outcome is Outcome.HANG and diagnosis.kind is HangKind.SLOW_COMPILE:
        return diagnosis.model_copy(update={"kind": HangKind.ENDLESS_COMPILE})
    return diagnosis
