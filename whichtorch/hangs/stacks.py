"""The stack model: process -> thread -> frames, for every collector.

Each collector sees a part: faulthandler the Python frames, gdb the native ones, py-spy both, pystack both and who has
the GIL, /proc what threads wait for in the kernel. `merge` makes one picture of them. `display` makes the names of
native functions readable, and equal over collectors and releases: `at::_ops::mm::redispatch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import PurePath

from pydantic import Field

from whichtorch.model import Model
from whichtorch.process.evidence.waiting import Waiting

UNNAMED = "???"

_ADDRESS = re.compile(r"^0x[0-9a-f]+$")
_SUFFIX = re.compile(
    r"(@@?[A-Za-z0-9_.]+|@plt| \[clone [^\]]*\]|\[abi:\w+\]|\.(constprop|isra|part|cold|lto_priv)(\.\d+)?)+$"
)
_QUALIFIERS = {"const", "volatile", "&", "&&", "noexcept"}
_INNERMOST = re.compile(r"<[^<>()]*>|\([^<>()]*\)")
_UNCLOSED = re.compile(r"[<(]")
_BRACES = re.compile(r"\{.*?\}")
_ARROW = "\1"  # stands for the arrow of a return type while brackets are cut
_HIDDEN = str.maketrans("<>", "\2\3")  # of the name of an operator
_SHOWN = str.maketrans("\2\3", "<>")
_OPERATOR = re.compile(r"\boperator(?:<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|<|>)?")
_SPACED_OPERATOR = re.compile(r"operator (?:new|delete|co_await)(?:\[\])?$|operator [\w:]+\*?$")
_CALL = "operator\0"  # stands for operator() while parentheses are cut


def display(symbol: str) -> str:
    """Return a demangled name without templates, parameters, return type and anonymous namespaces.

    Addresses and unknown functions become `???`; a lambda keeps its number: `run::{lambda#1}::operator()`.
    """
    symbol = symbol.strip()
    if symbol in {"", UNNAMED, "??"} or _ADDRESS.match(symbol):
        return UNNAMED
    symbol = _SUFFIX.sub("", symbol.replace("(anonymous namespace)::", "").replace("{anonymous}::", ""))
    name = _last_word(_cut(symbol.replace("operator()", _CALL))).replace(_CALL, "operator()")
    return _SUFFIX.sub("", name) or symbol


def _cut(text: str) -> str:
    """Drop balanced (...) and <...>, also inside of {...}, and what follows a bracket that does not close."""
    text = _OPERATOR.sub(lambda match: match[0].translate(_HIDDEN), text).replace("->", _ARROW)
    before = ""
    while before != text:
        before, text = text, _INNERMOST.sub("", text)
    text = _BRACES.sub(lambda match: re.sub(r"\s+", "_", match[0]), _UNCLOSED.split(text)[0])
    return text.replace(_ARROW, "->").translate(_SHOWN)


def _last_word(text: str) -> str:
    """Return the function of `type function qualifiers`."""
    words = text.split()
    while len(words) > 1 and words[-1] in _QUALIFIERS:
        words.pop()
    joined = " ".join(words)
    if spaced := _SPACED_OPERATOR.search(joined):
        return joined[: spaced.start()].rpartition(" ")[2] + spaced[0]
    return words[-1].lstrip("*&") if words else ""


_IN_CALL, _IN_NO_CALL = 9, 3  # values of /proc/PID/syscall: number, six arguments, and two registers; or -1 and these
_STACK_SIZE = 8 << 20  # bytes of a thread's stack, unless a program asks for another size
_NATIVE_FILES = {".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".s", ".S", ".cu", ".rs", ".inc"}
_EVAL = "_PyEval_EvalFrameDefault"  # the interpreter's loop: where Python frames belong in a native stack


HOST_STEP = 1 << 22  # Linux numbers processes and threads below; in a picture of several machines, the next ones above


def number_on_host(pid: int) -> int:
    """Return the number of a process or thread on its own machine."""
    return pid % HOST_STEP


class Language(StrEnum):
    """What a frame is written in."""

    PYTHON = "python"
    NATIVE = "native"


class Value(Model):
    """A local variable or an argument of a Python function."""

    name: str
    text: str = ""  # as a collector writes it: `3`, `"gloo"`, `<Queue at 0x7fdcca61aa10>`
    address: int = 0  # of the object; two frames that name the same address mean the same object


class HeldLock(Model):
    """A lock that a function has taken: by a `with` around the line, or by an `acquire` before it."""

    expression: str  # "target.guard"
    line: int
    is_returned: bool = True  # the function has a release of it, too


class SourceSite(Model):
    """What a line of source says of a wait that a thread has reached in it."""

    call: str = ""  # what is called, "dist.broadcast"
    target: str = ""  # of a method, the object: "batches" of `batches.get()`
    first: str = ""  # argument of the call
    origin: str = ""  # of a method, the call that its object came from: "dist.all_reduce" of `work.wait()`
    origin_line: int = 0
    wanted: str = ""  # the lock that this line asks for
    alias: str = ""  # the name that a `with` gives it: `pool` of `with Pool() as pool`
    held: tuple[HeldLock, ...] = ()
    loop: str = ""  # the condition of the innermost `while` around the line


class Frame(Model):
    """One function that has not returned, as a collector found it in a running process.

    It may be native, without a file, and have values; a line of code that a traceback shows is a `CodeFrame`.
    """

    language: Language
    function: str  # for display: no templates, no parameters
    library: str | None = None  # of native code, a path
    file: str | None = None
    line: int | None = None
    values: tuple[Value, ...] = ()  # of Python code, where a collector can read them
    site: SourceSite | None = None  # what its source says, where that is not on this machine

    @property
    def is_named(self) -> bool:
        """False where the collector found no symbol."""
        return self.function != UNNAMED

    @property
    def file_name(self) -> str:
        """The file without its folders; "" where it is not known."""
        return base_name(self.file or "")

    @property
    def method(self) -> str:
        """The function without its class, as faulthandler names it."""
        return self.function.rpartition(".")[2]

    @property
    def is_python(self) -> bool:
        """True for a frame of Python code."""
        return self.language is Language.PYTHON

    @property
    def where(self) -> str:
        """`file:line` of Python, the library of native code; names, not paths."""
        if self.is_python and self.file:
            return f"{self.file_name}:{self.line}" if self.line else self.file_name
        return base_name(self.library or self.file or "")

    @property
    def words(self) -> str:
        """The frame as people write it: `take (deadlock.py:17)`."""
        return f"{self.function} ({self.where})" if self.where else self.function

    def text(self, name: str) -> str:
        """Return a local variable as a collector writes it; "" if it is not known."""
        return next((value.text for value in self.values if value.name == name), "")

    def address(self, name: str) -> int:
        """Return the address of the object that a local variable names; 0 if it is not known."""
        return next((value.address for value in self.values if value.name == name), 0)


class KernelWait(Model):
    """What the kernel says a thread waits for, as given."""

    wchan: str = ""  # function of the kernel it sleeps in
    syscall: tuple[int, ...] = ()  # number and arguments
    word: str = ""  # the supervisor's for it, a `Waiting.word`
    detail: str = ""  # of `word`

    @property
    def waiting(self) -> Waiting | None:
        """What the supervisor saw it wait for; None where it did not look."""
        return Waiting.of_word(self.word)

    @property
    def has_no_deadline(self) -> bool:
        """True where its system call has no timeout: a futex, or a wait for a child."""
        return self.wchan.startswith("do_wait") or (self.is_futex and self.syscall[4:5] == (0,))

    @property
    def is_futex(self) -> bool:
        """True where the thread sleeps in a futex, by any name that kernels give it."""
        return self.wchan.startswith("futex") or self.waiting in {Waiting.FUTEX, Waiting.GIL}

    @property
    def stack_pointer(self) -> int | None:
        """Where the thread's stack ends; the kernel writes it after the arguments, before the program counter."""
        return self.syscall[-2] if len(self.syscall) in {_IN_CALL, _IN_NO_CALL} else None


