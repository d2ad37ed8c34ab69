"""Read what the kernel says of threads: /proc/PID/task in text form, and the supervisor's evidence of a stall.

    pid 27049 ENV/bin/python fork_omp.py
    27049 state=S cpu=246 wchan=do_wait syscall=61 0x69ae 0x7ffdf6cc8a5c …

The last line of a thread counts. Two waits name their partner: glibc's join waits on a futex that holds the joined
thread's number, and wait4 takes the child's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matrix.diagnosis.stacks import KernelWait, Process, Thread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.model import ThreadWait

_PROCESS = re.compile(r"^pid (\d+)(?: parent=(?P<parent>\d+))?(?: (?P<command>.*))?$")
_THREAD = re.compile(r"^(\d+) state=(?P<state>[A-Za-z])(?: |$)(?P<rest>.*)$")
_WCHAN = re.compile(r"\bwchan=(\S+)")
_SYSCALL = re.compile(r"\bsyscall=(-?\d+(?: 0x[0-9a-f]+)*)")
_EXPECTED = 3  # where in (number, *arguments) the value is that a futex is expected to hold
_LONGEST = 12  # digits of a number that a kernel writes


def parse(text: str, _pid: int = 0) -> tuple[Process, ...]:
    """Return the processes of the text form; without a `pid` line, the lowest thread is the process."""
    processes: dict[int, Process] = {}
    threads: dict[int, dict[int, Thread]] = {}
    pid = 0
    for line in text.splitlines():
        if match := _PROCESS.match(line):
            pid = int(match[1][:_LONGEST])
            parent = int(match["parent"][:_LONGEST]) if match["parent"] else None
            processes[pid] = Process(pid=pid, parent=parent, command=(match["command"] or "").strip())
        elif match := _THREAD.match(line):
            tid = int(match[1][:_LONGEST])
            threads.setdefault(pid, {})[tid] = _thread(tid, match["state"], match["rest"])
    if 0 in threads:
        nameless = threads.pop(0)
        threads.setdefault(min(nameless), {}).update(nameless)
    return tuple(
        processes.get(pid, Process(pid=pid)).model_copy(update={"threads": _with_joins(threads.get(pid, {}))})
        for pid in {**processes, **threads}
    )


def _thread(tid: int, state: str, rest: str) -> Thread:
    wchan, syscall = _WCHAN.search(rest), _SYSCALL.search(rest)
    words = syscall[1].split() if syscall else []
    numbers = tuple(int(word, 16) if word.startswith("0x") else int(word) for word in words)
    channel = wchan[1] if wchan and wchan[1] != "0" else ""
    return Thread(tid=tid, state=state, kernel=KernelWait(wchan=channel, syscall=numbers))


def _with_joins(threads: dict[int, Thread]) -> tuple[Thread, ...]:
    """Add to each thread whose end it waits for: its futex is expected to hold that thread's number."""
    joining = []
    for tid, thread in threads.items():
        call = thread.kernel.syscall if thread.kernel else ()
        expected = call[_EXPECTED] if len(call) > _EXPECTED and is_futex(thread.kernel) else 0
        joins = expected if expected != tid and expected in threads else None
        joining.append(thread.model_copy(update={"joins": joins}))
    return tuple(joining)


def is_futex(wait: KernelWait | None) -> bool:
    """Return whether a thread sleeps in a futex, by any name that kernels give it."""
    return wait is not None and (wait.wchan.startswith("futex") or wait.word in {"futex", "gil"})


def from_stall(rows: Iterable[ThreadWait]) -> tuple[Process, ...]:
    """Return the processes of the evidence of a stall: no frames, but for each thread what it waits for."""
    threads: dict[int, list[Thread]] = {}
    for row in rows:
        if not (row.pid and row.tid):
            continue
        thread = Thread(
            tid=row.tid,
            name=row.name,
            state=row.state or None,
            wants_gil=True if row.wait == "gil" else None,
            kernel=KernelWait(word=row.wait, detail=row.detail),
        )
        threads.setdefault(row.pid, []).append(thread)
    return tuple(Process(pid=pid, threads=tuple(members)) for pid, members in threads.items())
