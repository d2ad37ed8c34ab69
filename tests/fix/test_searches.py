"""The two searches, against a release whose behaviour is a function of the units that are applied."""

from collections.abc import Callable, Generator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fix.packages import tree_change
from whichtorch.fix.closure import Closure
from whichtorch.fix.cure_search import CureSearch, Trial, TrialEffect
from whichtorch.fix.minimum import smallest
from whichtorch.fix.tree_change import TreeChange
from whichtorch.fix.units import Proposal

Found = TypeVar("Found")
COUNT = 40
NAMES = [f"f{number:02}" for number in range(COUNT)]


def independent() -> TreeChange:
    """Return a change of forty functions that know nothing of each other."""
    bad = "".join(f"def {name}():\n    return 0\n" for name in NAMES)
    return tree_change({"torch/m.py": bad}, {"torch/m.py": bad.replace("return 0", "return 1")})


def driven(
    search: Generator[Proposal, Trial, Found], test: Callable[[set[str]], Trial]
) -> tuple[Found, list[set[str]]]:
    """Return a search's answer and what it tried."""
    tried: list[set[str]] = []
    try:
        proposal = next(search)
        while True:
            tried.append({unit.name for unit in proposal.units})
            proposal = search.send(test(tried[-1]))
    except StopIteration as end:
        answer: Found = end.value
        return answer, tried


def effect(names: set[str], cure: set[str], poison: set[str] = frozenset()) -> Trial:  # type: ignore[assignment]
    if names & poison:
        return Trial(effect=TrialEffect.UNRESOLVED, exception="ValueError: other")
    return Trial(effect=TrialEffect.CURED if cure <= names else TrialEffect.SAME)


@pytest.mark.parametrize("place", [0, 1, 2, 5, 17, 39])
def test_windows_double(place: int) -> None:
    """A unit that cures alone is found by windows that double, none of which is tried twice."""
    change = independent()
    answer, tried = driven(
        CureSearch(Closure(change)).run(change.units(["torch/m.py"])), lambda names: effect(names, {NAMES[place]})
    )
    assert answer is not None
    assert NAMES[place] in {unit.name for unit in answer.units}
    assert len(tried) == max(1, 1 + place.bit_length())
    assert sum(map(len, tried)) == len(set().union(*tried))


@given(cure=st.sampled_from(NAMES), poison=st.sets(st.sampled_from(NAMES), max_size=3))
@settings(max_examples=60, deadline=None)
def test_poison_spoils_no_other(cure: str, poison: set[str]) -> None:
    """Units that break the script in another way do not hide the one that cures it."""
    change = independent()
    poison = poison - {cure}
    answer, _ = driven(
        CureSearch(Closure(change)).run(change.units(["torch/m.py"])), lambda names: effect(names, {cure}, poison)
    )
    assert answer is not None
    assert cure in {unit.name for unit in answer.units}


def test_no_cure() -> None:
    """Where nothing cures, everything has been tried, and there is no answer."""
    change = independent()
    answer, tried = driven(
        CureSearch(Closure(change)).run(change.units(["torch/m.py"])), lambda names: effect(names, {"none"})
    )
    assert answer is None
    assert set().union(*tried) == set(NAMES)


@given(cure=st.sets(st.sampled_from(NAMES), min_size=2, max_size=3))
@settings(max_examples=30, deadline=None)
def test_units_that_need_each_other(cure: set[str]) -> None:
    """Units that cure only together are found, though nothing in their text names the others."""
    change = independent()
    search = CureSearch(Closure(change)).run(change.units(["torch/m.py"]))
    answer, _ = driven(search, lambda names: effect(names, cure))
    assert answer is not None
    assert cure <= {unit.name for unit in answer.units}


def test_last_window() -> None:
    """What is not worth windows of its own is tried at once, after all else."""
    change = independent()
    units = list(change.units(["torch/m.py"]))
    search = CureSearch(Closure(change)).run(units[:2], units)
    answer, tried = driven(search, lambda names: effect(names, {"f39"}))
    assert answer is not None
    assert [len(names) for names in tried] == [1, 1, 2, 38]


def test_lacking_is_not_tried() -> None:
    """What needs a symbol that the bad binary lacks is left out."""
    bad = {"torch/m.py": "import torch\n"}
    change = tree_change(bad, {"torch/m.py": "import torch\ndef f(): torch._C.fresh()\ndef g(): pass\n"})
    closure = Closure(change, lambda: {"torch._C.fresh"})
    _, tried = driven(CureSearch(closure).run(change.units(["torch/m.py"])), lambda names: effect(names, {"none"}))
    assert tried == [{"g"}]


