"""Tell a wait in a user's words: who waits, on which line of theirs, in which call, for what, and who could end it."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from whichtorch.hangs.source_text import read_site
from whichtorch.hangs.stacks import number_on_host
from whichtorch.hangs.thread_state import bare_name, descriptor_of, is_answering, is_own, native_origin, place_words
from whichtorch.hangs.waits import asking_frame
from whichtorch.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from whichtorch.hangs.stacks import Process
    from whichtorch.hangs.thread_state import ThreadState
    from whichtorch.hangs.wait_graph import PartnerLink, WaitGraph
    from whichtorch.model import WaitEdge

_UNNAMED_THREAD = re.compile(r"^(?:|python[\d.]*t?|pt_\w+|MainThread|Thread-\d+.*)$")
_VARIABLE = re.compile(r"[\w.\[\]'\"]+$")  # an expression that may be a lock: no call
_NAME = re.compile(r"\{(\w+)\}")
_NEEDY = re.compile(r"\[([^]]+)\]")  # the words of a row that need what they name
# What a wait is for where no row of the library says more; {object} is what the user calls it.
_OBJECTS = {
    Waiting.LOCK: "the lock {object}",  # a mutex of native code has no name
    Waiting.SEMAPHORE: "the lock or semaphore {object}",
    Waiting.CONDITION: "a condition",
    Waiting.GIL: "the GIL",
    Waiting.SLEEP: "time to pass",
    Waiting.SOCKET: "the socket {end} to become ready",
    Waiting.IO: "[{first} to become ready]",
    Waiting.DEVICE: "the GPU",
    Waiting.OPENMP: "OpenMP's threads",
    Waiting.FUTEX: "something that no frame names",
}
_SYSTEM = {"os", "select", "selectors"}  # modules whose functions are given the pipe
_STANDARD = ("stdin", "its stdout", "its stderr")
_ON_BEHALF = {"__del__": "a finalizer", "_exitfunc": "a finalizer", "_run_exitfuncs": "an exit hook"}
_LONGEST_MESSAGE = 80  # characters of an exception that a thread ended with
_ENDED_THREAD = re.compile(r"^Exception in thread (?P<name>.+?)(?: \([\w<>.]+\))?:$", re.MULTILINE)
_ENDED_PROCESS = re.compile(r"^Process (?P<name>[\w:.-]+):$", re.MULTILINE)
_LAST_LINE = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Empty|Full))(?:: (?P<words>.*))?$"
)
_IN_SIGNAL = re.compile(r"_?PyErr_CheckSignals\w*")


class Narration:
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
        if is_answering(state):
            return f"the manager ({process or 'this process'})"
        if state.is_main:
            return process or "the main thread"
        return f"thread {_named(name, state)}" + (f" of {process}" if process else "")

    def process_label(self, state: ThreadState) -> str:
        """Return how a process is called, "" for the first one or the only one."""
        if state.pid == self.graph.root and not state.process.host:
            return ""
        loops = [frame for frame in state.user.frames if frame.is_python and frame.method == "_worker_loop"]
        number, host = number_on_host(state.pid), _at_host(state.process)
        if loops:
            worker = next(filter(None, (frame.text("worker_id") for frame in loops)), "")
            return f"DataLoader worker {worker} (process {number}){host}".replace("  ", " ")
        program = state.process.command.split()[:1]
        is_python = not program or any(frame.is_python for frame in state.thread.frames)
        kind = "child" if state.process.parent in self.graph.processes else "process"
        return f"{kind} {number}{host}" if is_python else f"{kind} {number}{host} ({PurePath(program[0]).name})"

    def clause(self, state: ThreadState, link: PartnerLink | None = None) -> str:
        """Return a thread's wait as a clause, with whom `link` leads to."""
        return f"{self.label(state)} {self.predicate(state, link)}"

    def predicate(self, state: ThreadState, link: PartnerLink | None = None) -> str:
        """Return what a thread does: "waits in Queue.get (a.py:13) for an item of the queue `batches`"."""
        where = place_words(state)
        if state.waiting is Waiting.STOPPED:
            return f"is stopped by a signal{where}, and goes on after SIGCONT"
        call = self.call(state)
        inside = f" in {call}" if call else ""
        if state.has_moved:
            return f"sleeps{where}{_in_loop(state)}"
        if state.awaits is Waiting.SLEEP and not state.user.call:
            return f"sleeps{f'{inside}{where}' if where else ''}{_in_loop(state)}"
        if state.awaits is None:
            if state.activity:
                language, inner = "Python" if state.activity.is_python else "native", state.activity.frame.words
                return f"runs {language} code in {inner}{where if state.place not in inner else ''}"
            return f"is{where or ' in code of which nothing is known'}"
        at_exit = " at the interpreter's exit, after the end of the script," if state.user.is_exit else ""
        what = self.what(state, link)
        return f"waits{at_exit}{_on_behalf(state)}{inside}{where}" + (f" for {what}" if what else "") + _in_loop(state)

    def call(self, state: ThreadState) -> str:
        """Return the call that a thread waits in, as its user knows it."""
        user = state.user
        if user.call and user.frame and (user.call.name or not user.site.call):
            is_made = user.frame.method == "__init__"
            name = user.call.name.removesuffix(".{function}") if is_made else user.call.name
            name = name.format(function=user.frame.method.strip("_"))
            return name if user.is_direct or not user.site.call else f"{user.site.call}, in {name}"
        if user.native and user.native.name:
            return user.native.name
        if is_answering(state):
            return f"`{user.value('methodname') or 'a method'}`, on behalf of its caller,"
        if user.site.wanted:
            return ""
        if user.native_place:
            return user.site.call or bare_name(user.native_place)
        asking = asking_frame(state.thread, None) if state.awaits is Waiting.LOCK else None
        if asking and not asking.is_python:
            return f"{user.site.call}, in {asking.words}" if user.site.call else asking.words
        return user.site.call or (state.edge().function if state.wait and not user.place else "")

    def what(self, state: ThreadState, link: PartnerLink | None) -> str:
        """Return what a thread waits for, and who has it."""
        row = state.user.call or state.user.native
        told = row.what if row and state.awaits is not Waiting.GIL else ""
        partner = self.label(link.state) if link else ""
        if state.awaits is Waiting.THREAD:
            return f"the end of {partner or 'a thread'}"
        if state.awaits is Waiting.CHILD and not told:
            return f"the end of {partner or (f'child {number_on_host(state.partner)}' if state.partner else 'a child')}"
        if state.awaits is Waiting.PIPE and not told:
            words = _pipe(state)
        else:
            words = _filled(told or _OBJECTS.get(state.awaits or Waiting.FUTEX, ""), state)
            words += _origin_of(state, words)
        if link is None:
            return words
        if link.since:
            holder = "the same thread" if link.state is state else partner
            return f"{words}, which {holder} has held since line {link.since.rpartition(':')[2]}"
        if link.state is state and state.awaits in {Waiting.LOCK, Waiting.SEMAPHORE}:
            return f"{words}, which the same thread holds already{native_origin(state)}"
        if state.awaits in {Waiting.LOCK, Waiting.SEMAPHORE, Waiting.FILE_LOCK, Waiting.GIL}:
            return f"{words}, which {partner} holds"
        if state.awaits in {Waiting.PIPE, Waiting.SOCKET, Waiting.IO}:
            has_end = f", whose other end {partner} holds" if "pipe" in words else f"; {partner} has the other end"
            return words + has_end
        return words

    def held_meanwhile(self, states: Sequence[ThreadState]) -> list[str]:
        """Return which locks threads hold while they wait, as their source shows it."""
        return [
            f"{self.label(state)} has held `{held.expression}` since {frame.file_name}:{held.line}"
            for state in states
            for frame in filter(is_own, state.user.frames)
            for held in read_site(frame).held
            if _VARIABLE.match(held.expression)
        ]


