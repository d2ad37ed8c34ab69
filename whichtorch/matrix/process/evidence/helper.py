"""Programs that read a process from outside, such as py-spy: nobody waits for them, and slow ones are ended."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from whichtorch.matrix.process import kernel
from whichtorch.matrix.process.leader import spawn

if TYPE_CHECKING:
    from collections.abc import Sequence

QUIET = {"DEBUGINFOD_URLS": "", "NO_COLOR": "1", "PYTHONPATH": ""}  # no downloads of symbols, no sitecustomize
TEXT_READ = 1 << 24  # bytes


class Helper:
    """One such program at work.

    The supervisor reaps it, as all its children: `statuses` has its status, None while it runs. It writes into
    memory; with `stdout`, only its stderr goes there.
    """

    def __init__(
        self, argv: Sequence[str], patience: float, statuses: dict[int, int | None], stdout: str | None = None
    ) -> None:
        self._statuses = statuses
        self._text = os.memfd_create("helper")
        try:
            self._pid = spawn(argv, os.environ | QUIET, stdout or self._text, self._text)
        except OSError:
            os.close(self._text)
            raise
        statuses[self._pid] = None
        self.started = time.monotonic()
        self._end = self.started + patience

    @property
    def is_running(self) -> bool:
        """Whether it has not ended, and its patience neither."""
        return self._statuses[self._pid] is None and time.monotonic() < self._end

    def finish(self) -> tuple[int | None, str]:
        """Return its status, and what it wrote. One that has not ended is killed, and has no status."""
        status = self._statuses[self._pid]
        if status is None:
            kernel.send(self._pid, signal.SIGKILL)
        else:
            del self._statuses[self._pid]
        text = os.pread(self._text, TEXT_READ, 0).decode(errors="replace")
        os.close(self._text)
        return status, text
