"""What one thread waits for, on evidence only: its frames, and what the kernel and the collectors say of it.

The walk starts at the innermost frame. Plumbing (futexes, unnamed functions of libc) is passed over; the first
frame that tells ends it, and the first that is neither ends it without an answer.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING

from matrix.diagnosis.collectors.kernel_text import is_futex
from matrix.diagnosis.stacks import Frame  # noqa: TC001 - pydantic resolves it
from matrix.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.diagnosis.stacks import KernelWait, Thread


class Waiting(StrEnum):
    """What a thread can wait for."""

    GIL = "the GIL"
    LOCK = "a lock"
    CONDITION = "a condition"
    THREAD = "the end of a thread"
    CHILD = "a child"
    PIPE = "a pipe"
    OPENMP = "OpenMP"
    IO = "I/O"
    DEVICE = "the GPU"
    SLEEP = "time to pass"
    STOPPED = "SIGCONT"
    FUTEX = "a futex"  # the kernel's word, where no frame says what it stands for


class Wait(Model):
    """One thread's wait."""

    waiting: Waiting
    frame: Frame | None = None  # that tells
    partner: int | None = None  # tid of the thread or pid of the child, where the evidence names it


def _names(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:{pattern})$")


# Functions of CPython 3.8 to 3.14, glibc, libstdc++, pybind11, OpenMP, CUDA; a wait of Python's own locks is sorted
# further by the Python function that asked for it.
_TELLING: tuple[tuple[Waiting, re.Pattern[str]], ...] = (
    (
        Waiting.GIL,
        _names(
            r"take_gil|PyEval_AcquireThread|PyEval_RestoreThread|PyEval_AcquireLock|PyGILState_Ensure"
            r"|_PyThreadState_Attach|pybind11::gil_scoped_acquire::gil_scoped_acquire"
            r"|pybind11::gil_scoped_release::~gil_scoped_release"
        ),
    ),
    (
        Waiting.THREAD,
        _names(
            r"std::thread::join|_*pthread_(?:join|timedjoin\w*|clockjoin\w*)|std::__1::thread::join"
            r"|ThreadHandle_join|PyThread_join_thread"
        ),
    ),
    (Waiting.CHILD, _names(r"(?:__)?(?:wait3|wait4|waitpid|waitid)|os_wait\w*")),
    (Waiting.OPENMP, _names(r"GOMP_\w+|gomp_\w+|__kmpc?_\w+|kmp_\w+")),
    (
        Waiting.LOCK,
        _names(
            r"PyThread_acquire_lock(?:_timed)?(?:_with_retries)?|lock_PyThread_acquire_lock|rlock_acquire\w*|lock_acquire\w*"
            r"|_?PyMutex_Lock\w*|_PyRecursiveMutex_Lock\w*"
            r"|_*pthread_mutex_(?:timed|clock)?lock\w*|_*(?:GI_+)?lll_(?:mutex_)?lock\w*|_*pthread_rwlock_\w*lock\w*"
            r"|std::mutex::lock|std::recursive_mutex::lock|__cxa_guard_acquire"
        ),
    ),
    (
        Waiting.CONDITION,
        _names(r"std::(?:__1::)?condition_variable(?:_any)?::\w*wait\w*|c10::ivalue::Future::wait|std::future.*::wait"),
    ),
    (Waiting.SLEEP, _names(r"(?:__)?(?:clock_nanosleep|nanosleep|usleep|sleep)\w*|time_sleep|pysleep")),
    (
        Waiting.DEVICE,
        _names(r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize\w*|c10::cuda::\w*[sS]ynchronize\w*"),
    ),
    (
        Waiting.IO,
        _names(
            r"(?:__|__GI___libc_|__libc_)?(?:read|readv|pread64|write|writev|recv|recvfrom|recvmsg|send|sendto|sendmsg"
            r"|accept4?|connect|poll|ppoll|select|pselect|epoll_wait|epoll_pwait|fsync|flock|openat?)(?:64)?"
            r"|os_read|os_write|sock_\w+|select_\w+"
        ),
    ),
)
_PLUMBING = _names(
    r"\?\?\?|_*(?:GI_+)?(?:lll_)?futex\w*|_*(?:GI_+)?pthread_cond_\w*wait\w*|_*(?:new_)?sem_\w*wait\w*|do_futex_wait\w*"
    r"|syscall|PyCOND_\w+|_*Py(?:Semaphore|ParkingLot|Event)_\w+|acquire_timed|wait_for_thread_shutdown|_*internal_syscall\w*"
)
_WEAK_CONDITION = _names(r"_*(?:GI_+)?pthread_cond_\w*wait\w*")
_OPENMP_LIBRARY = re.compile(r"^lib(?:gomp|i?omp5?|omp)[-.\d]")
_SYSTEM_LIBRARY = re.compile(r"^(?:libc|libpthread|ld-linux|linux-vdso|libffi|libpython|python)[-.\d]")
_CHANNELS: tuple[tuple[Waiting, re.Pattern[str]], ...] = (
    (Waiting.CHILD, re.compile(r"do_wait$")),
    (Waiting.PIPE, re.compile(r"(?:anon_)?pipe_(?:read|write|wait\w*)$|wait_for_partner$")),
    (Waiting.SLEEP, re.compile(r"hrtimer_nanosleep|do_nanosleep")),
    (Waiting.STOPPED, re.compile(r"do_signal_stop")),
    (
        Waiting.IO,
        re.compile(r"io_schedule|folio_wait|inet_csk_accept|sk_wait|unix_\w+|.*_poll\b|do_select|skb_wait|wait_woken"),
    ),
)
_WORDS = {
    "gil": Waiting.GIL,
    "child": Waiting.CHILD,
    "pipe": Waiting.PIPE,
    "lock": Waiting.LOCK,
    "stopped": Waiting.STOPPED,
    "socket": Waiting.IO,
}
# Of the standard library: what a wait in it is for. Functions without their class, as faulthandler names them.
_PYTHON: tuple[tuple[Waiting, str, frozenset[str]], ...] = (
    (
        Waiting.THREAD,
        "threading.py",
        frozenset({"join", "_wait_for_tstate_lock", "_shutdown", "_join_os_thread"}),
    ),
    (Waiting.CONDITION, "threading.py", frozenset({"wait", "wait_for"})),
    (Waiting.CHILD, "subprocess.py", frozenset({"_try_wait", "_wait"})),
    (Waiting.CHILD, "popen_fork.py", frozenset({"poll", "wait"})),
    (Waiting.PIPE, "connection.py", frozenset({"_recv", "_recv_bytes", "_send", "_send_bytes"})),
    (Waiting.IO, "socket.py", frozenset({"accept", "readinto"})),
    (Waiting.IO, "selectors.py", frozenset({"select"})),
)
_POOLS = _names(
    r"blas_thread_server|gomp_thread_start|__kmp_launch_worker|__kmp_launch_thread|c10::ThreadPool::main_loop"
    r"|torch::autograd::ReadyQueue::pop|wait_for_new_command|at::.*ThreadPool.*::main_loop|caffe2::.*ThreadPool.*"
)
_PYTHON_POOLS = (("thread.py", "_worker"), ("queues.py", "_feed"))


def classify(thread: Thread) -> Wait | None:
    """Return what a thread waits for; None where it runs, or where nothing tells."""
    if thread.state == "T" or (thread.kernel and thread.kernel.word == "stopped"):
        return Wait(waiting=Waiting.STOPPED)
    if thread.is_running:
        return None
    found = _from_frames(thread.frames)
    if thread.wants_gil:
        frame = found.frame if found and found.waiting is Waiting.GIL else None
        return Wait(waiting=Waiting.GIL, frame=frame)
    channel = _from_kernel(thread.kernel)
    if found is None or found.waiting is Waiting.FUTEX:
        found = _joined(thread) or channel or found
    if found is None:
        return Wait(waiting=Waiting.IO) if thread.state == "D" else None
    if found.waiting is Waiting.IO and channel and channel.waiting is Waiting.PIPE:
        found = found.model_copy(update={"waiting": Waiting.PIPE})
    return found.model_copy(update={"partner": _partner(found.waiting, thread)})


def _from_frames(frames: Sequence[Frame]) -> Wait | None:
    weak: Wait | None = None
    for place, frame in enumerate(frames):
        if frame.is_python:
            waiting = _python_wait(frame)
            return Wait(waiting=waiting, frame=frame) if waiting else weak
        library = PurePath(frame.library or "").name
        waiting = next((word for word, pattern in _TELLING if pattern.match(frame.function)), None)
        if _OPENMP_LIBRARY.match(library):
            waiting = Waiting.OPENMP
        if waiting is not None:
            return _sorted(waiting, frames[place:])
        if _WEAK_CONDITION.match(frame.function):
            weak = Wait(waiting=Waiting.CONDITION, frame=frame)
        elif weak and frame.function.startswith("Py") and not _PLUMBING.match(frame.function):
            return None  # of the interpreter: the wait for the GIL is one on a condition, too
        elif not _PLUMBING.match(frame.function) or not (_is_system(library) or frame.is_named):
            return weak
    return weak


def _is_system(library: str) -> bool:
    return not library or bool(_SYSTEM_LIBRARY.match(library))


def _sorted(waiting: Waiting, frames: Sequence[Frame]) -> Wait:
    """Tell the waits apart that use the same means: a Python lock serves joins and conditions, a read serves pipes."""
    tells = frames[0]
    caller = next((frame for frame in frames if frame.is_python), None)
    asked = _python_wait(caller) if caller else None
    if waiting is Waiting.LOCK and asked in {Waiting.THREAD, Waiting.CONDITION} and not is_native_lock(tells):
        return Wait(waiting=asked, frame=caller)
    if waiting is Waiting.IO and asked is Waiting.PIPE:
        return Wait(waiting=Waiting.PIPE, frame=tells)
    if waiting is Waiting.THREAD:  # the C++ function rather than glibc's beneath it
        tells = next((frame for frame in frames[:4] if frame.function == "std::thread::join"), tells)
    return Wait(waiting=waiting, frame=tells)


def is_native_lock(frame: Frame) -> bool:
    """Return whether a lock is not one of Python's."""
    return ("mutex" in frame.function.lower() and "Py" not in frame.function) or "lll_" in frame.function


def _python_wait(frame: Frame) -> Waiting | None:
    name, file = frame.function.rpartition(".")[2], PurePath(frame.file or "").name
    return next((word for word, module, names in _PYTHON if module == file and name in names), None)


def _from_kernel(wait: KernelWait | None) -> Wait | None:
    if wait is None:
        return None
    waiting = _WORDS.get(wait.word) or next((word for word, names in _CHANNELS if names.match(wait.wchan)), None)
    if waiting is None and is_futex(wait):
        waiting = Waiting.FUTEX
    return Wait(waiting=waiting) if waiting else None


def _joined(thread: Thread) -> Wait | None:
    return Wait(waiting=Waiting.THREAD) if thread.joins is not None else None


def _partner(waiting: Waiting, thread: Thread) -> int | None:
    if waiting is Waiting.THREAD:
        return thread.joins
    if waiting is not Waiting.CHILD or thread.kernel is None:
        return None
    words = thread.kernel.detail.split()
    if len(words) > 1 and words[0] == "pid" and words[1].isdigit():
        return int(words[1])
    call = thread.kernel.syscall
    # wait4(pid, …); waitid(P_PID, pid, …) has a number above 200 on every Linux but a small first argument.
    known = len(call) > 1 and thread.kernel.wchan == "do_wait" and _FIRST_PID < call[1] < 1 << 31
    return call[1] if known else None


_FIRST_PID = 3  # below are waitid's P_ALL, P_PID, P_PGID, P_PIDFD


def is_idle_worker(thread: Thread) -> bool:
    """Return whether a thread is of a pool and waits for work: it holds nobody up."""
    if not any(frame.is_python for frame in thread.frames):
        # The thread that called the autograd engine waits in the same function, for others: it has Python frames.
        named = [frame for frame in thread.frames if not is_plumbing(frame)]
        if any(_POOLS.match(frame.function) for frame in named[:POOL_DEPTH]):
            return True
        outer = [frame for frame in named if not is_openmp(frame)]
        if any(is_openmp(frame) for frame in named):
            return all(frame.function in _THREAD_STARTS for frame in outer)
    for frame in thread.frames:
        place = PurePath(frame.file or "").name, frame.function.rpartition(".")[2]
        if frame.is_python and place in _PYTHON_POOLS:
            # Whatever work it does would stand inside this frame; only the wait for work is of `queue` itself.
            inner = thread.frames[: thread.frames.index(frame)]
            return all(not one.is_python or PurePath(one.file or "").name in _QUEUES for one in inner)
    return False


_THREAD_STARTS = {"start_thread", "clone", "clone3", "__clone3"}
POOL_DEPTH = 4  # frames, plumbing left out, among which a pool's own wait for work stands
_QUEUES = {"queue.py", "threading.py", "queues.py", "thread.py"}


# Of the standard library: who waits in them was asked to by somebody else, who is named instead.
_LIBRARY_FILES = {module for _, module, _ in _PYTHON} | _QUEUES | {"process.py"}


def is_plumbing(frame: Frame) -> bool:
    """Return whether a frame is only the means of a wait: a futex, a semaphore, an unnamed function."""
    return not frame.is_python and bool(_PLUMBING.match(frame.function)) and not is_openmp(frame)


def is_lock(frame: Frame) -> bool:
    """Return whether a frame is how the GIL or a lock is taken, whatever for."""
    waits = (Waiting.GIL, Waiting.LOCK)
    return any(pattern.match(frame.function) for waiting, pattern in _TELLING if waiting in waits)


def is_openmp(frame: Frame) -> bool:
    """Return whether a frame is of the OpenMP runtime, whichever that is."""
    return bool(_OPENMP_LIBRARY.match(PurePath(frame.library or "").name))


def outside(thread: Thread, wait: Wait | None) -> Frame | None:
    """Return the frame that asked for a wait: the innermost that is neither plumbing nor the wait itself."""
    for frame in thread.frames:
        if frame.is_python:
            if PurePath(frame.file or "").name not in _LIBRARY_FILES:
                return frame
            continue
        if is_plumbing(frame) or is_openmp(frame) or not frame.is_named:
            continue
        if any(pattern.match(frame.function) for _, pattern in _TELLING):
            continue
        if not _is_system(PurePath(frame.library or "").name) or frame.library is None:
            return frame
    return wait.frame if wait else None
