"""One picture of several collectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hangs.pictures import picture, thread
from whichtorch.hangs import stacks
from whichtorch.hangs.stack_readers import parse_faulthandler
from whichtorch.hangs.stacks import (
    Frame,
    KernelWait,
    Process,
    Thread,
    Value,
    display,
    native,
    python,
    with_native_frames,
)


def test_merge_of_real_collectors() -> None:
    """Five collectors of one process give each thread once: richest frames, GIL marks, state, who is joined."""
    (process,) = picture("gil_deadlock")
    assert [member.tid for member in process.threads if member.tid] == [member.tid for member in process.threads]
    assert sorted(member.tid for member in process.threads) == [26947, 26949, 26950]
    waiter, holder = thread((process,), 26950), thread((process,), 26947)
    assert (waiter.wants_gil, waiter.state, waiter.ident) == (True, "S", 0x7F6753D146C0)
    assert (holder.has_gil, holder.joins, holder.name) == (True, 26950, "python")
    assert "take_gil" in [frame.function for frame in waiter.frames]
    assert any(frame.is_python for frame in holder.frames)
    assert process.command == "ENV/bin/python run_mm.py matmul"


def test_merge_by_pthread_and_main() -> None:
    """The threads of faulthandler are found by their pthread id, or as the main thread, and not counted twice."""
    found = picture("two_locks")
    assert [len(process.threads) for process in found] == [3]
    kernel = Process(pid=5, threads=(Thread(tid=5, state="S"), Thread(tid=6, state="S")))
    text = 'Current thread 0x1 (most recent call first):\n  File "a.py", line 3 in <module>\n'
    (merged,) = stacks.merge([kernel], parse_faulthandler(text, 5))
    assert [(member.tid, len(member.frames)) for member in merged.threads] == [(5, 1), (6, 0)]


def test_a_thread_is_found_by_its_stack() -> None:
    """What pthread_self() points to stands at the upper end of the stack that the kernel tells of.

    Two stacks below one end, an end too far away, and a thread of which the kernel tells no stack, are not guessed at.
    """

    def pictures(*pointers: int | None) -> list[list[Process]]:
        calls = [(202, 0, 0, 0, 0, 0, 0, pointer, 0x7) if pointer else () for pointer in pointers]
        waits = [Thread(tid=tid, kernel=KernelWait(syscall=call)) for tid, call in enumerate(calls, 5)]
        idents = {0x7000_0000: python("f", "a.py", 1), 0x7080_1000: python("g", "a.py", 2)}
        named = [Thread(ident=ident, frames=(frame,)) for ident, frame in idents.items()]
        return [[Process(pid=5, threads=tuple(waits))], [Process(pid=5, threads=tuple(named))]]

    def found(*pointers: int | None) -> dict[int, list[str]]:
        (process,) = stacks.merge(*pictures(*pointers))
        return {member.tid: [frame.function for frame in member.frames] for member in process.threads if member.tid}

    assert found(0x7FFE_0000, 0x7080_0F00, 0x6FFF_F000) == {5: [], 6: ["g"], 7: ["f"]}
    assert found(0x7FFE_0000, 0x7080_0F00, 0x7080_0E00) == {5: [], 6: [], 7: []}
    assert found(0x7FFE_0000, 0x6000_0000, None) == {5: [], 6: [], 7: []}


def test_python_frames_are_woven_into_native_ones() -> None:
    """The native stack of gdb gets the Python frames of faulthandler where the interpreter's loop stands."""
    ours = Thread(tid=1, ident=1, frames=(native("read"), native("os_read"), native("_PyEval_EvalFrameDefault")))
    theirs = Thread(ident=1, frames=(python("f", "a.py", 2), python("<module>", "a.py", 9)))
    (merged,) = stacks.merge([Process(pid=1, threads=(ours,))], [Process(pid=1, threads=(theirs,))])
    names = [frame.function for frame in merged.threads[0].frames]
    assert names == ["read", "os_read", "f", "<module>", "_PyEval_EvalFrameDefault"]


