"""Start a command where the user is, and watch its processes until it ends, hangs, or has had its time.

The command keeps the user's terminal, folder, variables and signals. It is a child of this process, which adopts its
orphans, so that a hang of any process that it started is seen. Nothing of what it writes is read. What the stacks
show is read in `watched_run.py`, which this module does not import: a command must start at once.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.inside.startup import FOLDER
from whichtorch.process import kernel
from whichtorch.process.evidence import headway, loop_watch, snapshots, stall
from whichtorch.process.spawning import DEFAULTED
from whichtorch.process.supervisor import TERMINATE_GRACE
from whichtorch.process.task_tree import SUBREAPER
from whichtorch.watch.watch_request import STOPPED_CODE, OnHang, WatchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

LOOK_EVERY = 0.4  # seconds between two looks at the processes
REAP_EVERY = 0.02  # seconds between two looks at processes that are being killed
SIGNAL_CODE = 128  # and the signal's number: the exit code of a shell where a signal ended a command
TOLD_TO = ("WHICHTORCH_STACKS", "WHICHTORCH_TESTS")  # variables that name the folder
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)  # sent to us, meant for the command


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """A command that is stuck, or out of time, as it was before it was stopped."""

    pids: tuple[int, ...]  # of its living processes, parents first
    elapsed: float  # seconds since its start
    in_test: float  # seconds since a test of pytest's began or ended, else since its start
    is_stuck: bool  # nothing in it can ever go on, its loop repeats, or it did nothing until its time was over
    is_likely: bool  # not proven, but nothing has moved for `stall.LIKELY` seconds
    waits: tuple[dict[str, Any], ...]  # the evidence that nothing can go on
    loops: dict[str, Any]  # what its busiest process answered about its loop


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a watched command ended."""

    seconds: float
    code: int | None  # minus the signal that ended it; None where we stopped it, or left it running

    @property
    def exit_code(self) -> int:
        """The exit code for a shell."""
        code = STOPPED_CODE if self.code is None else self.code
        return code if code >= 0 else SIGNAL_CODE - code


