"""What /proc knows of a tree is found, for real processes: who ended, who has the other end, who holds the lock."""

import socket
from pathlib import Path

import pytest

from tests.process.running import family, until
from tests.process.small_programs import STOP, calls, look, python, started, waits
from whichtorch.hangs.stacks import Descriptor, Process
from whichtorch.process.evidence import facts, snapshots

pytestmark = pytest.mark.skipif(not snapshots.CALLS, reason="needs /proc and a machine whose system calls are known")


def child_of(pid: int) -> int:
    """Return the only child of a process."""
    (child,) = family(pid)
    return child


def descriptor_of(process: Process) -> Descriptor:
    """Return what the main thread of a process waits on."""
    number = next(thread.descriptor for thread in process.threads if thread.tid == process.pid)
    return next(row for row in process.descriptors if row.number == number)


READS = "r, w = os.pipe()\nif os.fork() == 0:\n    os.read(r, 1)\nos.close(r)\n"
WRITES = "r, w = os.pipe()\nif os.fork() == 0:\n    os.close(r)\n    os.write(w, bytes(1 << 20))\nos.close(w)\n"
NAMED = "os.mkfifo('fifo')\nif os.fork() == 0:\n    open('fifo').read()\nwriter = open('fifo', 'w')\n"
RECEIVES = "a, b = socket.socketpair()\nif os.fork() == 0:\n    a.close()\n    b.recv(1)\nb.close()\n"


@pytest.mark.parametrize(
    ("code", "call", "link", "is_written", "has_both"),
    [
        (READS, "read", "pipe:[", False, True),  # the child keeps the other end of its own pipe, too
        (WRITES, "write", "pipe:[", True, False),
        (NAMED, "read", "/", False, False),
        (RECEIVES, "recvfrom", "socket:[", False, False),
    ],
)
def test_who_has_the_other_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, call: str, link: str, is_written: bool, has_both: bool
) -> None:
    """Who reads from a pipe, writes to one, or waits for a socket learns who could end that."""
    monkeypatch.chdir(tmp_path)
    with started(*python(code + STOP)) as parent:
        child = child_of(parent)
        assert waits(child, call)
        row = descriptor_of(look(parent, child)[child])
        assert row.link.startswith(link)
        assert (row.is_written, row.holders) == (is_written, (parent, child) if has_both else (parent,))


@pytest.mark.parametrize("is_dual", [False, True])
def test_tcp_connection_names_its_peer(is_dual: bool) -> None:
    """A connection within the machine leads to its other end, also where a socket of IPv6 takes one of IPv4."""
    if is_dual and not socket.has_dualstack_ipv6():
        pytest.skip("needs IPv6")
    kind = "family=socket.AF_INET6, dualstack_ipv6=True" if is_dual else "family=socket.AF_INET"
    code = f"server = socket.create_server(('', 0), {kind})\n"
    code += """
if os.fork() == 0:
    client = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
    server.close()
    client.recv(1)
peer = server.accept()[0]
"""
    with started(*python(code + STOP)) as parent:
        child = child_of(parent)
        assert waits(child, "recvfrom")
        row = descriptor_of(look(parent, child)[child])
        assert row.peer.startswith("127.0.0.1:")
        assert row.local.startswith("127.0.0.1:")
        assert (row.is_listening, row.holders) == (False, (parent,))


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_connection_that_nobody_accepts_names_the_server(tmp_path: Path, kind: str) -> None:
    """Who waits for an answer of a server that accepts nobody learns who listens."""
    opened = {"tcp": "socket.create_server(('127.0.0.1', 0))", "unix": "socket.socket(socket.AF_UNIX)"}[kind]
    code = f"server = {opened}\n" + (
        f"server.bind({str(tmp_path / 's')!r})\nserver.listen()\n" if kind == "unix" else ""
    )
    code += """
if os.fork() == 0:
    client = socket.socket(server.family)
    client.connect(server.getsockname())
    server.close()
    client.recv(1)
"""
    with started(*python(code + STOP)) as parent:
        child = child_of(parent)
        assert waits(child, "recvfrom")
        row = descriptor_of(look(parent, child)[child])
        assert row.holders == (parent,)
        assert row.peer.startswith("127.0.0.1:" if kind == "tcp" else str(tmp_path / "s"))


