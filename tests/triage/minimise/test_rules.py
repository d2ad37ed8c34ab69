"""Each kind of edit, at its smallest: a source, and what the first edit of a rule makes of it."""

import ast
from textwrap import dedent

import pytest

from whichtorch.triage.minimise.expressions import inline_variables
from whichtorch.triage.minimise.inlining import inline_functions
from whichtorch.triage.minimise.reduction import Rule, try_edits
from whichtorch.triage.minimise.single_instance import inline_single_instance
from whichtorch.triage.minimise.statements import drop_async, drop_unneeded, unwrap_blocks
from whichtorch.triage.minimise.tree_edit import Program, ReductionState


def first_edit(rule: Rule, source: str, failing_lines: tuple[int, ...] = ()) -> str:
    """Return the source after a rule's first edit that can run."""
    program = Program(tree=ast.parse(dedent(source)))
    case = ReductionState.of(program, failing_lines)
    candidates = (try_edits(case, program, [edit]) for edit in rule(program, case))
    return next((candidate.source for candidate in candidates if candidate is not None), "")


EDITS = {
    "a function is put where it is called": (
        inline_functions,
        "def add(a, b=1):\n    c = a + b\n    return c * 2\nx = 3\nprint(add(x))\n",
        "x = 3\nc = x + 1\nprint(c * 2)\n",
    ),
    "a local name makes way for one that is still read": (
        inline_functions,
        "def add(a):\n    c = a + 1\n    return c\nc = 3\nx = add(2)\nprint(c, x)\n",
        "c = 3\nc_2 = 2 + 1\nx = c_2\nprint(c, x)\n",
    ),
    "a generator is put around the body of its loop": (
        inline_functions,
        "def numbers(n):\n    for i in range(n):\n        yield i * 2\nfor x in numbers(3):\n    print(x)\n",
        "for i in range(3):\n    x = i * 2\n    print(x)\n",
    ),
    "a context manager is put around the body of its block": (
        inline_functions,
        "import contextlib\n@contextlib.contextmanager\ndef on(a):\n    print(a)\n    yield a\n"
        "with on('a') as b:\n    print(b)\n",
        "print('a')\nb = 'a'\nprint(b)\n",
    ),
    "a class with one object is variables and functions": (
        inline_single_instance,
        "class A(B):\n    def __init__(self, n):\n        super().__init__()\n        self.n = n\n"
        "    def forward(self, x):\n        return self.n + x\nimport B\na = A(3)\nprint(a(4))\n",
        "def forward(x):\n    return n_2 + x\nn_2 = 3\nprint(forward(4))\n",
    ),
    "a loop is its first turn": (
        unwrap_blocks,
        "for i, x in enumerate(y):\n    if x:\n        break\n    print(i)\n",
        "i = 0\nx = next(iter(y))\nif x:\n    pass\nprint(i)\n",
    ),
    "coroutines are functions": (
        drop_async,
        "import asyncio\nasync def f():\n    await g()\nasyncio.run(f())\n",
        "def f():\n    g()\nf()\n",
    ),
    "a value stands where it is read": (inline_variables, "x = f(1)\nprint(x + 1)\n", "print(f(1) + 1)\n"),
}


@pytest.mark.parametrize(("rule", "source", "expected"), EDITS.values(), ids=EDITS)
def test_first_edit(rule: Rule, source: str, expected: str) -> None:
    """A rule leaves what a reader would have written."""
    assert first_edit(rule, source) == expected


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (inline_functions, "def f(x):\n    if x:\n        return 1\n    print(x)\n    return 2\nf(1)\n"),
        (inline_functions, "def f(*a):\n    print(a)\nf(1)\n"),
        (inline_functions, "def f(n):\n    return f(n - 1)\nf(1)\n"),
        (inline_single_instance, "class A:\n    def f(self):\n        return self\na = A()\na.f()\n"),
        (inline_variables, "x = f(1)\nfor i in y:\n    print(x)\n"),
        (inline_variables, "x = f(1)\nprint(x)\nprint(x)\n"),
    ],
)
def test_no_edit_where_it_is_not_certain(rule: Rule, source: str) -> None:
    """What a rule cannot do for certain it leaves to other rules."""
    assert first_edit(rule, source) == ""


def test_only_what_failed_may_depend_on_is_needed() -> None:
    """All that the failing line's names do not lead to is deleted, edit by edit."""
    source = "a = 1\nb = a\nc = []\nc.append(b)\nlog = print\nlog(b)\ndef f(x):\n    y = 2\n    return x\nf(c)[3]\n"
    program = Program(tree=ast.parse(source))
    case = ReductionState.of(program, [10])
    found = try_edits(case, program, list(drop_unneeded(program, case)))
    assert found is not None
    assert found.source == "a = 1\nb = a\nc = []\nc.append(b)\n\ndef f(x):\n    return x\nf(c)[3]\n"
