"""What differs between two texts, and any part of it applied."""

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fix.packages import changed_file
from whichtorch.fix.units import Kind

BAD = '''"""Old."""
from a import x
from b import kept, gone
FLAG = True
def helper(value):
    return value
class Tensor:
    """What it is."""
    def size(self):
        return 1
    def old(self):
        return 0
'''
GOOD = '''"""New."""
from __future__ import annotations
from b import kept
from c import x, fresh
FLAG = False
class Added:
    pass
class Tensor:
    """What it is now."""
    def size(self) -> int:
        # explained
        return 1
    def norm(self):
        return helper(2)
def helper(value):
    return value + 1
'''


def test_kinds() -> None:
    """A unit is a definition or a statement by its qualified name, and says what it does to the bad release."""
    units = {unit.name: (unit.kind, unit.cosmetic) for unit in changed_file(BAD, GOOD).units}
    assert units == {
        "docstring": (Kind.CHANGED, True),
        "import annotations": (Kind.ADDED, False),
        "import x": (Kind.CHANGED, False),
        "import fresh": (Kind.ADDED, False),
        "FLAG": (Kind.CHANGED, False),
        "Added": (Kind.ADDED, False),
        "Tensor.docstring": (Kind.CHANGED, True),
        "Tensor.size": (Kind.CHANGED, True),
        "Tensor.norm": (Kind.ADDED, False),
        "Tensor.old": (Kind.REMOVED, False),
        "helper": (Kind.MOVED, False),
    }


def test_everything_chosen() -> None:
    """With all units, a file means what the good release's means, imports only added; with none it is the bad one's."""
    file = changed_file(BAD, GOOD)
    assert file.text(()) == BAD
    text = file.text(file.units)
    assert _without_imports(text) == _without_imports(GOOD)
    assert text.index("from c import x") > text.index("from a import x")
    assert "gone" in text


def test_one_chosen() -> None:
    """A unit alone changes its own lines and no others; a draft stands for what the good release has."""
    file = changed_file(BAD, GOOD)
    (flag,) = (unit for unit in file.units if unit.name == "FLAG")
    assert file.text({flag}) == BAD.replace("FLAG = True", "FLAG = False")
    assert "FLAG = None\n" in file.text({flag}, {flag: "FLAG = None\n"})


def test_future_import_comes_first() -> None:
    """An added `from __future__` stands where Python accepts it."""
    file = changed_file("import a\nimport b\n", "from __future__ import annotations\nimport b\n")
    compile(file.text(file.units), "m.py", "exec")


def test_new_file() -> None:
    """A file that the bad release does not have is made of its units."""
    file = changed_file(None, "import a\ndef f(): pass\ndef g(): pass\n")
    (wanted,) = (unit for unit in file.units if unit.name == "g")
    assert file.text({wanted}) == "def g(): pass\n"


_statements = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), max_size=8, unique_by=lambda s: s[0])


@settings(max_examples=200, deadline=None)
@given(bad=_statements, good=_statements, data=st.data())
def test_any_change(bad: list[tuple[str, int]], good: list[tuple[str, int]], data: st.DataObject) -> None:
    """Whatever was added, changed, moved or removed: all units give the good text, and any of them a readable one."""
    file = changed_file(_module(bad), _module(good))
    assert file.text(()) == _module(bad)
    assert file.text(file.units) == _module(good)
    ast.parse(file.text(data.draw(st.sets(st.sampled_from(file.units))) if file.units else ()))


def _module(statements: list[tuple[str, int]]) -> str:
    return "".join(f"# on {name}\ndef {name}():\n    return {value}\n" for name, value in statements)


def _without_imports(text: str) -> list[str]:
    return [ast.dump(node) for node in ast.parse(text).body if not isinstance(node, (ast.Import, ast.ImportFrom))]