def test_server_that_waits_for_clients_listens() -> None:
    """Who accepts has a listening socket and its address."""
    code = "server = socket.create_server(('127.0.0.1', 0))\nprint('up', flush=True)\nserver.accept()\n"
    with started(*python(code)) as pid:
        assert until(lambda: set(calls(pid).values()) & {"accept", "accept4"})
        row = descriptor_of(look(pid)[pid])
        assert row.is_listening
        assert row.local.startswith("127.0.0.1:")


def test_several_polled_descriptors_are_all_told_of() -> None:
    """A thread that polls one descriptor waits on that; one that polls two waits on neither alone."""
    code = """
import select
ends = [os.pipe()[0] for _ in range(3)]
threading.Thread(target=select.select, args=(ends[:2], [], []), daemon=True, name="two").start()
"""
    with started(*python(code + "print('up', flush=True)\nselect.select(ends[2:], [], [])")) as pid:
        assert until(lambda: sum("select" in call for call in calls(pid).values()) == 2)
        process = look(pid)[pid]
        assert [thread.tid for thread in process.threads if thread.descriptor is not None] == [pid]
        assert len(process.descriptors) == 3


@pytest.mark.parametrize("lock", ["flock", "lockf"])
def test_locked_file_names_its_holder(tmp_path: Path, lock: str) -> None:
    """Who waits for a lock learns who has it; who has it, which file."""
    code = f"""
ready, told = os.pipe()
if os.fork() == 0:
    file = open({str(tmp_path / "lock")!r}, "w")
    fcntl.{lock}(file, fcntl.LOCK_EX)
    os.write(told, b".")
    signal.pause()
os.read(ready, 1)
print("up", flush=True)
file = open({str(tmp_path / "lock")!r}, "w")
fcntl.{lock}(file, fcntl.LOCK_EX)
"""
    with started(*python(code)) as parent:
        holder = child_of(parent)
        assert waits(parent, {"flock": "flock", "lockf": "fcntl"}[lock])
        processes = look(parent, holder)
        row = descriptor_of(processes[parent])
        assert (row.link, row.holders) == (str(tmp_path / "lock"), (holder,))
        assert [(held.link, held.holders) for held in processes[holder].descriptors] == [
            (str(tmp_path / "lock"), (holder,))
        ]


def test_children_that_ended_say_how() -> None:
    """A child that nobody reaped is listed with its exit code or signal; a living one has not ended."""
    code = """
ended = [os.fork()]
if not ended[0]:
    os._exit(7)
ended.append(os.fork())
if not ended[1]:
    signal.pause()
os.kill(ended[1], signal.SIGKILL)
"""
    with started(*python(code + STOP)) as parent:
        assert until(lambda: len(look(parent)) == 3)
        processes = look(parent)
        assert processes.pop(parent).ended == ""
        assert [process.parent for process in processes.values()] == [parent, parent]
        assert [processes[pid].ended for pid in sorted(processes)] == ["exit code 7", "SIGKILL"]


def test_variables_are_those_of_now_and_no_others() -> None:
    """What a process set, changed or removed counts; nothing but its place in a job is kept."""
    code = "os.environ['RANK'] = '3'\nos.environ['WORLD_SIZE'] = '8'\ndel os.environ['LOCAL_RANK']\n" + STOP
    given = {"WORLD_SIZE": "1", "LOCAL_RANK": "2", "MASTER_PORT": "29500", "API_TOKEN": "secret"}
    with started(*python(code), **given) as pid:
        assert look(pid)[pid].environ == {"RANK": "3", "WORLD_SIZE": "8", "MASTER_PORT": "29500"}


def test_variables_of_a_program_without_a_c_library_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the variables of now are not found, those count with which the process was started."""
    monkeypatch.setattr(facts, "_variables_now", lambda pid: None)
    with started(*python(STOP), RANK="5", HOME="/x") as pid:
        assert facts.environment(pid) == {"RANK": "5"}
