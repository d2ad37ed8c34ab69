"""The two searches, against a release whose behaviour is a function of the units that are applied."""

from collections.abc import Callable, Generator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fix.packages import effect, independent, tree_change
from whichtorch.fix.closure import Closure
from whichtorch.fix.cure_search import CureSearch, Trial, TrialEffect, smallest
from whichtorch.fix.tree_change import TreeChange
from whichtorch.fix.units import Proposal

Found = TypeVar("Found")
NAMES = [f"f{number:02}" for number in range(40)]
CHANGE = independent(NAMES)
UNITS = list(CHANGE.units(["torch/m.py"]))


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


def searched(test: Callable[[set[str]], Trial], change: TreeChange = CHANGE) -> tuple[set[str], list[set[str]]]:
    """Return the names that a search for a cure ends with, none where it finds nothing, and what it tried."""
    answer, tried = driven(CureSearch(Closure(change)).run(change.units(["torch/m.py"])), test)
    return {unit.name for unit in answer.units} if answer else set(), tried


@pytest.mark.parametrize("place", [0, 1, 2, 5, 17, 39])
def test_windows_double(place: int) -> None:
    """A unit that cures alone is found by windows that double, none of which is tried twice."""
    answer, tried = searched(lambda names: effect(names, {NAMES[place]}))
    assert NAMES[place] in answer
    assert len(tried) == max(1, 1 + place.bit_length())
    assert sum(map(len, tried)) == len(set().union(*tried))


@given(cure=st.sampled_from(NAMES), poison=st.sets(st.sampled_from(NAMES), max_size=3))
@settings(max_examples=60, deadline=None)
def test_poison_spoils_no_other(cure: str, poison: set[str]) -> None:
    """Units that break the script in another way do not hide the one that cures it."""
    assert cure in searched(lambda names: effect(names, {cure}, poison - {cure}))[0]


def test_no_cure() -> None:
    """Where nothing cures, everything has been tried, and there is no answer."""
    answer, tried = searched(lambda names: effect(names, {"none"}))
    assert answer == set()
    assert set().union(*tried) == set(NAMES)


@given(cure=st.sets(st.sampled_from(NAMES), min_size=2, max_size=3))
@settings(max_examples=30, deadline=None)
def test_units_that_need_each_other(cure: set[str]) -> None:
    """Units that cure only together are found, though nothing in their text names the others."""
    assert cure <= searched(lambda names: effect(names, cure))[0]


def test_last_window() -> None:
    """What is not worth windows of its own is tried at once, after all else."""
    search = CureSearch(Closure(CHANGE)).run(UNITS[:2], UNITS)
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

    assert searched(test, change)[1] == [{"f"}, {"f", "N.goes"}]


@given(cure=st.sets(st.sampled_from(NAMES), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_smallest(cure: set[str]) -> None:
    """Of the units of a cure those are left that are needed, and no trial repeats one that failed."""
    whole = Proposal(units=frozenset(UNITS))
    answer, tried = driven(smallest(whole, Closure(CHANGE)), lambda names: effect(names, cure))
    assert {unit.name for unit in answer.units} == cure
    failed = [frozenset(names) for names in tried if not cure <= names]
    assert len(failed) == len(set(failed))


def test_idle_units_go_first() -> None:
    """Functions that the cured run did not reach are left out by the first trial."""
    idle = {unit for unit in UNITS if unit.name not in {"f03", "f04"}}
    search = smallest(Proposal(units=frozenset(UNITS)), Closure(CHANGE), idle)
    _, tried = driven(search, lambda names: effect(names, {"f03", "f04"}))
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


@pytest.mark.parametrize("message", ["TypeError: f07() missing 1 required argument: 'key'", "ValueError: other"])
def test_what_broke_a_window_is_set_apart(message: str) -> None:
    """A window is split into what the exception is about and the rest, where that is known; else in the middle."""

    def test(names: set[str]) -> Trial:
        return Trial(effect=TrialEffect.UNRESOLVED, exception=message) if "f07" in names else effect(names, {"f06"})

    answer, tried = searched(test)
    assert "f06" in answer
    window = [names for names in tried if names & {"f04", "f05", "f06", "f07"}]
    assert window[0] == {"f04", "f05", "f06", "f07"}
    assert window[1] == ({"f04", "f05", "f06"} if "f07" in message else {"f04", "f05"})
