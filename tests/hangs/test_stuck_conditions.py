"""Real stacks of hangs -> which declared conditions they show to be met, or not, or leave open."""

import pytest

from tests.hangs import pyspy_text
from tests.hangs.pictures import picture, table
from whichtorch.hangs import conditions
from whichtorch.hangs.hang_diagnosis import diagnose
from whichtorch.model import Condition

TABLES = {"aten::mm": table()}
MM = "aten::mm was dispatched under aten::matmul with AutogradMeta, Meta"
BY_HANDLE = """
Thread 11 (idle): "MainThread"
    __lll_lock_wait (libc.so.6)
    pthread_mutex_lock (libc.so.6)
    at::(anonymous namespace)::wrapper_CPU_mm (libtorch_cpu.so)
    at::_ops::mm::call (libtorch_cpu.so)
    at::native::matmul (libtorch_cpu.so)
    c10::Dispatcher::callBoxed (libtorch_cpu.so)
    torch::jit::invokeOperatorFromPython (libtorch_python.so)
    <module> (matmul.py:7)
"""


def seen(condition: Condition, sample: str = "gil_deadlock", *collectors: str) -> tuple[bool | None, str]:
    """Return what became of a condition in the hang that a sample is of."""
    observation = conditions.stuck_calls(diagnose(picture(sample, *collectors), tables=TABLES))
    (result,) = conditions.check([condition], observation)
    return result.met, result.seen


@pytest.mark.parametrize("collector", ["pyspy-native.json", "pyspy-native.txt", "pystack-native.txt", "gdb.txt"])
def test_a_stuck_call_meets_its_conditions(collector: str) -> None:
    """Each collector's frames, with the kernel's view, show operator, enclosing operator, thread and keys."""
    declared = Condition(op="aten::mm", under="aten::matmul", keys=("Meta", "AutogradMeta"), thread="other")
    assert seen(declared, "gil_deadlock", collector, "proc.txt") == (True, MM)


def test_an_enclosing_operator_was_dispatched_too() -> None:
    """Its keys show nowhere."""
    assert seen(Condition(op="aten::matmul", thread="other")) == (True, "aten::matmul was dispatched")
    wanted = "aten::matmul was dispatched, not known whether with Meta"
    assert seen(Condition(op="aten::matmul", keys=("Meta",))) == (None, wanted)


@pytest.mark.parametrize(
    ("declared", "instead"),
    [
        ({"under": "aten::linear"}, "under aten::matmul, not under aten::linear"),
        ({"thread": "main"}, "in another thread, not in the main one"),
    ],
)
def test_a_stuck_call_that_is_not_as_asked_is_unmet(declared: dict[str, str], instead: str) -> None:
    """What the frames show otherwise than declared is told."""
    condition = Condition.model_validate({"op": "aten::mm"} | declared)
    assert seen(condition) == (False, f"aten::mm was dispatched {instead}")


@pytest.mark.parametrize(
    ("declared", "unknown"),
    [
        ({"grad_mode": False}, "with grad mode off"),
        ({"python_key": False}, "without the Python key"),
        ({"keys": ("Meta", "Batched")}, "with Batched"),
    ],
)
def test_what_no_frame_shows_is_not_known(declared: dict[str, object], unknown: str) -> None:
    """Grad mode, keys of no kernel on the way, and that no mode took part, are left open."""
    condition = Condition.model_validate({"op": "aten::mm"} | declared)
    assert seen(condition) == (None, f"{MM}, not known whether {unknown}")


def test_what_has_returned_leaves_no_frame() -> None:
    """Another operator than the stuck ones may have been dispatched before."""
    assert seen(Condition(op="aten::bmm")) == (None, "not known whether aten::bmm was dispatched")
    assert seen(Condition(op="aten::mm"), "two_locks") == (None, "not known whether aten::mm was dispatched")


def test_the_wrapper_of_a_kernel_names_its_key() -> None:
    """In the child of a fork, stuck in OpenMP: CPU by the wrapper, autograd before it, and its main thread."""
    declared = Condition(op="aten::sin", keys=("CPU", "AutogradCPU"), thread="main")
    assert seen(declared, "fork_openmp") == (True, "aten::sin was dispatched with AutogradCPU, CPU")


def test_the_python_key_is_seen() -> None:
    """A dispatch mode's kernel is the Python key's."""
    declared = Condition(op="aten::ones", python_key=True, keys=("Python",))
    assert seen(declared, "python_key") == (True, "aten::ones was dispatched with Python")


def test_an_operator_called_by_its_handle_has_no_name() -> None:
    """Nobody knows whether it is the one that was asked for; that the call stood by itself is not claimed."""
    observation = conditions.stuck_calls(diagnose(pyspy_text.parse("Process 11: python matmul.py\n" + BY_HANDLE)))
    (result,) = conditions.check([Condition(op="aten::mm", under="aten::matmul")], observation)
    wanted = "aten::mm was dispatched under ??? with CPU, not known whether under aten::matmul"
    assert (result.met, result.seen) == (None, wanted)
