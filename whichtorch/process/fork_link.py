"""The supervisor's side of a fork server: start it, have leaders forked from it, end it.

The server is a child of a thread of its own: for the kernel, children belong to threads. So the supervisor can ask
whether any other child is left, and gets an exact answer. What the server forks becomes a child of the main thread as
soon as the process between has ended, and its end is reaped like that of a leader which the supervisor started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
import time

from whichtorch.process import kernel
from whichtorch.process.spawning import leader_settings, spawn

TYPE_CHECKING = False  # typing takes 3 ms to import, and a supervisor starts in 20
if TYPE_CHECKING:
    from typing import Any

    from whichtorch.process.task_tree import Children

START_PATIENCE = 120.0  # seconds for the imports: from a cold disk torch takes a minute, and compilers may be started
FORK_PATIENCE = 10.0  # seconds for a fork: it takes some 20 ms
END_PATIENCE = 5.0  # seconds for a killed server to be gone
LAST_WORDS = 2000  # bytes of a server's stderr in which its last line is looked for


class ForkServerError(OSError):
    """The server cannot give a leader; the task is started as any other."""


class ForkLink:
    """The fork server of a supervisor: `lead` forks the leader of one task after another."""

    def __init__(self, server: dict[str, Any]) -> None:
        self.level: str = server["level"]
        self._server = server
        self._channel, self._server_end = socket.socketpair()
        self._heard = b""  # of the channel
        self._errors = os.memfd_create("errors")  # the server's stderr
        self._pid = 0
        self._is_known = threading.Event()  # set once the server runs, or `problem` says why not
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._is_ready = False
        self._gate = -1  # descriptor that lets the forked leader go on
        self.problem = ""  # why it cannot be used any more

    def start(self) -> frozenset[int]:
        """Start the server if it was not started before, without waiting for it; return its process id."""
        if not self._is_known.is_set():
            with leader_settings():
                self._keeper.start()
                self._is_known.wait()
        if self.problem:
            raise ForkServerError(self.problem)
        return frozenset({self._pid})

    def _keep(self) -> None:
        """Start the server, and reap it: this thread is its parent."""
        folder = self._server["scratch"]
        environ = self._server["env"] | {
            "TMPDIR": folder,
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
            "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        }
        self._server_end.set_inheritable(True)
        try:
            output = os.memfd_create("output")
            try:
                argv = [*self._server["argv"], str(self._server_end.fileno())]
                self._pid = spawn(argv, environ, output, self._errors)
            finally:
                os.close(output)
        except OSError as error:
            self.problem = f"the fork server could not be started: {error}"
        finally:
            self._server_end.close()
            self._is_known.set()
        if self._pid:
            os.waitpid(self._pid, 0)

    def lead(self, task: dict[str, Any], children: Children) -> None:
        """Fork the leader of a task; raise OSError where that fails."""
        children.spared = self.start()
        children.leader = self._fork(task, children)  # it waits, so that it runs nothing before it is known
        children.started_by = f"fork {self.level}"
        children.started = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it was killed meanwhile, and is reaped as that
            os.write(self._gate, b"!")
        self._shut_gate()

    def _fork(self, task: dict[str, Any], children: Children) -> int:
        """Return the process id of a task's leader, which waits for the gate; raise OSError where there is none."""
        if not self._is_ready:
            self._answer(children, START_PATIENCE)
            self._is_ready = True
        order = {name: task[name] for name in ("argv", "cwd", "env", "stdout", "stderr")}
        line = json.dumps(order).encode() + b"\n"
        waits, self._gate = os.pipe()
        self._channel.settimeout(FORK_PATIENCE)
        try:
            sent = socket.send_fds(self._channel, [line], [waits])
            self._channel.sendall(line[sent:])
        except OSError as error:
            raise self._failed(f"the fork server does not listen: {error}{self._last_words()}") from None
        finally:
            os.close(waits)
        pid: int = self._answer(children, FORK_PATIENCE)["pid"]
        process = kernel.process(pid)
        if process is None or process.parent != os.getpid():
            raise self._failed("the forked process was not handed over")
        return pid

    def end(self) -> None:
        """End the server; what it has started meanwhile becomes the supervisor's."""
        if self._pid:
            kernel.send(self._pid, signal.SIGKILL)
            self._keeper.join(END_PATIENCE)
        self._channel.close()
        shutil.rmtree(self._server["scratch"], ignore_errors=True)  # the tool does it, too, unless it was killed

    def _answer(self, children: Children, patience: float) -> dict[str, Any]:
        """Return the server's next message; raise if it reports a problem.

        Nothing is reaped meanwhile, because the leader is not known yet. After a final problem the server is not used.
        """
        end = time.monotonic() + patience
        while b"\n" not in self._heard:
            if children.interrupted:
                self._failed("interrupted")  # what it says later would be taken for another task's answer
                raise InterruptedError(self.problem)
            left = end - time.monotonic()
            if left <= 0:
                raise self._failed(f"the fork server did not answer in {patience:.0f} s")
            if not children.listen(left, self._channel.fileno()):
                continue
            try:
                part = self._channel.recv(1 << 16)
            except OSError:
                part = b""
            if not part:
                raise self._failed(f"the fork server has ended{self._last_words()}")
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if message.get("is_final"):
            raise self._failed(message["problem"])
        if message.get("problem"):
            self._shut_gate()
            raise ForkServerError(message["problem"])
        return message

    def _failed(self, problem: str) -> ForkServerError:
        self.problem = problem
        self._shut_gate()
        if self._pid:
            kernel.send(self._pid, signal.SIGKILL)
        return ForkServerError(problem)

    def _shut_gate(self) -> None:
        """Close the gate; a leader that still waits for it ends."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def _last_words(self) -> str:
        """Return the last line of the server's stderr, with a colon before it."""
        size = os.fstat(self._errors).st_size
        lines = os.pread(self._errors, LAST_WORDS, max(0, size - LAST_WORDS)).decode(errors="replace").split("\n")
        lines = [line for line in lines if line.strip()]
        return f": {lines[-1].strip()}" if lines else ""
