"""One place in the dispatcher, from native frames, from trace lines, by the environment's own table."""

import pytest

from tests.hangs import pyspy_text
from tests.hangs.pictures import SAMPLES, files, parse, picture, table, thread
from whichtorch.hangs.dispatch import call_path, dispatch_frames
from whichtorch.hangs.dispatch.call_path import Caller, KernelKind, Place, Stage, Status, Table, expected, path
from whichtorch.hangs.dispatch.written_calls import trace_place

TABLES = {"aten::mm": table()}
GIL_SAMPLES = [path for path in files("gil_deadlock") if not path.name.endswith("proc.txt")]

BOXED_CALL = """
Process 11: python metaloop.py
Python v3.11.7

Thread 11 (idle): "MainThread"
    0x7f45cb0aed90 (libc.so.6)
    PyThread_acquire_lock_timed (libpython3.11.so.1.0)
    lock_PyThread_acquire_lock (libpython3.11.so.1.0)
    Condition.wait (threading.py:327)
    Event.wait (threading.py:629)
    wait_meta (metaloop.py:5)
    pybind11::detail::object_api<pybind11::handle>::operator()<(pybind11::return_value_policy)1> (libtorch_python.so)
    torch::impl::dispatch::PythonKernelHolder::operator() (libtorch_python.so)
    torch::autograd::VariableHooks::basic_autograd_not_implemented_fallback (libtorch_cpu.so)
    c10::Dispatcher::callBoxed (libtorch_cpu.so)
    torch::jit::invokeOperatorFromPython (libtorch_python.so)
    pybind11::cpp_function::dispatcher (libtorch_python.so)
    OpOverloadPacket.__call__ (torch/_ops.py:1269)
    <module> (metaloop.py:7)
"""
FROM_THE_ENGINE = """
Thread 21 (idle)
    __lll_lock_wait (libc.so.6)
    pthread_mutex_lock (libc.so.6)
    at::native::add_kernel (libtorch_cpu.so)
    at::(anonymous namespace)::wrapper_CPU_add_Tensor (libtorch_cpu.so)
    at::_ops::add_Tensor::redispatch (libtorch_cpu.so)
    torch::autograd::VariableType::(anonymous namespace)::add_Tensor (libtorch_cpu.so)
    at::_ops::add_Tensor::call (libtorch_cpu.so)
    torch::autograd::Engine::evaluate_function (libtorch_cpu.so)
    torch::autograd::Engine::thread_main (libtorch_cpu.so)
    std::thread::_State_impl<int>::_M_run (libtorch_cpu.so)
"""
IN_THE_LOOKUP = """
Thread 31 (active)
    c10::impl::OperatorEntry::lookup (libtorch_cpu.so)
    at::_ops::mm::call (libtorch_cpu.so)
    call (/x/torchinductor_me/ab/cabc.py:40)
"""
TRACE = """\
[call] op=[aten::matmul], key=[AutogradMeta]
 [call] op=[aten::view], key=[ADInplaceOrView]
  [redispatch] op=[aten::view], key=[Meta]
 [call] op=[aten::mm], key=[AutogradMeta]
  [redispatch] op=[aten::mm], key=[Meta]
"""


def one_thread(text: str) -> Place:
    """Return the place of the only thread in py-spy's text."""
    (process,) = pyspy_text.parse(text)
    place = dispatch_frames.place_of(process.threads[0], TABLES)
    assert place is not None
    return place


def statuses(place: Place) -> dict[Stage, Status]:
    """Return what became of each stage."""
    return {step.stage: step.status for step in place.steps}


@pytest.mark.parametrize("path", GIL_SAMPLES, ids=lambda path: path.name)
def test_every_collector_finds_the_same_place(path) -> None:  # type: ignore[no-untyped-def]
    """py-spy in both forms, pystack and gdb: boxed, Python-registered Meta kernel of aten::mm, waiting for the GIL."""
    place = dispatch_frames.place_of(thread(parse(path), 26950), TABLES)
    assert place is not None
    assert place.words == ("boxed kernel, Python-registered Meta kernel of aten::mm, waiting for the GIL")
    assert (place.stage, place.operator, place.key) == (Stage.WAITING_GIL, "aten::mm", "Meta")
    assert (place.boxed, place.kernel, place.caller) == (True, KernelKind.PYTHON, Caller.CPP_THREAD)
    assert place.enclosing == ("aten::matmul",)
    found = statuses(place)
    assert [stage for stage, status in found.items() if status is Status.STUCK] == [Stage.WAITING_GIL]
    assert [stage for stage, status in found.items() if status is Status.NEVER] == [Stage.INSIDE, Stage.RETURNED]
    seen = {step.stage: step.seen for step in place.steps}
    assert seen[Stage.COMPOSITE] == "at::native::_matmul_impl"
    assert seen[Stage.REDISPATCH] == "at::_ops::mm::redispatch"


