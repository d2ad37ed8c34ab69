"""Say why nobody ends a thread's wait, as far as the evidence goes, and who has gone that could have ended it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichtorch.hangs.source_text import awaited_at, awaited_words, suspended_holder
from whichtorch.hangs.stacks import number_on_host
from whichtorch.hangs.thread_state import (
    descriptor_of,
    has_timer,
    is_at_task,
    is_in_event_loop,
    is_own,
    is_pool_worker,
    runs,
)
from whichtorch.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.hangs.narration import Narration
    from whichtorch.hangs.stacks import LoopTask, Process
    from whichtorch.hangs.thread_state import ThreadState

_TASKS_NAMED = 4  # of an event loop, in a sentence
_LONGEST_NAME = 40  # characters of a task's name
_UNNAMED_TASK = re.compile(r"Task-\d+")
_OTHERS_NAMED = 3  # of the threads that could end a wait, and do not
_ENDERS = {Waiting.LOCK: "release it", Waiting.SEMAPHORE: "release it", Waiting.CONDITION: "notify it"}
_IDLE_LOOP = "the event loop is idle: no callback is ready, and nothing that it watches comes"
_TIMER = "the event loop has a pending timer: what that starts may still complete what is awaited"
_NO_TASK = "every task awaits something that nobody completes"
_OWN_LOOP = "it is the event loop's own thread: while it waits here, no other coroutine or callback of the loop runs"
_NO_LOOP = "no thread of the process runs an event loop"
_FORKED = (
    "nobody holds it in this process, which was forked: fork copies a lock as it is, locked, but not the thread that "
    "would release it"
)
_HANDLERS = ("_handle_tasks", "_handle_results")  # of a pool of multiprocessing, in threads of its own
_LOST_TASK = (
    "no worker of the pool is at a task: the one that took it has probably been killed or has left, and a result that "
    "is lost so never comes"
)
_NO_RESULTS = (
    "the thread that takes the results of the pool has ended, as an exception that cannot be unpickled ends it"
)
_FORKED_POOL = "no thread of the pool runs in this process, which was forked: fork copies a pool, but not its threads"
_FOR_ENDS = {Waiting.THREAD, Waiting.CHILD, Waiting.FUTURE, Waiting.IO, Waiting.EVENT_LOOP}
_NOBODY = re.compile(r"nobody (?:is left|else runs) that could [^:;]*: ")
SCHEDULED = {Waiting.SLEEP, Waiting.STOPPED, None}  # waits that need nobody, or are none


def reason_of(narration: Narration, state: ThreadState, narrated: Sequence[ThreadState] = ()) -> str:
    """Return why nobody ends a thread's wait; "" where its partner says enough.

    `narrated` are the threads of which the sentence tells before.
    """
    if state.awaits in SCHEDULED:
        return ""
    row = state.user.call or state.user.native
    if state.awaits is Waiting.EVENT and row is state.user.native:
        return ""  # a signal may come from anywhere
    if state.user.call and state.user.call.reason:
        return state.user.call.reason
    if state.awaits is Waiting.EVENT_LOOP:
        return _of_idle_loop(narration, state)
    if state.awaits is Waiting.LOCK and narration.graph.is_forked_alone(state):
        return _FORKED
    if _is_at_door(state, narrated):
        return "; ".join(["it waits for another client meanwhile, and sends nothing", *narration.departed])
    own = narration.graph.beside(state)
    file = "" if any(_serves(other, state) for other in own) else _of_open_file(state)
    known = file or _of_pool(narration, state) or held_by_coroutine(narration, state)
    if not known and (outside := _outside(narration, state)):
        return outside
    is_alone = state.awaits is Waiting.FUTURE or not any(other.user.place and not other.is_idle for other in own)
    if known and is_alone:
        return "; ".join([known, *narration.departed])
    ender = (row.ender if row else "") or _ENDERS.get(state.awaits or Waiting.FUTEX, "end the wait")
    nobody = _nobody(narration, state, ender, narrated)
    alone = _OWN_LOOP if is_in_event_loop(state) else _NO_LOOP if _lacks_loop(narration, state) else ""
    return "; ".join(filter(None, [known or alone, nobody, *(narration.departed or _ended_well(narration))]))


def _serves(other: ThreadState, state: ThreadState) -> bool:
    """Return whether a library serves the process in another thread, which waits for the data of another client."""
    return state.awaits is other.awaits is Waiting.SOCKET and other.process is state.process and bool(other.user.call)


def _is_at_door(state: ThreadState, narrated: Sequence[ThreadState]) -> bool:
    """Return whether a server's thread, for whose answer one of the `narrated` waits, only accepts new connections."""
    row = descriptor_of(state)
    others = [other for other in narrated if other is not state and other.awaits is Waiting.SOCKET]
    return state.awaits is Waiting.SOCKET and row is not None and row.is_listening and bool(others)


