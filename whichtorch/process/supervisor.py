"""The supervisor: own one process tree, from its start to its last member.

It runs as a process of its own (`supervisor_program.py`), and uses nothing but the standard library, so that it
starts in some 20 ms and cannot be held up by the tool.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from whichtorch.process import kernel
from whichtorch.process.task_tree import LOOK_SHORTEST, Children, OutputFile, TreeUsage

TYPE_CHECKING = False  # typing takes 3 ms to import, and a supervisor starts in 20
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from whichtorch.process.evidence.headway import TreeClock
    from whichtorch.process.evidence.loop_watch import LoopWatch
    from whichtorch.process.evidence.sampler import Sampler
    from whichtorch.process.evidence.stall import Watch
    from whichtorch.process.fork_link import ForkLink

TERMINATE_GRACE = 2.0  # seconds from SIGTERM to SIGKILL: enough for a flush, bearable in a night of hangs
SHORT_GRACE = 0.5  # seconds after a stall, when only a handler of SIGTERM could run, or when a user is waiting
SURVIVOR_GRACE = 0.3  # seconds for what outlives the leader: multiprocessing's resource tracker ends by then
TIMEOUT_PRECISION = 0.05  # seconds between two looks past the deadline, and so what a task may seem to run past it
STALL_EVERY = 0.4  # seconds between two snapshots of a quiet tree
RESERVE = 6.0  # seconds of a hard timeout, its last ones, in which the stacks are taken
RESERVE_SHARE = 0.25  # of a short one
STALL_FIRST = 0.4  # seconds after the start: most scripts are still importing
HEADWAY_FIRST = 1.0  # seconds after the start: many tasks end before
HEADWAY_OF_SHORT = 0.2  # of a short timeout
SUSPENDED_AFTER = 3.0  # seconds of oversleeping after which this process is assumed to have been stopped
SENT = "sent.txt"  # in a folder for stacks: signals that Python code sent, and to whom (startup/sitecustomize.py)
IDLE = 0.3  # of a core: a tree that uses more is not examined for a stall at all


class Supervisor:
    """One task under way."""

    def __init__(self, task: dict[str, Any], link: ForkLink | None = None) -> None:
        self.task = task
        self.link = link
        self.notes: list[str] = []
        self.machine: list[str] = []  # what happened to it meanwhile
        self.clocks = time.time() - time.monotonic()  # it stays the same, but where the first is set, or both sleep
        self.oom_kills = kernel.oom_kills()
        self.children = Children(self.notes)
        self.usage = TreeUsage(task, self.children)
        self.limit = task["timeout"]  # seconds that it is given, less once it is known when it has had its goal
        self.reserve = min(RESERVE, RESERVE_SHARE * self.limit) if task["is_hard"] and task.get("stacks") else 0.0
        self.is_unread = False  # no stack could be read while the task goes on; it can be asked once its time is over
        self.is_cut = False  # the reading of its stacks ended early
        self.deadline = self.next_snapshot = 0.0  # seconds, monotonic
        self.begun = 0.0  # when the time that it is given began: at its start, or with the last test of a command
        self.clock_size = 0  # bytes of the task's clock
        self.last_cpu = (0.0, 0.0)  # when the tree's CPU time was last read, and its seconds
        self.watch: Watch | None = None
        self.sampler: Sampler | None = None
        self.loop: LoopWatch | None = None
        self.headway: TreeClock | None = None
        self.evidence: dict[str, Any] = {}
        self.diagnosis_seconds = 0.0

    def run(self) -> dict[str, Any]:
        """Run the task to its end and return the fields of its Ending."""
        try:
            self._start()
        except OSError as error:
            if self.children.interrupted:
                return {"stopped_by": "interrupt", "seconds": 0.0}
            return {"stopped_by": "exit", "seconds": 0.0, "problem": f"could not start: {error}"}
        stopped_by = self._watch()
        is_idle = self.headway is not None and self.headway.is_idle(time.monotonic())
        seconds = time.monotonic() - self.begun
        if stopped_by == "timeout":
            self._diagnose(self._conclude)
        if stopped_by != "exit":
            self._diagnose(lambda: self._collect(stopped_by))
            if self.is_cut and self.children.interrupted:  # half of its stacks would make another signature
                stopped_by = "interrupt"
        if stopped_by == "timeout" and self.reserve:  # it may still end by itself in its last seconds
            self._wait_out(is_idle=is_idle)
            stopped_by = "interrupt" if self.children.interrupted else stopped_by
            stopped_by = "exit" if self.children.exit_code is not None else stopped_by
            if stopped_by == "timeout" and self.is_unread:
                self._diagnose(lambda: self._collect(stopped_by))
        if stopped_by == "exit":
            seconds = self.children.ended - self.children.started
        elif stopped_by == "timeout":
            seconds = max(seconds, self.limit) if self.reserve else seconds
            seconds = min(seconds, max(self.limit, 0.0) + TIMEOUT_PRECISION)
        survivors = self._stop(stopped_by)
        sizes = [file.finish() for file in self.usage.files]
        return self._ending(stopped_by, seconds, survivors, sizes)

    def _start(self) -> None:
        if self.task.get("sandbox"):
            from whichtorch.process import privileges  # most supervisors need not pay for it

            privileges.give_up_privileges(self.task["sandbox"]["room_mb"])
            self.usage.tree = kernel.Tree(os.getpid())
        paths = dict.fromkeys((self.task["stdout"], self.task["stderr"]))  # one path merges them
        self.usage.files = [OutputFile(path) for path in paths]
        self.children.start_leader(self.task, self.link.lead if self.link else None)
        self.usage.tree.spared = self.children.spared
        started = self.begun = self.children.started
        self.deadline = started + self.limit - self.reserve
        self.last_cpu = (started, 0.0)
        self.usage.next_look = started + 2 * LOOK_SHORTEST
        self.next_snapshot = started + STALL_FIRST

    def _watch(self) -> str:
        """Wait until the task ends or has to be stopped; return a value of StoppedBy."""
        while True:
            now = time.monotonic()
            wake_at = min(self.usage.next_look, self.deadline if now < self.deadline else now + TIMEOUT_PRECISION)
            self.children.sleep(max(0.0, wake_at - now))
            self._give_back(time.monotonic() - max(wake_at, now))
            if self.children.exit_code is not None:
                return "exit"
            if self.children.interrupted:
                return "interrupt"
            now = time.monotonic()
            if now >= self.deadline:
                self._read_clock(now)
            if now >= self.deadline and (self.sampler is None or self.sampler.is_done(now)):
                return "timeout"
            if now >= self.usage.next_look and (reason := self._look(now)):
                return reason

    def _give_back(self, late: float) -> None:
        """Give the task the time back for which all of it, with this process, was suspended; look at it anew."""
        if late < SUSPENDED_AFTER:
            return
        self.machine.append(f"it was suspended for {late:.0f} s")
        self.begun += late
        self.deadline += late
        self.children.started += late
        self.watch = self.sampler = self.headway = None
        if self.loop:
            self.loop.restart(time.monotonic())

    def _read_clock(self, now: float) -> None:
        """Give the task all of its time again where its clock has grown: another test has begun."""
        try:
            seen = os.stat(self.task["clock"])  # noqa: PTH116  importing pathlib takes longer than all else here
        except (OSError, TypeError):  # no clock, or none yet
            return
        if seen.st_size == self.clock_size:
            return
        self.clock_size = seen.st_size
        self.begun = max(self.begun, now - max(0.0, time.time() - seen.st_mtime))
        self.deadline = self.begun + self.limit - self.reserve
        self.sampler = self.headway = None
        if self.loop:
            self.loop.restart(now)

    def _look(self, now: float) -> str | None:
        """Look at the tree; return why it has to be stopped."""
        self._read_clock(now)
        if reason := self.usage.passed_limit():
            return reason
        if self.task["stall"] and now >= self.next_snapshot and self.children.exit_code is None:
            self.next_snapshot = now + STALL_EVERY
            if self._diagnose(lambda: self._is_stalled(now)):
                return "stall"
            self.usage.next_look = min(self.usage.next_look, self.next_snapshot)
        may_ask = self.task["stall"] and self.task.get("stacks") and not self.task["is_measured"]
        if may_ask and self._diagnose(lambda: self._repeats(now)):
            return "stall"
        if self.task["sample"]:
            if self._diagnose(lambda: self._measure(now)):
                return "timeout"
            if "py-spy" in self.task["collectors"]:
                self._diagnose(lambda: self._sample(now))
        if self.task["goal"] is not None:
            self._aim(now)
        return None

    def _diagnose(self, step: Callable[[], bool]) -> bool:
        """Take a step of diagnosis; one that fails is noted and not taken again, the task goes on."""
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - diagnosis never changes a verdict
            self.notes.append(f"diagnosis failed: {error!r}")
            self.task["stall"] = self.task["sample"] = False
            self.sampler = self.headway = None  # a clock that nobody calls any more would report a pause
            return False

    def _is_stalled(self, now: float) -> bool:
        cpu = sum(member.cpu for member in self.usage.members)
        last_time, last_cpu = self.last_cpu
        self.last_cpu = (now, cpu)
        if self.watch is None:
            if cpu - last_cpu > IDLE * (now - last_time):
                return False
            # Imported only now: most tasks end before, and need not pay for it.
            from whichtorch.process.evidence import snapshots, stall

            self.watch = stall.Watch(snapshots.ProcView(self.usage.tree, os.getpid(), self.task["timeout"]))
        waits = self.watch.observe(now, self.usage.members)
        if waits is not None:
            self.evidence["stall"] = waits
        return waits is not None

    def _repeats(self, now: float) -> bool:
        """Return whether the script's loop came back to the same state, so that it never ends."""
        from whichtorch.process.evidence import loop_watch

        if self.loop is None and now < self.begun + loop_watch.FIRST:
            return False
        self.loop = self.loop or loop_watch.LoopWatch(self.task["stacks"], self.begun)
        return self.loop.look(now, self.usage.members)

    def _measure(self, now: float) -> bool:
        """Take in whether the tree gets on; return whether it has done nothing for longer than it may."""
        if self.headway is None:
            started, timeout = self.begun, self.task["timeout"] - self.reserve
            if now < started + min(HEADWAY_FIRST, timeout * HEADWAY_OF_SHORT):
                return False
            from whichtorch.process.evidence import headway

            self.headway = headway.TreeClock(started, timeout, self.idle_limit)
        self.headway.look(now, self.usage.members, self.usage.written)
        return self.idle_limit is not None and self.headway.is_hung(now, self.usage.members)

    @property
    def idle_limit(self) -> float | None:
        """Seconds without headway that end the task; None for one that was to be forked, and was started cold."""
        was_not_forked = bool(self.task["fork_level"]) and self.children.started_by == "cold"
        return None if was_not_forked else self.task["idle_limit"]

    def _aim(self, now: float) -> None:
        """Move the deadline to where the task has had its goal."""
        from whichtorch.process.evidence import sampler

        started, stretch = self.begun, self.headway.stretch if self.headway else None
        self.limit = sampler.seconds_given(now - started, self.limit, self.task["goal"], stretch, self.task["timeout"])
        self.deadline = started + self.limit - self.reserve

    def _sample(self, now: float) -> bool:
        """Take samples of the stacks when they are due."""
        if self.headway is None:
            return False
        from whichtorch.process.evidence import sampler

        if self.sampler is None and now < sampler.schedule(self.deadline, self.limit)[0] - sampler.LEAD:
            return False
        self.sampler = self.sampler or sampler.Sampler(self.task["collectors"]["py-spy"], self.children.helpers)
        self.sampler.aim(now, self.deadline, self.limit)
        self.sampler.look(now, self.usage.members)
        if now >= self.deadline - sampler.span(self.limit) - sampler.LEAD:
            self.usage.next_look = min(self.usage.next_look, now + sampler.LOOK)
        return False

    def _conclude(self) -> bool:
        """Keep what the clock of headway says of an attempt that ran to its timeout."""
        if self.headway is not None:
            self.evidence["headway"] = self.headway.evidence(time.monotonic(), self.usage.members)
        return True

    def _wait_out(self, *, is_idle: bool) -> None:
        """Wait for the end of a hard timeout; a pause from before the stacks were taken goes on until then.

        Reading a stack interrupts a sleep, so `is_idle` was measured before.
        """
        read = time.monotonic()
        self._wait(self.begun + self.limit - read, self._has_ended)
        if is_idle and self.headway and self.headway.is_paused(self.deadline, read):
            self._diagnose(self._conclude)

    def _has_ended(self) -> bool:
        """Take in how the tree gets on in its last seconds; return whether the task has ended."""
        if self.headway:
            self._diagnose(lambda: self._measure(time.monotonic()))
        return self.children.exit_code is not None

    def _collect(self, stopped_by: str) -> bool:
        """Take the stacks of a tree that is to be stopped; the tool's interrupt ends that at once."""
        if not self.task.get("stacks") or stopped_by not in ("timeout", "stall"):
            return False
        from whichtorch.process.evidence import capture

        began = time.monotonic()
        pids = sorted(self.usage.living(), key=lambda pid: pid != self.children.leader)
        goes_on = stopped_by == "timeout" and self.reserve > 0 and not self.is_unread  # a signal would disturb it
        tools = {} if self.is_unread else self.task["collectors"]
        is_done = False
        collection = capture.Collection(pids, self.task["stacks"], tools, self.children.helpers, ask=not goes_on)
        end = self.begun + self.limit if goes_on else float("inf")
        try:
            while not (is_done := collection.step(time.monotonic())) and not self.children.interrupted:
                self.children.sleep(capture.STEP)
                if time.monotonic() >= end:
                    self.notes.append("diagnosis ended early: the time was over")
                    break
                if time.monotonic() >= self.usage.next_look and self.usage.passed_limit():
                    self.notes.append("diagnosis ended early: a limit was passed")
                    break
        finally:
            collection.close()
            self.notes += collection.notes
            self.is_unread, self.is_cut = goes_on and not collection.has_frames, not is_done
            self.diagnosis_seconds += time.monotonic() - began
        return True

    def _stop(self, stopped_by: str) -> tuple[str, ...]:
        """End the tree, whatever it does; return the processes that outlived the leader."""
        if stopped_by in ("timeout", "stall", "interrupt"):
            is_long = stopped_by == "timeout" and not (self.children.interrupted or self.task["is_hard"])
            grace = TERMINATE_GRACE if is_long else SHORT_GRACE
            kernel.send(-self.children.leader, signal.SIGTERM)
            kernel.send(-self.children.leader, signal.SIGCONT)  # a stopped process cannot take a signal
            self._wait(grace, lambda: self.children.exit_code is not None)
        survivors: tuple[str, ...] = ()
        if self.children.exit_code is not None and self.children.reap():
            self._wait(SURVIVOR_GRACE, lambda: not self.children.reap())
            left = self.usage.living()
            survivors = tuple(kernel.describe(pid) for pid in left[: kernel.SURVIVORS_NAMED])
            if len(left) > kernel.SURVIVORS_NAMED:
                survivors += (f"and {len(left) - kernel.SURVIVORS_NAMED} more",)
        self.kill()
        return survivors

    def _wait(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait at most `seconds` for something to be over; return at once when the tool interrupts meanwhile."""
        end = time.monotonic() + seconds
        was_interrupted = self.children.interrupted
        while not is_over() and (now := time.monotonic()) < end:
            self.children.sleep(min(end - now, 0.1))
            if (self.children.interrupted and not was_interrupted) or self.usage.passed_tree_limit():
                return

    def kill(self) -> None:
        """SIGKILL every descendant until there is none: a subreaper without child has no descendant."""
        kernel.kill(self.usage.tree, self.children.reap, lambda: self.children.sleep(0.02))
        if self.children.reap():
            left = [kernel.describe(pid) for pid in self.usage.living()]
            self.notes.append("could not be killed: " + "; ".join(left[: kernel.SURVIVORS_NAMED]))

    def _sent(self) -> list[str | None]:
        """Return the signals that Python code of the task noted that it sent; the leader's if they were for that."""
        ended = -(self.children.exit_code or 0)
        own = (0, 1, self.children.leader)  # 0 is the group of who sent it, and 1 stands for -1, which is everybody
        with contextlib.suppress(OSError, ValueError):
            rows = {tuple(map(int, line.split())) for line in kernel.read(f"{self.task['stacks']}/{SENT}").splitlines()}
            return [kernel.signal_of(-number) for number, target in rows if number != ended or target in own]
        return []

    def _ending(self, stopped_by: str, seconds: float, survivors: tuple[str, ...], sizes: list[int]) -> dict[str, Any]:
        exit_code = self.children.exit_code
        if abs(jump := time.time() - time.monotonic() - self.clocks) > SUSPENDED_AFTER:
            self.machine.append(f"the machine slept, or its clock was set, by {jump:.0f} s")
        sampler = self.sampler if stopped_by == "timeout" else None
        if sampler and sampler.note:
            self.notes.append(sampler.note)
        if sampler and sampler.frames:
            self.evidence["samples"] = sampler.frames
        if self.usage.queued:
            self.evidence["queued"] = round(sum(self.usage.queued.values()), 3)
        loop = self.loop.evidence if self.loop and stopped_by in ("timeout", "stall") else None
        return {
            "stopped_by": stopped_by,
            "exit_code": exit_code if exit_code is not None and exit_code >= 0 else None,
            "signal": kernel.signal_of(exit_code) if stopped_by == "exit" else None,
            "seconds": round(seconds, 4),
            "limit": self.limit,
            "cpu_seconds": round(self.children.cpu, 3),
            "peak_rss_mb": round(max(self.usage.peak_rss, self.children.largest) / 1e6, 1),
            "survivors": survivors,
            "stdout_bytes": sizes[0],
            "stderr_bytes": sizes[1] if len(sizes) > 1 else 0,
            "moving": sampler.moving if sampler else None,
            "busy": sampler.busy if sampler else None,
            "note": "; ".join(self.notes),
            "evidence": self.evidence,
            "loop": loop,
            "diagnosis_seconds": round(self.diagnosis_seconds, 3),
            "machine": "; ".join(self.machine),
            "oom_kills": kernel.oom_kills() - self.oom_kills,
            "sent": self._sent(),
            "peak_threads": self.usage.peak_threads,
            "start": self.children.started_by,
            "cold_because": self.children.cold_because,
        }
