"""What a thread does or waits for, its place in the user's own code, and the library call that it is in there.

A native library is the user's own if it lies in none of the places of installed ones. What its functions wait for is
told by the functions of the C and C++ libraries that they call: a semaphore of C++ code is one, where under Python code
it may be the means of any lock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple

from whichtorch.hangs.library import OWN_NATIVE_CALLS, LibraryCall, NativeCall, library_call, native_call
from whichtorch.hangs.source_text import read_site
from whichtorch.hangs.stacks import Descriptor, Frame, Process, SourceSite, Thread, base_name, number_on_host
from whichtorch.hangs.waits import HEADERS, Wait, asking_frame, classify, has_moved, is_idle_worker, takes_lock
from whichtorch.model import WaitEdge
from whichtorch.process.evidence.waiting import Waiting
from whichtorch.source.code_owner import is_users

# Where a process or a thread starts. What lies beyond, in a forked child, is where its parent stood.
_BEGINNINGS = (
    (re.compile(r"(?:^|/)multiprocessing/process\.py$"), "_bootstrap"),
    (re.compile(r"(?:^|/)multiprocessing/(?:spawn|forkserver|resource_tracker)\.py$"), "spawn_main"),
    (re.compile(r"(?:^|/)multiprocessing/(?:forkserver|resource_tracker)\.py$"), "main"),
    (re.compile(r"(?:^|/)threading\.py$"), "_bootstrap"),
)

_INSTALLED = re.compile(
    r"^/(?:usr/)?lib|^/usr/local/cuda|/(?:site|dist)-packages/|/lib-dynload/|/torchinductor_\w+/|^\["
    r"|(?:^|/)(?:lib(?:python|stdc\+\+|c\+\+|gcc_s|c|m|pthread|dl|rt|ffi|gomp|i?omp5?|torch\w*|c10\w*)|ld-linux|linux-vdso)[-.\d]"
    r"|(?:^|/)python[\d.]*t?$|^\w+\.cpython-"
)
_STANDARD = re.compile(r"^(?:std|__gnu_cxx|boost)::|^_*(?:gthread|pthread|gthrw)_|^__cxa_")


def is_own(frame: Frame) -> bool:
    """Return whether a frame is of the user's code: Python, and of no installed package."""
    return frame.is_python and is_users(frame.file or "")


