"""Deadlocks of real programs are found within seconds, and idle programs are never taken for one."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE
from tests.process.running import PROGRAMS, begin
from whichtorch.model import AttemptEvidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.process.supervision import Ending, Supervised

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
    pytest.mark.xdist_group("stall_programs"),  # the tests share the programs they start
]

HEALTHY = Path(__file__).parents[2] / "bench" / "healthy"  # of them, all that need no torch
IDLE = sorted(
    str(path.with_suffix(""))
    for path in (*PROGRAMS.glob("idle_*.py"), *HEALTHY.glob("*.py"))
    if not path.stem.startswith(("loader_", "ranks_"))
)
EXIT_CODES = {"idle_watchdog": 1}
TIMEOUT = PATIENCE  # idle programs end by themselves in 30 s, deadlocks are found in 5 to 10
WORDS = {
    "stuck_locks": {"futex"},
    "stuck_join": {"futex"},
    "stuck_child": {"child", "futex"},
    "stuck_pipe": {"pipe"},
    "stuck_socket": {"socket"},
    "stuck_tcp": {"socket"},
    "stuck_asyncio": {"poll"},
    "stuck_queue": {"child", "pipe"},
    "stuck_shared_lock": {"child", "futex", "pipe"},
    "stuck_file_lock": {"lock"},
    "stuck_gil": {"gil", "futex"},
    "stuck_stopped": {"stopped"},
    "stuck_stopped_leader": {"stopped", "pipe"},
    "stuck_stopped_loader": {"stopped", "pipe"},
    "stuck_stopped_worker": {"stopped", "futex", "pipe", "poll", "sleep"},
    "stuck_at_exit": {"futex"},
    "stuck_import": {"futex"},
    "stuck_polls": {"futex"},
    "stuck_manager": {"futex", "pipe", "socket"},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Supervised]]:
    """Start all programs at once: they only wait."""
    folder = tmp_path_factory.mktemp("stall")
    server = socket.create_server(("127.0.0.1", 0))
    environment = os.environ | {"PORT": str(server.getsockname()[1])}
    started = {
        name: begin(folder / Path(name).name, name, env=environment, timeout=TIMEOUT, stall=True)
        for name in [*IDLE, *WORDS]
    }

    def serve() -> None:
        peer, _ = server.accept()
        threading.Event().wait(7)
        peer.send(b"x")
        peer.close()
        os.kill(int((folder / "idle_told" / "pid").read_text()), signal.SIGUSR1)

    peer = threading.Thread(target=serve, daemon=True)
    peer.start()
    yield started
    for supervised in started.values():
        supervised.interrupt()
    for supervised in started.values():
        supervised.wait()
    peer.join(10)
    server.close()


@pytest.mark.parametrize("name", WORDS)
def test_deadlock_is_found(running: dict[str, Supervised], name: str) -> None:
    """A deadlock is ended before the timeout, with every thread's wait as evidence."""
    ending = running[name].wait()
    assert ending.stopped_by == "stall", ending
    assert (ending.exit_code, ending.signal, ending.problem) == (None, None, "")
    assert {entry.wait for entry in ending.evidence.stall} == WORDS[name]


@pytest.mark.parametrize("name", IDLE, ids=lambda name: Path(name).name)
def test_idle_is_not_a_stall(running: dict[str, Supervised], name: str) -> None:
    """A program that waits for something that will come runs to its own end."""
    ending: Ending = running[name].wait()
    assert (ending.stopped_by, ending.exit_code) == ("exit", EXIT_CODES.get(Path(name).name, 0)), ending
    assert ending.evidence == AttemptEvidence()


def test_output_of_a_stalled_program_is_kept(
    running: dict[str, Supervised], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The output of a program that hung at exit is in its file."""
    assert running["stuck_at_exit"].wait().stdout_bytes == len("success\n")
