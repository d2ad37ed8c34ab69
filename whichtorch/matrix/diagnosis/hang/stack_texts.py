"""The stacks of a picture for people, the stuck thread's first; stacks that are alike are written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang.disagreement import spans
from whichtorch.matrix.diagnosis.hang.waits import is_idle_worker
from whichtorch.matrix.diagnosis.stacks import number_on_host
from whichtorch.matrix.diagnosis.symbols import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.diagnosis.hang.hang_diagnosis import HangDiagnosis
    from whichtorch.matrix.diagnosis.stacks import Process, Thread

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
    alike = sorted(groups.values(), key=lambda group: not group[0][1].frames)  # those that tell nothing last
    more = sum(map(len, alike[most:])) if most is not None else 0
    counts = [f"{more} more"] if more else []
    counts += [f"{idle} idle worker{'s' if idle > 1 else ''} of a pool"] if idle else []
    stacks = tuple("\n".join([_heading(group, diagnosis.ranks), *_frame_lines(group[0][1])]) for group in alike[:most])
    return stacks, f"and {', '.join(counts)}" if counts else ""


def _likeness(thread: Thread) -> tuple[object, ...]:
    """Return what is the same of threads whose stacks are alike."""
    places = tuple((frame.method, frame.where) for frame in thread.frames)  # not each collector names the class
    if not places:
        return (_facts(thread), thread.name)
    return (places, thread.has_gil, thread.wants_gil, thread.is_running)


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
    owners = {process.pid: process for process, _ in group}
    process, thread = group[0]
    rank = f"rank {ranks[process.pid]}, " if process.pid in ranks else ""
    host = f" on {process.host}" if process.host else ""
    if len(group) == 1:
        of = f" of process {number_on_host(process.pid)}" if process.pid != thread.tid else ""
        return f"{rank}thread {number_on_host(thread.tid) or hex(thread.ident or 0)}{of}{host}{known}"
    if len(owners) == 1:
        numbers = spans(number_on_host(thread.tid) for _, thread in group)
        return f"{rank}threads {numbers} of process {number_on_host(process.pid)}{host}{known}"
    each = "a thread" if len(owners) == len(group) else f"{len(group)} threads"
    if all(thread.tid == process.pid for process, thread in group):
        each = "the main thread"
    return f"{_owners(list(owners.values()), ranks)}, {each}{' of each' if len(owners) == len(group) else ''}{known}"


def _owners(processes: Sequence[Process], ranks: dict[int, int]) -> str:
    """Return processes as people name them: "ranks 0-2", or "processes 11-13, 15-16 on host2"."""
    known = [ranks[process.pid] for process in processes if process.pid in ranks]
    of_hosts: dict[str, list[int]] = {}
    for process in processes:
        if process.pid not in ranks:
            of_hosts.setdefault(process.host, []).append(number_on_host(process.pid))
    others = [spans(own) + (f" on {host}" if host else "") for host, own in of_hosts.items()]
    words = [f"ranks {spans(known)}" if len(known) > 1 else f"rank {known[0]}"] if known else []
    words += [f"process{'es' if sum(map(len, of_hosts.values())) > 1 else ''} {', '.join(others)}"] if others else []
    return " and ".join(words)


def rank_line(processes: Sequence[Process], ranks: dict[int, int]) -> str:
    """Return which processes the ranks are; "" where there are none."""
    known = sorted(
        ((ranks[process.pid], process) for process in processes if process.pid in ranks), key=lambda pair: pair[0]
    )
    of_hosts: dict[str, list[str]] = {}
    for rank, process in known:
        of_hosts.setdefault(process.host, []).append(f"{rank}: {number_on_host(process.pid)}")
    parts = [f"{', '.join(own)}" + (f" on {host}" if host else "") for host, own in of_hosts.items()]
    return f"processes of the ranks: {'; '.join(parts)}" if known else ""


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
