"""What real releases write when the same thing goes wrong, shortened, and what is made of it."""

import pytest

from tests.failures.test_failure import failed, is_one
from whichtorch.failures.failure import Failure, Signature
from whichtorch.failures.tracebacks import read_exception
from whichtorch.failures.verdict import judge
from whichtorch.model import Outcome
from whichtorch.process.supervision import Ending

TORCH = "/e/lib/python3.11/site-packages/torch"
EAGER_2_11 = f"""\
Traceback (most recent call last):
  File "/s/fake_tensor/add_meta.py", line 44, in <module>
    result = add(torch.ones(3, 4), torch.ones(3, 4, device="meta"))
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/s/fake_tensor/add_meta.py", line 33, in add
    return target.add_(other)
  File "{TORCH}/utils/_stats.py", line 29, in wrapper
    return fn(*args, **kwargs)
  File "{TORCH}/_subclasses/fake_tensor.py", line 1017, in _find_common_device
    merge_devices(arg)
  File "{TORCH}/_subclasses/fake_tensor.py", line 1012, in merge_devices
    raise RuntimeError(
RuntimeError: Unhandled FakeTensor Device Propagation for aten.add_.Tensor, found two different devices cpu, meta
"""
COMPILED_2_11 = f"""\
Traceback (most recent call last):
  File "/s/fake_tensor/add_meta.py", line 52, in <module>
    result = compiled(torch.ones(3, 4), torch.ones(3, 4, device="meta"))
  File "{TORCH}/_dynamo/utils.py", line 3818, in _get_fake_value_impl
    _wrap_graph_break_with_torch_runtime_err(
  File "{TORCH}/_dynamo/utils.py", line 3616, in _wrap_graph_break_with_torch_runtime_err
    raise exc.with_traceback(e.__traceback__) from None
  File "{TORCH}/_dynamo/utils.py", line 3819, in <lambda>
    lambda: unimplemented(
  File "{TORCH}/_dynamo/exc.py", line 631, in unimplemented
    raise Unsupported(
torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call
  Explanation: Dynamo failed to run FX node with fake tensors: call_method add_(*(FakeTensor(..., size=(3, 4)), \
FakeTensor(..., device='meta', size=(3, 4))), **{{}}): got RuntimeError('Unhandled FakeTensor Device Propagation')
  Developer debug context:

from user code:
   File "/s/fake_tensor/add_meta.py", line 33, in add
    return target.add_(other)
"""
BACKEND_2_12 = f"""\
Traceback (most recent call last):
  File "/s/fake_tensor/add_meta.py", line 52, in <module>
    result = compiled(torch.ones(3, 4), torch.ones(3, 4, device="meta"))
  File "{TORCH}/_dynamo/output_graph.py", line 2978, in _call_user_compiler
    raise BackendCompilerFailed(
  File "{TORCH}/_subclasses/fake_tensor.py", line 1050, in merge_devices
    raise RuntimeError(
torch._dynamo.exc.BackendCompilerFailed: backend='aot_eager' raised:
RuntimeError: Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cpu, meta

While executing %add_ : [num_users=1] = call_method[target=add_](args = (%l_target_, %l_other_), kwargs = {{}})
Original traceback:
  File "/s/fake_tensor/add_meta.py", line 33, in add
    return target.add_(other)
"""
BACKEND_2_15 = (
    BACKEND_2_12.replace("raise RuntimeError(", "raise FakeTensorDeviceMismatchError(")
    .replace("\nRuntimeError: ", "\nFakeTensorDeviceMismatchError: ")
    .replace("line 1050", "line 1131")
)
CAUGHT_2_12 = COMPILED_2_11.replace("fake_tensor/add_meta.py", "dynamo/op_error_caught.py").replace("3818", "3870")
ADDED = "add (add_meta.py:33) < <module> (add_meta.py:52)"
INDUCTOR = f"""\
Traceback (most recent call last):
  File "/s/mine.py", line 5, in <module>
    f(x)
  File "{TORCH}/_inductor/graph.py", line 1200, in call_function
    raise LoweringException(e, target, args, kwargs).with_traceback(
torch._inductor.exc.InductorError: LoweringException: AssertionError: no such layout
  target: aten.index_put.default
"""
OWN = """\
Traceback (most recent call last):
  File "/s/mine.py", line 9, in <module>
    check()
  File "/s/mine.py", line 4, in check
    assert a == b
AssertionError
"""


