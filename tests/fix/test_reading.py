"""What is read and written around a search: traces, tracebacks, the journal, patches, the last words."""

import subprocess
from pathlib import Path

import pytest

from tests.fix.packages import proposal, tree_change, unit
from whichtorch.failures.tracebacks import CodeFrame, read_frames
from whichtorch.fix.cure_search import Trial, TrialEffect, asked_for, inquiry
from whichtorch.fix.fixing import SearchEvidence, known_so_far, reasons
from whichtorch.fix.functions_run import FunctionsRun
from whichtorch.fix.tree_change import differing, lines_of, package_tree, unified_diff
from whichtorch.fix.units import parts_of
from whichtorch.search.runs_oracle import Journal


def test_failing_frames() -> None:
    """All tracebacks count, a cause before its effect, each from the innermost frame on."""
    lines = [
        f'  File "{file}", line {line}, in f\n' for file, line in (("torch/a.py", 3), ("x.py", 9), ("torch/b.py", 5))
    ]
    header = "Traceback (most recent call last):\n"
    text = f"{header}{lines[0]}KeyError: 1\n\nThe above exception was\n\n{header}{lines[1]}{lines[2]}ValueError\n"
    assert [(frame.path, frame.line) for frame in read_frames(text)] == [
        ("torch/a.py", 3),
        ("torch/b.py", 5),
        ("x.py", 9),
    ]


def test_functions_run() -> None:
    """The processes' files are read in the order of their processes; a torn line is left out."""
    notes = {"11.txt": "torch/a.py\t4\tf\ntorch/b.py\t2\tC.g\n"}
    notes["9.txt"] = "torch/a.py\t1\t<module>\ntorch/a.py\t4\tf\ntorch/b"
    run = FunctionsRun.of_notes(notes)
    assert run.functions == (("torch/a.py", 1, "<module>"), ("torch/a.py", 4, "f"), ("torch/b.py", 2, "C.g"))
    assert set(run.loaded) == set(run.active) == {"torch/a.py", "torch/b.py"}


def test_place() -> None:
    """A part ran if one of its functions did, wherever its comments begin; a module's own code is no function."""
    first, second = parts_of("# above\n@d\ndef f():\n    def g(): pass\nx = 1\n")
    run = FunctionsRun([("torch/a.py", 1, "<module>"), ("torch/a.py", 2, "f"), ("torch/a.py", 4, "f.<locals>.g")])
    assert run.place("torch/a.py", first) == 2
    assert run.place("torch/a.py", second) is None


@pytest.mark.parametrize(
    ("exception", "named"),
    [
        ("NameError: name 'fresh' is not defined", {"fresh"}),
        ("AttributeError: 'C' object has no attribute 'method'", {"C.method"}),
        ("ImportError: cannot import name 'fresh' from 'torch.m' (x.py)", {"fresh"}),
        ("TypeError: g() got an unexpected keyword argument 'key'", {"g"}),
        ("TypeError: C.h() missing 1 required positional argument: 'b'", {"C.h"}),
        ("ValueError: unheard of", set()),
    ],
)
def test_asked_for(exception: str, named: set[str]) -> None:
    """The message of a failure that moved on names what it lacks."""
    bad = "def g(): pass\nclass C:\n    def h(self): pass\n"
    good = "def fresh(): pass\ndef g(key): pass\nclass C:\n    def h(self, b): pass\n    def method(self): pass\n"
    change = tree_change({"torch/m.py": bad}, {"torch/m.py": good})
    trial = Trial(effect=TrialEffect.UNRESOLVED, exception=exception)
    assert {unit.name for unit in asked_for(trial, change, ())} == named


def test_asked_for_at_frames() -> None:
    """A message that names nothing asks for the changed functions where it was raised."""
    change = tree_change({"torch/m.py": "def f(): 1\ndef g(): 1\n"}, {"torch/m.py": "def f(): 2\ndef g(): 2\n"})
    frames = (CodeFrame(file="torch/m.py", line=99, function="g"),)
    trial = Trial(effect=TrialEffect.UNRESOLVED, exception="ValueError", frames=frames)
    assert [unit.name for unit in asked_for(trial, change, ())] == ["g"]


def test_journal(tmp_path: Path) -> None:
    """A trial is found again by what differed, also after a line that a kill tore."""
    path = tmp_path / "fix" / "trials.jsonl"
    change = tree_change({"torch/m.py": "x = 1\ny = 1\n"}, {"torch/m.py": "x = 2\ny = 2\n"})

    def key_of(question: str, name: str) -> str:
        return inquiry(change, question, lambda _: trial, proposal(change, name)).key

    key = key_of("script", "x")
    trial = Trial(
        effect=TrialEffect.SAME, exception="E: e", frames=(CodeFrame(file="a", line=1, function="f"),), seconds=2
    )
    Journal(path, Trial).add("other", trial)
    with path.open("a") as file:
        file.write('{"key": "to')
    Journal(path, Trial).add(key, trial)
    assert Journal(path, Trial).get(key) == trial
    assert Journal(path, Trial).get("other") == trial
    assert key_of("script", "y") != key != key_of("else", "x")


