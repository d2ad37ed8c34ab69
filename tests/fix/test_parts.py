"""A module is taken apart without a loss."""

from pathlib import Path

from whichtorch.fix.units import parts_of

ROOT = Path(__file__).parents[2]
TEXT = '''"""Says what."""
# of the import
import math, os; import re

@first
# between
def f(): pass
class A(
    Base,
    # a comment with a colon:
):
    # above x
    x = 1

    @property
    def size(self): ...
    @size.setter
    def size(self, value): ...
class B: y = 2
if math:
    pass
register("a", 1)
register("b", 2)
# the end
'''


def test_nothing_lost() -> None:
    """The parts' texts are the module's text, whatever it holds."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "whichtorch").rglob("*.py")}
    assert len(texts) > 100
    lossy = [path for path, text in texts.items() if "".join(part.whole for part in parts_of(text)) != text]
    assert lossy == []


def test_names() -> None:
    """Each part has a name that it keeps from release to release, and that no other has."""
    names = [part.name for part in parts_of(TEXT)]
    assert names == [
        *("docstring", "import math", "f", "A", "B", "if math"),
        *("register('a')", "register('b')", "end of file"),
    ]


def test_class_body() -> None:
    """A class's head ends at its colon, and its parts bring the comments above them."""
    part = next(part for part in parts_of(TEXT) if part.name == "A")
    assert part.text.startswith("class A(\n")
    assert part.text.endswith("):\n")
    assert [inner.name for inner in part.body] == ["x", "size@property", "size@size.setter"]
    assert part.body[0].text == "    # above x\n    x = 1\n"


def test_lines() -> None:
    """A part knows its lines, those of its comments and decorators included."""
    part = next(part for part in parts_of(TEXT) if part.name == "f")
    assert (part.first, part.last) == (4, 7)


def test_line_ends() -> None:
    """Other line ends, a form feed and a missing last line end are kept."""
    text = "x = 1\r\n\x0cy = '''\u2028'''\r\nz = 3"
    assert [part.text for part in parts_of(text)] == ["x = 1\r\n", "\x0cy = '''\u2028'''\r\n", "z = 3"]
