"""A place that a script failed in, or a graph of a backend, as a script of its own; what is written for it."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.triage.minimise.told import tensor
from whichtorch.search.runs_oracle import asking, drive
from whichtorch.triage.case import CompileCall
from whichtorch.triage.minimise.script_places import ScriptPlaces
from whichtorch.triage.minimise.standalone_script import CapturedGraph, scripts_of_places

TENSOR = tensor(values="[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]")
LINEAR = {"literal": "torch.nn.Linear(3, 3)"}
OBJECT = {"unknown": "Net"}
COMPILED = CompileCall(call="compile", backend="aot_eager", fullgraph=True)
SCRIPT = dedent("""\
    import math
    import os
    import torch
    logger = print
    rate = 1 / 2
    class Net(torch.nn.Module):
        def forward(self, x):
            '''Of some use.'''
            y = self.lin(x) * self.scale
            for _ in range(self.steps):
                y = math.sqrt(rate) * y.mul(x).item()
            logger(os.name)
            return y
    def train():
        net = Net()
        net(torch.ones(2, 3))
    train()
    print("a long tail that no place of the failure needs", *range(10), "of twice the length of what is needed")
    print("so that a script of such a place is worth a run, as it is in a script that a user has written")
""")  # line 11 is the innermost

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


def scripts(recorded: dict[str, Any], call: CompileCall | None = None) -> list[str]:
    """Return the scripts of the places of SCRIPT, with what was written down there."""
    raised, compiled = ([16, 17], [11]) if call else ([17, 16, 11], [])
    return list(scripts_of_places(ScriptPlaces(SCRIPT, raised, compiled), json.dumps(recorded), call))


STATEMENT = {"11 -1": {"rate": {"literal": "0.5"}, "x": TENSOR, "y": TENSOR}}
FUNCTION = {
    "11 all": {
        "rate": {"literal": "0.5"},
        "x": TENSOR,
        "self": OBJECT,
        "self.lin": LINEAR,
        "self.scale": TENSOR,
        "self.steps": {"literal": "2"},
        "logger": {"unknown": "builtin"},
    }
}


@pytest.mark.parametrize(
    ("recorded", "call", "lines"),
    [
        pytest.param(
            STATEMENT,
            None,
            """\
            import math
            import torch
            y = torch.rand(2, 3)
            x = torch.rand(2, 3)
            y = math.sqrt(0.5) * y.mul(x).item()
            """,
            id="a statement is run with new tensors",
        ),
        pytest.param(
            STATEMENT,
            COMPILED,
            """\
            import math
            import torch
            def function(y, x):
                y = math.sqrt(0.5) * y.mul(x).item()
                return y
            torch.compile(function, backend='aot_eager', fullgraph=True)(torch.rand(2, 3), torch.rand(2, 3))
            """,
            id="a statement is compiled as the script compiles it",
        ),
        pytest.param(
            STATEMENT,
            CompileCall(call="export", strict=True),
            """\
            import math
            import torch
            class Module(torch.nn.Module):
                def forward(self, y, x):
                    y = math.sqrt(0.5) * y.mul(x).item()
                    return y
            torch.export.export(Module(), (torch.rand(2, 3), torch.rand(2, 3),), strict=True)
            """,
            id="a statement is exported",
        ),
        pytest.param(
            FUNCTION,
            COMPILED,
            """\
            import math
            import os
            import torch
            logger = print
            lin = torch.nn.Linear(3, 3)
            def function(x, scale):
                y = lin(x) * scale
                for _ in range(2):
                    y = math.sqrt(0.5) * y.mul(x).item()
                logger(os.name)
                return y
            torch.compile(function, backend='aot_eager', fullgraph=True)(torch.rand(2, 3), torch.rand(2, 3))
            """,
            id="a method becomes a function, its object's attributes names",
        ),
    ],
)
def test_a_place_stands_alone(recorded: dict[str, Any], call: CompileCall | None, lines: str) -> None:
    """What it reads is made anew, and what of the script it uses is kept; first with numbers of no meaning."""
    found = scripts(recorded, call)
    assert found[0] == dedent(lines)
    assert "torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float32)" in found[1]


@pytest.mark.parametrize(
    "recorded",
    [
        {},
        {"11 -1": {"rate": OBJECT, "x": OBJECT, "y": TENSOR}},
        {"11 -1": {"y": TENSOR | {"fake": True}, "x": TENSOR}},
        {"11 all": {"self": OBJECT, "self.lin": OBJECT, "self.scale": TENSOR, "x": TENSOR}},
    ],
    ids=["not reached", "an object of the script's own", "a fake tensor", "an attribute that cannot be made"],
)
def test_what_cannot_be_made_stands_nowhere(recorded: dict[str, Any]) -> None:
    """No script is made of a place that reads what no line can make."""
    assert scripts(recorded, COMPILED) == []


def test_own_backend_is_kept() -> None:
    """A backend of the script's own is named as there; one without a name of its own cannot be."""
    own = CompileCall(call="compile", backend="logger", own=True)
    assert "torch.compile(function, backend=logger)" in scripts(STATEMENT, own)[0]
    assert scripts(STATEMENT, CompileCall(call="compile", backend="f.<locals>.g", own=True)) == []


STANDIN = """\
import contextlib
class Tensor: pass
class dtype: pass
layout = memory_format = device = dtype
class nn:
    class Module: pass
    class Parameter: pass
class _C:
    DisableTorchFunction = contextlib.nullcontext
def ones(*shape):
    return list(shape)
"""


def test_values_of_the_places_are_written_down(tmp_path: Path) -> None:
    """Names and attributes, as they were when the place was reached last; what fails to be read is left out."""
    (tmp_path / "torch.py").write_text(STANDIN)
    source = dedent("""\
        '''Of some use.'''
        from __future__ import annotations
        import torch
        class Thing:
            size = 2
            @property
            def broken(self):
                raise ValueError
            def grow(self, by):
                self.size += by; return self.size / (by - 2)
        thing = Thing()
        for number in range(3):
            thing.grow(number) if number else None
    """)
    places = ScriptPlaces(source, [13, 10], [])
    (tmp_path / "script.py").write_text(places.recording(str(tmp_path / "values.json")))
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, check=False)
    found = json.loads((tmp_path / "values.json").read_text())
    assert found["10 all"] == {"by": {"literal": "2"}, "self": {"unknown": "Thing"}, "self.size": {"literal": "3"}}
    assert found["13 -1"] == {
        "number": {"literal": "2"},
        "thing": {"unknown": "Thing"},
        "thing.grow": {"unknown": "method"},
    }


def test_values_of_a_place_in_a_long_script_are_written_down() -> None:
    """A graph of a large model is written out in thousands of lines."""
    source = "".join(f"t{number} = [t{number - 1}, f(t0, t1, t2)]\n" for number in range(1, 6000))
    assert ScriptPlaces(source, [5999], []).recording("values.json").count("t5999 = ") == 1


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
