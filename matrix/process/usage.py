"""Measure what a task's tree uses, compare it with the task's limits, and plan the next look."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from matrix.process import kernel, output

if TYPE_CHECKING:
    from typing import Any

    from matrix.process.launch import Children

LOOK_SHORTEST = 0.03  # seconds between two looks at a tree that is growing fast
LOOK_LONGEST = 0.25  # seconds between two looks at a quiet one
LOOK_SHARE = 0.004  # of a core that looking at a quiet tree may take
LOOK_SHARE_GROWING = 0.2  # of a core, at one that grows: the machine must stay up


class TreeUsage:
    """Memory, processes and output of one task's tree."""

    def __init__(self, task: dict[str, Any], children: Children) -> None:
        self.tree = kernel.Tree(os.getpid())
        self.files: list[output.KeptFile] = []
        self.members: list[kernel.KernelProcess] = []  # at the last look
        self.peak_rss = 0  # bytes
        self.next_look = 0.0  # seconds, monotonic
        self._processes: int = task["processes"]
        self._memory = task["memory_mb"] * 1_000_000 if task.get("memory_mb") else 1 << 60  # bytes
        self._children = children
        self._rss = self._written = 0  # bytes, at the last look
        self._last_look = time.monotonic()

    def passed_limit(self) -> str | None:
        """Return the first limit that output or tree has passed, and plan the next look."""
        return self.passed_tree_limit() if all(file.trim() for file in self.files) else "output"

    def passed_tree_limit(self) -> str | None:
        """Return the first limit that the tree has passed, and plan the next look."""
        began = time.monotonic()
        if not kernel.HAS_PROC:
            self.next_look = began + LOOK_LONGEST
            return None
        rss, written = self._rss, self._written
        self._written = sum(file.size for file in self.files)
        self.members = self._look()
        self._rss = sum(member.rss for member in self.members if member.is_alive)
        if sum(member.is_alive for member in self.members) > self._processes:
            return "processes"
        if self._rss > self._memory and len(self.members) > 1:
            self._rss = kernel.proportional_rss(self.members)
        self.peak_rss = max(self.peak_rss, self._rss)
        if self._rss > self._memory:
            return "memory"
        now = time.monotonic()
        passed = max(now - self._last_look, 1e-3)
        self._last_look = now
        # The next look comes before half of what is left can be used up at the present pace.
        pace = (self._rss - rss) / passed
        wait = (self._memory - self._rss) / pace / 2 if pace > 0 else LOOK_LONGEST
        if (self._written - written) / passed * LOOK_LONGEST > output.PUNCH_EVERY:
            wait = LOOK_SHORTEST
        cost = (now - began) / (LOOK_SHARE if wait >= LOOK_LONGEST else LOOK_SHARE_GROWING)
        self.next_look = now + max(LOOK_SHORTEST, min(wait, LOOK_LONGEST), min(cost, 2 * LOOK_LONGEST))
        return None

    def living(self) -> list[int]:
        """Return the ids of the tree's living processes, read anew, parents first."""
        return [member.pid for member in self._look(full=True) if member.is_alive]

    def _look(self, *, full: bool = False) -> list[kernel.KernelProcess]:
        return [member for member in self.tree.look(full=full) if member.pid not in self._children.helpers]
