"""Find a thread's place in the user's own code, and the library call that it waits in there.

A native library is the user's own if it lies in none of the places of installed ones. What its functions wait for is
told by the functions of the C and C++ libraries that they call: a semaphore of C++ code is one, where under Python code
it may be the means of any lock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.code_owner import is_users
from whichtorch.matrix.diagnosis.hang.library import LibraryCall, NativeCall, library_call, native_call
from whichtorch.matrix.diagnosis.hang.source_text import read_site
from whichtorch.matrix.diagnosis.source_site import SourceSite
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.stacks import Frame

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
    r"|(?:^|/)python[\d.]*$|^\w+\.cpython-"
)
_HEADERS = re.compile(r"(?:^|/)include/|/c\+\+/\d")
_STANDARD = re.compile(r"^(?:std|__gnu_cxx|boost)::|^_*(?:gthread|pthread|gthrw)_|^__cxa_")

# The outermost function that a user's native code has called decides.
OWN_NATIVE_CALLS = (
    NativeCall(
        Waiting.FUTURE, "the result of a C++ future", "set it",
        r"std::(?:\w+::)*_*\w*future\w*::(?:_State_\w+::)?\w*(?:get|wait)\w*",
    ),
    NativeCall(
        Waiting.SEMAPHORE, "a native semaphore, whose count is 0", "post it",
        r"(?:__new_)?sem_(?:timed|clock)?wait\w*|std::(?:\w+::)*counting_semaphore::\w*acquire\w*",
    ),
    NativeCall(
        Waiting.BARRIER, "the others to come to a native barrier", "come",
        r"_*pthread_barrier_wait|std::(?:\w+::)*(?:barrier|latch)::\w*wait\w*",
    ),
    NativeCall(
        Waiting.LOCK, "a read-write lock of native code", "release it",
        r"_*pthread_rwlock_\w*lock\w*|std::(?:\w+::)*shared_(?:timed_)?mutex::\w+|__glibcxx_rwlock_\w+",
    ),
    NativeCall(
        Waiting.CONDITION, "a notification of a condition variable of native code", "notify it",
        r"_*pthread_cond_\w*wait\w*|std::(?:\w+::)*condition_variable\w*::\w*wait\w*",
    ),
    NativeCall(Waiting.LOCK, "a mutex", "release it", r"_*pthread_mutex_\w*lock\w*|std::(?:\w+::)*mutex::lock"),
)  # fmt: skip


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
        site = read_site(self.place, inner[-1].method.rpartition(":")[2] if inner else "")
        return site if site.call or not inner else read_site(self.place)

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


def user_call(frames: Sequence[Frame]) -> UserCall:
    """Return where a thread is, from its frames, innermost first."""
    own = since_start(frames)
    position = next((position for position, frame in enumerate(own) if is_own(frame)), None)
    inner = [frame for frame in own[:position] if frame.is_python]
    natives = [frame.function for frame in own[:position] if not frame.is_python]
    known = [
        (frame, call)
        for frame in reversed(inner)
        if (call := library_call(frame, is_innermost=frame is inner[0], natives=natives))
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
        and not _HEADERS.search(frame.file or "")
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
