"""Say what one thread waits for, from its frames and from what the kernel and the collectors know of it.

The search starts at the innermost frame and passes over the means of a wait (futexes, unnamed functions of libc). The
first frame that names a wait decides; any other frame ends the search without an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from whichtorch.hangs.stacks import Frame, KernelWait, Thread, base_name
from whichtorch.process.evidence.waiting import Waiting


class Wait(NamedTuple):
    """What one thread waits for."""

    waiting: Waiting
    frame: Frame | None = None  # that says so
    partner: int | None = None  # tid of the thread or pid of the child, where the evidence names it


def _names(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:{pattern})$")


# Functions that name a wait, of CPython 3.8 to 3.14, glibc, libstdc++, pybind11, OpenMP and CUDA. What a wait for a
# Python lock is really for is told by the Python function that asked for the lock.
_WAIT_FUNCTIONS: dict[Waiting, re.Pattern[str]] = {
    Waiting.GIL: _names(
        r"take_gil|PyEval_AcquireThread|PyEval_RestoreThread|PyEval_AcquireLock|PyGILState_Ensure"
        r"|_PyThreadState_Attach|pybind11::gil_scoped_acquire::gil_scoped_acquire"
        r"|pybind11::gil_scoped_release::~gil_scoped_release"
    ),
    Waiting.THREAD: _names(
        r"std::thread::join|_*pthread_(?:join|timedjoin\w*|clockjoin\w*)|std::__1::thread::join"
        r"|ThreadHandle_join|PyThread_join_thread"
    ),
    Waiting.CHILD: _names(r"(?:__)?(?:wait3|wait4|waitpid|waitid)|os_wait\w*"),
    Waiting.OPENMP: _names(r"GOMP_\w+|gomp_\w+|__kmpc?_\w+|kmp_\w+"),
    Waiting.LOCK: _names(
        r"PyThread_acquire_lock(?:_timed)?(?:_with_retries)?|lock_PyThread_acquire_lock|rlock_acquire\w*|lock_acquire\w*"
        r"|_?PyMutex_Lock\w*|_PyRecursiveMutex_Lock\w*"
        r"|_*pthread_mutex_(?:timed|clock)?lock\w*|_*(?:GI_+)?lll_(?:mutex_)?lock\w*|_*pthread_rwlock_\w*lock\w*"
        r"|std::mutex::lock|std::recursive_mutex::lock|__cxa_guard_acquire"
    ),
    Waiting.CONDITION: _names(
        r"std::(?:__1::)?condition_variable(?:_any)?::\w*wait\w*|c10::ivalue::Future::wait|std::future.*::wait"
    ),
    Waiting.SLEEP: _names(r"(?:__)?(?:clock_nanosleep|nanosleep|usleep|sleep)\w*|time_sleep|pysleep"),
    Waiting.DEVICE: _names(r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize\w*|c10::cuda::\w*[sS]ynchronize\w*"),
    Waiting.IO: _names(
        r"(?:__|__GI___libc_|__libc_)?(?:read|readv|pread64|write|writev|recv|recvfrom|recvmsg|send|sendto|sendmsg"
        r"|accept4?|connect|poll|ppoll|select|pselect|epoll_wait|epoll_pwait|fsync|flock|openat?)(?:64)?"
        r"|os_read|os_write|sock_\w+|select_\w+"
    ),
}
# Functions that are only the means of some wait.
_MEANS = _names(
    r"\?\?\?|_*(?:GI_+)?(?:lll_)?futex\w*|_*(?:GI_+)?pthread_cond_\w*wait\w*|_*(?:new_)?sem_\w*wait\w*|do_futex_wait\w*"
    r"|syscall|PyCOND_\w+|_*Py(?:Semaphore|ParkingLot|Event)_\w+|acquire_timed|wait_for_thread_shutdown|_*internal_syscall\w*"
)
_CONDITION_WAIT = _names(r"_*(?:GI_+)?pthread_cond_\w*wait\w*")
_OPENMP_LIBRARY = re.compile(r"^lib(?:gomp|i?omp5?|omp)[-.\d]")
_SYSTEM_LIBRARY = re.compile(r"^(?:libc|libpthread|ld-linux|linux-vdso|libffi|libpython|python)[-.\d]")
# Functions of the kernel in which a thread sleeps.
_KERNEL_FUNCTIONS: tuple[tuple[Waiting, re.Pattern[str]], ...] = (
    (Waiting.CHILD, re.compile(r"do_wait$")),
    (Waiting.PIPE, re.compile(r"(?:anon_)?pipe_(?:read|write|wait\w*)$|wait_for_partner$")),
    (Waiting.SLEEP, re.compile(r"hrtimer_nanosleep|do_nanosleep")),
    (Waiting.STOPPED, re.compile(r"do_signal_stop")),
    (
        Waiting.IO,
        re.compile(r"io_schedule|folio_wait|inet_csk_accept|skb?_wait|wait_woken|unix_\w+|.*_poll\b|do_select"),
    ),
)
# What functions of the standard library wait for; functions without their class, as faulthandler names them.
_PYTHON_FUNCTIONS: tuple[tuple[Waiting, str, frozenset[str]], ...] = (
    (Waiting.THREAD, "threading.py", frozenset({"join", "_wait_for_tstate_lock", "_shutdown", "_join_os_thread"})),
    (Waiting.CONDITION, "threading.py", frozenset({"wait", "wait_for"})),
    (Waiting.CHILD, "subprocess.py", frozenset({"_try_wait", "_wait"})),
    (Waiting.CHILD, "popen_fork.py", frozenset({"poll", "wait"})),
    (Waiting.PIPE, "connection.py", frozenset({"_recv", "_recv_bytes", "_send", "_send_bytes"})),
    (Waiting.IO, "socket.py", frozenset({"accept", "readinto"})),
    (Waiting.IO, "selectors.py", frozenset({"select"})),
)
# What the supervisor's evidence says for sure.
_SEEN = {Waiting.GIL, Waiting.CHILD, Waiting.PIPE, Waiting.SOCKET, Waiting.LOCK, Waiting.STOPPED}
_POOLS = _names(
    r"blas_thread_server|gomp_thread_start|__kmp_launch_worker|__kmp_launch_thread|c10::ThreadPool::main_loop"
    r"|torch::autograd::ReadyQueue::pop|wait_for_new_command|at::.*ThreadPool.*::main_loop|caffe2::.*ThreadPool.*"
)
_PYTHON_POOLS = (("thread.py", "_worker"), ("queues.py", "_feed"))
_POOL_DEPTH = 4  # frames, means of waits left out, among which a pool's own wait for work stands
_THREAD_STARTS = {"start_thread", "clone", "clone3", "__clone3"}
_QUEUES = {"queue.py", "threading.py", "queues.py", "thread.py"}
# Files of the standard library whose functions wait on behalf of a caller; the caller is named instead.
_LIBRARY_FILES = {file for _, file, _ in _PYTHON_FUNCTIONS} | _QUEUES | {"process.py"}
HEADERS = re.compile(r"(?:^|/)include/|/c\+\+/\d")  # of libraries, whose functions are inlined
_FIRST_PID = 3  # below are waitid's P_ALL, P_PID, P_PGID, P_PIDFD


def classify(thread: Thread) -> Wait | None:
    """Return what a thread waits for; None where it runs, or where nothing tells."""
    if thread.state == "T" or (thread.kernel and thread.kernel.waiting is Waiting.STOPPED):
        return Wait(waiting=Waiting.STOPPED)
    if thread.is_running:
        return None
    wait = _from_frames(thread.frames)
    if thread.wants_gil:
        return Wait(waiting=Waiting.GIL, frame=wait.frame if wait and wait.waiting is Waiting.GIL else None)
    kernel_waiting = _from_kernel(thread.kernel) or (Waiting.IO if thread.state == "D" else None)
    waiting = wait.waiting if wait else Waiting.THREAD if thread.joins is not None else kernel_waiting
    if waiting is None:
        return None
    if waiting is Waiting.IO and kernel_waiting is Waiting.PIPE:
        waiting = Waiting.PIPE
    return Wait(waiting=waiting, frame=wait.frame if wait else None, partner=_partner(waiting, thread))


def has_moved(thread: Thread) -> bool:
    """Return whether a thread slept when the kernel was asked, but not when its frames were read.

    It polls. When its frames were read, it may have waited for a process that was paused for that.
    """
    wait = _from_frames(thread.frames)
    slept = _from_kernel(thread.kernel) is Waiting.SLEEP
    return slept and wait is not None and wait.waiting is not Waiting.SLEEP


def _from_frames(frames: Sequence[Frame]) -> Wait | None:
    condition: Wait | None = None  # a wait on a condition variable, which may turn out to be for the GIL
    for position, frame in enumerate(frames):
        if frame.is_python:
            waiting = _python_wait(frame)
            return Wait(waiting=waiting, frame=frame) if waiting else condition
        waiting = Waiting.OPENMP if is_openmp(frame) else _named_wait(frame)
        if waiting is not None:
            return _refined(waiting, frames[position:])
        is_means = bool(_MEANS.match(frame.function))
        if _CONDITION_WAIT.match(frame.function):
            condition = Wait(waiting=Waiting.CONDITION, frame=frame)
        elif condition and frame.function.startswith("Py") and not is_means:
            return None  # the interpreter waits for the GIL on a condition, too
        elif not is_means or not (frame.library is None or _is_system(frame) or frame.is_named):
            return condition
    return condition


def _named_wait(frame: Frame) -> Waiting | None:
    return next((waiting for waiting, pattern in _WAIT_FUNCTIONS.items() if pattern.match(frame.function)), None)


def _is_system(frame: Frame) -> bool:
    return bool(_SYSTEM_LIBRARY.match(base_name(frame.library or "")))


def _refined(waiting: Waiting, frames: Sequence[Frame]) -> Wait:
    """Tell waits by the same means apart: a Python lock serves joins and conditions, a read serves pipes."""
    frame = frames[0]
    caller = next((frame for frame in frames if frame.is_python), None)
    caller_waiting = _python_wait(caller) if caller else None
    is_native = ("mutex" in frame.function.lower() and "Py" not in frame.function) or "lll_" in frame.function
    if waiting is Waiting.LOCK and caller_waiting in {Waiting.THREAD, Waiting.CONDITION} and not is_native:
        return Wait(waiting=caller_waiting, frame=caller)
    if waiting is Waiting.IO and caller_waiting is Waiting.PIPE:
        return Wait(waiting=Waiting.PIPE, frame=frame)
    if waiting is Waiting.THREAD:  # the C++ function rather than glibc's beneath it
        frame = next((outer for outer in frames[:4] if outer.function == "std::thread::join"), frame)
    return Wait(waiting=waiting, frame=frame)


def _python_wait(frame: Frame) -> Waiting | None:
    rows = (row[0] for row in _PYTHON_FUNCTIONS if frame.file_name == row[1] and frame.method in row[2])
    return next(rows, None)


def _from_kernel(wait: KernelWait | None) -> Waiting | None:
    if wait is None:
        return None
    rows = (waiting for waiting, pattern in _KERNEL_FUNCTIONS if pattern.match(wait.wchan))
    if wait.waiting in _SEEN:
        return Waiting.IO if wait.waiting is Waiting.SOCKET else wait.waiting
    return next(rows, Waiting.FUTEX if wait.is_futex else None)


def _partner(waiting: Waiting, thread: Thread) -> int | None:
    if waiting is Waiting.THREAD:
        return thread.joins
    if waiting is not Waiting.CHILD or thread.kernel is None:
        return None
    words = thread.kernel.detail.split()
    if len(words) > 1 and words[0] == "pid" and words[1].isdigit():
        return int(words[1])
    call = thread.kernel.syscall
    # The first argument of wait4 is the child. The first argument of waitid is smaller than any child's number.
    is_known = len(call) > 1 and thread.kernel.wchan == "do_wait" and _FIRST_PID < call[1] < 1 << 31
    return call[1] if is_known else None


def is_idle_worker(thread: Thread) -> bool:
    """Return whether a thread belongs to a pool and waits for work: it holds nobody up."""
    if not any(frame.is_python for frame in thread.frames):
        # The thread that called the autograd engine waits in a pool's function, too, but it has Python frames.
        telling = [frame for frame in thread.frames if not is_means(frame)]
        if any(_POOLS.match(frame.function) for frame in telling[:_POOL_DEPTH]):
            return True
        if any(is_openmp(frame) for frame in telling):
            return all(is_openmp(frame) or frame.function in _THREAD_STARTS for frame in telling)
    for position, frame in enumerate(thread.frames):
        if frame.is_python and (frame.file_name, frame.method) in _PYTHON_POOLS:
            # Work would show as frames inside this one; the wait for work shows only frames of the queue.
            inner = [frame for frame in thread.frames[:position] if frame.is_python]
            return all(frame.file_name in _QUEUES for frame in inner)
    return False


def is_means(frame: Frame) -> bool:
    """Return whether a frame is only the means of a wait: a futex, a semaphore, an unnamed function."""
    return not frame.is_python and bool(_MEANS.match(frame.function)) and not is_openmp(frame)


def is_lock(frame: Frame) -> bool:
    """Return whether a frame takes the GIL or a lock."""
    return any(_WAIT_FUNCTIONS[waiting].match(frame.function) for waiting in (Waiting.GIL, Waiting.LOCK))


def takes_lock(frame: Frame) -> bool:
    """Return whether a frame is the method of Python's locks that takes one."""
    return bool(re.fullmatch(r"lock_PyThread_acquire_lock|rlock_acquire\w*|lock_acquire\w*", frame.function))


def is_openmp(frame: Frame) -> bool:
    """Return whether a frame belongs to an OpenMP runtime."""
    return bool(_OPENMP_LIBRARY.match(base_name(frame.library or "")))


_STARTS = re.compile(r"_start$|__libc_start\w*$|start_thread$|_*clone\d?$")  # how a program or a thread begins


def asking_frame(thread: Thread, waiting_frame: Frame | None) -> Frame | None:
    """Return the innermost frame that asked for a thread's wait, else the frame that waits."""
    for frame in thread.frames:
        if frame.is_python:
            if frame.file_name not in _LIBRARY_FILES:
                return frame
        elif frame.is_named and not (
            is_means(frame)
            or is_openmp(frame)
            or _named_wait(frame)
            or _is_system(frame)
            or HEADERS.search(frame.file or "")
            or _STARTS.match(frame.function)
        ):
            return frame
    return waiting_frame