def test_patch_applies(tmp_path: Path) -> None:
    """A patch is what git applies, new files and missing line ends included."""
    bad, good = {"torch/a.py": "x = 1\ny = 1"}, {"torch/a.py": "x = 2\ny = 1", "torch/n/b.py": "z = 1\n"}
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "a.py").write_text(bad["torch/a.py"])
    patch = unified_diff(dict(bad), good)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch.encode(), check=True)
    assert {path: (tmp_path / path).read_text() for path in good} == good
    assert lines_of(patch) == 3


def test_differing(tmp_path: Path) -> None:
    """Only what the wheels list of torch's Python files counts, and of that what differs."""
    for release, text in (("bad", "1"), ("good", "2")):
        site = tmp_path / release
        (site / "torch").mkdir(parents=True)
        (site / "torch-1.dist-info").mkdir()
        (site / "torch" / "a.py").write_text(text)
        (site / "torch" / "same.py").write_text("x")
        (site / "torch-1.dist-info" / "RECORD").write_text(
            "torch/a.py,,\ntorch/same.py,,\ntorch/lib/c.so,,\nnumpy/b.py,,\n"
        )
    pairs = differing(package_tree(tmp_path / "bad"), package_tree(tmp_path / "good"))
    assert {path: (pair.bad, pair.good) for path, pair in pairs.items()} == {"torch/a.py": ("1", "2")}


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (SearchEvidence(reached=0, tried=0), "no function of torch's Python"),
        (SearchEvidence(reached=9, tried=9, last_effect="same"), "with all 9 changed units"),
        (SearchEvidence(reached=9, tried=9, last_effect="unresolved"), "none of 9 changed units"),
    ],
)
def test_reasons(evidence: SearchEvidence, words: str) -> None:
    """Why the fix is not in Python alone is told from what was seen."""
    assert next(reasons(evidence)).startswith(words)


def test_what_could_not_be_judged_is_named() -> None:
    """Units with which the script breaks are told, as nothing is known of them."""
    evidence = SearchEvidence(reached=9, tried=2, last_effect="unresolved", breaking=tuple("abcdefg"))
    assert "the effect of a, b, c, d, e and 2 more is not known: with each alone, it fails in another way" in reasons(
        evidence
    )


def test_a_search_without_an_end() -> None:
    """A search that was cut short says how far it came, and what could not be applied; it is no reason."""
    assert list(known_so_far(SearchEvidence(reached=9, tried=2, lacking=("torch._C.f",)))) == [
        "no cure so far: 2 of 9 changed units that the script reaches had no effect",
        "the changed code uses symbols that the bad release's binary does not have: torch._C.f",
    ]


def test_an_attribute_is_given_by_its_class() -> None:
    """A missing attribute is asked of the methods that set it, of the object's class or one above it."""
    bad = {
        "torch/m.py": "class Base:\n    def __init__(self):\n        self.x = 1\nclass Tracer(Base):\n    y = 2\n",
        "torch/n.py": "class Other:\n    def __init__(self):\n        self.z = 'depth'\ndepth = 0\n",
    }
    good = {
        "torch/m.py": bad["torch/m.py"].replace("self.x = 1", "self.x = self.depth = 1"),
        "torch/n.py": bad["torch/n.py"].replace(
            "self.z = 'depth'", "self.z = 2\n    def f(self):\n        self.depth = 3"
        ),
    }
    change = tree_change(bad, good)
    trial = Trial(effect=TrialEffect.UNRESOLVED, exception="AttributeError: 'Tracer' object has no attribute 'depth'")
    assert [str(unit) for unit in asked_for(trial, change, ())] == ["torch/m.py: Base.__init__ (changed)"]


def test_a_word_of_programs_names_a_new_function() -> None:
    """A message that names what is missing in words of its own finds the new function of that name."""
    bad = {"torch/m.py": "OPCODES = {'RAISE_VARARGS', 'POP'}\nclass Tracer:\n    pass\n"}
    good = {"torch/m.py": bad["torch/m.py"].replace("pass", "def RAISE_VARARGS(self): pass\n    def POP(self): pass")}
    trial = Trial(effect=TrialEffect.UNRESOLVED, exception="Unsupported: missing: RAISE_VARARGS")
    assert [unit.name for unit in asked_for(trial, tree_change(bad, good), ())] == ["Tracer.RAISE_VARARGS"]


def test_a_missing_argument_asks_for_the_callers() -> None:
    """Where a class wants an argument more, the functions that make one are asked for: they changed with it."""
    bad = "class Entry:\n    name: str\ndef make():\n    return Entry('a')\ndef other():\n    return Entry('b')\n"
    good = bad.replace("name: str", "name: str\n    line: int").replace("Entry('a')", "Entry('a', 1)")
    change = tree_change({"torch/m.py": bad}, {"torch/m.py": good})
    message = "TypeError: Entry.__init__() missing 1 required positional argument: 'line'"
    found = asked_for(
        Trial(effect=TrialEffect.UNRESOLVED, exception=message), change, [unit(change, "torch/m.py", "Entry.line")]
    )
    assert [unit.name for unit in found] == ["make"]
