"""Start this folder's tiny programs under supervision, and wait for conditions."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.patience import PATIENCE
from whichtorch.model import Headway
from whichtorch.process import kernel, supervision

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = Path(__file__).with_name("programs")


def begin(folder: Path, program: str, *arguments: str, **fields: Any) -> supervision.Supervised:
    """Start a program; its output goes to `folder`/out and `folder`/err."""
    folder.mkdir(parents=True, exist_ok=True)
    task: dict[str, Any] = {
        "argv": (sys.executable, str(PROGRAMS / f"{program}.py"), *arguments),
        "cwd": str(folder),
        "env": dict(os.environ),
        "stdout": str(folder / "out"),
        "stderr": str(folder / "err"),
        "timeout": PATIENCE,
    }
    return supervision.start(supervision.Task(**task | fields))


def run(folder: Path, program: str, *arguments: str, **fields: Any) -> supervision.Ending:
    """Run a program to its end."""
    return begin(folder, program, *arguments, **fields).wait()


def headway_of(ending: supervision.Ending) -> Headway:
    """Return how the tree of a task that ran to its timeout got on."""
    assert ending.evidence.headway is not None
    return ending.evidence.headway


def until(condition: Callable[[], object]) -> bool:
    """Return whether a condition comes true within PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    process = kernel.process(pid)
    return process is not None and process.is_alive


def family(pid: int) -> set[int]:
    """Return the living descendants of a process."""
    return {member.pid for member in kernel.Tree(pid).look(full=True) if member.is_alive}
