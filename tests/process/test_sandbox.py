"""The wall around a script: each way out of it is tried by a real script, behind each kind of wall that works here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.programs import escapes
from tests.process.running import PROGRAMS, is_alive
from whichtorch.matrix.process import sandbox, supervision
from whichtorch.matrix.process.sandbox import KINDS, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.process.supervision import Ending

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are of Linux")

ROOM_MB = 30
WAYS = [name for name, value in vars(escapes).items() if getattr(value, "__doc__", None) and callable(value)]
WAYS = [name for name in WAYS if vars(escapes)[name].__module__ == escapes.__name__ and name != "call"]
STOPPED = {"fill_own_folder": "output", "fill_memory": "memory", "fork_bomb": "processes"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Sandbox:
    """Each kind of wall that works on this machine."""
    found: Sandbox = request.param
    if problem := sandbox.why_not(found):
        pytest.skip(f"{found}: {problem}")
    return found


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Make on the machine what a script behind a wall must not reach; return where it is."""
    home, torch = tmp_path / "home", tmp_path / "site-packages" / "torch" / "__init__.py"
    key, records = home / ".ssh" / "id_rsa", tmp_path / "state" / "runs" / "1" / "records.jsonl"
    for path in (key, torch, records):
        path.parent.mkdir(parents=True)
        path.write_text("canary")
    with ExitStack() as held:
        tcp, tcp6, udp = (
            held.enter_context(socket.socket(family, type_))
            for family, type_ in (
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_INET6, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_DGRAM),
            )
        )
        links = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        abstract = f"whichtorch-test-{os.getpid()}"
        for listener, address in (
            (tcp, ("127.0.0.1", 0)),
            (tcp6, ("::1", 0)),
            (udp, ("127.0.0.1", 0)),
            (links[0], str(tmp_path / "listens")),
            (links[1], f"\0{abstract}"),
        ):
            listener.bind(address)
        for listener in (tcp, tcp6, *links):
            listener.listen()
        udp.setblocking(False)
        sleeper = held.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        held.callback(sleeper.kill)
        shared = Path(f"/dev/shm/whichtorch-test-{os.getpid()}")
        shared.write_text("canary")
        held.callback(shared.unlink)
        yield {
            "home": str(home),
            "key": str(key),
            "torch": str(torch),
            "records": str(records),
            "secret": "canary-of-a-variable",
            "pid": sleeper.pid,
            "tcp": tcp.getsockname()[1],
            "tcp6": tcp6.getsockname()[1],
            "udp": udp.getsockname()[1],
            "unix": str(tmp_path / "listens"),
            "abstract": abstract,
            "shared": str(shared),
            "host": socket.gethostname(),
            "room": ROOM_MB,
        }
        assert is_alive(sleeper.pid)
        with pytest.raises(BlockingIOError):
            udp.recv(1)
        assert {key.read_text(), torch.read_text(), records.read_text()} == {"canary"}


def run(kind: Sandbox, folder: Path, program: str, *arguments: str, **fields: Any) -> Ending:
    """Run a program of this folder's behind a wall, from a copy in a folder of its own; it writes to `attempt`."""
    own, attempt = folder / "own", folder / "attempt"
    own.mkdir(exist_ok=True)
    attempt.mkdir(exist_ok=True)
    script = own / f"{program}.py"
    script.write_bytes((PROGRAMS / script.name).read_bytes())
    link = own / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(folder / "home" / ".ssh" / "id_rsa")
    wall = sandbox.wall_of(
        kind,
        [own, folder / "site-packages", *sandbox.interpreter_folders(Path(sys.executable))],
        {attempt: attempt},
        room_mb=ROOM_MB,
    )
    task: dict[str, Any] = {
        "argv": (sys.executable, str(script), *arguments),
        "cwd": str(attempt),
        "env": {"PATH": os.defpath},
        "stdout": str(attempt / "out"),
        "stderr": str(attempt / "err"),
        "timeout": 60.0,
        "memory_mb": 400,
        "processes": 60,
    }
    return supervision.start(supervision.Task(**task | {"wall": wall} | fields)).wait()


@pytest.mark.parametrize("way", WAYS)
def test_blocked(kind: Sandbox, way: str, facts: dict[str, Any], tmp_path: Path) -> None:
    """Each way out is blocked: what it tries, and what must not come of it, says its function in `escapes.py`."""
    ending = run(kind, tmp_path, "escapes", way, json.dumps(facts))
    said = (tmp_path / "attempt" / "out").read_text()
    assert said.startswith(f"tried {way}\n"), (tmp_path / "attempt" / "err").read_text()
    assert "ESCAPED" not in said
    assert ending.stopped_by == STOPPED.get(way, "exit"), ending
    assert way in STOPPED or "blocked" in said
    assert bool(ending.survivors) == (way == "daemon")


def test_enough_ways() -> None:
    """There are at least 25 of them."""
    assert len(WAYS) >= 25, WAYS


def test_a_link_to_a_python_shows_no_more_than_its_folder(tmp_path: Path) -> None:
    """~/.local/bin/python must not show all of ~/.local."""
    link = tmp_path / "home" / ".local" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)

    folders = list(sandbox.interpreter_folders(link))
    assert folders[0] == link.parent
    assert Path(sys.base_prefix).resolve() in {each.resolve() for each in folders}
