"""Who holds the mutex that a thread waits for is read from its memory, and from no other memory."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.process.running import family
from tests.process.small_programs import STOP, look, python, started, waits
from whichtorch.process import kernel
from whichtorch.process.evidence import snapshots

pytestmark = pytest.mark.skipif(not snapshots.CALLS, reason="needs /proc and a machine whose system calls are known")

CXX = shutil.which("g++")
MUTEXES = r"""
#include <mutex>
#include <thread>
#include <shared_mutex>
#include <condition_variable>
#include <cstdio>
#include <unistd.h>
static std::mutex plain, other; static std::recursive_mutex again; static std::timed_mutex timed;
static std::condition_variable signalled; static std::shared_mutex shared, is_read;
template <class Work> static void start(const char* name, Work work) {
    std::thread([=] { pthread_setname_np(pthread_self(), name); work(); }).detach();
}
int main() {
    plain.lock(); again.lock(); again.lock(); timed.lock(); shared.lock(); is_read.lock_shared();
    start("plain", [] { plain.lock(); });
    start("again", [] { again.lock(); });
    start("timed", [] { timed.try_lock_for(std::chrono::hours(1)); });
    start("itself", [] { std::mutex own; own.lock(); own.lock(); });
    start("reader", [] { shared.lock_shared(); });
    start("writer", [] { shared.lock(); });
    start("behind", [] { is_read.lock(); });
    start("condition", [] { std::unique_lock<std::mutex> lock(other); signalled.wait(lock); });
    puts("up"); fflush(stdout); pause();
}
"""


FORKED = r"""
#include <mutex>
#include <thread>
#include <cstdio>
#include <unistd.h>
static std::mutex generator;
int main() {
    std::thread([] { generator.lock(); pause(); }).detach();
    while (generator.try_lock()) generator.unlock();
    if (!fork()) generator.lock();
    puts("up"); fflush(stdout); pause();
}
"""


def compiled(source: str, folder: Path) -> str:
    """Return the program of a text in C++."""
    file, program = folder / "program.cpp", str(folder / "program")
    file.write_text(source)
    subprocess.run([CXX or "", "-std=c++17", "-pthread", str(file), "-o", program], check=True)
    return program


@pytest.mark.skipif(CXX is None, reason="needs g++")
def test_mutexes_of_cpp_name_their_owner(tmp_path: Path) -> None:
    """Each kind of mutex names the thread that holds it, also the waiting one itself; conditions and readers do not."""
    with started(compiled(MUTEXES, tmp_path)) as pid:
        assert waits(pid, *["futex"] * 8)
        owners = {thread.name: (thread.owner, thread.tid) for thread in look(pid)[pid].threads}
        itself = owners.pop("itself")
        assert itself[0] == itself[1]
        assert {name: owner for name, (owner, _) in owners.items()} == {
            "plain": pid, "again": pid, "timed": pid, "reader": pid, "writer": pid,
            "behind": None, "condition": None,
        }  # fmt: skip


@pytest.mark.skipif(CXX is None, reason="needs g++")
def test_a_mutex_copied_by_fork_names_a_thread_that_is_not_there(tmp_path: Path) -> None:
    """A child waits for a mutex that a thread of its parent holds: that thread owns no mutex of the child."""
    with started(compiled(FORKED, tmp_path)) as pid:
        (child,) = family(pid)
        assert waits(child, "futex")
        (thread,) = look(pid, child)[child].threads
        assert (thread.owner, thread.missing_owner in kernel.thread_ids(pid)) == (None, True)


def test_locks_of_python_name_no_owner() -> None:
    """A lock of Python is no mutex, and its memory is not read as one."""
    code = """
import multiprocessing
locks = [threading.Lock(), threading.RLock(), multiprocessing.Lock()]
for lock in locks:
    lock.acquire()
    threading.Thread(target=lock.acquire, daemon=True).start()
threading.Thread(target=locks[0].acquire, args=(True, 1000), daemon=True).start()
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
    with started(*python(code + STOP)) as pid:
        assert waits(pid, *["futex"] * 5)
        assert [thread for thread in look(pid)[pid].threads if thread.owner] == []
