"""What /proc shows of processes, threads and interpreters."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.running import until
from whichtorch.process import kernel
from whichtorch.process.evidence import snapshots

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def test_name_with_parentheses() -> None:
    """A process name with parentheses and spaces is read whole."""
    rest = " ".join(map(str, range(4, 60)))
    process = kernel.KernelProcess(7, f"7 (a) b (c) S {rest}".encode())
    assert (process.name, process.state, process.parent, process.threads) == ("a) b (c", "S", 4, 20)


def test_tree_finds_new_and_forgets_old() -> None:
    """New descendants are found, and descendants that have gone are not."""
    tree = kernel.Tree(os.getpid())
    before = {member.pid for member in tree.look()}
    with subprocess.Popen(["sleep", "600"]) as child:
        assert {member.pid for member in tree.look()} - before == {child.pid}
        assert {member.pid for member in tree.look()} - before == {child.pid}
        child.kill()
    assert child.pid not in {member.pid for member in tree.look()}


def test_own_memory() -> None:
    """Proportional memory of a process is close to its resident memory."""
    own = kernel.process(os.getpid())
    assert own is not None
    assert 0.2 * own.rss < kernel.proportional_rss([own]) <= 1.1 * own.rss


def test_gone_process() -> None:
    """A process that has gone is None, and can be described and signalled without harm."""
    with subprocess.Popen(["true"]) as child:
        pass
    assert kernel.process(child.pid) is None
    assert "has gone" in kernel.describe(child.pid)
    kernel.send(child.pid, 0)


def test_runtime_state_is_found() -> None:
    """The address of _PyRuntime, where the GIL is, is found from outside the process."""
    own = ctypes.addressof(ctypes.c_byte.in_dll(ctypes.pythonapi, "_PyRuntime"))
    assert [start for start, end in snapshots.runtime_ranges(os.getpid()) if start <= own < end] == [own]


def test_other_files_have_no_runtime_state() -> None:
    """A file that is not an interpreter has no runtime state."""
    with Path(__file__).open("rb") as file:
        assert snapshots.find_symbol(file.fileno(), snapshots.SYMBOL) is None


@pytest.mark.skipif(not snapshots.CALLS, reason="system calls of this machine are not known")
def test_a_sleep_is_seen() -> None:
    """A sleeping process is seen in the system call in which it sleeps."""
    with subprocess.Popen(["sleep", "600"]) as child:
        assert until(lambda: snapshots.read_thread(child.pid, child.pid).state == "S")
        thread = snapshots.read_thread(child.pid, child.pid)
        child.kill()
    assert (thread.name, thread.call) == ("sleep", "clock_nanosleep")
