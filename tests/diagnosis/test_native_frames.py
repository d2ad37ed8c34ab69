"""Of many processes at the same place, the native frames of one are those of all."""

from __future__ import annotations

from whichtorch.matrix.diagnosis.stacks import (
    Frame,
    KernelWait,
    Process,
    Thread,
    Value,
    native,
    python,
    with_native_frames,
)

INNER = (native("pthread_cond_wait"), native("c10d::Reducer::finalize_backward"))


def train(rank: int, line: int = 8) -> Frame:
    return python("train", "train.py", line).model_copy(update={"values": (Value(name="rank", text=str(rank)),)})


def rank(number: int, *frames: Frame, wchan: str = "futex_do_wait") -> Process:
    kernel = KernelWait(wchan=wchan, syscall=(202, number))
    return Process(pid=number, threads=(Thread(tid=number, frames=frames, state="S", kernel=kernel),))


def test_a_thread_at_the_same_place_has_the_same_native_frames() -> None:
    """It keeps the values of its own variables, and names the thread that the frames are of."""
    _, other = with_native_frames([rank(1, *INNER, train(1)), rank(2, train(2))])
    thread = other.threads[0]
    assert thread.frames == (*INNER, train(2))


def test_a_thread_elsewhere_has_not() -> None:
    """Another line or another wait in the kernel is another place."""
    read = rank(1, *INNER, train(1))
    for other in (rank(2, train(2, line=9)), rank(2, train(2), wchan="do_epoll_wait")):
        assert with_native_frames([read, other]) == (read, other)


def test_where_nothing_was_read_in_full_nothing_is_known() -> None:
    """Python frames alone stay as they are."""
    processes = (rank(1, train(1)), rank(2, train(2)))
    assert with_native_frames(processes) == processes
