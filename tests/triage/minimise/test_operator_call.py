"""The call of torch that a script ended in, as a script of its own."""

import json
from typing import Any

import pytest

from tests.triage.minimise.told import tensor
from whichtorch.triage.minimise.standalone_script import calls_under_way, scripts_of_calls


def call(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return a call as the hook writes it."""
    return {"name": name, "args": list(args), "kwargs": kwargs}


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        (call("torch.nonzero", tensor(device="meta")), ["x = torch.ones(2, 3, device='meta')", "torch.nonzero(x)"]),
        (call("torch.Tensor.add_", tensor(), tensor(dtype="torch.int64")),
         ["x = torch.rand(2, 3)", "y = torch.ones(2, 3, dtype=torch.int64)", "x.add_(y)"]),
        (call("torch.Tensor.__matmul__", tensor(), tensor()),
         ["x = torch.rand(2, 3)", "y = torch.rand(2, 3)", "x @ y"]),
        (call("torch.cat", {"list": [tensor(), tensor()]}, dim={"literal": "-1"}),
         ["x = torch.rand(2, 3)", "y = torch.rand(2, 3)", "torch.cat([x, y], dim=-1)"]),
        (call("torch.full", {"tuple": [{"literal": "2"}]}, {"literal": "nan"}), ["torch.full((2,), float('nan'))"]),
        (call("torch.relu", tensor(stride=[1, 2])), ["x = torch.rand(6).as_strided((2, 3), (1, 2))", "torch.relu(x)"]),
        (call("torch.relu", tensor(stride=[0, 1])), ["x = torch.rand(3).as_strided((2, 3), (0, 1))", "torch.relu(x)"]),
        (call("torch.relu", tensor(stride=[6, 2])),
         ["x = torch.rand(11).as_strided((2, 3), (6, 2))", "torch.relu(x)"]),
        (call("torch.relu", tensor(values="[[nan, 1.0, -inf]]", tensor=[1, 3])),
         ["x = torch.tensor([[float('nan'), 1.0, float('-inf')]], dtype=torch.float32)", "torch.relu(x)"]),
        (call("torch.relu", tensor(values="[[nan, nan]]", tensor=[1, 2], stride=[0, 0])),
         ["x = torch.tensor([[float('nan'), float('nan')]], dtype=torch.float32)", "torch.relu(x)"]),
        (call("torch.relu", tensor(requires_grad=True)), ["x = torch.rand(2, 3).requires_grad_()", "torch.relu(x)"]),
        (call("torch.relu", tensor(requires_grad=True, parameter=True)),
         ["x = torch.nn.Parameter(torch.rand(2, 3))", "torch.relu(x)"]),
    ],
)  # fmt: skip
def test_a_call_is_written_with_the_tensors_that_it_takes(told: dict[str, Any], lines: list[str]) -> None:
    """Shapes, types, strides, devices and numbers that are none stay; nothing else is written."""
    *_, script = scripts_of_calls([told])
    assert [line for line in script.splitlines() if line] == ["import torch", *lines]
    compile(script, "script.py", "exec")


def test_what_no_line_can_make_is_left_out() -> None:
    """A tensor of another library, or a function that is not torch's, gives no script."""
    unknown = call("torch.relu", {"unknown": "DTensor"})
    foreign = call("mine.relu", tensor())
    sparse = call("torch.relu", tensor(layout="torch.sparse_coo", stride=None))
    assert list(scripts_of_calls([unknown, foreign, sparse, call("torch.relu", tensor())])) != []
    fake = call("torch.relu", tensor(fake=True))
    assert list(scripts_of_calls([unknown, foreign, sparse, fake])) == []


def test_a_file_that_a_crash_tore_says_nothing() -> None:
    """The hook's file is read if it is whole, the innermost call first."""
    text = json.dumps([call("torch.outer"), call("torch.inner")])
    assert [each["name"] for each in calls_under_way(text)] == ["torch.inner", "torch.outer"]
    assert calls_under_way(text[:-4]) == []
    assert calls_under_way("") == []
