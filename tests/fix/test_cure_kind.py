"""How a cure cures: what is told of it, and what is not."""

from collections.abc import Sequence

import pytest

from tests.fix.packages import changed_file
from whichtorch.fix.cure_kind import cure_kinds
from whichtorch.fix.functions_run import FunctionsRun
from whichtorch.fix.units import Proposal

GUARDED = "def f(a):\n    if a:\n        g(a)\n    return a\n"
LONG = "T = [" + ", ".join(map(str, range(40))) + "]\n"


def told(bad: str, good: str, run: FunctionsRun | None = None) -> Sequence[str]:
    """Return what is told of the cure that is all that differs between two texts of a module."""
    return cure_kinds(Proposal(units=frozenset(changed_file(bad, good).units)), run)


@pytest.mark.parametrize(
    ("bad", "good", "words"),
    [
        ("x = True\n", "x = False\n", "`x = True` becomes `False`"),
        (
            "x: int = 1\n",
            "import os\nx: int = os.environ.get('X') or 2\n",
            "`x = 1` becomes `os.environ.get('X') or 2`",
        ),
        ("class A:\n    x = 1\n", "class A:\n    x = 1\n    y = 2\n", "`A.y = 2` is new"),
        (LONG, LONG.replace("[0, ", "["), "`T`"),
        ("def f(a, b=1, *, c=2): pass\n", "def f(a, b=3, *, c=2): pass\n", "`f(b=1)` becomes `f(b=3)`"),
        ("def f(a): pass\n", "def f(a=1): pass\n", "`f(a)` becomes `f(a=1)`"),
        ("@slow\n@fast\ndef f(): pass\n", "@slow\ndef f(): pass\n", "`@fast` of `f` is gone"),
    ],
)
def test_settings(bad: str, good: str, words: str) -> None:
    """Constants, defaults and decorators that are gone are settings, told with both values."""
    assert told(bad, good) == (f"it changes a setting: {words}",)


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        (GUARDED, GUARDED.replace("    if a:\n        g(a)\n", "")),
        (GUARDED, GUARDED.replace("    if a:\n        g(a)\n", "    g(a)\n")),
        ("x = 1\n" + GUARDED, "x = 1\n"),
    ],
)
def test_removals(bad: str, good: str) -> None:
    """What only takes lines away is told, also where a condition goes and what it guarded stays."""
    assert told(bad, good) == ("it removes code, and adds none, in `f`",)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("    if not a: return None\n", "if not a: return None"),
        ("    if a > 1:\n        # never\n        raise ValueError\n", "if a > 1: raise ValueError"),
        ("    return a\n", "return a"),
    ],
)
def test_early_exits(line: str, words: str) -> None:
    """A line that leaves a function before the rest of it runs is told as it stands."""
    good = GUARDED.replace("    if a:\n", f"{line}    if a:\n")
    assert told(GUARDED, good) == (f"it leaves a function early: `{words}` in `f`",)


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("x = 1\n", "x = lambda: 1\n"),
        ("x = 1\n", "x = make(1)\n"),
        ("def f(): pass\n", "@fast\ndef f(): pass\n"),
        (GUARDED, GUARDED.replace("g(a)", "g(a + 1)")),
        (GUARDED, GUARDED.replace("        g(a)\n", "        g(a)\n        return a\n")),
        ("x = 1\n" + GUARDED, "x = 2\n" + GUARDED.replace("g(a)", "h(a)")),
        ("a = 1\nb = 2\n", "b = 2\na = 1\n"),
    ],
)
def test_code_like_any_other(bad: str, good: str) -> None:
    """Nothing is told of other code, nor of a setting beside it: who knows which of the two mends."""
    assert told(bad, good) == ()


def test_a_draft_counts() -> None:
    """Where the cure is a part of what the good release changed, that part is what is told."""
    (unit,) = changed_file("def f(a):\n    g(a)\n    return a\n", "def f(a):\n    h(a)\n    return a + 1\n").units
    assert cure_kinds(Proposal(units=frozenset({unit}), drafts={unit: "def f(a):\n    return a\n"})) != ()
    assert cure_kinds(Proposal(units=frozenset({unit}), drafts={unit: "def f(a):\n    h(a)\n    return a\n"})) == ()


@pytest.mark.parametrize(
    ("run", "is_beside"),
    [
        (FunctionsRun([("torch/m.py", 1, "<module>"), ("torch/m.py", 3, "other")], passed=True), True),
        (FunctionsRun([("torch/m.py", 1, "f")], passed=True), False),
        (FunctionsRun([("torch/m.py", 3, "other")]), False),  # it did not come to its end
        (FunctionsRun([], passed=True), False),
        (FunctionsRun([("torch/m.py", 3, "other"), ("torch/_dynamo/x.py", 1, "g")], passed=True), False),  # it is read
        (None, False),
    ],
)
def test_beside_the_run(run: FunctionsRun | None, *, is_beside: bool) -> None:
    """A cure whose functions the passing run never reaches is doubted, where that run was noted to its end."""
    other = "def other():\n    return 1\n"
    sentences = told(f"def f():\n    return 1\n{other}", f"def f():\n    return 2\n{other}", run)
    assert any("none of its functions runs" in words for words in sentences) is is_beside