def test_the_expected_path_comes_from_the_table() -> None:
    """Beside what was seen stands where this environment's own kernels are registered."""
    place = dispatch_frames.place_of(thread(picture("gil_deadlock"), 26950), TABLES)
    assert place is not None
    wanted = {step.stage: step.expected for step in place.steps}
    assert wanted[Stage.AUTOGRAD] == "AutogradMeta: C++, VariableType_3.cpp:20155 [autograd kernel]"
    assert wanted[Stage.FOUND_AGAIN] == "boxed, for Meta"
    assert wanted[Stage.BACKEND] == "Meta: Python, boxed, _meta_registrations.py:53 [kernel]"


def test_without_a_table_no_key_is_guessed() -> None:
    """The frames of a Python-registered kernel do not name its key."""
    place = dispatch_frames.place_of(thread(picture("gil_deadlock"), 26950))
    assert place is not None
    assert place.key is None
    assert place.words == "boxed kernel, Python-registered kernel of aten::mm, waiting for the GIL"


def test_a_thread_outside_the_dispatcher_has_no_place() -> None:
    """The thread that only joins, and a program without torch, are nowhere in the dispatcher."""
    assert dispatch_frames.place_of(thread(picture("gil_deadlock"), 26947)) is None
    assert dispatch_frames.place_of(thread(picture("two_locks"), 7286)) is None


def test_openmp_inside_a_kernel() -> None:
    """A C++ kernel's parallel loop: the wrapper names the key, libgomp the wait."""
    place = dispatch_frames.place_of(thread(picture("fork_openmp"), 27054))
    assert place is not None
    assert place.words == "unboxed kernel, C++ CPU kernel of aten::sin, waiting for OpenMP"
    assert (place.stage, place.caller) == (Stage.WAITING_OPENMP, Caller.PYTHON)
    assert statuses(place)[Stage.INSIDE] is Status.REACHED


def test_a_dispatch_mode() -> None:
    """Inside __torch_dispatch__ the kernel is that of the Python key."""
    place = dispatch_frames.place_of(thread(picture("python_key"), 9789))
    assert place is not None
    assert place.words == "boxed kernel, kernel of the Python key of aten::ones, waiting for a condition"
    seen = {step.stage: step.seen for step in place.steps}
    assert (seen[Stage.BACKEND], seen[Stage.INSIDE]) == ("pythonFallback", "inner (_compile.py:54)")


def test_an_operator_called_by_its_handle() -> None:
    """`torch.ops.x.y` leaves no operator in the frames: the place is known, the name is not."""
    place = one_thread(BOXED_CALL)
    assert (place.operator, place.kernel, place.stage) == (None, KernelKind.PYTHON, Stage.WAITING_CONDITION)
    seen = {step.stage: step.seen for step in place.steps}
    assert seen[Stage.CALL] == "c10::Dispatcher::callBoxed"
    assert seen[Stage.INSIDE] == "wait_meta (metaloop.py:5)"
    assert Stage.AUTOGRAD in seen


def test_called_by_the_autograd_engine() -> None:
    """The engine's thread is told from any other C++ thread, and an overload from its operator."""
    place = one_thread(FROM_THE_ENGINE)
    assert (place.caller, place.operator, place.key) == (Caller.AUTOGRAD_ENGINE, "aten::add.Tensor", "CPU")
    assert place.stage is Stage.WAITING_LOCK


def test_stuck_in_the_lookup_from_compiled_code() -> None:
    """Debug builds show the lookup as a frame; nothing after it was reached."""
    place = one_thread(IN_THE_LOOKUP)
    assert (place.stage, place.caller) == (Stage.LOOKUP, Caller.COMPILED)
    found = statuses(place)
    assert found[Stage.CALL] is Status.REACHED
    assert {found[stage] for stage in (Stage.FOUND, Stage.BACKEND, Stage.RETURNED)} == {Status.NEVER}


@pytest.mark.parametrize(
    ("symbol", "operator"),
    [
        ("mm", "aten::mm"),
        ("add_Tensor", "aten::add.Tensor"),
        ("add__Tensor", "aten::add_.Tensor"),
        ("_unsafe_view", "aten::_unsafe_view"),
        ("sum_dim_IntList", "aten::sum.dim_IntList"),
        ("empty_memory_format", "aten::empty.memory_format"),
        ("addmm_out", "aten::addmm.out"),
        ("max_pool2d_with_indices", "aten::max_pool2d_with_indices"),
    ],
)
def test_operator_name(symbol: str, operator: str) -> None:
    """A symbol of at::_ops is read as operator and overload."""
    assert dispatch_frames.operator_name(symbol) == operator