class Thread(Model):
    """One thread; None is "not known"."""

    tid: int = 0  # 0 where a collector knows only `ident`
    ident: int | None = None  # pthread_self(): how faulthandler and pthread_join name it
    name: str = ""
    frames: tuple[Frame, ...] = ()  # innermost first
    has_gil: bool | None = None
    wants_gil: bool | None = None
    state: str | None = None  # the kernel's letter: R, S, D, T, t, Z
    active: bool | None = None  # py-spy's opinion: on a core, and not in a known wait
    joins: int | None = None  # tid of the thread whose end it waits for
    owner: int | None = None  # tid of the thread that holds the native mutex it waits for
    missing_owner: int | None = None  # tid in that mutex which no thread has: it was copied by fork, or has ended
    descriptor: int | None = None  # that its system call reads, writes, locks or accepts on
    kernel: KernelWait | None = None

    @property
    def is_running(self) -> bool:
        """True on evidence that it uses a core.

        A thread that waits for the GIL wakes up every 5 ms, and on a crowded machine is then ready to run for long.
        """
        if self.wants_gil and not self.has_gil:
            return False
        return self.state == "R" if self.state else bool(self.active)


class Descriptor(Model):
    """An open file, pipe or socket that a process waits on, or through which it is waited for."""

    number: int
    link: str  # as the kernel names it: `pipe:[123]`, `socket:[55]`, or a path
    is_written: bool = False  # opened for writing only: the writing end of a pipe
    local: str = ""  # of a socket, "127.0.0.1:4242"
    peer: str = ""  # of a connected socket
    is_listening: bool = False
    holders: tuple[int, ...] = ()  # processes that hold the other end, or the file's lock


