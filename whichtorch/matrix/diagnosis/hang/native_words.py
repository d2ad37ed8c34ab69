"""Tell where a thread is in the user's native code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang.activity import short
from whichtorch.matrix.diagnosis.hang.native_place import is_own_native, source_line
from whichtorch.matrix.diagnosis.hang.user_call import is_own

if TYPE_CHECKING:
    from whichtorch.matrix.diagnosis.hang.activity import ThreadState
    from whichtorch.matrix.diagnosis.stacks import Frame


def shortened(frame: Frame) -> str:
    """Return a native function without its namespaces and its call operator."""
    return "::".join(short(frame.function).split("::")[-2:])


def where_words(state: ThreadState) -> str:
    """Return a thread's place, that in the user's native code, too: " (a.py:12), in Pool::take (pool.cpp:7),"."""
    place, user = state.user.native_place, state.user
    if place is None or user.place is None or user.call:
        return f" ({state.place})" if state.place else ""
    if user.site.call.rpartition(".")[2] == place.function.rpartition(":")[2]:
        return f" ({state.place}, {source_line(place)})"
    return f" ({state.place}), in {shortened(place)} ({source_line(place)}),"


def came_from(state: ThreadState) -> str:
    """Return through which of the user's native functions a thread has come back into native code, outermost last."""
    user = state.user
    if user.place is None or user.native_place is None:
        return ""
    beyond = user.frames[user.frames.index(user.place) :]
    outer = next(filter(is_own_native, beyond), None)
    caller = next(filter(is_own, beyond[beyond.index(outer) :]), None) if outer else None
    called = f", called at {caller.where}" if caller else ""
    return f"; it came here from {shortened(outer)} ({source_line(outer)}){called}" if outer else ""