class CommandWatch:
    """A command under watch. Its processes write stacks, loops and tests to `folder`. Call `watch` once."""

    def __init__(self, request: WatchRequest, folder: str) -> None:
        self._request, self._folder = request, folder
        self._tree = kernel.Tree(os.getpid())
        # Our own process counts as an outsider: it holds the terminal and the pipes that the command has inherited.
        self._stalls = stall.Watch(snapshots.ProcView(self._tree, 0, request.timeout))
        self._leader = 0  # pid
        self._status: int | None = None  # of the leader, as waitpid gives it

    def watch(self, tell: Callable[[Standstill], bool | None]) -> CommandEnd:
        """Run the command; `tell` is called once if it hangs, once if its time is over, and once if a hang is likely.

        If `tell` returns True, it has ended the hang, and is called again at the next one.

        Raises UsageError for a command that cannot be started, PreventedError where processes cannot be watched.
        """
        if not kernel.HAS_PROC:
            raise PreventedError("processes can only be watched on Linux", hint="run the command without whichtorch")
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        with self._signals():
            started = time.monotonic()
            self._start()
            try:
                has_ended = self._watch(started, tell)
            except Exception:  # noqa: BLE001 - the command goes on without a watch
                traceback.print_exc()
                print("whichtorch: a defect; the command goes on without a watch", file=sys.stderr)
                timeout = self._request.timeout
                has_ended = self._ends_within(timeout and max(0.0, timeout - (time.monotonic() - started)))
                if not has_ended:
                    self._stop()
            seconds = time.monotonic() - started
            if not has_ended:
                return CommandEnd(seconds=seconds, code=None)
            assert self._status is not None
            return CommandEnd(seconds=seconds, code=os.waitstatus_to_exitcode(self._status))

    def _watch(self, started: float, tell: Callable[[Standstill], bool | None]) -> bool:
        """Watch the command; return whether it has ended by itself."""
        loops = loop_watch.LoopWatch(self._folder, started)
        clock = headway.TreeClock(started, self._request.timeout) if self._request.timeout else None
        begun, size = started, 0
        is_unsure = False  # a likely hang was told, in this test of pytest
        settled_at = 0.0  # until a hang is told; then: what moves after this moment, monotonic, has gone on
        while not self._ends_within(LOOK_EVERY):
            elapsed = time.monotonic() - started
            is_over = self._request.timeout is not None and elapsed >= self._request.timeout
            now, members = started + elapsed, self._tree.look()
            if (written := self._tests_size()) != size:
                size, begun, is_unsure = written, now, False
                loops.restart(now)
            waits = tuple(self._stalls.observe(now, members) or ())
            is_stuck = bool(waits) or loops.look(now, members)
            if clock:
                clock.look(now, members, sum(kernel.transfers(each.pid).get(b"wchar", 0) for each in members))
                is_still = clock.pauses.began < settled_at
                is_stuck = is_stuck or (is_over and (is_still or clock.is_hung(now, members)))
            is_likely = not (is_stuck or is_over or is_unsure or settled_at) and self._stalls.is_likely(now)
            if not (is_over or is_likely or (is_stuck and not settled_at)):
                continue
            is_unsure = is_unsure or is_likely
            seen = Standstill(
                pids=self._living(),
                elapsed=elapsed,
                in_test=now - begun,
                is_stuck=is_stuck,
                is_likely=is_likely,
                waits=waits,
                loops=loops.evidence,
            )
            if tell(seen) or is_likely:
                continue
            settled_at = time.monotonic() + 2 * headway.SPELL  # reading stacks looks like movement in the first
            if is_over or self._request.on_hang is OnHang.STOP:
                self._stop()
            if is_over or self._request.on_hang is not OnHang.TELL:
                return False
        return True

    def _start(self) -> None:
        """Start the command; each Python in it can be asked for its stacks, loop and tests, as in an attempt."""
        path = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
        environ = os.environ | {"PYTHONPATH": path} | dict.fromkeys(TOLD_TO, self._folder)
        program = self._request.command[0]
        try:
            self._leader = os.posix_spawnp(program, self._request.command, environ, setsigdef=DEFAULTED)
        except OSError as error:
            hint = "give a program and its arguments" + (f", as in python {program}" if Path(program).is_file() else "")
            raise UsageError(f"{program}: {error.strerror}", hint=hint) from None

    def _tests_size(self) -> int:
        """Return how much pytest has written of its tests: it grows when one begins or ends."""
        try:
            return os.stat(os.path.join(self._folder, "tests.jsonl")).st_size  # noqa: PTH116, PTH118
        except FileNotFoundError:
            return 0

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Leave Ctrl-C to the command, which gets it from the terminal as we do, and hand on other signals."""

        def take(number: int, _frame: FrameType | None) -> None:
            if number in FORWARDED and self._leader:
                kernel.send(self._leader, number)

        before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGQUIT, *FORWARDED)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ends_within(self, seconds: float | None) -> bool:
        """Wait up to `seconds`, or for ever, for the command to end; return whether it has ended."""
        descriptor = os.pidfd_open(self._leader)
        select.select([descriptor], [], [], seconds)
        os.close(descriptor)
        self._reap()
        return self._status is not None

    def _living(self) -> tuple[int, ...]:
        """Return the ids of the command's living processes, read anew."""
        return tuple(member.pid for member in self._tree.look(full=True) if member.is_alive)

    def _reap(self) -> None:
        """Collect the exit status of the command and of its orphans."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._status = ended[1] if ended[0] == self._leader else self._status

    def _stop(self) -> None:
        """End the command and all processes that it started, whatever they do."""
        kernel.send(self._leader, signal.SIGTERM)
        kernel.send(self._leader, signal.SIGCONT)  # a stopped process cannot take a signal
        self._ends_within(TERMINATE_GRACE)
        kernel.kill(self._tree, lambda: bool(self._living()), self._pause)

    def _pause(self) -> None:
        """Leave processes that are being killed a moment to end."""
        time.sleep(REAP_EVERY)
        self._reap()
