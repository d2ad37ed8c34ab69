"""Tell a wait in a user's words: who waits, on which line of theirs, in which call, for what, and who could end it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matrix.diagnosis.hang.activity import short
from matrix.diagnosis.hang.departures import ended_children, ended_with_exception
from matrix.diagnosis.hang.native_place import is_own_native, source_line
from matrix.diagnosis.hang.source_text import read_site
from matrix.diagnosis.hang.user_call import is_own
from matrix.diagnosis.hang.wait_graph import descriptor_of
from matrix.diagnosis.hang.waits import asking_frame
from matrix.model import Waiting, number_on_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.diagnosis.hang.activity import ThreadState
    from matrix.diagnosis.hang.wait_graph import Link, WaitGraph
    from matrix.diagnosis.stacks import Frame, Process

_UNNAMED_THREAD = re.compile(r"^(?:|python[\d.]*|pt_\w+|MainThread|Thread-\d+.*)$")
_VARIABLE = re.compile(r"[\w.\[\]'\"]+$")  # an expression that may be a lock: no call
_OTHERS_NAMED = 3  # of the threads that could end a wait, and do not
# What a wait is for where no row of the library says more; {object} is what the user calls it.
_OBJECTS = {
    Waiting.LOCK: "the lock {object}",  # a mutex of native code has no name
    Waiting.SEMAPHORE: "the lock or semaphore {object}",
    Waiting.CONDITION: "a condition",
    Waiting.GIL: "the GIL",
    Waiting.SLEEP: "time to pass",
    Waiting.DEVICE: "the GPU",
    Waiting.OPENMP: "OpenMP's threads",
    Waiting.FUTEX: "something that no frame names",
}
_ENDERS = {Waiting.LOCK: "release it", Waiting.SEMAPHORE: "release it", Waiting.CONDITION: "notify it"}
_STANDARD = ("stdin", "its stdout", "its stderr")
_IDLE_LOOP = (
    "the event loop is idle: no callback is ready, and nothing that it watches comes; every task awaits something that "
    "nobody completes"
)
_OWN_POOL = (
    "it is itself a worker of a pool: what it waits for runs only when a worker is free, and every worker here is busy"
)
_OWN_LOOP = (
    "it is the event loop's own thread: while it waits here, the loop runs nothing, and nobody can set the result"
)
_FORKED = (
    "nobody holds it in this process, which was forked: fork copies a lock as it is, locked, but not the thread that "
    "would release it"
)
_SCHEDULED = {Waiting.SLEEP, Waiting.STOPPED, None}  # waits that need nobody, or are none


class Account:
    """The words for the threads of one wait-for graph."""

    def __init__(self, graph: WaitGraph, stderr: str = "") -> None:
        self.graph = graph
        self.departed = [*ended_children(graph.processes.values()), *ended_with_exception(stderr)]

    def label(self, state: ThreadState) -> str:
        """Return how a thread is called: `rank 2`, `thread "loader"`, `child 4711`, `the main thread`."""
        name = "" if _UNNAMED_THREAD.match(state.thread.name) else state.thread.name
        if state.pid in self.graph.ranks:
            rank = f"rank {self.graph.ranks[state.pid]}{_at_host(state.process)}"
            return rank if state.is_main else f"thread {_named(name, state)} of {rank}"
        process = self.process_label(state)
        if state.is_main:
            return process or "the main thread"
        return f"thread {_named(name, state)}" + (f" of {process}" if process else "")

    def process_label(self, state: ThreadState) -> str:
        """Return how a process is called, "" for the first one or the only one."""
        if state.pid == self.graph.root and not state.process.host:
            return ""
        worker = next(
            (
                value.text
                for frame in state.user.frames
                if frame.method == "_worker_loop"
                for value in frame.values
                if value.name == "worker_id"
            ),
            "",
        )
        number, host = number_on_host(state.pid), _at_host(state.process)
        if worker or any(frame.is_python and frame.method == "_worker_loop" for frame in state.user.frames):
            return f"DataLoader worker {worker} (process {number}){host}".replace("  ", " ")
        kind = "child" if state.process.parent in self.graph.processes else "process"
        return f"{kind} {number}{host}"

    def clause(self, state: ThreadState, link: Link | None = None) -> str:
        """Return a thread's wait as a clause, with whom `link` leads to."""
        return f"{self.label(state)} {self.predicate(state, link)}"

    def predicate(self, state: ThreadState, link: Link | None = None) -> str:
        """Return what a thread does: "waits in Queue.get (a.py:13) for an item of the queue `batches`"."""
        where = _where(state)
        if state.waiting is Waiting.STOPPED:
            return f"is stopped by a signal{where}, and goes on after SIGCONT"
        if state.awaits is Waiting.SLEEP and not state.user.call:
            return f"sleeps in {self.call(state) or 'time.sleep'}{where}" + _in_loop(state)
        if state.awaits is None:
            if state.activity:
                language, inner = "Python" if state.activity.is_python else "native", state.activity.frame.words
                return f"runs {language} code in {inner}{where if state.place not in inner else ''}"
            return f"is{where or ' in code of which nothing is known'}"
        call = self.call(state)
        inside = f" in {call}" if call else ""
        at_exit = " at the interpreter's exit, after the end of the script," if state.user.is_exit else ""
        what = self.what(state, link)
        return f"waits{at_exit}{inside}{where}" + (f" for {what}" if what else "") + _in_loop(state)

    def call(self, state: ThreadState) -> str:
        """Return the call that a thread waits in, as its user knows it."""
        user = state.user
        if user.call and user.frame:
            is_made = user.frame.method == "__init__"
            name = user.call.name.removesuffix(".{function}") if is_made else user.call.name
            return name.format(function=user.frame.method.strip("_"))
        if user.native and user.native.name:
            return user.native.name
        if user.site.wanted:
            return ""
        if user.native_place:
            return user.site.call or _short(user.native_place)
        asking = asking_frame(state.thread, None) if state.waiting is Waiting.LOCK else None
        if asking and not asking.is_python:
            return f"{user.site.call}, in {asking.words}" if user.site.call else asking.words
        return user.site.call or (state.edge().function if state.wait and not user.place else "")

    def what(self, state: ThreadState, link: Link | None) -> str:
        """Return what a thread waits for, and who has it."""
        row = state.user.call or state.user.native
        partner = self.label(link.state) if link else ""
        if state.awaits is Waiting.THREAD:
            return f"the end of {partner or 'a thread'}"
        if state.awaits is Waiting.CHILD and not (row and row.what):
            return f"the end of {partner or (f'child {number_on_host(state.partner)}' if state.partner else 'a child')}"
        if state.awaits is Waiting.PIPE and not (row and row.what):
            words = _pipe(state)
        else:
            words = _filled((row.what if row else "") or _OBJECTS.get(state.awaits or Waiting.FUTEX, ""), _thing(state))
            words = _with_end(words, state) + _made_by(state, words)
        if link is None:
            return words
        if link.since:
            holder = "the same thread" if link.state is state else partner
            return f"{words}, which {holder} has held since line {link.since.rpartition(':')[2]}"
        if link.state is state and state.awaits in {Waiting.LOCK, Waiting.SEMAPHORE}:
            return f"{words}, which the same thread holds already{_came_from(state)}"
        if state.awaits in {Waiting.LOCK, Waiting.SEMAPHORE, Waiting.FILE_LOCK, Waiting.GIL}:
            return f"{words}, which {partner} holds"
        if state.awaits in {Waiting.PIPE, Waiting.SOCKET}:
            holder = self.process_label(link.state) or ("the main process" if link.state.pid != state.pid else "it")
            return f"{words}, whose other end {holder} holds"
        return words

    def reason(self, state: ThreadState) -> str:
        """Return why nobody ends a thread's wait, as far as it is known; "" where its partner says enough."""
        if state.awaits in _SCHEDULED:
            return ""
        row = state.user.call or state.user.native
        if state.user.call and state.user.call.reason:
            return state.user.call.reason
        if state.awaits is Waiting.EVENT_LOOP:
            return _IDLE_LOOP
        if state.awaits is Waiting.FUTURE and self.graph.is_in_event_loop(state):
            return _OWN_LOOP
        if state.awaits is Waiting.FUTURE and self.graph.is_in_full_pool(state):
            return _OWN_POOL
        if state.awaits is Waiting.LOCK and self.graph.is_forked_alone(state):
            return _FORKED
        ender = (row.ender if row else "") or _ENDERS.get(state.awaits or Waiting.FUTEX, "end the wait")
        nobody = self._nobody(state, ender)
        return "; ".join(filter(None, [nobody, *self.departed]))

    def _nobody(self, state: ThreadState, ender: str) -> str:
        others = [
            other
            for other in self.graph.states
            if other is not state and not other.is_idle and (other.user.is_known or other.activity)
        ]
        if not others:
            return f"nobody is left that could {ender}: no other thread or process runs any of your code"
        waiting = [other for other in others if self._waits_on(other, state)]
        others = [other for other in others if other not in waiting]
        if not others:
            who = " and ".join(map(self.label, waiting[:_OTHERS_NAMED]))
            verb = "waits" if len(waiting) == 1 else "wait"
            return self._maybe_held(state, waiting) or f"nobody is left that could {ender}: {who} {verb} for this one"
        same = self.predicate(state)
        if all(self.predicate(other) == same for other in others):
            who = " and ".join(map(self.label, others[:_OTHERS_NAMED]))
            more = f" and {len(others) - _OTHERS_NAMED} more" if len(others) > _OTHERS_NAMED else ""
            verb = "waits" if len(others) == 1 else "wait"
            return f"nobody else runs that could {ender}: {who}{more} {verb} there, too"
        alike: dict[str, list[ThreadState]] = {}
        for other in others:
            alike.setdefault(self.predicate(other), []).append(other)
        others = [group[0] for group in alike.values()]
        named = [self.clause(other) for other in others[:_OTHERS_NAMED]]
        more = f"; and {len(others) - _OTHERS_NAMED} more" if len(others) > _OTHERS_NAMED else ""
        if all(other.awaits not in _SCHEDULED for other in others):
            return f"nobody else runs that could {ender}: {'; '.join(named)}{more}"
        return f"who could {ender} is not known: {'; '.join(named)}{more}"

    def _maybe_held(self, state: ThreadState, waiting: Sequence[ThreadState]) -> str:
        """Return which lock a thread that waits for `state` holds meanwhile, if that may be the lock that it wants."""
        is_lock = state.awaits in {Waiting.LOCK, Waiting.SEMAPHORE}
        words = self.held_meanwhile(waiting) if is_lock else []
        return f"{words[0]}, and waits for this one: if that is the same lock, neither can go on" if words else ""

    def held_meanwhile(self, states: Sequence[ThreadState]) -> list[str]:
        """Return which locks threads hold while they wait, as their source shows it."""
        return [
            f"{self.label(state)} has held `{held.expression}` since {frame.file_name}:{held.line}"
            for state in states
            for frame in filter(is_own, state.user.frames)
            for held in read_site(frame).held
            if _VARIABLE.match(held.expression)
        ]

    def _waits_on(self, other: ThreadState, state: ThreadState) -> bool:
        """Return whether a thread waits for another, directly or through others."""
        return other.awaits is not None and state in self.graph.chain(other).states


