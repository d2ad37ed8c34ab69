"""Which names code binds and uses."""

import ast

import pytest

from whichtorch.source.names import KeywordCall, bound, compiles, unbound_names, uses


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(a, b=x): return a + y", {"x", "y"}),
        ("def f():\n    z = 1\n    return [z + i for i in w]", {"w"}),
        ("@d\nclass A(B, metaclass=M):\n    def g(self): return h", {"d", "B", "M", "h"}),
        ("def f():\n    import m\n    return m.x", set()),
        ("def f(a: T) -> R:\n    v: V = a", set()),
        ("try:\n    a()\nexcept E as e:\n    print(e)", {"a", "E", "print"}),
        ("f = lambda a: a + b", {"b"}),
    ],
)
def test_free_names(text: str, names: set[str]) -> None:
    """What code uses and does not bind itself is free; annotations count apart."""
    assert uses(ast.parse(text).body).names == names


def test_uses() -> None:
    """Attributes of names, imports and keywords are seen, wherever they stand."""
    found = uses(ast.parse("def f(a: T):\n    from .m import g\n    return torch._C.h(a, key=1), a().n(other=2)").body)
    assert found.annotations == {"T"}
    assert found.chains == {"torch._C", "torch._C.h"}
    assert found.attributes == {"_C", "h", "n"}
    assert found.imports == {(1, "m", "g")}
    assert found.calls == {
        KeywordCall(function="torch._C.h", keywords=frozenset(["key"])),
        KeywordCall(function="?.n", keywords=frozenset(["other"])),
    }


def test_bound() -> None:
    """A statement binds what any of its branches binds, but not what functions bind for themselves."""
    text = (
        "if a:\n    import b.c as d\nelse:\n    e, f = 1, 2\ndef g():\n    h = 1\nfor i in j: pass\nclass K:\n    l = 1"
    )
    assert bound(ast.parse(text).body) == {"d", "e", "f", "g", "i", "K"}


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
        ("def f():\n    g = lambda: x\n    x = 1\n    return g\n", set()),
        ("x = 1\ndel x\nx = 2\n", set()),
        ("try:\n    pass\nexcept ValueError as e:\n    print(e)\n", set()),
        ("match 1:\n    case [a, *b] if a:\n        print(a, b)\n", set()),
        ("if (n := 1):\n    print(n)\n", set()),
        ("import a.b as c, d.e\nprint(c, d)\n", set()),
        ("def f(a, *b, c=1, **d) -> None:\n    def g():\n        nonlocal a\n        a = b, c, d\n", set()),
    ],
)
def test_unbound_names(source: str, names: set[str]) -> None:
    """A name is unbound where nothing binds it in a scope that its use can see."""
    assert unbound_names(source) == names


@pytest.mark.parametrize("source", ["return 1\n", "def f():\n    break\n", "x =\n", "nonlocal x\n", "\0"])
def test_what_does_not_compile(source: str) -> None:
    """What Python refuses is not tried."""
    assert not compiles(source)