def test_operator_name_prefers_what_the_environment_has() -> None:
    """Where the environment's operators are known, their own spelling decides."""
    assert dispatch_frames.operator_name("foo_bar_baz", ["aten::foo.bar_baz"]) == "aten::foo.bar_baz"


def test_trace_cut_at_every_line() -> None:
    """The last line of a dispatch trace gives operator, key and stage, and the operators it is nested in."""
    wanted = [
        ("aten::matmul", "AutogradMeta", Stage.AUTOGRAD, ()),
        ("aten::view", "ADInplaceOrView", Stage.AUTOGRAD, ("aten::matmul",)),
        ("aten::view", "Meta", Stage.BACKEND, ("aten::matmul",)),
        ("aten::mm", "AutogradMeta", Stage.AUTOGRAD, ("aten::matmul",)),
        ("aten::mm", "Meta", Stage.BACKEND, ("aten::matmul",)),
    ]
    lines = TRACE.splitlines()
    found = []
    for end in range(1, len(lines) + 1):
        place = trace_place("\n".join(lines[:end]), TABLES)
        assert place is not None
        found.append((place.operator, place.key, place.stage, place.enclosing))
    assert found == wanted


def test_trace_speaks_the_language_of_frames() -> None:
    """The trace of the same hang leads to the same kernel as its frames, without the wait that it cannot see."""
    place = trace_place("noise\n" + TRACE, TABLES)
    assert place is not None
    assert place.words == "boxed kernel, Python-registered Meta kernel of aten::mm"
    assert statuses(place)[Stage.BACKEND] is Status.STUCK
    assert statuses(place)[Stage.INSIDE] is Status.NEVER
    assert "no line for a return" in place.note


def test_boxed_trace_and_no_trace() -> None:
    """The boxed twins are read; a release wheel's silence is no place."""
    place = trace_place("[callBoxed] op=[my::op], key=[CPU]\n")
    assert place is not None
    assert (place.boxed, place.operator) == (True, "my::op")
    assert trace_place("") is None


def test_table_rows() -> None:
    """Language, place and note of each kernel are read from the table of a real release."""
    meta, inplace = table().row("Meta"), table().row("ADInplaceOrView")
    assert meta is not None
    assert inplace is not None
    assert (meta.kind, meta.where, meta.is_boxed) == (KernelKind.PYTHON, "_meta_registrations.py:53", True)
    assert inplace.fallthrough
    assert len(table().rows) == len((SAMPLES / "table.aten_mm.2.11.0.txt").read_text().splitlines())
    assert table().row("NoSuchKey") is None


def test_kernels_that_a_call_goes_through() -> None:
    """A call with autograd goes through two kernels; what falls through is passed by."""
    called = table().called({"Meta", "ADInplaceOrView", "AutogradMeta"})
    assert [row.key for row in called] == ["AutogradMeta", "Meta"]
    assert [row.key for row in table().called({"CPU"})] == ["CPU"]


def test_registered_from_python_in_an_old_release() -> None:
    """Release 2.1 of torch writes /dev/null for whatever Python registered."""
    row = table("2.1.2").row("Meta")
    assert row is not None
    assert (row.kind, row.where) == (KernelKind.PYTHON, "a Python library")


def test_compare_tables() -> None:
    """Only kernels that differ are named; lines, folders and shards of generated sources are not a difference."""
    first = call_path.parse_table(
        "Meta: registered at ENV/torch/_meta_registrations.py:53 [kernel]\n"
        "CPU: registered at /a/RegisterCPU_0.cpp:3 [kernel]\n"
    )
    second = call_path.parse_table(
        "Meta: registered at /b/RegisterMeta_0.cpp:9424 [kernel]\nCPU: registered at /b/RegisterCPU_4.cpp:8 [kernel]\n"
    )
    differences = call_path.compare_tables(first, second)
    assert [difference.key for difference in differences] == ["Meta"]
    assert list(call_path.difference_lines(differences)) == [
        "Meta:",
        "    Python, boxed, _meta_registrations.py:53 [kernel]",
        "    C++, RegisterMeta_0.cpp:9424 [kernel]",
    ]
    assert call_path.compare_tables(first, first) == ()


def test_compare_real_releases() -> None:
    """Between 2.11.0 and 2.15.0 one key of aten::mm changed; 2.1.2 had no kernel for a backend that came later."""
    assert [difference.key for difference in call_path.compare_tables(table(), table("2.15.0"))] == ["Named"]
    older = {difference.key: difference for difference in call_path.compare_tables(table("2.1.2"), table())}
    assert older["AutogradMAIA"].first is None
    assert "Meta" not in older


def test_path_without_evidence() -> None:
    """An empty table expects nothing, and a path with nothing seen has reached nothing."""
    assert expected(Table(), ("Meta",)) == {}
    assert {step.status for step in path({}, Stage.CALL, {})} == {Status.STUCK, Status.NEVER}
