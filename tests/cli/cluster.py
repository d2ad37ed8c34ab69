"""A scheduler and two workers on this machine, as a user at a shell starts them."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.cli.shell import User, wait_for
from tests.matrix.cluster.parties import free_port
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKERS = ("one", "two")


@contextmanager
def _party(user: User, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        party = subprocess.Popen(
            user.command(*arguments), cwd=log.parent, env=user.environ, stdout=output, stderr=output
        )
    try:
        yield party
    finally:
        party.send_signal(signal.SIGTERM)
        party.wait(PATIENCE)


@contextmanager
def two_workers(user: User, folder: Path) -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    """Give the address of a scheduler with two workers, each with a state folder below `folder`, and the workers."""
    folder.mkdir()
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with ExitStack() as held:
        log = folder / "scheduler.log"
        held.enter_context(_party(user, log, "scheduler", "--plain", "--port", str(port)))
        workers = {}
        for name in WORKERS:
            options = ("--home", str(folder / name), "--slots", "1")
            workers[name] = held.enter_context(_party(user, folder / f"{name}.log", "worker", address, *options))
        wait_for(lambda: log.read_text().count("joined:") == len(WORKERS))
        yield address, workers
