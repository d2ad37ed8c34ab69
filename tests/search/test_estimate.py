"""Intervals of paired differences: when a series is looked at, and how often the center lies outside."""

from __future__ import annotations

import math
import random
import sys
from statistics import fmean, stdev

import pytest
from scipy.stats import t

from whichtorch.base.errors import UsageError
from whichtorch.search.estimate import ALIKE, ALPHA, FIRST_LOOK, check_statistics, estimate, looks


@pytest.mark.parametrize("most", [12, 13, 18, 40, 96])
def test_looks_end_with_the_last_round(most: int) -> None:
    """They rise from the first to the last one, and none is beyond."""
    counts = looks(most)
    assert list(counts) == sorted(set(counts))
    assert counts[:2] == (ALIKE, FIRST_LOOK)
    assert counts[-1] == most


@pytest.mark.parametrize("value", [0.0, 0.25, -3.0])
def test_a_number_that_never_changes_is_exact(value: float) -> None:
    """Three equal differences are enough, and their interval is a point."""
    assert estimate([value] * 2, 96) is None
    found = estimate([value] * 3, 96)
    assert found is not None
    assert (found.center, found.low, found.high, found.margin, found.rounds) == (value, value, value, 0.0, 3)


def test_noise_needs_the_first_look() -> None:
    """Fewer differences give a rough estimate; the interval is Student's: 2 degrees of freedom, a part of 0.5 %."""
    dice = random.Random(2)
    noise = [dice.gauss(0, 0.01) for _ in range(FIRST_LOOK)]
    assert estimate(noise[: ALIKE - 1], 96) is None
    rough, found = estimate(noise[:ALIKE], 24), estimate(noise, 24)
    assert rough is not None
    assert found is not None
    assert (rough.is_rough, found.is_rough) == (True, False)
    assert rough.center == pytest.approx(fmean(noise[:3]))
    level = ALPHA / len(looks(24))
    assert rough.margin == pytest.approx(t.ppf(1 - level / 2, 2) * stdev(noise[:3]) / math.sqrt(3))
    assert rough.error == pytest.approx(1.321 * stdev(noise[:3]) / math.sqrt(3), rel=1e-3)


def test_differences_that_repeat_are_no_exact_ones() -> None:
    """One that differs from the others is enough for an interval."""
    for count in (FIRST_LOOK, 12, 30):
        found = estimate([0.0] * (count - 1) + [0.5], 96)
        assert found is not None
        assert found.low <= found.center < found.high


def test_infinite_differences_give_no_guess() -> None:
    """Outputs with other words are infinitely far from each other."""
    assert estimate([math.inf, 0.0, math.inf], 96) is None


def test_a_disturbed_run_says_little() -> None:
    """One run that took tenfold moves the interval less than its own width."""
    dice = random.Random(1)
    calm = [dice.gauss(0.05, 0.01) for _ in range(20)]
    before, after = estimate(calm, 96), estimate([*calm[:-1], 2.3], 96)
    assert before is not None
    assert after is not None
    assert abs(after.center - before.center) < before.margin
    assert after.low > 0


@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_no_look_misses_the_center_too_often(kind: str) -> None:
    """Over all looks of a series, the center lies outside in no more series than the error level allows."""
    dice, series, most, missed = random.Random(29), 400, 40, 0
    for _ in range(series):
        noise = [dice.gauss(0, 0.01) for _ in range(most)]
        if kind == "heavy":  # one run in ten is disturbed, either way
            noise = [each * (10 if dice.random() < 0.1 else 1) for each in noise]
        found = [estimate(noise[:count], most) for count in looks(most)]
        missed += any(not each.low <= 0 <= each.high for each in found if each is not None)
    assert missed <= 4 + 3 * ALPHA * series  # 2 are expected at that level


def test_more_rounds_tell_smaller_differences() -> None:
    """The interval gets narrower."""
    dice = random.Random(3)
    noise = [dice.gauss(0, 0.01) for _ in range(96)]
    margins = [found.margin for count in looks(96)[1:] if (found := estimate(noise[:count], 96))]
    assert margins[-1] < margins[0] / 2


def test_without_scipy_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the extra that brings it."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(UsageError, match="needs scipy") as refused:
        check_statistics()
    assert refused.value.hint == "install it: pip install 'whichtorch[measure]'"