def signature(stderr: str) -> str | None:
    ending = Ending(stopped_by="exit", exit_code=1, signal=None, seconds=1)
    return judge(ending, stderr, 1000).signature


@pytest.mark.parametrize("stderr", [COMPILED_2_11, BACKEND_2_12])
def test_two_lines_of_one_compiled_function_are_two_failures(stderr: str) -> None:
    """The line that was being compiled tells two bugs apart; a release that does not tell it has the same failure."""
    line, undecided = "line 33, in add", stderr.partition("\nfrom user code")[0].partition("\nOriginal traceback")[0]
    first, second, third = (
        Failure(outcome=Outcome.FAIL, signature=signature(text), message="found two different devices cpu, meta")
        for text in (stderr, stderr.replace(line, "line 34, in add"), undecided)
    )
    assert not first.compare(second)
    assert first.compare(third)
    assert third.compare(second)


def test_what_dynamo_runs_of_the_users_is_told_by_its_own_line() -> None:
    """A function of the user's that raises while something is compiled stays the innermost."""
    raising = '  File "/s/backend.py", line 7, in backend\n    raise RuntimeError("no")\n'
    text = COMPILED_2_11.replace("torch._dynamo.exc.TorchRuntimeError", raising + "torch._dynamo.exc.TorchRuntimeError")
    expected = (
        'RuntimeError "Unhandled FakeTensor Device Propagation" in backend (backend.py:7) < <module> (add_meta.py:52)'
    )
    assert signature(text) == expected


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (EAGER_2_11, "RuntimeError in merge_devices (fake_tensor.py) < add (add_meta.py:33)"),
        (COMPILED_2_11, f"RuntimeError in _get_fake_value_impl (utils.py) < {ADDED}"),
        (BACKEND_2_12, f"RuntimeError in merge_devices (fake_tensor.py) < {ADDED}"),
        (BACKEND_2_15, f"FakeTensorDeviceMismatchError in merge_devices (fake_tensor.py) < {ADDED}"),
        (
            CAUGHT_2_12,
            f"RuntimeError in _get_fake_value_impl (utils.py) < {ADDED.replace('add_meta', 'op_error_caught')}",
        ),
        (INDUCTOR, "AssertionError in call_function (graph.py) < <module> (mine.py:5)"),
        (
            OWN.replace("AssertionError\n", "check.<locals>.MyError: no\n"),
            'MyError "no" in check (mine.py:4) < <module> (mine.py:9)',
        ),
        (OWN, 'AssertionError "assert a == b" in check (mine.py:4) < <module> (mine.py:9)'),
    ],
)
def test_failure_is_named_by_its_cause_and_place(stderr: str, expected: str) -> None:
    """Neither a compiler's wrapping nor who raises for others hides what went wrong where."""
    assert signature(stderr) == expected


