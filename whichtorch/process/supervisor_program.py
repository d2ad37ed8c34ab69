"""The program beside the tool: read tasks, supervise one after the other, write how each ended.

A Task is a line of JSON on stdin, its Ending one on stdout. An empty line asks for the end of the task under way; the
end of stdin means that the tool interrupts or has gone away. A task that names no fork server is the only one. With a
server, more tasks may follow, and each is forked from it: orphans come to an ancestor only, so the server has to be
below what watches its children.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

from whichtorch.process.supervisor import Supervisor

TYPE_CHECKING = False  # typing takes 3 ms to import, and a supervisor starts in 20
if TYPE_CHECKING:
    from typing import Any

    from whichtorch.process.fork_link import ForkLink


def next_task() -> tuple[dict[str, Any] | None, bool]:
    """Return the next task, None when the tool went away, and whether its end was asked for already.

    Stdin is read without a buffer: while a task runs, its supervisor listens there. Empty lines before a task ask for
    the end of an earlier task, which has ended by itself.
    """
    heard = b""
    while b"\n" not in heard:
        part = os.read(0, 1 << 20)
        if not part:
            return None, False
        heard = (heard + part).lstrip(b"\n")
    line, _, rest = heard.partition(b"\n")
    return json.loads(line), bool(rest)


def main() -> None:
    """Read tasks, run them, write their endings.

    Where the kernel allows it, the supervisor has its turn before what it watches, which inherits nothing of that: a
    script that forks without end would leave it none.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    link = None
    while True:
        task, is_interrupted = next_task()
        if task is None:
            break
        if task.get("server") and link is None:
            from whichtorch.process.fork_link import ForkLink  # most supervisors need not pay for it

            link = ForkLink(task["server"])
        if not _serve(task, link, is_interrupted=is_interrupted) or link is None:
            break
    if link is not None:
        link.end()
        Supervisor({"processes": 0, "timeout": 0.0}).kill()
    os._exit(0)  # taking the interpreter down in order costs every task 5 ms


def _serve(task: dict[str, Any], link: ForkLink | None, *, is_interrupted: bool) -> bool:
    """Run a task and tell how it ended; return whether another may follow."""
    supervisor = Supervisor(task, link)
    supervisor.children.interrupted = is_interrupted
    try:
        fields = supervisor.run()
    except Exception as error:  # noqa: BLE001 - whatever is wrong here, nothing may be left running
        supervisor.kill()
        fields = {"stopped_by": "exit", "seconds": 0.0, "problem": f"the supervisor failed: {error!r}"}
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(json.dumps(fields).encode() + b"\n")
        sys.stdout.buffer.flush()
        return "problem" not in fields
    return False
