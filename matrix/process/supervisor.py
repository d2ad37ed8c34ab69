"""The supervisor program: own one process tree, from its start to its last member.

It runs as a process of its own, one per task, and uses nothing but the standard library, so that it starts in
some 20 ms and cannot be held up by the tool. Task as a line of JSON on stdin, Ending as JSON on stdout; the
end of stdin means that the tool interrupts or has gone away.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from matrix.process import kernel, launch, output

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from matrix.process.evidence.sampler import Sampler
    from matrix.process.evidence.stall import Watch

    _Argument = TypeVar("_Argument")

TERMINATE_GRACE = 2.0  # seconds from SIGTERM to SIGKILL: enough for a flush, bearable in a night of hangs
STALL_GRACE = 0.5  # seconds: nothing in the tree can go on, a handler of SIGTERM is all that could still run
INTERRUPT_GRACE = 0.5  # seconds: somebody is waiting at a terminal
SURVIVOR_GRACE = 0.3  # seconds for what outlives the leader: multiprocessing's resource tracker ends by then
LOOK_SHORTEST = 0.03  # seconds between two looks at a tree that is growing fast
LOOK_LONGEST = 0.25  # seconds between two looks at a quiet one
LOOK_SHARE = 0.004  # of a core that looking at a quiet tree may take
LOOK_SHARE_GROWING = 0.2  # of a core, at one that grows: the machine must stay up
STALL_EVERY = 0.4  # seconds between two pictures of a quiet tree
STALL_FIRST = 0.4  # seconds after the start: most scripts are still importing
IDLE = 0.3  # of a core: a tree that uses more is not looked at for a stall at all
SURVIVORS_NAMED = 20  # of a fork bomb, more tell nothing


class Supervisor:
    """One task under way."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.tree = kernel.Tree(os.getpid())
        self.files: list[output.KeptFile] = []
        self.notes: list[str] = []
        self.evidence: dict[str, Any] = {}
        self.leader = 0
        self.status: int | None = None  # of the leader, as waitpid gives it
        self.cpu = 0.0  # seconds, of all that was reaped
        self.largest = 0  # bytes, of any single process reaped
        self.peak = 0  # bytes, of the tree, as sampled
        self.rss = 0  # bytes, at the last look
        self.members: list[kernel.KernelProcess] = []
        self.helpers: dict[int, int | None] = {}  # our own children, with their status once they have ended
        self.gone = False  # the tool interrupts, or is no more
        self.ended = 0.0
        self.diagnosis_seconds = 0.0
        self.written = 0  # bytes, at the last look
        self.last_look = 0.0
        self.last_cpu = (0.0, 0.0)  # when it was last asked, and seconds
        self.wake = launch.wakeup()
        self.next_look = self.next_picture = 0.0
        self.watch: Watch | None = None
        self.sampler: Sampler | None = None

    def run(self) -> dict[str, Any]:
        """Run the task to its end and return the fields of its Ending."""
        kills = kernel.oom_kills()
        try:
            self._start()
        except OSError as error:
            return {"stopped_by": "exit", "seconds": 0.0, "problem": f"could not start: {error}"}
        launch.hurry()
        self.last_look = self.started
        self.last_cpu = (self.started, 0.0)
        self.deadline = self.started + self.task["timeout"]
        self.next_look = self.started + 2 * LOOK_SHORTEST
        self.next_picture = self.started + STALL_FIRST
        stopped_by = self._watch()
        seconds = time.monotonic() - self.started
        if stopped_by == "exit":
            seconds = self.ended - self.started
        elif stopped_by == "timeout":
            seconds = min(seconds, max(self.task["timeout"], 0.0) + 0.05)
        self._diagnose(self._collect, stopped_by)
        survivors = self._stop(stopped_by)
        sizes = [file.finish() for file in self.files]
        if self._killed_from_outside(stopped_by):
            now = kernel.oom_kills()
            if kills is not None and now is not None and now > kills:
                stopped_by = "memory"
                self.notes.append("killed by the kernel, which was out of memory")
        return self._ending(stopped_by, seconds, survivors, sizes)

    # ------------------------------------------------------------------ start

    def _start(self) -> None:
        task = self.task
        if sys.platform == "linux":
            launch.adopt_orphans()
        else:
            self.notes.append("no /proc here: memory, stalls and orphans are not watched")
        self.files = [output.KeptFile(task["stdout"])]
        if task["stderr"] != task["stdout"]:
            self.files.append(output.KeptFile(task["stderr"]))
        self.leader, self.started = launch.spawn(task)

    # ------------------------------------------------------------------ watch

    def _watch(self) -> str:
        """Wait until the task ends or has to be stopped; return a value of StoppedBy."""
        while True:
            now = time.monotonic()
            wait = max(0.0, min(self.next_look, self.deadline if now < self.deadline else now + 0.05) - now)
            self._sleep(wait)
            if self.status is not None:
                return "exit"
            if self.gone:
                return "interrupt"
            now = time.monotonic()
            if now >= self.deadline and (self.sampler is None or self.sampler.is_done(now)):
                return "timeout"
            if now >= self.next_look and (reason := self._look(now)):
                return reason

    def _sleep(self, seconds: float) -> None:
        """Sleep until a child ends, the tool speaks, or `seconds` have passed; then reap."""
        sources = [self.wake] if self.gone else [0, self.wake]
        with contextlib.suppress(InterruptedError):
            ready = select.select(sources, [], [], seconds)[0]
            if 0 in ready and not os.read(0, 4096):
                self.gone = True
            if self.wake in ready and set(os.read(self.wake, 4096)) - {signal.SIGCHLD}:
                self.gone = True
                self.notes.append("the supervisor was asked to end by a signal")
        self._reap()

    def _reap(self) -> bool:
        """Reap all who have ended; return whether we still have children."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self.helpers:
                self.helpers[pid] = status
                continue
            self.cpu += usage.ru_utime + usage.ru_stime
            unit = 1024 if sys.platform == "linux" else 1
            self.largest = max(self.largest, usage.ru_maxrss * unit)
            if pid == self.leader:
                self.status = status
                self.ended = time.monotonic()

    def _look(self, now: float) -> str | None:
        """Look at the tree; return why it has to be stopped."""
        if not all(file.trim() for file in self.files):
            return "output"
        if not kernel.HAS_PROC:
            self.next_look = now + LOOK_LONGEST
            return None
        if reason := self._limits():
            return reason
        if self.task["stall"] and now >= self.next_picture and self.status is None:
            self.next_picture = now + STALL_EVERY
            if self._diagnose(self._is_stalled, now):
                return "stall"
            self.next_look = min(self.next_look, self.next_picture)
        if self.task["sample"] and self.task.get("py_spy"):
            self._diagnose(self._sample, now)
        return None

    def _diagnose(self, step: Callable[[_Argument], bool], argument: _Argument) -> bool:
        """Take a step of diagnosis; one that fails is noted and not taken again, the task goes on."""
        try:
            return step(argument)
        except Exception as error:  # noqa: BLE001 - diagnosis never changes a verdict
            self.notes.append(f"diagnosis failed: {error!r}")
            self.task["stall"] = self.task["sample"] = False
            self.sampler = None
            return False

    def _limits(self) -> str | None:
        """Compare memory and number of processes with their limits, and plan the next look."""
        before, clock, written = self.rss, time.monotonic(), sum(file.size for file in self.files)
        self.members = [member for member in self.tree.look() if member.pid not in self.helpers]
        self.rss = sum(member.rss for member in self.members if member.is_alive)
        if sum(member.is_alive for member in self.members) > self.task["processes"]:
            return "processes"
        limit = (self.task.get("memory_mb") or 1 << 40) * 1_000_000
        if self.rss > limit and len(self.members) > 1:
            self.rss = kernel.proportional_rss(self.members)
        self.peak = max(self.peak, self.rss)
        if self.rss > limit:
            return "memory"
        now = time.monotonic()
        since = max(now - self.last_look, 1e-3)
        self.last_look = now
        # The next look comes before half of what is left can be used up at the present pace.
        pace = (self.rss - before) / since
        wait = (limit - self.rss) / pace / 2 if pace > 0 else LOOK_LONGEST
        if (written - self.written) / since * LOOK_LONGEST > output.PUNCH_EVERY:
            wait = LOOK_SHORTEST
        self.written = written
        cost = (now - clock) / (LOOK_SHARE if wait >= LOOK_LONGEST else LOOK_SHARE_GROWING)
        self.next_look = now + max(LOOK_SHORTEST, min(wait, LOOK_LONGEST), min(cost, 2 * LOOK_LONGEST))
        return None

    def _is_stalled(self, now: float) -> bool:
        cpu = sum(member.cpu for member in self.members)
        since, before = self.last_cpu
        self.last_cpu = (now, cpu)
        if self.watch is None:
            if cpu - before > IDLE * (now - since):
                return False
            # Imported only now: most cells are over before, and need not pay for it.
            from matrix.process.evidence import snapshots, stall

            self.watch = stall.Watch(snapshots.Live(self.tree, os.getpid()))
        verdict = self.watch.observe(now, self.members)
        if verdict is not None:
            self.evidence["stall"] = verdict
        return verdict is not None

    def _sample(self, now: float) -> bool:
        from matrix.process.evidence import sampler

        if self.sampler is None:
            if now < self.deadline - sampler.span(self.task["timeout"]) - sampler.LEAD:
                return False
            self.sampler = sampler.Sampler(self.task["py_spy"], self.deadline, self.task["timeout"], self.helpers)
        self.sampler.look(now, self.members)
        self.next_look = min(self.next_look, now + sampler.LOOK)
        return False

    def _collect(self, stopped_by: str) -> bool:
        """Take the stacks of a tree that is to be stopped; the tool's interrupt ends that at once."""
        folder = self.task.get("stacks")
        if not folder or stopped_by not in ("timeout", "stall") or not kernel.HAS_PROC:
            return False
        from matrix.process.evidence import capture

        began = time.monotonic()
        members = [member for member in self.tree.look(full=True) if member.pid not in self.helpers]
        pids = [member.pid for member in members if member.is_alive]
        pids.sort(key=lambda pid: pid != self.leader)
        collection = capture.of_task(self.task, pids, self.helpers)
        try:
            while not self.gone and not collection.step(time.monotonic()):
                self._sleep(capture.STEP)
                if time.monotonic() >= self.next_look and self._is_past_limits():
                    self.notes.append("diagnosis ended early: a limit was passed")
                    break
        finally:
            collection.close()
            self.notes += collection.notes
            self.diagnosis_seconds = time.monotonic() - began
        return True

    def _is_past_limits(self) -> bool:
        return not all(file.trim() for file in self.files) or bool(self._limits())

    # ------------------------------------------------------------------ stop

    def _stop(self, stopped_by: str) -> tuple[str, ...]:
        """End the tree, whatever it does; return who had outlived the leader."""
        if stopped_by in ("timeout", "stall", "interrupt"):
            grace = {"timeout": TERMINATE_GRACE, "stall": STALL_GRACE}.get(stopped_by, INTERRUPT_GRACE)
            grace = INTERRUPT_GRACE if self.gone else grace
            kernel.send_group(self.leader, signal.SIGTERM)
            kernel.send_group(self.leader, signal.SIGCONT)  # who is stopped cannot take a signal
            self._wait(grace, lambda: self.status is not None)
        survivors: tuple[str, ...] = ()
        if self.status is not None and self._reap():
            self._wait(SURVIVOR_GRACE, lambda: not self._reap())
            if kernel.HAS_PROC:
                left = [member.pid for member in self.tree.look(full=True) if member.is_alive]
                left = [pid for pid in left if pid not in self.helpers]
                survivors = tuple(kernel.describe(pid) for pid in left[:SURVIVORS_NAMED])
                if len(left) > SURVIVORS_NAMED:
                    survivors += (f"and {len(left) - SURVIVORS_NAMED} more",)
        self.kill()
        return survivors

    def _wait(self, seconds: float, over: Callable[[], bool]) -> None:
        """Wait for something to be over, at most `seconds`, not at all once the tool has gone."""
        end = time.monotonic() + seconds
        was_gone = self.gone
        while not over() and (now := time.monotonic()) < end:
            self._sleep(min(end - now, 0.1))
            if (self.gone and not was_gone) or (kernel.HAS_PROC and self._limits()):
                return

    def kill(self) -> None:
        """SIGKILL every descendant until there is none: a subreaper without child has no descendant."""
        patience = time.monotonic() + kernel.KILL_PATIENCE
        while self._reap() and time.monotonic() < patience:
            if kernel.HAS_PROC:
                victims = kernel.freeze(self.tree)
            else:
                kernel.send_group(self.leader, signal.SIGKILL)
                victims = {self.leader}
            for pid in victims:
                kernel.send(pid, signal.SIGKILL)
            self._sleep(0.02)
        if kernel.HAS_PROC and self._reap():
            left = [kernel.describe(member.pid) for member in self.tree.look(full=True) if member.is_alive]
            self.notes.append("could not be killed: " + "; ".join(left[:SURVIVORS_NAMED]))

    # ------------------------------------------------------------------ account

    def _killed_from_outside(self, stopped_by: str) -> bool:
        if stopped_by != "exit" or self.status is None or not os.WIFSIGNALED(self.status):
            return False
        return os.WTERMSIG(self.status) == signal.SIGKILL

    def _ending(self, stopped_by: str, seconds: float, survivors: tuple[str, ...], sizes: list[int]) -> dict[str, Any]:
        status = self.status
        exit_code = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None
        ended_by = None
        if stopped_by in ("exit", "memory") and status is not None and os.WIFSIGNALED(status):
            ended_by = _signal_name(os.WTERMSIG(status)) if stopped_by == "exit" else None
        moving = busy = None
        if self.sampler is not None and stopped_by == "timeout":
            moving, busy = self.sampler.moving, self.sampler.busy
            if self.sampler.note:
                self.notes.append(self.sampler.note)
            if self.sampler.frames:
                self.evidence["samples"] = self.sampler.frames
        return {
            "stopped_by": stopped_by,
            "exit_code": exit_code,
            "signal": ended_by,
            "seconds": round(seconds, 4),
            "cpu_seconds": round(self.cpu, 3),
            "peak_rss_mb": round(max(self.peak, self.largest) / 1e6, 1),
            "survivors": survivors,
            "stdout_bytes": sizes[0],
            "stderr_bytes": sizes[1] if len(sizes) > 1 else 0,
            "moving": moving,
            "busy": busy,
            "note": "; ".join(self.notes),
            "evidence": self.evidence,
            "diagnosis_seconds": round(self.diagnosis_seconds, 3),
        }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def main() -> None:
    """Read the Task, run it, write the Ending."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1 << 16)
        if not part:
            return  # the tool went away before it had said what to do
        line += part
    supervisor = Supervisor(json.loads(line))
    try:
        fields = supervisor.run()
    except Exception as error:  # noqa: BLE001 - whatever is wrong here, nothing may be left running
        supervisor.kill()
        fields = {"stopped_by": "exit", "seconds": 0.0, "problem": f"the supervisor failed: {error!r}"}
    ending = json.dumps(fields).encode() + b"\n"
    with contextlib.suppress(BrokenPipeError):
        while ending:
            ending = ending[os.write(1, ending) :]
    os._exit(0)  # taking the interpreter down in order costs every cell 5 ms