def held_by_coroutine(narration: Narration, state: ThreadState) -> str:
    """Return the words for a coroutine that the source shows to hold a lock while it is suspended."""
    place, wanted = state.user.place, state.user.site.wanted
    is_idle = any(other.awaits is Waiting.EVENT_LOOP for other in narration.graph.beside(state))
    holder = suspended_holder(place, wanted) if is_idle and place and state.awaits is Waiting.LOCK and wanted else ""
    words = f"no thread is seen to hold it, but the coroutine {holder} awaits while it holds `{wanted}`"
    return f"{words}: each waits for the other" if holder else ""


def _lacks_loop(narration: Narration, state: ThreadState) -> bool:
    """Return whether a thread waits for a coroutine that it has given to an event loop, and its process runs none."""
    site = state.user.site
    is_coroutine = "run_coroutine_threadsafe" in site.target + site.origin
    own = [other for other in narration.graph.states if other.process is state.process]
    return is_coroutine and not any(runs(other.user.frames, "asyncio/base_events.py", "run_forever") for other in own)


def _ended_well(narration: Narration) -> list[str]:
    """Return which children have ended without an error, before anybody has waited for them."""
    ended = [process.pid for process in narration.graph.processes.values() if process.ended == "exit code 0"]
    return [f"child {pid} has ended (exit code 0)" for pid in ended[:_OTHERS_NAMED]]


def words_of_tasks(process: Process) -> str:
    """Return what each task of a process's event loop awaits, and where; "" if the process has not written them."""
    names, told = {task.name: _task_name(task) for task in process.tasks}, []
    for task in process.tasks:
        if place := next((frame for frame in task.frames if is_own(frame)), None):
            others = " and ".join(f"`{names[name]}`" for name in task.awaits if name in names)
            told.append(f"`{names[task.name]}` awaits {awaited_at(place)}" + f" for {others}" * bool(others))
    left_out = process.task_count - _TASKS_NAMED if told[_TASKS_NAMED:] else 0
    return ", ".join([*told[:_TASKS_NAMED], *([f"and {left_out} more tasks"] if left_out else [])])


def _task_name(task: LoopTask) -> str:
    """Return the name that the user gave a task, else that of its coroutine."""
    is_named = not (task.frames and _UNNAMED_TASK.fullmatch(task.name))
    return " ".join(task.name.split())[:_LONGEST_NAME] if is_named else task.frames[-1].method


def _of_idle_loop(narration: Narration, state: ThreadState) -> str:
    is_alone = not any(other.user.place or other.awaits for other in narration.graph.others(state))
    awaited = (words_of_tasks(state.process) if state.is_main else "") or awaited_words(
        state.user.place, state.user.site.first
    )
    if has_timer(state):
        return "; ".join(filter(None, [awaited, _TIMER, *narration.departed]))
    return "; ".join(filter(None, [awaited, _IDLE_LOOP, _NO_TASK if is_alone else "", *narration.departed]))


def _of_open_file(state: ThreadState) -> str:
    row = descriptor_of(state)
    if row is None or state.pid not in row.holders:
        return ""
    if state.awaits is Waiting.FILE_LOCK:
        return "this process has locked the file itself, through another descriptor"
    if state.awaits not in {Waiting.PIPE, Waiting.IO, Waiting.SOCKET}:
        return ""
    if row.holders == (state.pid,):
        nothing = "nobody else can write data to it or close it"
        why = "nobody else can read it" if row.is_written else nothing
        return f"only this process itself has the other end open: {why}"
    if row.is_written:
        return ""
    return "this process has the writing end open itself, so it never sees the end of the messages"


def _outside(narration: Narration, state: ThreadState) -> str:
    """Return the words for a lock, or the other end of a connection, that no process of the tree is known to have."""
    row = descriptor_of(state)
    if state.awaits is Waiting.FILE_LOCK:
        holders = row.holders if row else ()
        if other := next((pid for pid in holders if pid not in narration.graph.processes), 0):
            return f"process {number_on_host(other)} holds it, and is not one of the processes seen here"
        return "whether another program holds it is not known"
    if row is None or state.awaits not in {Waiting.PIPE, Waiting.IO, Waiting.SOCKET}:
        return ""
    if outside := [pid for pid in row.holders if pid not in narration.graph.processes]:
        return f"process {number_on_host(outside[0])} has the other end, and is not one of the processes seen here"
    if row.peer and not row.holders:
        return "the other end is not in any process seen here: whether it still sends or reads is not known"
    return ""


