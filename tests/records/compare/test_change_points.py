"""From which night on a number has another level."""

import math
import random

import pytest

from tests.records.compare.synthetic_nights import Year, found_in
from whichtorch.model import Effect
from whichtorch.records.compare.nights import LEAST, change_points
from whichtorch.search.step_search import Threshold

FIVE_PERCENT = Threshold(size=math.log1p(0.05))


def noise(count: int, seed: int = 1, level: float = 0.0) -> list[float]:
    dice = random.Random(seed)
    return [dice.gauss(level, 0.01) for _ in range(count)]


@pytest.mark.parametrize(("level", "effect"), [(0.1, Effect.WORSE), (-0.1, Effect.BETTER)])
def test_a_step_is_found_on_its_night_with_its_size(level: float, effect: Effect) -> None:
    """The interval has the true size in it."""
    (found,) = change_points([*noise(40), *noise(30, 2, level)], FIVE_PERCENT)
    assert (found.night, found.effect) == (40, effect)
    assert found.shift.low < level < found.shift.high


def test_two_steps_are_two() -> None:
    """There and back again."""
    found = change_points([*noise(40), *noise(20, 2, 0.2), *noise(40, 3)], FIVE_PERCENT)
    assert [(point.night, point.effect) for point in found] == [(40, Effect.WORSE), (60, Effect.BETTER)]


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [1.0] * 400,
        noise(400),
        [*noise(40), *noise(40, 2, 0.01)],  # a step that does not count
        [number + (1.0 if place % 20 == 0 else 0.0) for place, number in enumerate(noise(400))],  # outliers
        [*noise(100), *noise(LEAST - 1, 2, 0.5)],  # too few nights to say so
        [place * 1e-4 for place in range(100)],  # a drift of one percent
    ],
    ids=["none", "constant", "noise", "small", "outliers", "short", "drift"],
)
def test_what_is_no_step_is_not_found(numbers: list[float]) -> None:
    """Neither noise nor disturbed nights are changes."""
    assert change_points(numbers, FIVE_PERCENT) == []


def test_a_number_that_is_always_the_same_steps_at_once() -> None:
    """Sizes of memory often have no noise at all."""
    (found,) = change_points([100.0] * 20 + [110.0] * 10, Threshold(size=5))
    assert (found.night, found.shift.center) == (20, 10)


def test_planted_steps_of_a_year_are_found_and_nothing_else() -> None:
    """365 nights, a twentieth of them disturbed and a twentieth of the cells flaky; the bench has more of them."""
    counts = [found_in(Year(seed=seed, cells=30), change_points) for seed in range(4)]
    right, wrong = (sum(column) for column in zip(*counts, strict=True))
    assert right / (right + wrong) >= 0.97
    assert right / (4 * 12) >= 0.95
