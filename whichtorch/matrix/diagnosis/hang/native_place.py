"""Find a thread's place in the user's own native code, and what it waits for there.

A library is the user's own if it lies in none of the places of installed ones. What its functions wait for is told by
the functions of the C and C++ libraries that they call: a semaphore of C++ code is one, where under Python code it may
be the means of any lock.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang.library import NativeCall
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.stacks import Frame

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


def native_place(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the user's native code, of the frames inside the user's Python code."""
    return next(filter(is_own_native, frames), None)


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