class LoopTask(Model):
    """A task of asyncio that has not ended."""

    name: str
    frames: tuple[Frame, ...] = ()  # of its coroutines, innermost first
    awaits: tuple[str, ...] = ()  # names of the tasks that it is known to await


class Process(Model):
    """One process of a tree."""

    pid: int = 0
    host: str = ""  # its machine, where a picture is of several
    command: str = ""
    parent: int | None = None
    ended: str = ""  # how a process ended that its parent has not reaped: "exit code 1", "SIGKILL"
    environ: dict[str, str] = Field(
        default_factory=dict
    )  # its place in a distributed job: RANK, WORLD_SIZE, MASTER_ADDR, ...
    descriptors: tuple[Descriptor, ...] = ()
    openmp: tuple[str, ...] = ()  # the runtimes of OpenMP that it has loaded: "libgomp-a34b3233.so.1", "libiomp5.so"
    tasks: tuple[LoopTask, ...] = ()  # of the main thread's event loop, as the process itself has written them
    task_count: int = 0  # of all these tasks, of which the first are written
    threads: tuple[Thread, ...] = ()

    @property
    def has_two_openmps(self) -> bool:
        """True where runtimes of two makers are loaded; several copies of one runtime do not deadlock."""
        return len({re.split(r"[-.\d]", name)[0] for name in self.openmp}) > 1


def native(raw: str, *, library: str | None = None, file: str | None = None, line: int | None = None) -> Frame:
    """Return a native frame with its function made readable."""
    return Frame(language=Language.NATIVE, function=display(raw), library=library, file=file, line=line)


def python(function: str, file: str | None, line: int | None) -> Frame:
    """Return a frame of Python code."""
    return Frame(language=Language.PYTHON, function=function, file=file, line=line)


@lru_cache(maxsize=4096)
def base_name(path: str) -> str:
    """Return the last part of a path; a large tree has thousands of frames in a few files."""
    return PurePath(path).name


@lru_cache(maxsize=4096)
def looks_native(file: str) -> bool:
    """Return whether a file is native code: a source with debug information, or a library."""
    return PurePath(file).suffix in _NATIVE_FILES or ".so" in PurePath(file).name


def merge(*pictures: Iterable[Process]) -> tuple[Process, ...]:
    """Make one picture of several of the same processes.

    Each thread takes its richest frames. For every other fact the first picture that knows it wins, but a yes of one
    collector outweighs a no of another: py-spy sees the holder of the GIL only while that is active.
    """
    processes: dict[int, list[Process]] = {}
    for picture in pictures:
        for process in picture:
            processes.setdefault(process.pid, []).append(process)
    return tuple(_merge_process(pid, parts) for pid, parts in processes.items())


def _merge_process(pid: int, parts: Sequence[Process]) -> Process:
    groups: list[list[Thread]] = []  # of the same thread
    threads = _numbered([thread for part in parts for thread in part.threads])
    # Those that know both numbers of a thread come first: they tie the others together.
    for thread in sorted(threads, key=lambda thread: (not thread.tid, thread.ident is None)):
        if group := _group_of(thread, groups, pid):
            group.append(thread)
        else:
            groups.append([thread])
    known = [group for group in groups if group[0].tid]
    # A thread without number that matches no other may be one of those with a number: it would count twice.
    if any(thread.frames for group in known for thread in group):
        groups = known
    order = {thread.tid: position for position, thread in reversed(list(enumerate(threads)))}
    groups.sort(key=lambda group: order.get(group[0].tid, len(order)))
    facts = _known(parts, Process.model_fields)
    return Process.model_validate({**facts, "pid": pid, "threads": tuple(map(_merge_thread, groups))})


def _numbered(threads: Sequence[Thread]) -> list[Thread]:
    """Give threads that are known by pthread_self() alone the kernel's number, where a stack tells it.

    glibc keeps what pthread_self() points to at the upper end of the thread's own stack.
    """
    known = {thread.ident for thread in threads if thread.tid}
    idents = sorted({thread.ident for thread in threads if thread.ident is not None} - known)
    owners: dict[int, list[int]] = {}
    for thread in threads:
        pointer = thread.kernel.stack_pointer if thread.kernel else None
        above = next((ident for ident in idents if pointer is not None and ident > pointer), None)
        if pointer is not None and above is not None and above - pointer < _STACK_SIZE:
            owners.setdefault(above, []).append(thread.tid)
    numbers: dict[int | None, int] = {ident: tids[0] for ident, tids in owners.items() if len(tids) == 1}
    return [thread.model_copy(update={"tid": thread.tid or numbers.get(thread.ident, 0)}) for thread in threads]


