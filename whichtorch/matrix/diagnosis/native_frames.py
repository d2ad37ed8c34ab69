"""Native frames of threads of which only Python frames were read.

Of a large tree the native frames are read of one process of each kind. A thread at the same Python lines, in the same
system call, has the same native frames: 63 ranks that wait in one collective are told as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.stacks import Frame, Process, Thread


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
    return thread.model_copy(update={"frames": tuple(frames), "like": like.tid})