def _of_pool(narration: Narration, state: ThreadState) -> str:
    if state.awaits is not Waiting.FUTURE:
        return ""
    workers = [other for other in narration.graph.states if other is not state and is_pool_worker(other)]
    is_free = any(not other.user.place for other in workers)
    if is_pool_worker(state) and not is_free:
        return (
            "it is a worker of a pool itself, and no worker is free: "
            "a worker that waits for its own pool waits for itself"
        )
    is_of_processes = state.user.frame is not None and (state.user.frame.file or "").endswith("multiprocessing/pool.py")
    others = [other for other in narration.graph.states if other.process is not state.process]
    own = narration.graph.beside(state)
    sends, takes = (any(runs(each.user.frames, "multiprocessing/pool.py", name) for each in own) for name in _HANDLERS)
    if is_of_processes and sends and not takes:
        return _NO_RESULTS
    is_submitted = ".submit" in state.user.site.target + state.user.site.origin
    if is_submitted and narration.graph.is_forked(state.process) and not any(map(is_pool_worker, own)):
        return _FORKED_POOL
    if is_of_processes and is_free and not any(other.user.place or other.activity for other in others):
        return _LOST_TASK
    return ""


def waiters_and_others(
    narration: Narration, state: ThreadState, narrated: Sequence[ThreadState]
) -> tuple[list[ThreadState], list[ThreadState]]:
    """Return the threads that only wait for a thread, and all others that do something for the user."""
    others = narration.graph.others(state)
    others = [
        each for each in others if each.user.is_known or each.activity or is_at_task(each) or _serves(each, state)
    ]
    waiters = [other for other in others if _waits_on(narration, other, state, narrated)]
    return waiters, [other for other in others if other not in waiters]


def _nobody(narration: Narration, state: ThreadState, ender: str, narrated: Sequence[ThreadState]) -> str:
    waiters, others = waiters_and_others(narration, state, narrated)
    if not others:
        who = " and ".join(map(narration.label, waiters[:_OTHERS_NAMED])) + f" only wait{'s' * (len(waiters) == 1)}"
        why = f"{who} for this" if waiters else "no other thread or process runs any of your code"
        return _maybe_held(narration, state, waiters) or f"nobody is left that could {ender}: {why}"
    own = narration.predicate(state)
    alike: dict[str, list[ThreadState]] = {}
    for other in others:
        is_lock = other.awaits is Waiting.LOCK is not state.awaits
        link = next((link for link in narration.graph.links(other) if is_lock or link.state is state), None)
        words = narration.predicate(other, link)
        is_copy = is_lock and link is None and narration.graph.is_forked_alone(other)
        alike.setdefault(f"{words}; {_FORKED}" if is_copy else words, []).append(other)
    named = []
    for words, group in list(alike.items())[:_OTHERS_NAMED]:
        who = " and ".join(map(narration.label, group[:_OTHERS_NAMED] if words == own else group[:1]))
        more = f" and {len(group) - _OTHERS_NAMED} more" if words == own and len(group) > _OTHERS_NAMED else ""
        verb = "waits" if len(group) == 1 else "wait"
        named.append(f"{who}{more} {verb} there, too" if words == own else f"{who} {words}")
    more = f"; and {len(alike) - _OTHERS_NAMED} more" if len(alike) > _OTHERS_NAMED else ""
    # All want the same; only who is told of already may have it.
    if own in alike and len(alike) == 1 and (held := _maybe_held(narration, state, waiters)):
        return f"{'; '.join(named)}; {held}"
    if all(other.awaits not in SCHEDULED for other in others):
        return f"nobody else runs that could {ender}: {'; '.join(named)}{more}"
    return f"who could {ender} is not known: {'; '.join(named)}{more}"


def without_deadlock_claim(summary: str) -> str:
    """Return the summary of what gets on: that nobody could end its wait is then not true."""
    return _NOBODY.sub("", summary)


def _waits_on(narration: Narration, other: ThreadState, state: ThreadState, narrated: Sequence[ThreadState]) -> bool:
    """Return whether a thread only waits for another, and nothing more is to be said of it."""
    is_short = other in narrated or other.awaits in _FOR_ENDS
    return is_short and state in narration.graph.chain(other).states


def _maybe_held(narration: Narration, state: ThreadState, waiters: Sequence[ThreadState]) -> str:
    """Return which lock a thread that waits for `state` holds meanwhile, if that may be the lock that it wants."""
    is_lock = state.awaits in {Waiting.LOCK, Waiting.SEMAPHORE}
    words = narration.held_meanwhile(waiters) if is_lock else []
    return f"{words[0]}, and waits for this one: if that is the same lock, neither can go on" if words else ""
