"""Run small programs to look at from outside, and read back what is known of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.process.running import until
from whichtorch.hangs.stack_readers import parse_facts
from whichtorch.process import kernel
from whichtorch.process.evidence import facts, snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.hangs.stacks import Process

IMPORTS = "import fcntl, os, signal, socket, sys, threading\n"
STOP = "print('up', flush=True)\nsignal.pause()\n"


@contextmanager
def started(*command: str, **environ: str) -> Iterator[int]:
    """Start a program that prints a line when it is ready; end it and all its descendants."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True, env={"PATH": os.environ["PATH"], **environ}
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"up\n"
            yield program.pid
        finally:
            os.killpg(program.pid, signal.SIGKILL)


def python(code: str) -> tuple[str, str, str]:
    """Return the command that runs some Python code."""
    return sys.executable, "-c", IMPORTS + code


def calls(pid: int) -> dict[int, str]:
    """Return the system calls in which the threads of a process sleep."""
    threads = [snapshots.read_thread(pid, tid) for tid in kernel.thread_ids(pid)]
    return {thread.tid: thread.call or "" for thread in threads if thread.state == "S"}


def waits(pid: int, *wanted: str) -> bool:
    """Return whether each of some system calls has a thread that sleeps in it."""
    return until(lambda: all(list(calls(pid).values()).count(call) >= wanted.count(call) for call in wanted))


def look(*pids: int) -> dict[int, Process]:
    """Return what is known of processes, written and read back."""
    text = json.dumps({"processes": facts.tree_facts(pids)})
    return {process.pid: process for process in parse_facts(text)}