def _named(name: str, state: ThreadState) -> str:
    return f'"{name}"' if name else str(number_on_host(state.tid))


def _at_host(process: Process) -> str:
    return f" ({process.host})" if process.host else ""


def _short(frame: Frame) -> str:
    """Return a native function without its namespaces and its call operator."""
    return "::".join(short(frame.function).split("::")[-2:])


def _where(state: ThreadState) -> str:
    """Return a thread's place, that in the user's native code, too: " (a.py:12), in Pool::take (pool.cpp:7),"."""
    place, user = state.user.native_place, state.user
    if place is None or user.place is None or user.call:
        return f" ({state.place})" if state.place else ""
    if user.site.call.rpartition(".")[2] == place.function.rpartition(":")[2]:
        return f" ({state.place}, {source_line(place)})"
    return f" ({state.place}), in {_short(place)} ({source_line(place)}),"


def _came_from(state: ThreadState) -> str:
    """Return through which of the user's native functions a thread has come back into native code, outermost last."""
    user = state.user
    if user.place is None or user.native_place is None:
        return ""
    beyond = user.frames[user.frames.index(user.place) :]
    outer = next(filter(is_own_native, beyond), None)
    caller = next(filter(is_own, beyond[beyond.index(outer) :]), None) if outer else None
    called = f", called at {caller.where}" if caller else ""
    return f"; it came here from {_short(outer)} ({source_line(outer)}){called}" if outer else ""


