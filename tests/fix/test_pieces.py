"""What can be left out of a new text."""

import ast

import pytest

from whichtorch.fix.minimum import without_pieces
from whichtorch.fix.units import statements_of

BAD = "    def f(self, a):\n        return a\n"
GOOD = '''    @decorated
    def f(self, a):
        """Do it."""
        # why
        if a == 1:
            a = 2
        elif a == 2:
            a = 3
            b = 4
        else:
            a = 5
        try:
            a += 1
            a += 2
        except KeyError:
            pass
        except ValueError:
            raise
        return a
'''


def left_out(text: str) -> set[str]:
    lines = GOOD.splitlines()
    kept = text.splitlines()
    return {line.strip() for line in lines if lines.count(line) > kept.count(line)}


def test_statements_and_branches() -> None:
    """Each new statement and branch is left out once, the longest first, and what is left can be read."""
    texts = list(without_pieces(BAD, GOOD))
    assert all(statements_of(text) for text in texts)
    sizes = [len(text.splitlines()) for text in texts]
    assert sizes == sorted(sizes)
    found = [left_out(text) for text in texts]
    assert {"# why", "if a == 1:", "a = 2", "elif a == 2:", "a = 3", "b = 4", "else:", "a = 5"} in found
    assert {"elif a == 2:", "a = 3", "b = 4"} in found
    assert {"else:", "a = 5"} in found
    assert {"except KeyError:", "pass"} in found
    assert not any("def f(self, a):" in lines or '"""Do it."""' in lines or lines == {"return a"} for lines in found)


def test_only_what_is_new() -> None:
    """What the bad release has, too, stays."""
    text = BAD.replace("        return a\n", "        if a:\n            a = 1\n        return a\n")
    assert list(without_pieces(BAD, text)) == [BAD]
    assert list(without_pieces(text, text)) == []


def test_a_branch_that_looks_like_its_neighbour() -> None:
    """A new branch can go, though a line of it stands elsewhere, too, and old branches follow it; those stay."""
    old = "def f(a):\n    if a == 1:\n        g(\n            x=1,\n        )\n    elif a == 3:\n        h()\n"
    new = old.replace("    elif", "    elif a == 2:\n        k(\n            x=1,\n        )\n    elif")
    assert list(without_pieces(old, new)) == [old]


def test_a_method_is_read_alone() -> None:
    """A method's tree has the lines of its text; a class's head alone cannot be read."""
    function = statements_of(GOOD)[0]
    assert isinstance(function, ast.FunctionDef)
    assert function.lineno == 2
    with pytest.raises(SyntaxError):
        statements_of("class X(Y):\n")
