"""The graph that a backend was given, as a script of as few of its nodes as fail."""

import json
from textwrap import dedent
from typing import Any

import pytest

from tests.triage.minimise.told import tensor
from whichtorch.search.runs_oracle import asking, drive
from whichtorch.triage.case import CompileCall
from whichtorch.triage.minimise.captured_graph import CapturedGraph

INDUCTOR = CompileCall(call="compile", backend="inductor")
CODE = """

def forward(self, L_x_ : torch.Tensor, L_w_ : torch.Tensor):
    l_x_ = L_x_
    l_w_ = L_w_
    hidden = self.L_first_(l_x_);  l_x_ = None
    part = torch._C._nn.linear(hidden, l_w_);  hidden = l_w_ = None
    high = part * inf;  part = None
    last = torch.relu(high);  high = None
    return (last,)
"""


def pair(**fields: Any) -> dict[str, Any]:
    """Return a fake tensor of two elements as the hook writes it."""
    return tensor(**{"tensor": [2], "stride": [1], "fake": True, **fields})


def noted(**values: Any) -> str:
    """Return what the hook writes of the graph."""
    names = ("l_x_", "l_w_", "hidden", "part", "high", "last")
    attributes = {"L_first_": {"literal": "torch.nn.Linear(2, 2)"}}
    return json.dumps({"code": CODE, "values": {name: pair() for name in names} | values, "attributes": attributes})


def smallest(text: str, needs: str, context: str = "") -> str | None:
    """Return the script that is found where all that holds some words fails."""
    graph = CapturedGraph.read(text, INDUCTOR)
    assert graph is not None
    return drive(graph.smallest(context), asking(lambda script: needs in script))


@pytest.mark.parametrize(
    ("needs", "lines"),
    [
        pytest.param(
            "linear(",
            """\
            import torch
            def function(hidden, l_w_):
                part = torch._C._nn.linear(hidden, l_w_)
                return part
            outputs = torch.compile(function)(torch.rand(2), torch.rand(2))
            """,
            id="a node in the middle",
        ),
        pytest.param(
            "relu(",
            """\
            import torch
            def function(high):
                last = torch.relu(high)
                return (last,)
            outputs = torch.compile(function)(torch.rand(2))
            """,
            id="the last node",
        ),
        pytest.param(
            "L_first_(",
            """\
            import torch
            L_first_ = torch.nn.Linear(2, 2)
            def function(l_x_):
                hidden = L_first_(l_x_)
                return hidden
            outputs = torch.compile(function)(torch.rand(2))
            """,
            id="a module of the graph's own",
        ),
        pytest.param(
            "* inf",
            """\
            import torch
            from torch import inf
            def function(part):
                high = part * inf
                return high
            outputs = torch.compile(function)(torch.rand(2))
            """,
            id="a name that a graph knows without an import",
        ),
    ],
)
def test_one_node_is_left(needs: str, lines: str) -> None:
    """What a node reads of others is made anew, by its shape."""
    assert smallest(noted(), needs) == dedent(lines)


def test_values_context_and_gradients_are_tried() -> None:
    """Where new inputs show nothing: those that there were, after what the script has set, and backward."""
    told = noted(high=pair(values="[1.0, 2.0]", fake=False), l_x_=pair(requires_grad=True, fake=False))
    found = smallest(told, "backward()", "import torch\ntorch.set_num_threads(1)\n")
    assert found is not None
    assert "output.sum().backward()" in found
    found = smallest(told, "set_num_threads(1)", "import torch\ntorch.set_num_threads(1)\n")
    assert found is not None
    assert found.count("import torch") == 1
    found = smallest(noted(l_x_=pair(values="[1.0, 2.0]", fake=False)), "[1.0, 2.0]")
    assert found is not None
    assert "torch.tensor([1.0, 2.0], dtype=torch.float32)" in found


def test_what_cannot_be_written_is_not_asked() -> None:
    """A graph whose inputs no line can make, or that does not fail as a whole, gives no script."""
    unknown = {"unknown": "DTensor"}
    assert smallest(noted(l_x_=unknown, l_w_=unknown, hidden=unknown, part=unknown, high=unknown), "") is None
    assert smallest(noted(), "no such words") is None


def test_an_empty_graph_counts_only_if_it_fails() -> None:
    """A graph without a node is a script like any other: it is asked, and what passes is no smaller script."""
    told = json.dumps({"code": "def forward(self, x):\n    return (x,)\n", "values": {"x": pair()}, "attributes": {}})
    assert smallest(told, "no such words") is None
    assert "relu(" not in (smallest(told, "torch.compile") or "relu(")


@pytest.mark.parametrize("text", ["", "{}", '{"code": "1 +"}', '{"code": "1"}'])
def test_torn_notes_are_no_graph(text: str) -> None:
    """A run that ended while it wrote has noted nothing."""
    assert CapturedGraph.read(text, INDUCTOR) is None