def test_a_yes_outweighs_a_no() -> None:
    """Who one collector marks as the holder of the GIL is it, though another did not see that."""
    first, second = Thread(tid=1, has_gil=False), Thread(tid=1, has_gil=True)
    (merged,) = stacks.merge([Process(pid=1, threads=(first,))], [Process(pid=1, threads=(second,))])
    assert merged.threads[0].has_gil is True


def test_kernel_facts_add_up() -> None:
    """The supervisor's word and the kernel's function are parts of the same wait."""
    first = Thread(tid=1, kernel=KernelWait(wchan="do_wait", syscall=(61, 7)))
    second = Thread(tid=1, kernel=KernelWait(word="child", detail="pid 7"))
    (merged,) = stacks.merge([Process(pid=1, threads=(first,))], [Process(pid=1, threads=(second,))])
    assert merged.threads[0].kernel == KernelWait(wchan="do_wait", syscall=(61, 7), word="child", detail="pid 7")


def test_the_model_survives_json() -> None:
    """A picture written to a record and read again is the same."""
    for process in picture("gil_deadlock"):
        assert Process.model_validate_json(process.model_dump_json()) == process


INNER = (native("pthread_cond_wait"), native("c10d::Reducer::finalize_backward"))


def train(rank: int, line: int = 8) -> Frame:
    return python("train", "train.py", line).model_copy(update={"values": (Value(name="rank", text=str(rank)),)})


def rank(number: int, *frames: Frame, wchan: str = "futex_do_wait") -> Process:
    kernel = KernelWait(wchan=wchan, syscall=(202, number))
    return Process(pid=number, threads=(Thread(tid=number, frames=frames, state="S", kernel=kernel),))


def test_a_thread_at_the_same_place_has_the_same_native_frames() -> None:
    """It keeps the values of its own variables."""
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


NAMES = {
    "at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)": "at::_ops::mm::redispatch",
    "torch::autograd::VariableType::(anonymous namespace)::mm": "torch::autograd::VariableType::mm",
    "c10::impl::BoxedKernelWrapper<at::Tensor (at::Tensor const&, at::Tensor const&), void>::call(c10::BoxedKernel "
    "const&, c10::OperatorHandle const&, c10::DispatchKeySet)": "c10::impl::BoxedKernelWrapper::call",
    "torch::impl::dispatch::PythonKernelHolder::operator()(c10::OperatorHandle const&)": (
        "torch::impl::dispatch::PythonKernelHolder::operator()"
    ),
    "run(at::Tensor, bool)::{lambda()#1}::operator()() const": "run::{lambda#1}::operator()",
    "void std::__invoke_impl<void, run(bool)::{lambda()#1}>(std::__invoke_other)": "std::__invoke_impl",
    "std::__invoke_result<run()::{lambda()#1}>::type std::__invoke<run()::{lambda()#1}>(int&&)": "std::__invoke",
    "at::Tensor pybind11::detail::argument_loader<at::Tensor>::call_impl<at::Tensor>(int) &&": (
        "pybind11::detail::argument_loader::call_impl"
    ),
    "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)": "std::operator<<",
    "operator new(unsigned long)": "operator new",
    "c10::IValue::operator bool() const": "c10::IValue::operator bool",
    "pthread_cond_timedwait@@GLIBC_2.3.2": "pthread_cond_timedwait",
    "__new_sem_wait_slow64.constprop.0": "__new_sem_wait_slow64",
    "take_gil": "take_gil",
    "0x7f680f8a3f16": "???",
    "??": "???",
}


@pytest.mark.parametrize(("symbol", "expected"), NAMES.items(), ids=NAMES.values())
def test_display(symbol: str, expected: str) -> None:
    """Templates, parameters, return types, versions and anonymous namespaces are cut; what is called is left."""
    assert display(symbol) == expected


@given(st.text(alphabet="ab:<>(){} &-operator,#~0", max_size=60))
def test_anything_has_a_name(symbol: str) -> None:
    """Brackets that do not match, or nothing at all, give some name and no exception."""
    assert display(symbol)
