"""What a whole search answers where there are two cures, where one needs several functions, and where there is none."""

import pytest

from tests.fix.workplace import CORE, Workplace

pytestmark = pytest.mark.thorough

# either of two functions that the script runs takes the fault away
EITHER = {
    "torch/__init__.py": CORE + "from torch.ops import add\n",
    "torch/ops.py": "from torch.sides import left, right\ndef add(a, b):\n    if left() and right():\n"
    "        raise RuntimeError('both')\n    return a + b\n",
    "torch/sides.py": "def left():\n    return True\ndef right():\n    return True\n",
}
# what one function writes the other reads; the script fails for what both of them leave out
WIRE = {
    "torch/__init__.py": CORE + "from torch.sender import write\nfrom torch.receiver import read\n"
    "def add(a, b):\n    return read(write(a, b))\n",
    "torch/sender.py": "def write(a, b):\n    return (a,)\n",
    "torch/receiver.py": "def read(words):\n    (a,) = words\n    return a\n",
}
# a binary, as none of torch's Python files; that of the good release has one more function
NATIVE = "class _C:\n    @staticmethod\n    def _dispatch_get_all_op_names():\n        return []\n"
PLUS = "    @staticmethod\n    def _plus(a, b):\n        return a + b\n"


def test_two_cures(workplace: Workplace) -> None:
    """Where either of two changes cures, the answer is one of them alone."""
    bad = workplace.environment("bad", EITHER)
    sides = EITHER["torch/sides.py"].replace("True", "False")
    answer = workplace.fix(bad, workplace.environment("good", EITHER | {"torch/sides.py": sides}))
    assert answer.units in (("torch/sides.py: left (changed)",), ("torch/sides.py: right (changed)",))
    assert (answer.lines, answer.reverted) == (2, "cured")


def test_functions_that_need_each_other(workplace: Workplace) -> None:
    """Two functions of two files are found, though each of them alone breaks the script in another way."""
    sender = "def write(a, b):\n    return (a, b)\n"
    receiver = "def read(words):\n    (a, b) = words\n    return a + b\n"
    good = WIRE | {"torch/sender.py": sender, "torch/receiver.py": receiver}
    answer = workplace.fix(workplace.environment("bad", WIRE), workplace.environment("good", good))
    assert answer.units == ("torch/receiver.py: read (changed)", "torch/sender.py: write (changed)")
    assert answer.with_patch == (3, 3)


def test_a_symbol_that_the_binary_lacks(workplace: Workplace) -> None:
    """A change that calls what only the good release's binary has is not tried; the answer names the symbol."""
    ops = "import torch\ndef add(a, b):\n    return a - b\n"
    bad = {"torch/__init__.py": "from binary import _C\nfrom torch.ops import add\n", "torch/ops.py": ops}
    good = bad | {"torch/ops.py": ops.replace("a - b", "torch._C._plus(a, b)"), "binary.py": NATIVE + PLUS}
    bad |= {"binary.py": NATIVE}
    answer = workplace.fix(workplace.environment("bad", bad), workplace.environment("good", good))
    assert answer.patch == ""
    assert any("symbols that the bad release's binary does not have: torch._C._plus" in why for why in answer.why_not)


def test_a_regression_that_an_addition_brought(workplace: Workplace) -> None:
    """Where the newer release is the bad one, what it added is taken back: a registration, a method that overrides."""
    table = "KERNELS = {}\ndef register(name):\n    return lambda kernel: KERNELS.setdefault(name, kernel)\n"
    ops = f"{table}class Base:\n    def run(self, a, b):\n        return a + b\nclass Kernel(Base):\n    name = 'add'\n"
    call = "def add(a, b):\n    return KERNELS.get('add', Kernel().run)(a, b)\n"
    older = {"torch/__init__.py": CORE + "from torch.ops import add\n", "torch/ops.py": ops + call}
    override = "    def run(self, a, b):\n        return a - b\n"
    registered = "@register('add')\ndef fast_add(a, b):\n    return a - b\n"
    for name, text, unit in (
        ("method", ops + override + call, "torch/ops.py: Kernel.run (removed)"),
        ("registration", ops + call + registered, "torch/ops.py: fast_add (removed)"),
    ):
        newer = workplace.environment(name, older | {"torch/ops.py": text})
        answer = workplace.fix(newer, workplace.environment(f"before-{name}", older))
        assert answer.units == (unit,)
        assert (answer.with_patch, answer.without_patch, answer.reverted) == ((3, 3), (0, 3), "same")