def test_message_names_the_next_unit() -> None:
    """A failure that moved on asks for what its message names, and the window goes on with it."""
    bad = {"torch/m.py": "def f(t): return 0\n", "torch/n.py": "class N:\n    x = 1\n"}
    good = {
        "torch/m.py": "def f(t): return getattr(t, 'go' + 'es')\n",
        "torch/n.py": "class N:\n    x = 1\n    def goes(self): pass\n",
    }
    change = tree_change(bad, good)

    def test(names: set[str]) -> Trial:
        if names == {"f"}:
            return Trial(effect=TrialEffect.UNRESOLVED, exception="AttributeError: 'N' object has no attribute 'goes'")
        return effect(names, {"f", "N.goes"})

    answer, tried = driven(CureSearch(Closure(change)).run(change.units(["torch/m.py"])), test)
    assert answer is not None
    assert tried == [{"f"}, {"f", "N.goes"}]


@given(cure=st.sets(st.sampled_from(NAMES), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_smallest(cure: set[str]) -> None:
    """Of the units of a cure those are left that are needed, and no trial repeats one that failed."""
    change = independent()
    whole = Proposal(units=frozenset(change.units(["torch/m.py"])))
    answer, tried = driven(smallest(whole, Closure(change)), lambda names: effect(names, cure))
    assert {unit.name for unit in answer.units} == cure
    failed = [frozenset(names) for names in tried if not cure <= names]
    assert len(failed) == len(set(failed))


def test_idle_units_go_first() -> None:
    """Functions that the cured run did not reach are left out by the first trial."""
    change = independent()
    units = frozenset(change.units(["torch/m.py"]))
    idle = {unit for unit in units if unit.name not in {"f03", "f04"}}
    _, tried = driven(
        smallest(Proposal(units=units), Closure(change), idle), lambda names: effect(names, {"f03", "f04"})
    )
    assert tried[0] == {"f03", "f04"}
    assert len(tried) <= 3


def test_hunks() -> None:
    """Of a changed function the lines are left that are needed; what would not parse or has no name is not tried."""
    bad = "def f(a):\n    x = 1\n    y = 1\n    z = 1\n    w = 0\n    if a:\n        x = 2\n    return x + y + z\n"
    good = bad.replace("x = 1", "x = 5").replace("z = 1", "z = 5").replace("    if a:\n", "    new = 7\n    if a:\n")
    good = good.replace("x = 2", "x = new")
    change = tree_change({"torch/m.py": bad}, {"torch/m.py": good})
    seen: list[str] = []

    search = smallest(Proposal(units=frozenset(change.units(["torch/m.py"]))), Closure(change))
    answer = None
    try:
        proposal = next(search)
        while True:
            text = change.texts(proposal)["torch/m.py"]
            seen.append(text)
            proposal = search.send(Trial(effect=TrialEffect.CURED if "z = 5" in text else TrialEffect.SAME))
    except StopIteration as end:
        answer = end.value
    assert answer is not None
    text = change.texts(answer)["torch/m.py"]
    assert text == bad.replace("z = 1", "z = 5")
    assert all("new = 7" in text or "x = new" not in text for text in seen)


def test_what_the_binary_refuses_is_left_out() -> None:
    """Where an object of C++ is said to lack an attribute, what uses it is left out, and the rest is tried."""
    bad = {"torch/m.py": "".join(f"def f{number}(frame): return 0\n" for number in range(4))}
    good = {"torch/m.py": bad["torch/m.py"].replace("f2(frame): return 0", "f2(frame): return frame.closure")}
    good["torch/m.py"] = good["torch/m.py"].replace("f3(frame): return 0", "f3(frame): return 3")
    change = tree_change(bad, good)
    closure = Closure(change)

    def test(names: set[str]) -> Trial:
        if "f2" in names:
            message = "AttributeError: 'torch._C._Frame' object has no attribute 'closure'"
            return Trial(effect=TrialEffect.UNRESOLVED, exception=message)
        return effect(names, {"f3"})

    search = CureSearch(closure)
    answer, tried = driven(search.run([], change.units(["torch/m.py"])), test)
    assert answer is not None
    assert tried == [{"f2", "f3"}, {"f3"}]
    assert set(search.refused.values()) == {"torch._C._Frame.closure"}


@pytest.mark.parametrize("message", ["TypeError: f07() missing 1 required argument: 'key'", "ValueError: other"])
def test_what_broke_a_window_is_set_apart(message: str) -> None:
    """A window is split into what the exception is about and the rest, where that is known; else in the middle."""
    change = independent()
    units = list(change.units(["torch/m.py"]))

    def test(names: set[str]) -> Trial:
        return Trial(effect=TrialEffect.UNRESOLVED, exception=message) if "f07" in names else effect(names, {"f06"})

    answer, tried = driven(CureSearch(Closure(change)).run(units), test)
    assert answer is not None
    assert answer.units >= {unit for unit in units if unit.name == "f06"}
    window = [names for names in tried if names & {"f04", "f05", "f06", "f07"}]
    assert window[0] == {"f04", "f05", "f06", "f07"}
    assert window[1] == ({"f04", "f05", "f06"} if "f07" in message else {"f04", "f05"})
