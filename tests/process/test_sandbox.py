"""The sandbox around a script: a real script tries each way out."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.programs import escapes
from tests.process.running import PROGRAMS, is_alive
from whichtorch.process import sandbox, supervision
from whichtorch.process import sandbox_layout as layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from whichtorch.process.supervision import Ending

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are of Linux")

ROOM_MB = 30
WAYS = [name for name, value in vars(escapes).items() if getattr(value, "__doc__", None) and callable(value)]
WAYS = [
    name for name in WAYS if vars(escapes)[name].__module__ == escapes.__name__ and name not in {"call", "has_family"}
]
STOPPED = {"fill_memory": "memory", "fork_bomb": "processes"}
STOPPED |= dict.fromkeys(
    ("fill_own_folder", "fill_locked_folder", "fill_removed_files", "fill_while_files_go"), "output"
)


@pytest.fixture
def _sandboxed() -> None:
    """Skip where the kernel allows no sandbox."""
    if problem := sandbox.why_not():
        pytest.skip(f"{problem}; these tests run where a sandbox works")


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Make on the machine what a script in a sandbox must not reach; return where it is."""
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


def run(folder: Path, program: str, *arguments: str, **fields: Any) -> Ending:
    """Run a program of this folder's in a sandbox, from a copy in a folder of its own; it writes to `attempt`."""
    own, attempt = folder / "own", folder / "attempt"
    own.mkdir(exist_ok=True)
    attempt.mkdir(exist_ok=True)
    script = own / f"{program}.py"
    script.write_bytes((PROGRAMS / script.name).read_bytes())
    link = own / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(folder / "home" / ".ssh" / "id_rsa")
    spec = sandbox.sandbox_spec(
        [own, folder / "site-packages", *sandbox.interpreter_folders(Path(sys.executable))], {attempt: attempt}
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
    return supervision.start(supervision.Task(**task | {"sandbox": replace(spec, room_mb=ROOM_MB)} | fields)).wait()


def run_code(folder: Path, code: str, shown: Iterable[Path] = (), program: str = sys.executable) -> Ending:
    """Run a text in a sandbox; it writes to `folder`."""
    spec = sandbox.sandbox_spec([*shown, *sandbox.interpreter_folders(Path(program))], {folder: folder})
    task = supervision.Task(
        argv=(program, "-c", code),
        cwd=str(folder),
        env={},
        stdout=str(folder / "out"),
        stderr=str(folder / "err"),
        timeout=30.0,
        sandbox=replace(spec, room_mb=ROOM_MB),
    )
    return supervision.start(task).wait()


@pytest.mark.usefixtures("_sandboxed")
@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_blocked(way: str, facts: dict[str, Any], tmp_path: Path) -> None:
    """Each way out is blocked: what it tries, and what must not come of it, says its function in `escapes.py`."""
    ending = run(tmp_path, "escapes", way, json.dumps(facts))
    said = (tmp_path / "attempt" / "out").read_text()
    assert said.startswith(f"tried {way}\n"), (tmp_path / "attempt" / "err").read_text()
    assert "ESCAPED" not in said
    assert ending.stopped_by == STOPPED.get(way, "exit"), ending
    assert way in STOPPED or "blocked" in said
    assert bool(ending.survivors) == (way == "daemon")


def test_enough_ways() -> None:
    """There are at least 25 of them."""
    assert len(WAYS) >= 25, WAYS


@pytest.mark.usefixtures("_sandboxed")
@pytest.mark.thorough
def test_files_that_come_and_go_are_no_output(tmp_path: Path) -> None:
    """A script that makes and removes files and folders, and has removed ones open in /tmp, is not stopped for that."""
    code = (
        "import os, tempfile, time\n"
        "end = time.monotonic() + 3\n"
        "kept = [tempfile.TemporaryFile(dir='/tmp') for _ in range(2)]\n"
        "[file.truncate(0) or file.write(bytes(12_000_000)) or file.flush() for file in kept]\n"
        "while time.monotonic() < end:\n"
        "    with tempfile.TemporaryDirectory(dir='.') as folder:\n"
        "        for number in range(30): open(f'{folder}/{number}', 'w').close()\n"
    )
    ending = run_code(tmp_path, code)
    assert (ending.stopped_by, ending.exit_code) == ("exit", 0), (tmp_path / "err").read_text()


def test_what_cannot_be_read_counts_as_more(tmp_path: Path) -> None:
    """A path that is too long, or a folder that is none, counts as more than allowed; one that has gone does not."""
    (tmp_path / "file").touch()
    assert layout.holds_more([str(tmp_path / "file")], 10, 10_000)
    assert layout.holds_more([str(tmp_path / ("x" * 300))], 10, 10_000)
    assert not layout.holds_more([str(tmp_path / "none"), str(tmp_path)], 10, 10_000)


@pytest.mark.usefixtures("_sandboxed")
def test_sockets_that_torch_needs(tmp_path: Path) -> None:
    """A script has unix, IPv4, IPv6 and netlink sockets, and pairs of them, within the sandbox."""
    code = (
        "import socket as s\n"
        "s.socketpair()[0].close()\n"
        "for family in (s.AF_UNIX, s.AF_INET, s.AF_INET6): s.socket(family).close()\n"
        "s.socket(s.AF_NETLINK, s.SOCK_RAW).close()\n"
        "server = s.create_server(('127.0.0.1', 0))\n"
        "s.create_connection(server.getsockname()).close()\n"
    )
    ending = run_code(tmp_path, code)
    assert ending.exit_code == 0, (tmp_path / "err").read_text()


def test_a_machine_whose_calls_are_not_known_has_no_sandbox() -> None:
    """Where system calls cannot be filtered, the sandbox is refused with the reason and a remedy."""
    code = (
        "import ctypes, os; ctypes.CDLL(None).personality(8)\n"  # PER_LINUX32: the machine has another name then
        "from whichtorch.process import sandbox\n"
        "print(os.uname().machine, sandbox.why_not(), sandbox.remedy(), sep='\\n')"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    machine, problem, remedy = said.splitlines()
    if machine == os.uname().machine:
        pytest.skip("this machine has one name only")
    assert problem == f"the numbers of system calls are known for x86_64 and aarch64 only, not for {machine}"
    assert remedy.startswith("use a machine with x86_64 or aarch64")


def test_a_link_to_a_python_shows_no_more_than_its_folder(tmp_path: Path) -> None:
    """~/.local/bin/python must not show all of ~/.local."""
    link = tmp_path / "home" / ".local" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)

    folders = list(sandbox.interpreter_folders(link))
    assert folders[0] == link.parent
    assert Path(sys.base_prefix).resolve() in {each.resolve() for each in folders}


@pytest.mark.usefixtures("_sandboxed")
def test_a_python_in_the_home_shows_its_parts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a virtual environment that is made in the home itself, no other file of the home is seen, and it works."""
    home, attempt = tmp_path / "home", tmp_path / "attempt"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    for name in ("secret.txt", "bin/tool", "lib/secret.txt"):
        (home / name).write_text("canary")
    attempt.mkdir()
    monkeypatch.setenv("HOME", str(home))
    program = home / "bin" / "python"
    shown = list(sandbox.interpreter_folders(program))
    assert home not in shown
    assert home / "bin" not in shown
    code = (
        "import os, ssl, sys; print(sys.prefix, sys.prefix != sys.base_prefix, *sorted(os.listdir(sys.prefix)));"
        "print(*(os.path.exists(os.path.join(sys.prefix, name)) for name in ('bin/tool', 'lib/secret.txt')))"
    )
    run_code(attempt, code, shown, str(program))
    prefix, is_virtual, *names = (said := (attempt / "out").read_text().splitlines())[0].split()
    assert (prefix, is_virtual, said[1]) == (str(home), "True", "False False")
    assert set(names) <= {"bin", "include", "lib", "lib64", "pyvenv.cfg"}


@pytest.mark.parametrize("prefix", [".", ".local", "..", "../.."])
def test_a_prefix_with_others_files_is_not_seen_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """Python that was built with the home, ~/.local or a folder above them as its prefix shows its own files only."""
    home = tmp_path / "homes" / "me"
    home.mkdir(parents=True)
    folder = (home / prefix).resolve()
    own = (
        "bin/python3.12",
        "lib/python3.12/os.py",
        "lib64/python3.12/lib-dynload",
        "lib/libpython3.12.so",
        "include/x.h",
    )
    for name in (*own, "bin/tool", "lib/other.so", "share/secret.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "bin" / "python3").symlink_to("python3.12")
    monkeypatch.setenv("HOME", str(home))
    shown = {each.relative_to(folder).as_posix() for each in sandbox.interpreter_folders(folder / "bin" / "python3")}
    wanted = {"bin/python3", "bin/python3.12", "lib/python3.12", "lib64/python3.12", "lib/libpython3.12.so", "include"}
    assert shown == wanted


@pytest.mark.parametrize("program", ["/bin/python3", "/usr/bin/python3"])
def test_a_python_of_the_system_does_not_show_the_root(program: str) -> None:
    """/bin/python3 lies in the root, where /lib/python3 is, too."""
    assert Path("/") not in sandbox.interpreter_folders(Path(program))


def test_a_link_to_a_python_in_the_home_shows_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """~/python must not show all of the home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    shown = list(sandbox.interpreter_folders(link))
    assert shown[0] == link
    assert tmp_path not in shown


def test_of_nix_the_store_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket of nix's daemon, which would build and download for the script, is not there."""
    found = (os.path.isdir, os.path.exists)
    nix = ("/nix", "/nix/store", "/nix/var", "/nix/var/nix/daemon-socket/socket")
    monkeypatch.setattr(os.path, "isdir", lambda path: path in nix or found[0](path))
    monkeypatch.setattr(os.path, "exists", lambda path: path in nix or found[1](path))
    places = layout.places({"hidden": [], "readable": [], "writable": {}})
    assert [path for path in places if path.startswith("/nix")] == ["/nix/store"]