def _group_of(thread: Thread, groups: list[list[Thread]], pid: int) -> list[Thread] | None:
    """Return the group of the same thread: by number, by pthread_self(), as main thread, or by equal Python frames."""
    for group in groups:
        is_same_number = thread.tid and any(member.tid == thread.tid for member in group)
        if is_same_number or (thread.ident is not None and any(member.ident == thread.ident for member in group)):
            return group
    if thread.tid:
        return None
    free = [group for group in groups if group[0].tid and all(member.ident is None and member.tid for member in group)]
    if thread.frames and thread.frames[-1].function == "<module>":
        return next((group for group in free if group[0].tid == pid), None)
    lines = _python_lines(thread)
    same = [group for group in free if lines and any(_python_lines(member) == lines for member in group)]
    return same[0] if len(same) == 1 else None


def _python_lines(thread: Thread) -> list[tuple[str, int | None]]:
    return [(frame.file_name, frame.line) for frame in thread.frames if frame.is_python]


def _merge_thread(group: Sequence[Thread]) -> Thread:
    waits = [thread.kernel for thread in group if thread.kernel]
    facts = _known(group, Thread.model_fields)
    facts |= {"tid": group[0].tid, "frames": _merge_frames([thread.frames for thread in group])}
    facts["kernel"] = KernelWait.model_validate(_known(waits, KernelWait.model_fields)) if waits else None
    return Thread.model_validate(facts)


def _known(parts: Sequence[Model], names: Iterable[str]) -> dict[str, object]:
    """Return each fact's first known value; a yes of one part outweighs a no of another."""
    values = {name: [getattr(part, name) for part in parts] for name in names}
    known = {name: [value for value in row if value not in (None, "", (), {})] for name, row in values.items()}
    return {name: True if any(value is True for value in row) else row[0] for name, row in known.items() if row}


def _merge_frames(stacks: Sequence[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    """Return the richest stack; a native one gets the Python frames of another woven in, each the values of others."""
    best = max(stacks, key=_richness)
    others = [stack for stack in stacks if any(frame.is_python for frame in stack)]
    values = {_line(frame): frame.values for stack in others for frame in stack if frame.values}
    if best and others and not any(frame.is_python for frame in best):
        inner = next((position for position, frame in enumerate(best) if frame.function == _EVAL), len(best))
        taken = [frame for frame in max(others, key=_richness) if frame.is_python]
        best = (*best[:inner], *taken, *best[inner:])
    return tuple(frame.model_copy(update={"values": frame.values or values.get(_line(frame), ())}) for frame in best)


def _line(frame: Frame) -> tuple[str, int | None, str]:
    return frame.file_name, frame.line, frame.method


def _richness(stack: Sequence[Frame]) -> tuple[bool, int]:
    languages = {frame.language for frame in stack}
    return len(languages) == len(Language), sum(frame.is_named for frame in stack)


def with_native_frames(processes: Sequence[Process]) -> tuple[Process, ...]:
    """Give threads of which only Python frames were read the native frames of a thread at the same place."""
    read: dict[tuple[object, ...], Thread] = {}
    for process in processes:
        for thread in process.threads:
            if any(frame.is_python for frame in thread.frames) and not _is_without_native(thread):
                read.setdefault(_place(thread), thread)
    return tuple(
        process.model_copy(update={"threads": tuple(_completed(thread, read) for thread in process.threads)})
        for process in processes
    )


def _is_without_native(thread: Thread) -> bool:
    return bool(thread.frames) and all(frame.is_python for frame in thread.frames)


def _place(thread: Thread) -> tuple[object, ...]:
    """Return what makes the native frames of two threads the same."""
    lines = tuple((frame.file, frame.line, frame.method) for frame in thread.frames if frame.is_python)
    kernel = thread.kernel
    return (lines, thread.is_running, kernel and (kernel.wchan, kernel.syscall[:1]))


def _completed(thread: Thread, read: dict[tuple[object, ...], Thread]) -> Thread:
    like = read.get(_place(thread)) if _is_without_native(thread) and not thread.is_running else None
    if like is None:
        return thread
    own = iter(thread.frames)  # they have the thread's own values
    frames: list[Frame] = [next(own) if frame.is_python else frame for frame in like.frames]
    return thread.model_copy(update={"frames": tuple(frames)})
