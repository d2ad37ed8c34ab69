"""Delta debugging over factors."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from whichtorch.search.delta import minimal_set
from whichtorch.search.runs_oracle import RunsOracle, drive, inquiry_of


def found_by(names: Sequence[str], test: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    return drive(minimal_set(names), RunsOracle(inquiry=inquiry_of(test)))


NAMES = ("config", "torch", "python", "build", "numpy", "mkl")


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_all_that_is_needed_and_no_more(case: tuple[int, set[int]]) -> None:
    """Where some factors are needed together, just they are found, and no set is asked about twice."""
    factors = NAMES[: case[0]]
    needed = {factors[index] for index in case[1]}
    calls: list[frozenset[str]] = []

    def passes(subset: frozenset[str]) -> bool:
        calls.append(subset)
        return needed <= subset

    assert found_by(factors, passes) == needed
    assert len(calls) == len(set(calls))
    assert frozenset(factors) not in calls
    assert frozenset() not in calls


def test_one_difference_needs_no_run() -> None:
    """Two environments that differ in one factor are the decisive pair already."""
    assert found_by(("config",), lambda subset: 1 // 0 == 0) == {"config"}


def test_two_differences_need_one_run_where_the_first_decides() -> None:
    """The factor that is tried first settles it."""
    calls: list[frozenset[str]] = []

    def passes(subset: frozenset[str]) -> bool:
        calls.append(subset)
        return "config" in subset

    assert found_by(("config", "torch"), passes) == {"config"}
    assert len(calls) == 1


@given(st.integers(2, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
def test_a_single_factor_takes_a_question_a_halving_and_a_last_one(case: tuple[int, int]) -> None:
    """Where the first half is not enough, the second is not asked; what is left is, once."""
    names = [f"package{number}" for number in range(case[0])]
    calls: list[frozenset[str]] = []

    def passes(subset: frozenset[str]) -> bool:
        calls.append(subset)
        return names[case[1]] in subset

    assert found_by(names, passes) == {names[case[1]]}
    assert len(calls) <= math.ceil(math.log2(case[0])) + 1


def test_whatever_answers_nothing_found_can_be_left_out() -> None:
    """For every way that four factors can behave, no smaller neighbour of the answer passes."""
    names = NAMES[:4]
    subsets = [frozenset(some) for size in range(1, 4) for some in combinations(names, size)]
    for number in range(2 ** len(subsets)):
        good = {subset for index, subset in enumerate(subsets) if number >> index & 1}
        found = found_by(names, good.__contains__)
        assert not any(found - {name} in good for name in found)