def _named(name: str, state: ThreadState) -> str:
    return f'"{name}"' if name else str(number_on_host(state.tid))


def _at_host(process: Process) -> str:
    return f" ({process.host})" if process.host else ""


def _filled(text: str, state: ThreadState) -> str:
    """Put what the user calls things into the words of a row, and leave out what is not known."""
    row, first = descriptor_of(state), state.user.site.first.removeprefix("lambda: ")
    end = "" if row is None else f"on {row.local}" if row.is_listening else f"at {row.peer}" if row.peer else ""
    if "{end}" not in text and state.awaits in {Waiting.SOCKET, Waiting.IO, Waiting.EVENT_LOOP}:
        text += " {end}"
    things = {"object": _name_of_object(state), "end": end, "first": _quoted(first) if state.user.is_direct else ""}
    text = _NEEDY.sub(lambda part: part[1] if all(things[name] for name in _NAME.findall(part[1])) else "", text)
    return " ".join(_NAME.sub(lambda name: things[name[1]], text).split()).replace(" ,", ",")


def _in_loop(state: ThreadState) -> str:
    loop = state.user.site.loop if state.awaits is Waiting.SLEEP else ""
    return f", again and again while `{loop}`" if loop and loop not in {"True", "1"} else ""


def _name_of_object(state: ThreadState) -> str:
    """Return what the user calls the thing that a thread waits for, in backticks; a file by its path."""
    row, user = descriptor_of(state), state.user
    if state.awaits is Waiting.FILE_LOCK and row and row.link.startswith(("/", "~/")):
        return row.link
    if user.call and user.call.values and (value := user.value(*user.call.values)):
        return value
    if state.awaits in {Waiting.FILE_LOCK, Waiting.RENDEZVOUS}:
        return _quoted(user.site.first)
    is_mutex = state.awaits is Waiting.LOCK and not user.call and not user.site.wanted
    if is_mutex or not user.is_direct:
        return ""
    if state.awaits is Waiting.FILE:
        return f"of `{user.site.target}`" if user.site.target else ""
    return _quoted(user.site.alias or user.site.wanted or user.site.target)


def _quoted(text: str) -> str:
    return f"`{text}`" if text else ""


