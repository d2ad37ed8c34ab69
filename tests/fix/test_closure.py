"""What a unit needs, read from its text."""

import pytest

from tests.fix.packages import tree_change, unit
from whichtorch.fix.closure import Closure

EMPTY = {"torch/__init__.py": "", "torch/m.py": "class C:\n    pass\n", "torch/h.py": "X = 1\n"}


@pytest.mark.parametrize(
    ("good", "seed", "needs"),
    [
        ({"torch/m.py": "def g(): pass\ndef f(): g()\n"}, "f", {"g"}),
        ({"torch/m.py": "import math\ndef f(): math.pi\n"}, "f", {"import math"}),
        (
            {"torch/m.py": "from .h import X, help\ndef f(): help(X)\n", "torch/h.py": "X = 1\ndef help(x): pass\n"},
            "f",
            {"import help", "import X", "help"},
        ),
        ({"torch/m.py": "from . import h\ndef f(): h.new()\n", "torch/h.py": "def new(): pass\n"}, "f",
         {"import h", "new"}),
        ({"torch/m.py": "import torch.n\ndef f(): torch.n.go()\n", "torch/n.py": "def go(): pass\n"}, "f",
         {"import torch.n", "go"}),
        ({"torch/m.py": "class C:\n    def f(self): self.g()\n    def g(self): pass\n"}, "C.f", {"C.g"}),
        ({"torch/m.py": "class C:\n    flag = 1\ndef f(): C.flag\n"}, "f", {"C.flag"}),
        ({"torch/m.py": "def f(x): return x.unheard\n", "torch/h.py": "class H:\n    def unheard(self): pass\n"}, "f",
         {"H"}),
        ({"torch/m.py": "from __future__ import annotations\ndef f(x: Later): pass\n"}, "f", {"import annotations"}),
        ({"torch/m.py": "def f(): print(len([]), __file__)\n"}, "f", set()),
        ({"torch/m.py": "class B: pass\nclass C(B):\n    pass\n"}, "C", {"B"}),
    ],
)  # fmt: skip
def test_needs(good: dict[str, str], seed: str, needs: set[str]) -> None:
    """A unit needs what brings its names, imports, attributes and parameters, wherever that stands."""
    change = tree_change(EMPTY, EMPTY | good)
    found = Closure(change).of([unit(change, "torch/m.py", seed)]).units
    assert {each.name for each in found} == needs | {seed}


LOGS = "def register(name): pass\n"
KEPT = "class T:\n    def __init__(self):\n        self.kept = 1\n"


@pytest.mark.parametrize(
    ("bad", "good", "seed", "needs"),
    [
        pytest.param(
            {"torch/m.py": "def g(a): pass\ndef h(a): pass\ndef f(): g(1)\n"},
            {"torch/m.py": "def g(a, key=0): pass\ndef h(a, b): pass\ndef f(): g(1, key=2)\n"},
            "f", {"g"}, id="a function that takes a keyword since then",
        ),
        pytest.param(
            {"torch/m.py": "def g(): 1\ndef f(): 1\n"}, {"torch/m.py": "def g(): 2\ndef f(): g()\n"},
            "f", set(), id="not what the bad release binds already",
        ),
        pytest.param(
            {"torch/m.py": "from torch.h import *\n", "torch/h.py": "X = 1\n"},
            {"torch/m.py": "from torch.h import *\ndef f(): return Y\n", "torch/h.py": "X = 1\nY = 2\n"},
            "f", {"Y"}, id="a name that comes by a star",
        ),
        pytest.param(
            {"torch/m.py": "from torch.h import B\nclass C(B):\n    def f(self): 1\n",
             "torch/h.py": "class B:\n    x = 1\n"},
            {"torch/m.py": "from torch.h import B\nclass C(B):\n    def f(self): self.new()\n",
             "torch/h.py": "class B:\n    x = 1\n    def new(self): pass\n"},
            "C.f", {"B.new"}, id="a method of a class above, in another file",
        ),
        pytest.param(
            {"torch/logs.py": LOGS, "torch/m.py": "def f(): pass\n"},
            {"torch/logs.py": LOGS + "register('trace_code')\nregister('other_code')\n",
             "torch/m.py": "def f():\n    return log('trace_code')\n"},
            "f", {"register('trace_code')"}, id="the call that registers a name which stands in a string",
        ),
        pytest.param(
            {"torch/m.py": KEPT + "        self.strict = 1\ndef reads(t):\n    return t.strict\ndef other(t):\n"
             "    return t.kept\n"},
            {"torch/m.py": KEPT + "def reads(t):\n    return t.kept\ndef other(t):\n    return t.kept + 1\n"},
            "T.__init__", {"reads"}, id="what reads an attribute that it no longer sets",
        ),
    ],
)  # fmt: skip
def test_needs_of_what_changed(bad: dict[str, str], good: dict[str, str], seed: str, needs: set[str]) -> None:
    """What a changed unit needs is what it uses or drops since then, and nothing else of that file."""
    change = tree_change(bad, good)
    found = Closure(change).of([unit(change, "torch/m.py", seed)]).units
    assert {each.name for each in found} == needs | {seed}


def test_lacking_symbols() -> None:
    """A symbol that only the good binary has is lacking, under whatever name it is imported; others never are."""
    good = {
        "torch/m.py": "import torch\nfrom torch._C import fresh\ndef f(): fresh(); torch.ops.aten.mm; torch._C.old()\n"
    }
    change = tree_change({"torch/m.py": "import torch\n"}, good)
    closure = Closure(change, lambda: {"torch._C.fresh"})
    assert closure.of([unit(change, "torch/m.py", "f")]).lacking == {"torch._C.fresh"}


def test_binaries_are_not_asked_in_vain() -> None:
    """The binaries are asked only about what looks like a symbol of theirs."""
    change = tree_change({"torch/m.py": ""}, {"torch/m.py": "import math\ndef f(): return math.pi\n"})

    def refuse() -> set[str]:
        raise AssertionError

    assert not Closure(change, refuse).of([unit(change, "torch/m.py", "f")]).lacking


def test_hard_needs() -> None:
    """Attributes are likely needs only: what an unknown object has cannot be read."""
    change = tree_change(
        EMPTY, EMPTY | {"torch/m.py": "class C:\n    def f(self): self.g(h)\n    def g(self, x): pass\nh = 1\n"}
    )
    seed = unit(change, "torch/m.py", "C.f")
    assert {each.name for each in Closure(change).of([seed], hard=True).units} == {"C.f", "h"}


def test_another_name_of_an_operator_is_seen_through() -> None:
    """An operator that only the good binary has is lacking, too, where a module calls its namespace by another name."""
    good = "import torch\naten = torch.ops.aten\ndef f(x):\n    return aten.fresh.default(x)\n"
    change = tree_change({"torch/m.py": "import torch\naten = torch.ops.aten\n"}, {"torch/m.py": good})
    closure = Closure(change, lambda: {"torch.ops.aten.fresh"})
    assert closure.of(change.units(["torch/m.py"])).lacking == {"torch.ops.aten.fresh"}
