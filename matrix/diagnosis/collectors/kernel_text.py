"""Read what the kernel says of threads: /proc/PID/task in text form, and the supervisor's evidence of a stall.

    pid 27049 ENV/bin/python fork_omp.py
    27049 state=S cpu=246 wchan=do_wait syscall=61 0x69ae 0x7ffdf6cc8a5c …

The last picture of a thread counts. Two waits name their partner: glibc's join waits on a futex that holds the
joined thread's number, and wait4 takes the child's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from matrix.diagnosis.stacks import KernelWait, Process, Thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PROCESS = re.compile(r"^pid (\d+)(?: parent=(?P<parent>\d+))?(?: (?P<command>.*))?$")
_THREAD = re.compile(r"^(\d+) state=(?P<state>[A-Za-z])(?: |$)(?P<rest>.*)$")
_WCHAN = re.compile(r"\bwchan=(\S+)")
_SYSCALL = re.compile(r"\bsyscall=(-?\d+(?: 0x[0-9a-f]+)*)")
_EXPECTED = 3  # where in (number, *arguments) the value is that a futex is expected to hold
_LONGEST = 12  # digits of a number that a kernel writes


def parse(text: str) -> tuple[Process, ...]:
    """Return the processes of the text form; threads without a `pid` line before them are of the lowest number."""
    processes: dict[int, Process] = {}
    threads: dict[int, dict[int, Thread]] = {}
    pid = 0
    for line in text.splitlines():
        if found := _PROCESS.match(line):
            pid = int(found[1][:_LONGEST])
            parent = int(found["parent"][:_LONGEST]) if found["parent"] else None
            processes[pid] = Process(pid=pid, parent=parent, command=(found["command"] or "").strip())
        elif found := _THREAD.match(line):
            tid = int(found[1][:_LONGEST])
            threads.setdefault(pid, {})[tid] = _thread(tid, found["state"], found["rest"])
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
    """Add whose end a thread waits for: its futex is expected to hold the number of another one."""
    found = []
    for tid, thread in threads.items():
        call = thread.kernel.syscall if thread.kernel else ()
        expected = call[_EXPECTED] if len(call) > _EXPECTED and is_futex(thread.kernel) else 0
        joins = expected if expected != tid and expected in threads else None
        found.append(thread.model_copy(update={"joins": joins}))
    return tuple(found)


def is_futex(wait: KernelWait | None) -> bool:
    """Return whether the kernel sleeps in a futex, whatever the release calls that."""
    return wait is not None and (wait.wchan.startswith("futex") or wait.word in {"futex", "gil"})


def from_stall(rows: Iterable[Mapping[str, Any]]) -> tuple[Process, ...]:
    """Return the processes of `Ending.evidence["stall"]`: no frames, but for each thread what it waits for."""
    threads: dict[int, list[Thread]] = {}
    for row in rows:
        pid, tid = row.get("pid"), row.get("tid")
        if not isinstance(pid, int) or not isinstance(tid, int):
            continue
        word = str(row.get("wait", ""))
        thread = Thread(
            tid=tid,
            name=str(row.get("name", "")),
            state=str(row["state"]) if row.get("state") else None,
            wants_gil=True if word == "gil" else None,
            kernel=KernelWait(word=word, detail=str(row.get("detail", ""))),
        )
        threads.setdefault(pid, []).append(thread)
    return tuple(Process(pid=pid, threads=tuple(found)) for pid, found in threads.items())
