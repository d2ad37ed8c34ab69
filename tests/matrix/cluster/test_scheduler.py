"""The scheduler: what it tells, and how it ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.matrix.cluster.parties import free_port
from tests.patience import PATIENCE
from whichtorch.matrix.cluster.worker import serve


def test_a_signal_ends_it(tmp_path: Path) -> None:
    """It tells where it listens; without encryption it makes no certificates."""
    address, said = f"tcp://127.0.0.1:{free_port()}", list[str]()

    def tell(line: str) -> None:
        said.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(serve(address, tmp_path, tell))
    assert said == [f"listening at {address}"]
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """The command ends with 3, and the remedy is another port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "whichtorch", "scheduler", "--plain", "--port", port]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 3, ended.stderr
    assert f"cannot listen at tcp://127.0.0.1:{port}: " in ended.stderr
    assert "hint: choose another --port" in ended.stderr
