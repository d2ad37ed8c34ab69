"""The stacks of a picture for people, the stuck thread's first; stacks that are alike are written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.diagnosis.hang.story import spans
from matrix.diagnosis.hang.waits import is_idle_worker
from matrix.diagnosis.symbols import UNNAMED
from matrix.model import number_on_host

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.diagnosis.hang.hang_diagnosis import HangDiagnosis
    from matrix.diagnosis.stacks import Process, Thread

DEPTH = 20  # frames of a thread that are written; the rest is counted
Member = tuple["Process", "Thread"]


def stack_texts(
    diagnosis: HangDiagnosis, processes: Sequence[Process], most: int | None = None
) -> tuple[tuple[str, ...], str]:
    """Return `most` stacks, or all, the stuck thread's first; and how many threads are left out."""
    stuck = (diagnosis.stuck_pid, diagnosis.stuck_thread)
    threads = [(process, thread) for process in processes for thread in process.threads]
    threads.sort(key=lambda pair: (pair[0].pid, pair[1].tid) != stuck)
    busy = [(process, thread) for process, thread in threads if not is_idle_worker(thread)]
    idle = len(threads) - len(busy)
    groups: dict[tuple[object, ...], list[Member]] = {}
    for process, thread in busy:
        groups.setdefault(_likeness(thread), []).append((process, thread))
    alike = list(groups.values())
    more = sum(map(len, alike[most:])) if most is not None else 0
    counts = [f"{more} more"] if more else []
    counts += [f"{idle} idle worker{'s' if idle > 1 else ''} of a pool"] if idle else []
    stacks = tuple("\n".join([_heading(group, diagnosis.ranks), *_frame_lines(group[0][1])]) for group in alike[:most])
    return stacks, f"and {', '.join(counts)}" if counts else ""


def _likeness(thread: Thread) -> tuple[object, ...]:
    """Return what is the same of threads whose stacks are alike."""
    words = tuple(frame.words for frame in thread.frames)
    if not words:
        return (_facts(thread),)
    return (words, thread.has_gil, thread.wants_gil, thread.is_running)


def _facts(thread: Thread) -> tuple[str, ...]:
    facts = ["has the GIL"] if thread.has_gil else []
    facts += ["waits for the GIL"] if thread.wants_gil else []
    facts += [f"state {thread.state}"] if thread.state else []
    facts += [f"waits in {thread.kernel.wchan}"] if thread.kernel and thread.kernel.wchan else []
    return tuple(facts)


def _heading(group: Sequence[Member], ranks: dict[int, int]) -> str:
    """Return whose stack it is, and what is known of all who share it."""
    names = {thread.name for _, thread in group}
    common = [fact for fact in _facts(group[0][1]) if all(fact in _facts(thread) for _, thread in group)]
    facts = [*(names if len(names) == 1 else ()), *common]
    known = f" ({', '.join(filter(None, facts))})" if any(facts) else ""
    if len(group) == 1:
        process, thread = group[0]
        of = (
            f" of process {_process(process)}"
            if process.pid != thread.tid
            else f" ({process.host})" * bool(process.host)
        )
        rank = f", rank {ranks[process.pid]}" if process.pid in ranks else ""
        return f"thread {number_on_host(thread.tid) or hex(thread.ident or 0)}{of}{rank}{known}"
    owners = {process.pid: process for process, _ in group}
    each = ", one each" if len(owners) == len(group) else f", {len(group)} in all"
    if len(owners) == 1:
        of = f" of process {_process(group[0][0])}" + (
            f", rank {ranks[min(owners)]}" if owners.keys() <= ranks.keys() else ""
        )
        return f"threads {spans(number_on_host(thread.tid) for _, thread in group)}{of}{known}"
    return f"threads of {_owners(list(owners.values()), ranks)}{each}{known}"


def _process(process: Process) -> str:
    return f"{number_on_host(process.pid)}" + (f" ({process.host})" if process.host else "")


def _owners(processes: Sequence[Process], ranks: dict[int, int]) -> str:
    """Return processes as people name them: "ranks 0-2 (processes 11-13)", "processes 11-13 and 15 (host2)"."""
    of_hosts: dict[str, list[int]] = {}
    for process in processes:
        of_hosts.setdefault(process.host, []).append(number_on_host(process.pid))
    numbers = [spans(own) + (f" ({host})" if host else "") for host, own in of_hosts.items()]
    known = [ranks[process.pid] for process in processes if process.pid in ranks]
    words = f"processes {', '.join(numbers)}"
    return f"ranks {spans(known)}, {words}" if len(known) == len(processes) else words


def _frame_lines(thread: Thread) -> Iterator[str]:
    """Yield a thread's stack, innermost frame first."""
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
