"""Stacks that are alike are written once, with who shares them."""

from __future__ import annotations

from whichtorch.matrix.diagnosis.hang.hang_diagnosis import HangDiagnosis
from whichtorch.matrix.diagnosis.hang.hang_kind import HangKind
from whichtorch.matrix.diagnosis.hang.stack_folder import rank_line, stack_texts
from whichtorch.matrix.diagnosis.stacks import Process, Thread, python
from whichtorch.matrix.inspect.process_report import together


def process(pid: int, *places: str) -> Process:
    """Return a process with a thread at each of some places, "file:line"."""
    threads = []
    for position, place in enumerate(places):
        file, _, line = place.partition(":")
        threads.append(Thread(tid=pid + position, frames=(python("f", file, int(line)),), state="S"))
    return Process(pid=pid, threads=tuple(threads))


def texts(*processes: Process, ranks: dict[int, int] | None = None, most: int | None = None) -> tuple[list[str], str]:
    """Return the first line of each stack, and what is said of the rest; the last process's main thread is stuck."""
    last = processes[-1].pid
    diagnosis = HangDiagnosis(kind=HangKind.UNKNOWN, stuck_pid=last, stuck_thread=last, ranks=ranks or {})
    stacks, left_out = stack_texts(diagnosis, processes, most)
    return [text.splitlines()[0] for text in stacks], left_out


def test_ranks_share_a_stack() -> None:
    """The ranks are named in spans, and the stuck one comes first."""
    processes = [process(10 * number, "train.py:88") for number in (1, 2, 3)]
    shown, _ = texts(*processes, process(40, "data.py:40"), ranks={10: 0, 20: 1, 30: 2, 40: 3})
    assert shown == ["rank 3, thread 40 (state S)", "ranks 0-2, the main thread of each (state S)"]


def test_threads_of_a_process_share_a_stack() -> None:
    """They are named by their numbers."""
    shown, _ = texts(process(10, "a.py:1", "b.py:2", "b.py:2", "b.py:2"))
    assert shown == ["thread 10 (state S)", "threads 11-13 of process 10 (state S)"]


def test_threads_of_processes_that_are_no_ranks() -> None:
    """They are named by the numbers of their processes, and how many they are."""
    shown, _ = texts(process(10, "a.py:1", "b.py:2", "b.py:2"), process(20, "a.py:1", "b.py:2"))
    assert shown == [
        "processes 10 and 20, the main thread of each (state S)",
        "processes 10 and 20, 3 threads (state S)",
    ]


def test_of_what_is_left_out_all_threads_count() -> None:
    """A stack that is not shown may be that of many."""
    shown, left_out = texts(process(10, "b.py:2", "b.py:2", "b.py:2"), process(20, "a.py:1"), most=1)
    assert (shown, left_out) == (["thread 20 (state S)"], "and 3 more")


def test_machines_are_named() -> None:
    """Equal numbers on two machines are two processes."""
    processes = together([("left", [process(10, "a.py:1")]), ("right", [process(10, "a.py:1")])])
    shown, _ = texts(*processes)
    assert shown == ["processes 10 on right, 10 on left, the main thread of each (state S)"]
    ranks = {processes[0].pid: 1, processes[1].pid: 0}
    assert rank_line(processes, ranks) == "processes of the ranks: 0: 10 on right; 1: 10 on left"