def _filled(text: str, thing: str) -> str:
    return text.format(object=thing) if thing else text.replace(" {object}", "").replace("{object}", "").strip()


def _in_loop(state: ThreadState) -> str:
    loop = state.user.site.loop if state.awaits is Waiting.SLEEP else ""
    return f", again and again while `{loop}`" if loop and loop not in {"True", "1"} else ""


def _thing(state: ThreadState) -> str:
    """Return what the user calls the thing that a thread waits for, in backticks; a file by its path."""
    row, user = descriptor_of(state), state.user
    if state.awaits is Waiting.FILE_LOCK and row and row.link.startswith("/"):
        return row.link
    if user.call and user.call.values:
        return user.value(*user.call.values)
    if state.awaits is Waiting.FILE_LOCK:
        return f"`{user.site.first}`" if user.site.first else ""
    if state.awaits is Waiting.RENDEZVOUS:
        return f"`{user.site.first}`" if user.site.first else ""
    if state.awaits is Waiting.LOCK and not user.call and not user.site.wanted:
        return ""
    text = user.site.wanted or user.site.target
    return f"`{text}`" if text else ""


def _made_by(state: ThreadState, words: str) -> str:
    """Return from which call of the user's the future or the work comes that a thread waits for."""
    site, place = state.user.site, state.user.place
    if state.awaits not in {Waiting.COLLECTIVE, Waiting.FUTURE} or not site.origin or place is None:
        return ""
    is_shown = site.origin_line == place.line
    if state.awaits is Waiting.COLLECTIVE:
        return site.origin + ("" if is_shown else f" of line {site.origin_line}")
    return "" if is_shown or not words else f", which {site.origin} gave in line {site.origin_line}"


def _pipe(state: ThreadState) -> str:
    """Return which pipe a thread reads or writes, as its user knows it."""
    row, target = descriptor_of(state), state.user.site.target
    if state.user.site.call.rpartition(".")[2] == "open" and state.user.site.first:
        return f"another process to open the other end of the named pipe `{state.user.site.first}`"
    standard = _STANDARD[row.number] if row and row.number < len(_STANDARD) else ""
    is_library = target in {"os", "select", "selectors"}
    name = standard or (f"`{target}`" if target and not is_library else "a pipe")
    pipe = "" if name == "a pipe" else ", a pipe"
    if row is None:
        return name + pipe
    return f"room in {name}{pipe or ''}, which is full" if row.is_written else f"data from {name}{pipe}"


def _with_end(words: str, state: ThreadState) -> str:
    """Add the address of the socket that a thread waits on."""
    row = descriptor_of(state) if state.awaits in {Waiting.SOCKET, Waiting.IO, Waiting.EVENT_LOOP} else None
    if row and (row.peer or row.is_listening):
        end = f"on {row.local}" if row.is_listening else f"at {row.peer}"
        return f"{words} {end}".strip()
    return words