def since_start(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the frames of a thread without those that a fork has copied from the parent."""
    for position, frame in enumerate(frames):
        if frame.is_python and any(
            frame.method == name and path.search(frame.file or "") for path, name in _BEGINNINGS
        ):
            return tuple(frames[: position + 1])
    return tuple(frames)


# Who is seen to wait so waits for something inside of a call that is known for another wait: a log's full pipe.
_OTHER_WAITS = {
    Waiting.LOCK: {Waiting.CHILD, Waiting.IO, Waiting.PIPE, Waiting.SLEEP},
    Waiting.EVENT_LOOP: {Waiting.CHILD, Waiting.LOCK, Waiting.PIPE, Waiting.SLEEP},
}


@dataclass(frozen=True)
class UserCall:
    """Where a thread is, as its user sees it."""

    frames: tuple[Frame, ...]  # since its start, innermost first
    place: Frame | None  # the innermost of the user's own
    call: LibraryCall | None  # the outermost call of a library below `place` that is known to wait
    frame: Frame | None  # of that call
    native: NativeCall | None  # what it waits for in native code, where no function of Python says so
    is_exit: bool  # the script has come to its end, and the interpreter waits on its behalf
    native_place: Frame | None = None  # the innermost of the user's own native code, inside `place`

    @property
    def is_known(self) -> bool:
        """True where the thread runs code of the user's own."""
        return self.place is not None or self.native_place is not None

    @cached_property
    def site(self) -> SourceSite:
        """What the source says of `place`."""
        if self.place is None:
            return SourceSite()
        inside = self.frames[: self.frames.index(self.place)]
        inner = [frame for frame in inside if frame.is_python or is_own_native(frame)]
        callee = inner[-1].method.rpartition(":")[2] if inner else "acquire" if any(map(takes_lock, inside)) else ""
        site = read_site(self.place, callee)
        return site if site.call or not callee else read_site(self.place)

    @property
    def is_direct(self) -> bool:
        """False where the call that waits lies inside of what the user has called, and works on things of its own."""
        if self.place is None or self.frame is None or self.site.wanted:
            return True
        inner = [frame for frame in self.frames[: self.frames.index(self.place)] if frame.is_python]
        called = self.site.call.rpartition(".")[2]
        return inner[-1] is self.frame or called in {self.frame.method, self.call.name if self.call else ""}

    def value(self, *names: str) -> str:
        """Return the text of the first local variable with one of these names, in the call's frames outwards."""
        for frame in self.frames:
            for text in map(frame.text, names):
                if text not in {"", "None"}:
                    return text.strip("\"'")
        return ""


def user_call(frames: Sequence[Frame], waiting: Waiting | None = None) -> UserCall:
    """Return where a thread is that is seen to wait so, from its frames, innermost first."""
    own = since_start(frames)
    places = [position for position, frame in enumerate(own) if is_own(frame)]
    # What a library has made of text, as a manager its proxies, is no place while a file of the user's is one.
    position = next((each for each in places if own[each].file != "<string>"), next(iter(places), None))
    inner = [frame for frame in own[:position] if frame.is_python]
    natives = [frame.function for frame in own[:position] if not frame.is_python]
    # A queue that is entered is waited for as a lock: neither for an item nor for room.
    is_entering = bool(inner) and (inner[0].file_name, inner[0].method) == ("threading.py", "__enter__")
    known = [
        (frame, call)
        for frame in reversed(inner)
        if (call := library_call(frame, is_innermost=frame is inner[0], natives=natives))
        and waiting not in _OTHER_WAITS.get(call.waiting, ())
        and not (is_entering and call.file.startswith(("queue.py", "threading.py")))
    ]
    waits = [pair for pair in known if not pair[1].is_exit] or known
    waits = [pair for pair in waits if not pair[1].is_frame_of_others] or waits
    frame, call = waits[0] if waits else (None, None)
    inside = own[:position] if position is not None else own
    native = native_call(tuple(frame.function for frame in inside if not frame.is_python))
    within = next(filter(is_own_native, inside), None)
    if within and call is None:
        native = native_wait(inside, within) or native
    return UserCall(
        native=native,
        native_place=within,
        frames=own,
        place=own[position] if position is not None else None,
        call=call,
        frame=frame,
        is_exit=any(call.is_exit for _, call in known)
        or any(frame.function.startswith("Py_FinalizeEx") for frame in own),
    )


def is_own_native(frame: Frame) -> bool:
    """Return whether a frame is of the user's own native code, written in no header of a library."""
    return (
        not frame.is_python
        and frame.is_named
        and bool(frame.library)
        and not _INSTALLED.search(frame.library or "")
        and not HEADERS.search(frame.file or "")
        and not _STANDARD.match(frame.function)
    )


def native_wait(frames: Sequence[Frame], place: Frame) -> NativeCall | None:
    """Return what a thread waits for in its place in native code."""
    inner = frames[: frames.index(place)]
    if any(frame.is_python for frame in inner):
        return None
    rows = (row for frame in reversed(inner) for row in OWN_NATIVE_CALLS if re.fullmatch(row.function, frame.function))
    return next(rows, None)


def source_line(frame: Frame) -> str:
    """Return `ring.cpp:18` of a native frame, or its library where its source is not known."""
    name = PurePath(frame.file or "").name
    return f"{name}:{frame.line}" if name and frame.line else frame.where


# The interpreter's own functions. What it calls (builtin_any, long_pow) is native code that does the script's work.
_INTERPRETER = re.compile(
    r"^(?:_?Py[A-Z_]\w*|_Py\w*|(?:long|float|unicode|bool|list|dict|tuple|set|object|type|func|method|slot|subtype"
    r"|gc|binary|range\w*|code|frame|gen|cell)_(?:dealloc|alloc|new|richcompare|hash|add|sub\w*|mul\w*|dict_\w+|call"
    r"|vectorcall\w*|getattro?|iter\w*|next\w*|traverse|collect\w*|op\d?|subscript|length|item)|take_gil|drop_gil"
    r"|eval_frame\w*|visit_\w+|subtract_refs|update_refs|deduce_unreachable|x_add|x_sub"
    # Small helpers, which a Python with debug information names although they are inlined.
    r"|get_small_int|maybe_small_long|is_medium_int|medium_\w+|long_normalize|fast_mod|fast_floor_div|l_mod|l_divmod"
    r"|pymalloc_\w+|address_in_range|arena_map_\w+|maybe_freelist_\w+|\w+_freelist\w*|tuplerichcompare|do_richcompare"
    r"|binary_op1?|ternary_op|lookdict\w*|\w*keys_lookup\w*|dictkeys_\w+|insertdict|insertion_resize|find_empty_slot"
    r"|new_keys_object|free_keys_object|list_resize|app1|(?:list|tuple|range|dict|set)iter_\w+|gen_\w+|vectorcall_\w+"
    r"|initialize_locals|clear_thread_frame|frame_\w+|specialize_\w+|unpack_iterable|do_call_core|slot_tp_\w+)$"
)
_GLUE = re.compile(r"^(?:cfunction_\w+|builtin_exec\w*|_call_function_pointer|_?ctypes_callproc|ffi_call|closure_fcn)$")
_INTERPRETER_LIBRARY = re.compile(r"^(?:libpython|python)[\d.]")

# Files of torch's compiler. Running compiled code goes through some of the same files, by the functions below.
_COMPILES = re.compile(
    r"(?:^|/)(?:torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|bytecode_\w+|guards|variables/\w+)"
    r"|torch/_inductor/(?:graph|scheduler|lowering|ir|sizevars|pattern_matcher|select_algorithm|cpp_builder|cpu_vec_isa"
    r"|async_compile|autotune_process|loop_body|dependencies|virtualized|compile_fx|codecache|codegen/[\w/]+|fx_passes/[\w/]+)"
    r"|torch/fx/experimental/symbolic_shapes|torch/_functorch/_aot_autograd/(?:graph_capture|dispatch_and_compile_graph)"
    r"|triton/compiler/\w+|triton/backends/\w+/compiler)\.py$"
)
_TORCH_OR_TRITON = re.compile(r"(?:^|/)(?:torch|triton)/")
_RUNS_COMPILED = {"__call__", "run", "_run_from_cache", "wrapper", "inner", "_fn", "call", "current_callable"}
_RUNNERS = {"compile_fx.py", "codecache.py", "graph.py", "async_compile.py"}
_COMPILERS = re.compile(
    r"^(?:cc1plus|cc1|g\+\+|gcc|c\+\+|clang|clang\+\+|nvcc|cicc|ptxas|ninja|lld?|collect2|as)(?:-[\d.]+)?$"
)
# Functions of libraries in which a worker of a pool runs a task: end of the path, name.
_WORKERS = (
    ("concurrent/futures/thread.py", "_worker"),
    ("concurrent/futures/process.py", "_process_worker"),
    ("multiprocessing/pool.py", "worker"),
    ("torch/utils/data/_utils/worker.py", "_worker_loop"),
)
_QUEUES = {"queues.py", "connection.py", "synchronize.py"}


class Activity(NamedTuple):
    """Where a running thread is."""

    is_python: bool | None  # None: only Python frames are known, and it may run native code beyond them
    frame: Frame


class ThreadState:
    """One thread, with what it waits for or does."""

    def __init__(self, process: Process, thread: Thread) -> None:
        self.process, self.thread = process, thread
        self.pid, self.tid = process.pid, thread.tid
        self.wait = classify(thread)
        self.waiting = self.wait.waiting if self.wait else None
        self.has_moved = has_moved(thread)
        self.partner = self._partner()
        self.is_idle = is_idle_worker(thread)
        self.activity = _activity(thread)
        starts_program = bool(thread.frames) and thread.frames[-1].function == "<module>"
        self.is_main = thread.tid == process.pid or starts_program
        self.user = user_call(thread.frames, self.waiting)
        self.awaits = self._awaits()  # in the user's terms: a queue, where `waiting` is only the lock inside it

    def _partner(self) -> int | None:
        """Return whom the kernel says it waits for; a child's number is that of its machine."""
        partner = self.wait.partner if self.wait else None
        return partner + self.pid - number_on_host(self.pid) if partner and self.waiting is Waiting.CHILD else partner

    def _awaits(self) -> Waiting | None:
        if self.has_moved:
            return Waiting.SLEEP
        if self.waiting is None and self.user.native and self.thread.state == "S":
            return self.user.native.waiting
        if self.waiting in {None, Waiting.GIL, Waiting.STOPPED, Waiting.OPENMP, Waiting.DEVICE}:
            return self.waiting
        known = self.user.call or self.user.native
        if self.waiting is Waiting.PIPE and self.user.call and self.user.call.file == "subprocess.py":
            return Waiting.PIPE  # a library reads what a child sends before it waits for the child's end
        if known is None and self.waiting is Waiting.IO and (row := descriptor_of(self)):
            kinds = {"pipe": Waiting.PIPE, "socket": Waiting.SOCKET}
            return kinds.get(row.link.partition(":")[0], self.waiting)
        return known.waiting if known else self.waiting

    @property
    def place(self) -> str:
        """The user's own line, "train.py:88", "pool.cpp:7" below no Python; "" where none of the user's code runs."""
        place, native = self.user.place, self.user.native_place
        return place.where if place else source_line(native) if native and native.line else ""

    def edge(self, partner: int | None = None, *, holds: Waiting | None = None, evidence: str = "") -> WaitEdge:
        """Return its wait for `partner`; it must be known to wait."""
        assert self.wait is not None
        return WaitEdge(
            pid=self.pid,
            tid=self.tid,
            function=self._waiting_function(self.wait),
            place=self.place,
            waiting=self.wait.waiting,
            partner=partner,
            holds=holds,
            evidence=evidence,
        )

    def _waiting_function(self, wait: Wait) -> str:
        """Return where it waits, as people name it: `PythonKernelHolder`, `std::thread::join`, `take (a.py:17)`."""
        if wait.waiting is Waiting.THREAD and wait.frame and not wait.frame.is_python:
            return wait.frame.function.replace("__pthread_clockjoin_ex", "pthread_join")
        frame = asking_frame(self.thread, wait.frame)
        if frame is None:
            return ""
        return frame.words if frame.is_python else short(frame.function)


def descriptor_of(state: ThreadState) -> Descriptor | None:
    """Return the open file that a thread's system call works on, or the only one that its process waits on."""
    rows = state.process.descriptors
    if state.thread.descriptor is not None:
        return next((row for row in rows if row.number == state.thread.descriptor), None)
    return rows[0] if len(rows) == 1 else None


def short(function: str) -> str:
    """Return a class for its call operator: `torch::impl::dispatch::PythonKernelHolder::operator()`."""
    holder = function.removesuffix("::operator()").rpartition("::")[2]
    return holder if function.endswith("::operator()") and holder[:1].isupper() else function


def _activity(thread: Thread) -> Activity | None:
    """Return what a thread that is known to use a core does; None for any other thread."""
    if not thread.is_running or not thread.frames:
        return None
    for frame in thread.frames:
        if frame.is_python:
            return Activity(True if any(not other.is_python for other in thread.frames) else None, frame)
        if not (_is_interpreter_function(frame) if frame.is_named else _is_interpreter_library(frame)):
            return Activity(False, frame)
    return Activity(False, thread.frames[0])


def is_interpreter(frame: Frame) -> bool:
    """Return whether a frame is the interpreter's own work: how Python code runs, not what it calls."""
    return not frame.is_python and (_is_interpreter_function(frame) or bool(_GLUE.match(frame.function)))


def _is_interpreter_function(frame: Frame) -> bool:
    return bool(_INTERPRETER.match(frame.function)) and (frame.library is None or _is_interpreter_library(frame))


def _is_interpreter_library(frame: Frame) -> bool:
    return bool(_INTERPRETER_LIBRARY.match(base_name(frame.library or "")))


def compiling_frame(thread: Thread) -> Frame | None:
    """Return the innermost frame of torch's compiler in a thread; importing the compiler is not running it."""
    frames = [frame for frame in thread.frames if frame.is_python]
    # The outermost frame is the script's own, wherever it lies.
    modules = [number for number, frame in enumerate(frames[:-1]) if frame.function == "<module>"]
    imports = [number for number in modules if _is_of(_TORCH_OR_TRITON, frames[number])]
    for frame in frames[imports[-1] + 1 if imports else 0 :]:  # what is within an import is left out
        runs_compiled = frame.file_name in _RUNNERS and frame.method in _RUNS_COMPILED
        if _is_of(_COMPILES, frame) and not runs_compiled:
            return frame
    return None


def _is_of(files: re.Pattern[str], frame: Frame) -> bool:
    return bool(files.search((frame.file or "").replace("\\", "/")))


def awaits_compiler(thread: Thread, compiling: Frame) -> bool:
    """Return whether torch's compiler, at work in the frame `compiling`, has started a program and waits for it."""
    inner = takewhile(lambda frame: frame != compiling, thread.frames)
    return "run_compile_cmd" in compiling.function or any(frame.file_name == "subprocess.py" for frame in inner)


def is_compiler(process: Process) -> bool:
    """Return whether a process is a compiler or a part of one, and has not been stopped."""
    words = process.command.split()
    is_stopped = any(thread.state in {"T", "Z"} for thread in process.threads)
    return bool(words) and bool(_COMPILERS.match(PurePath(words[0]).name)) and not is_stopped


def is_answering(state: ThreadState) -> bool:
    """Return whether a thread of a manager's process runs a method for a caller, and is not waiting for a request."""
    inner = _frames_inside(state, "managers.py", "serve_client")
    return inner is not None and not any(frame.file_name == "connection.py" for frame in inner)


def has_timer(state: ThreadState) -> bool:
    """Return whether a thread in an event loop waits for no longer than to a timer of that loop."""
    wait = state.thread.kernel
    is_known = wait is not None and state.awaits is Waiting.EVENT_LOOP and "epoll" in wait.wchan
    return wait is not None and is_known and len(wait.syscall) > 4 and not wait.syscall[4] >> 31  # negative: none


def is_in_event_loop(state: ThreadState) -> bool:
    """Return whether a thread waits inside a callback or coroutine: its event loop stands still meanwhile."""
    place, frames = state.user.place, state.user.frames
    return place is not None and runs(frames[frames.index(place) :], "asyncio/base_events.py", "_run_once")


def is_at_task(state: ThreadState) -> bool:
    """Return whether a worker process of a pool runs a task of which no line is the user's: a function of a library."""
    inner = _frames_inside(state, *_WORKERS[1])
    return inner is not None and not any(frame.is_python and frame.file_name in _QUEUES for frame in inner)


def _frames_inside(state: ThreadState, file: str, name: str) -> Sequence[Frame] | None:
    """Return a thread's frames inside the innermost call of a function of a library; None where it is in none."""
    frames = state.user.frames
    return next((frames[:at] for at, frame in enumerate(frames) if runs([frame], file, name)), None)


def is_pool_worker(state: ThreadState) -> bool:
    """Return whether a thread runs a task of a pool."""
    return any(runs(state.user.frames, file, name) for file, name in _WORKERS)


def runs(frames: Sequence[Frame], file: str, name: str) -> bool:
    """Return whether a function of a library is among frames."""
    return any(frame.is_python and frame.method == name and (frame.file or "").endswith(file) for frame in frames)


def bare_name(frame: Frame) -> str:
    """Return a native function without its namespaces and its call operator."""
    return "::".join(short(frame.function).split("::")[-2:])


def place_words(state: ThreadState) -> str:
    """Return a thread's place, that in the user's native code, too: " (a.py:12), in Pool::take (pool.cpp:7),"."""
    place, user = state.user.native_place, state.user
    if place is None or user.place is None or user.call:
        return f" ({state.place})" if state.place else ""
    if user.site.call.rpartition(".")[2] == place.function.rpartition(":")[2]:
        return f" ({state.place}, {source_line(place)})"
    return f" ({state.place}), in {bare_name(place)} ({source_line(place)}),"


def native_origin(state: ThreadState) -> str:
    """Return through which of the user's native functions a thread has come back into native code, outermost last."""
    user = state.user
    if user.place is None or user.native_place is None:
        return ""
    beyond = user.frames[user.frames.index(user.place) :]
    outer = next(filter(is_own_native, beyond), None)
    caller = next(filter(is_own, beyond[beyond.index(outer) :]), None) if outer else None
    called = f", called at {caller.where}" if caller else ""
    return f"; it came here from {bare_name(outer)} ({source_line(outer)}){called}" if outer else ""
