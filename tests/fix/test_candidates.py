"""The order in which changed units are tried."""

from tests.fix.packages import tree_change
from whichtorch.failures.tracebacks import CodeFrame
from whichtorch.fix.cure_search import at_import, by_runs, named, on_stack
from whichtorch.fix.functions_run import FunctionsRun

BAD = {
    "torch/m.py": "FLAG = 1\nIDLE = 1\ndef f():\n    return 1\ndef g():\n    return 1\ndef never():\n    return 1\n",
    "torch/h.py": "def user():\n    return FLAG\n",
    "torch/other.py": "OTHER = 1\n",
}
GOOD = BAD | {
    "torch/m.py": "FLAG = 2\nIDLE = 2\ndef f():\n    # better\n    return 2\ndef g():\n    return 2\n"
    "def never():\n    return 2\ndef new():\n    pass\n@f\ndef hooked():\n    pass\nf()\n",
    "torch/other.py": "OTHER = 2\n",
}


def test_on_stack() -> None:
    """Changed functions of the failing frames come first, the innermost first of all."""
    frames = [CodeFrame(file=path, line=line, function="") for path, line in (("torch/m.py", 6), ("torch/m.py", 4))]
    frames.append(CodeFrame(file="script.py", line=1, function=""))
    assert [unit.name for unit in on_stack(tree_change(BAD, GOOD), frames)] == ["g", "f"]


def test_by_runs() -> None:
    """New functions, flags that are read and changed functions take turns; what nobody ran or reads is left out."""
    bad = FunctionsRun(
        [("torch/h.py", 1, "user"), ("torch/m.py", 1, "<module>"), ("torch/m.py", 3, "f"), ("torch/m.py", 5, "g")]
    )
    good = FunctionsRun(
        [("torch/h.py", 1, "user"), ("torch/m.py", 3, "f"), ("torch/m.py", 10, "new"), ("torch/m.py", 6, "g")]
    )
    words = bad.words(BAD.get) | good.words(GOOD.get)
    units = by_runs(tree_change(BAD, GOOD), bad, good, words, bad.loaded | good.loaded)
    assert [unit.name for unit in units] == ["new", "FLAG", "g", "f"]


def test_at_import() -> None:
    """What acts when a loaded module is imported counts, constants among it, and no plain function."""
    units = at_import(tree_change(BAD, GOOD), ["torch/m.py"])
    assert [unit.name for unit in units] == ["FLAG", "IDLE", "hooked", "f()"]


def test_what_the_script_names() -> None:
    """New functions that the script names come first, by own or registered names; common names do not count."""
    many = "".join(f"class C{number}:\n    def size(self): return 1\n" for number in range(9))
    bad = {"torch/m.py": many + "def old(): return 1\n"}
    good = {
        "torch/m.py": many.replace("1", "2")
        + "def old(): return 2\n@register(aten.quantize)\ndef meta_quantize(): pass\n"
        + "@typing.overload\ndef starmap(a): ...\n@overload\ndef starmap(b): ...\n"
        + "@overload\ndef starmap(c): ...\ndef starmap(a): return a\n"
    }
    change = tree_change(bad, good)
    words = {"quantize", "starmap", "size", "old", "nothing"}
    found = [unit.own_name for unit in named(change, ["torch/m.py"], words)]
    assert sorted(found[:2]) == ["meta_quantize", "starmap"]
    assert found[2:] == ["old"]