def test_text_without_a_traceback_holds_no_exception() -> None:
    """A warning is no exception, and neither is a traceback that was cut off."""
    assert read_exception("UserWarning: something\n") is None
    assert read_exception(EAGER_2_11.rpartition("RuntimeError: ")[0]) is None


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (signature(BACKEND_2_12), signature(BACKEND_2_15), True),
        (signature(COMPILED_2_11), signature(BACKEND_2_12), False),
        ("AssertionError in f (x.py) < <module> (m.py)", "AttributeError in f (x.py) < <module> (m.py)", False),
        ("MyError in f (m.py) < <module> (m.py)", "ValueError in f (m.py) < <module> (m.py)", False),
        ("stuck: child, 2 x futex", "stuck: 3 x futex, child", True),
        ("stuck: child, futex", "stuck: pipe", False),
        ("stuck: child, futex", "idle", True),
        ("spins in f (m.py:N)", "spins in g (m.py:N)", False),
        ("exit code 3", "exit code 4", False),
        (None, "exit code 4", True),
        (
            "stuck in at::for_each < at::native::fill_kernel < at::native::fill_out < at::_ops::fill_::call < at::full",
            "stuck in at::for_each < at::native::fill_kernel::{lambda}::operator() < at::native::fill_kernel"
            " < at::native::fill_out < at::_ops::fill_::call",
            True,
        ),
        (
            "stuck in at::for_each < at::wrapper_mul_Tensor < c10::impl::w::call < at::_ops::mul_Tensor::redispatch",
            "stuck in at::for_each < at::wrapper_CPU_mul_Tensor < at::_ops::mul_Tensor::redispatch",
            True,
        ),
        ("stuck in take_gil < Holder < at::_ops::mm::call", "stuck in take_gil < Holder < at::_ops::add::call", False),
        ("stuck in take_gil < Holder", "stuck in take_gil < Holder < at::_ops::add::call", False),
    ],
)
def test_same_failure_is_told_from_another(first: str | None, second: str | None, same: bool) -> None:
    """Another release's own type at the same place is the same failure; another place or built-in type is not."""
    assert failed(first).compare(failed(second)).is_same is same
    assert failed(second).compare(failed(first)).is_same is same


@pytest.mark.parametrize(
    ("says", "other_says", "same"),
    [
        ("expand: too few dimensions (2)", "expand: too few dimensions (3)", True),
        ("expand: too few dimensions", "no such operator", False),
        ("", "", False),
    ],
)
def test_the_same_words_on_behalf_of_the_same_line_are_one_failure(says: str, other_says: str, same: bool) -> None:
    """A release that raises from elsewhere in torch still fails in the same way; other words are another failure."""
    first, second = "RuntimeError in _check (a.py) < f (m.py)", "TorchRuntimeError in fake (b.py) < f (m.py)"
    assert is_one(first, second, says, other_says) is same
    assert not is_one(first, second.replace("f (m.py)", "g (m.py)"), says, other_says)


@pytest.mark.parametrize("last", [13, 14])
def test_a_recursion_without_end_is_told_by_what_recurs(last: int) -> None:
    """Where the stack was full is chance: neither the innermost line nor the last words count."""
    recurs = '  File "/s/tree.py", line 14, in depth\n    return 1 + depth(node.left)\n'
    begins = 'Traceback (most recent call last):\n  File "/s/tree.py", line 20, in <module>\n    depth(root)\n'
    words = f"maximum recursion depth exceeded in {'comparison' if last == 13 else 'a call'}"
    ends = f'  File "/s/tree.py", line {last}, in depth\n    if node is None:\nRecursionError: {words}\n'
    raised = read_exception(begins + 3 * recurs + "  [Previous line repeated 983 more times]\n" + ends)
    assert raised is not None
    assert str(Signature.of(raised)) == "RecursionError in depth (tree.py:14)"
    shallow = read_exception(begins + 3 * recurs + ends)
    assert shallow is not None
    assert str(Signature.of(shallow)) == f"RecursionError in depth (tree.py:{last}) < depth (tree.py:14)"


def test_the_cause_follows_arguments_of_several_lines() -> None:
    """Releases up to 2.6 print the arguments of the call before what went wrong in it."""
    stderr = (
        f'Traceback (most recent call last):\n  File "/s/bits.py", line 9, in bits\n    row.view(kind)\n'
        f'  File "{TORCH}/_dynamo/utils.py", line 1766, in run_node\n    return getattr(args[0], node.target)()\n'
        "torch._dynamo.exc.TorchRuntimeError: Failed running call_method view(*(BatchedTensor(lvl=1, value=\n"
        "    FakeTensor(..., size=(4, 3))\n), torch.int32), **{}):\nBatching rule not implemented for aten::view\n\n"
        "from user code:\n"
    )
    raised = read_exception(stderr)
    assert raised is not None
    assert raised.first_line == "Batching rule not implemented for aten::view"
