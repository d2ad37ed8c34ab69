"""What is refused without a question, and what is left to the oracle."""

from __future__ import annotations

import ast

import pytest

from whichtorch.matrix.source.missing_names import compiles, missing


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("print(x)\n", {"x"}),
        ("x = 1\nprint(x, len([]), __file__)\n", set()),
        ("def f():\n    return x\n", {"x"}),
        ("def f():\n    global x\n    x = 1\nprint(x)\n", set()),
        ("print([y for y in range(3)], y)\n", {"y"}),
        ("class A:\n    x = 1\n    def f(self):\n        return x\n", {"x"}),
        ("class A:\n    x = 1\n    y = x\n    def f(self):\n        return __class__\n", set()),
        ("from os import *\nprint(x)\n", set()),
        ("print(x)\nx = 1\n", {"x"}),
        ("def f():\n    print(x)\n    x = 1\n", {"x"}),
        ("def f():\n    g = lambda: x\n    x = 1\n    return g\n", set()),
        ("x += 1\n", {"x"}),
        ("x = 1\ndel x\nx = 2\n", set()),
        ("for i in range(2):\n    if i:\n        print(x)\n    x = 1\n", {"x"}),
        ("try:\n    pass\nexcept ValueError as e:\n    print(e)\n", set()),
        ("match 1:\n    case [a, *b] if a:\n        print(a, b)\n", set()),
        ("if (n := 1):\n    print(n)\n", set()),
        ("import a.b as c, d.e\nprint(c, d)\n", set()),
        ("def f(a, *b, c=1, **d) -> None:\n    def g():\n        nonlocal a\n        a = b, c, d\n", set()),
    ],
)
def test_missing_names(source: str, names: set[str]) -> None:
    """A name is missing where nothing binds it, or nothing above its use in its own scope."""
    assert missing(ast.parse(source), source) == names


@pytest.mark.parametrize("source", ["return 1\n", "def f():\n    break\n", "x =\n", "nonlocal x\n", "\0"])
def test_what_does_not_compile(source: str) -> None:
    """What Python refuses is not tried."""
    assert not compiles(source)