def _origin_of(state: ThreadState, words: str) -> str:
    """Return from which call of the user's the future or the work comes that a thread waits for."""
    site, place = state.user.site, state.user.place
    if state.awaits not in {Waiting.COLLECTIVE, Waiting.FUTURE} or not site.origin or place is None:
        return ""
    is_shown = site.origin_line == place.line
    if state.awaits is Waiting.COLLECTIVE:
        if site.call.rpartition(".")[2] not in {"wait", "result"}:
            return ""  # the object is no work, but what the call works on: a loss, a model
        return site.origin + ("" if is_shown else f" of line {site.origin_line}")
    return "" if is_shown or not words else f", which {site.origin} gave in line {site.origin_line}"


def _pipe(state: ThreadState) -> str:
    """Return which pipe a thread reads or writes, as its user knows it."""
    row, target = descriptor_of(state), state.user.site.target
    standard = _STANDARD[row.number] if row and row.number < len(_STANDARD) else ""
    if target in _SYSTEM:
        target = state.user.site.first
    if row is None and user_opens(state):
        return f"another process to open the other end of the named pipe `{state.user.site.first}`"
    name = standard or _quoted(target)
    if state.user.call and row and not row.is_written:
        name = "the program's output"
    pipe = f"{name}, a pipe" if name else "a pipe"
    if row is None:
        return pipe
    return f"room in {pipe}, which is full" if row.is_written else f"data from {pipe}"


def user_opens(state: ThreadState) -> bool:
    """Return whether a thread opens a named pipe, which waits until another process opens its other end."""
    wchan = state.thread.kernel.wchan if state.thread.kernel else ""
    return wchan in {"wait_for_partner", "fifo_open"} and bool(state.user.site.first)


def _on_behalf(state: ThreadState) -> str:
    """Return on whose behalf the interpreter runs the user's code, where it was not called by it: a finalizer."""
    frames = state.user.frames
    position = frames.index(state.user.place) if state.user.place else 0
    for frame in frames[position:]:
        if _IN_SIGNAL.fullmatch(frame.function):
            return " in a signal handler"
        if frame.is_python and frame.method in _ON_BEHALF:
            return f" in {_ON_BEHALF[frame.method]}"
    return ""


def edge_sentence(edge: WaitEdge, before: WaitEdge | None = None) -> str:
    """Return an edge as a sentence; "for it" is the thread of the edge before."""
    if edge.text:
        return edge.text
    holds = f"holds {edge.holds} and " if edge.holds else ""
    function = f" in {edge.function}" if edge.function else ""
    function += f" ({edge.place})" if edge.place and edge.place not in edge.function else ""
    thread, partner = f"thread {number_on_host(edge.tid)}", number_on_host(edge.partner or 0)
    if edge.waiting == Waiting.CHILD:
        child = f"child {partner}" if edge.partner else "a child"
        return f"process {number_on_host(edge.pid)} {holds}waits{function} for {child}"
    if edge.waiting == Waiting.THREAD or (edge.holds and edge.partner):
        target = "it" if before and edge.partner == before.tid else f"thread {partner}"
        return f"{thread} {holds}waits{function} for {target if edge.partner else 'another thread'}"
    if edge.holds:
        return f"{thread} {holds}waits{function} for {edge.waiting}"
    return f"{thread}{function} waits for {edge.waiting}"


def cycle_sentences(edges: Sequence[WaitEdge]) -> list[str]:
    """Return a sentence for each edge of a cycle or chain, in their order."""
    return [edge_sentence(edge, before) for edge, before in zip(edges, (None, *edges), strict=False)]


def ended_children(processes: Iterable[Process]) -> list[str]:
    """Return which children have failed or were killed, of those that nobody has waited for; many alike as one."""
    endings: dict[str, list[int]] = {}
    for process in processes:
        if process.ended and process.ended != "exit code 0":
            endings.setdefault(process.ended, []).append(number_on_host(process.pid))
    words = []
    for ended, pids in endings.items():
        children, was, has = (
            (f"child {pids[0]}", "was", "has") if len(pids) == 1 else (f"{len(pids)} children", "were", "have")
        )
        is_killed = ended.startswith("SIG")
        words.append(f"{children} {was} killed by {ended}" if is_killed else f"{children} {has} ended ({ended})")
    return words


def ended_with_exception(stderr: str) -> list[str]:
    """Return which threads and processes have ended with an exception, as they wrote it to stderr."""
    words = []
    lines = stderr.splitlines()
    for number, line in enumerate(lines):
        match = _ENDED_THREAD.match(line) or _ENDED_PROCESS.match(line)
        following = (_LAST_LINE.match(text) for text in lines[number + 1 :])
        if match and (last := next(filter(None, following), None)):
            # a process that failed may still wait for its threads
            verb, kind = ("has ended", "thread") if line.startswith("Exception") else ("has failed", "process")
            message = f": {last['words'][:_LONGEST_MESSAGE]}" if last["words"] else ""
            words.append(f'{kind} "{match["name"]}" {verb} with {last["type"]}{message}')
    return words
