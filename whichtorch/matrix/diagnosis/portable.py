"""Make a picture of processes fit to be read on another machine, and put those of several machines together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang.library import ROWS, needs_class
from whichtorch.matrix.diagnosis.hang.source_text import owner_class, read_site
from whichtorch.matrix.diagnosis.hang.user_call import is_own, user_call
from whichtorch.matrix.diagnosis.source_site import SourceSite
from whichtorch.matrix.diagnosis.stacks import HOST_STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.stacks import Frame, Process, Thread, Value

# Variables of libraries whose text says something of a hang; of all others, also of the user's, numbers are kept.
_TELLING = {name for row in ROWS for name in row.values}


def portable(process: Process) -> Process:
    """Return a process with what its source says, without the texts of variables that nobody asks for.

    The machine that reads it has neither the sources nor, perhaps, the same library.
    """
    environ = {name: text for name, text in process.environ.items() if text.isdigit()}  # an address is private
    threads = tuple(_portable_thread(thread) for thread in process.threads)
    return process.model_copy(update={"environ": environ, "threads": threads})


def _portable_thread(thread: Thread) -> Thread:
    user = user_call(thread.frames)
    frames = [
        _portable_frame(frame, user.site if frame is user.place else None) if frame.is_python else frame
        for frame in thread.frames
    ]
    return thread.model_copy(update={"frames": tuple(frames)})


def _portable_frame(frame: Frame, site: SourceSite | None) -> Frame:
    owner = owner_class(frame) if needs_class(frame) and "." not in frame.function else ""
    facts = {
        "function": f"{owner}.{frame.function}" if owner else frame.function,
        "values": tuple(_portable_value(value, is_library=not is_own(frame)) for value in frame.values),
        "site": site or (read_site(frame) if is_own(frame) else SourceSite()),
    }
    return frame.model_copy(update=facts)


def _portable_value(value: Value, *, is_library: bool) -> Value:
    """Keep which object it is; two frames that name the same one mean the same."""
    is_telling = (is_library and value.name in _TELLING) or value.text.isdigit()
    return value if is_telling else value.model_copy(update={"text": ""})


def merged(pictures: Sequence[tuple[str, Sequence[Process]]]) -> tuple[Process, ...]:
    """Return one picture of several machines, each with its name: numbers of processes and threads do not collide."""
    return tuple(
        _moved(process, host, position * HOST_STEP)
        for position, (host, processes) in enumerate(pictures)
        for process in processes
    )


def _moved(process: Process, host: str, step: int) -> Process:
    rows = process.descriptors
    facts = {
        "pid": process.pid + step,
        "host": host,
        "parent": None if process.parent is None else process.parent + step,
        "descriptors": tuple(
            row.model_copy(update={"holders": tuple(pid + step for pid in row.holders)}) for row in rows
        ),
        "threads": tuple(_moved_thread(thread, step) for thread in process.threads),
    }
    return process.model_copy(update=facts)


def _moved_thread(thread: Thread, step: int) -> Thread:
    numbers = {name: getattr(thread, name) for name in ("tid", "joins", "owner", "like")}
    return thread.model_copy(update={name: number and number + step for name, number in numbers.items()})
