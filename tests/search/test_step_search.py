"""Searches for steps on numbers with seeded noise, what they find and must not; intervals, how often they miss."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev

import pytest
from scipy.special import stdtrit

from whichtorch.base.errors import UsageError
from whichtorch.measure.measure import measures_named
from whichtorch.model import Effect
from whichtorch.search.step_search import (
    ALIKE,
    ALPHA,
    FIRST_LOOK,
    Estimate,
    StepSearch,
    Threshold,
    check_statistics,
    estimate,
    looks,
)

MOST = 96
FIVE = Threshold(size=math.log1p(0.05))
SEEDS = range(8)


@dataclass
class Machine:
    """Simulated runs: the values of positions, None where a position has no number, and the noise of a run."""

    values: Sequence[float | None]
    sigma: float = 0.01
    seed: int = 0
    scale: Callable[[float], float] = math.log
    pairs: list[tuple[int, int]] = field(default_factory=list)  # that were compared, in order
    runs: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def run(self, position: int) -> float:
        value = self.values[position]
        assert value is not None
        self.runs += 1
        return self.scale(value * math.exp(self.dice.gauss(0, self.sigma)))

    def compare(self, first: int, second: int, is_enough: Callable[[Estimate], bool]) -> Estimate | int:
        """Compare two positions as a series does, which looks at its differences now and then."""
        self.pairs.append((first, second))
        for position in (first, second):
            if self.values[position] is None:
                return position
        differences: list[float] = []
        found = None
        for count in looks(MOST):
            differences += [self.run(second) - self.run(first) for _ in range(count - len(differences))]
            found = estimate(differences, MOST)
            if found is not None and is_enough(found):
                break
        assert found is not None
        return found

    def searched(self, threshold: Threshold = FIVE) -> tuple[Effect, StepSearch]:
        search = StepSearch(len(self.values), self.compare, threshold)
        return search.run(), search


def stepped(size: int, *steps: tuple[int, float]) -> list[float]:
    """Return values that are multiplied at positions: by 1.05 at 7, say."""
    return [math.prod(factor for at, factor in steps if position >= at) for position in range(size)]


def found(search: StepSearch) -> list[tuple[int, int, Effect]]:
    return sorted((step.before, step.after, step.effect) for step in search.steps)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("at", [1, 17, 29])
def test_a_step_of_five_percent_is_found(at: int, seed: int) -> None:
    """Among thirty positions with 1 % of noise, at the place where it was planted, in a few comparisons."""
    machine = Machine(stepped(30, (at, 1.05)), seed=seed)
    effect, search = machine.searched()
    assert effect is Effect.WORSE
    assert found(search) == [(at - 1, at, Effect.WORSE)]
    assert search.steps[0].estimate.low <= math.log(1.05) <= search.steps[0].estimate.high
    assert len({position for pair in machine.pairs for position in pair}) <= 7  # of 30 that could be installed


def test_a_quiet_number_takes_few_runs() -> None:
    """Only the two ends and the two sides of the step need an interval; between them, three rounds tell the level."""
    for seed, at in zip(range(60), [*range(1, 30)] * 3, strict=False):
        machine = Machine(stepped(30, (at, 1.05)), sigma=0.005, seed=seed)
        _, search = machine.searched(Threshold(size=math.log1p(0.04)))
        assert found(search) == [(at - 1, at, Effect.WORSE)]
        assert machine.runs <= 190


def test_an_end_that_was_measured_less_precisely_does_not_mislead() -> None:
    """An end at 4.4 % and a position at 5 % have one level, though the position is clearly not at 4.4 %."""
    levels = {29: 0.044} | dict.fromkeys(range(17, 29), 0.05)
    asked: list[tuple[int, int]] = []

    def compare(first: int, second: int, is_enough: Callable[[Estimate], bool]) -> Estimate | int:
        asked.append((first, second))
        center = levels.get(second, 0.0) - levels.get(first, 0.0)
        return Estimate(center=center, low=center - 0.002, high=center + 0.002, rounds=12, error=0.0005)

    search = StepSearch(30, compare, Threshold(size=0.04))
    search.run()
    assert found(search) == [(16, 17, Effect.WORSE)]
    assert len(asked) <= 10


@pytest.mark.parametrize(("slack", "effect"), [(0.0, Effect.SAME), (0.1, Effect.WORSE)])
def test_a_change_may_lack_some_of_the_size(slack: float, effect: Effect) -> None:
    """A search for 5 % of a script's time finds 4.8 %, a table does not."""
    found = Estimate(center=0.048, low=0.047, high=0.049, rounds=12)
    assert Threshold(size=0.05, slack=slack).effect(found) is effect


@pytest.mark.parametrize(("name", "effect"), [("cpu", Effect.WORSE), ("peak", Effect.WORSE), ("loss", Effect.SAME)])
def test_only_numbers_of_a_whole_script_may_lack_some(name: str, effect: Effect) -> None:
    """What a script prints is not diluted by what else it does."""
    (measure,) = measures_named([name], None, "5%")
    found = Estimate(center=math.log(1.048), low=math.log(1.047), high=math.log(1.049), rounds=12)
    assert measure.search_threshold.effect(found) is effect
    assert measure.threshold.effect(found) is Effect.SAME


def test_outputs_with_other_words_have_a_step() -> None:
    """Their distance from the first output is infinite, and all of them have one level."""
    asked: list[tuple[int, int]] = []

    def compare(first: int, second: int, is_enough: Callable[[Estimate], bool]) -> Estimate | int:
        asked.append((first, second))
        center = math.inf if first < 12 <= second else 0.0
        return Estimate(center=center, low=center, high=center, rounds=3)

    search = StepSearch(30, compare, Threshold(size=0.001, either_way=True))
    search.run()
    assert found(search) == [(11, 12, Effect.DIFFERENT)]
    assert len(asked) <= 8


def test_a_guess_decides_nothing() -> None:
    """Even with a narrow interval: three runs may agree by chance."""
    guess = Estimate(center=0.2, low=0.19, high=0.21, rounds=3, error=0.001)
    assert FIVE.effect(guess) is FIVE.last_effect(guess) is Effect.UNDECIDED
    assert not FIVE.is_decided(guess)


@pytest.mark.parametrize("sigma", [0.03, 0.05])
def test_a_step_is_found_in_noise_as_large_as_itself(sigma: float) -> None:
    """A position that is measured wrongly once is measured again, and nobody is blamed instead."""
    right, runs = 0, []
    for seed, at in zip(range(12), range(2, 30, 2), strict=False):
        machine = Machine(stepped(30, (at, 1.05)), sigma=sigma, seed=seed)
        _, search = machine.searched()
        right += found(search) == [(at - 1, at, Effect.WORSE)]
        assert {step.after for step in search.steps} <= {at}
        runs.append(machine.runs)
    assert right >= 11
    assert median(runs) < 800


@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_has_no_step(seed: int) -> None:
    """The two ends are compared, and nothing else is installed or run."""
    machine = Machine(stepped(30), seed=seed)
    effect, search = machine.searched()
    assert (effect, search.steps, machine.pairs) == (Effect.SAME, [], [(0, 29)])


def test_no_step_is_found_in_much_noise() -> None:
    """With 30 % of noise, at most an open answer: in no search is a release blamed for what is not there."""
    blamed = sum(bool(Machine(stepped(30), sigma=0.3, seed=seed).searched()[1].steps) for seed in range(20))
    assert blamed == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gradual_change_is_no_step(seed: int) -> None:
    """Ten percent in thirty small parts: the total is worse, and no neighbors are blamed for it."""
    values = [1.1 ** (position / 29) for position in range(30)]
    effect, search = Machine(values, seed=seed).searched()
    assert effect is Effect.WORSE
    assert search.steps == []
    levels = [search.levels[position].center for position in sorted(search.levels)]
    assert len(levels) > 3
    assert levels[-1] == pytest.approx(math.log(1.1), abs=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_several_steps_are_all_found(seed: int) -> None:
    """Two that add up, each of its own size."""
    effect, search = Machine(stepped(30, (5, 1.08), (20, 1.2)), seed=seed).searched()
    assert effect is Effect.WORSE
    assert found(search) == [(4, 5, Effect.WORSE), (19, 20, Effect.WORSE)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_back_is_found_on_the_way(seed: int) -> None:
    """What became worse by 30 % and better by 10 % has both steps where a probe lies between them."""
    effect, search = Machine(stepped(30, (5, 1.3), (20, 0.9)), seed=seed).searched()
    assert effect is Effect.WORSE
    assert found(search) == [(4, 5, Effect.WORSE), (19, 20, Effect.BETTER)]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_became_better_is_found_as_well(seed: int) -> None:
    """The effect says so; whoever asks for regressions leaves it out."""
    effect, search = Machine(stepped(30, (11, 0.9)), seed=seed).searched()
    assert effect is Effect.BETTER
    assert found(search) == [(10, 11, Effect.BETTER)]


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_rate_less_is_worse(seed: int) -> None:
    """Tokens a second that fall by 10 % are worse, by the measure's own scale and threshold."""
    (measure,) = measures_named(["tokens/s"], None, "10%")
    machine = Machine(stepped(30, (12, 0.88)), seed=seed, scale=measure.on_scale)
    effect, search = machine.searched(measure.threshold)
    assert effect is Effect.WORSE
    assert found(search) == [(11, 12, Effect.WORSE)]


def test_an_exact_number_takes_three_rounds() -> None:
    """Each comparison of numbers without noise ends at the first look."""
    machine = Machine(stepped(30, (17, 1.5)), sigma=0)
    _, search = machine.searched()
    assert found(search) == [(16, 17, Effect.WORSE)]
    assert machine.runs == 6 * len(machine.pairs)


@pytest.mark.parametrize("seed", SEEDS)
def test_positions_without_a_number_are_gone_around(seed: int) -> None:
    """At both ends the next ones take their places; in the middle, the neighbors that have the number."""
    values: list[float | None] = [*stepped(30, (17, 1.1))]
    dead = {0, 1, 14, 15, 18, 29}
    for position in dead:
        values[position] = None
    machine = Machine(values, seed=seed)
    effect, search = machine.searched()
    assert effect is Effect.WORSE
    assert search.ends == (2, 28)
    assert found(search) == [(16, 17, Effect.WORSE)]
    assert search.dead <= dead


def test_a_step_beside_dead_positions_lies_between_the_living() -> None:
    """Neither of the dead ones is blamed: the step is between the two that have the number."""
    values: list[float | None] = [*stepped(12, (6, 1.2))]
    values[5] = values[6] = None
    _, search = Machine(values).searched()
    assert found(search) == [(4, 7, Effect.WORSE)]


@pytest.mark.parametrize("alive", [0, 1])
def test_without_two_numbers_nothing_is_compared(alive: int) -> None:
    """The answer is open, and each position has been asked once."""
    values: list[float | None] = [None] * 5
    values[:alive] = [1.0] * alive
    machine = Machine(values)
    effect, search = machine.searched()
    assert (effect, search.ends, search.steps) == (Effect.UNDECIDED, None, [])
    assert len(search.dead) >= 4


@pytest.mark.parametrize("lost", [16, 17])
def test_a_step_whose_confirmation_fails_is_no_step(lost: int) -> None:
    """A neighbor that has no number any more, because its script fails now and then, is blamed for nothing."""
    machine = Machine(stepped(30, (17, 1.2)))

    def compare(first: int, second: int, is_enough: Callable[[Estimate], bool]) -> Estimate | int:
        return lost if (first, second) == (16, 17) else machine.compare(first, second, is_enough)

    search = StepSearch(30, compare, FIVE)
    assert search.run() is Effect.WORSE
    assert (search.steps, search.alike, search.dead) == ([], [(16, 17)], {lost})


def test_in_either_direction_both_are_different() -> None:
    """With +-, there is no better or worse: a loss that falls has changed, too."""
    (measure,) = measures_named(["loss"], None, "+-5%")
    _, search = Machine(stepped(30, (5, 1.3), (20, 0.9))).searched(measure.threshold)
    assert found(search) == [(4, 5, Effect.DIFFERENT), (19, 20, Effect.DIFFERENT)]


@pytest.mark.parametrize(
    ("low", "high", "effect", "last"),
    [
        (-0.5, 0.5, Effect.SAME, Effect.SAME),
        (0.2, 0.9, Effect.SAME, Effect.SAME),
        (0.6, 1.4, Effect.WORSE, Effect.WORSE),
        (-1.4, -0.6, Effect.BETTER, Effect.BETTER),
        (0.3, 1.4, Effect.UNDECIDED, Effect.WORSE),
        (-1.4, -0.3, Effect.UNDECIDED, Effect.BETTER),
        (-0.2, 1.4, Effect.UNDECIDED, Effect.UNDECIDED),
        (1.0, 1.0, Effect.WORSE, Effect.WORSE),
    ],
)
def test_what_an_interval_says(low: float, high: float, effect: Effect, last: Effect) -> None:
    """Of a size of 1: a change lies beyond half of it and is not all below it; at the end, beyond zero."""
    estimate_ = Estimate(center=(low + high) / 2, low=low, high=high, rounds=9)
    threshold = Threshold(size=1.0)
    assert threshold.effect(estimate_) is effect
    assert threshold.last_effect(estimate_) is last
    assert threshold.is_decided(estimate_) is (effect is not Effect.UNDECIDED)


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
    assert rough.margin == pytest.approx(stdtrit(2, 1 - level / 2) * stdev(noise[:3]) / math.sqrt(3))
    assert rough.error == pytest.approx(1.321 * stdev(noise[:3]) / math.sqrt(3), rel=1e-3)


@pytest.mark.parametrize("count", [11, 40])
def test_the_interval_is_that_of_a_trimmed_mean(count: int) -> None:
    """SciPy's own, which is slower, gives the same."""
    from scipy.stats import mstats

    dice = random.Random(count)
    noise = [dice.gauss(0, 0.01) for _ in range(count)]
    found = estimate(noise, 96)
    assert found is not None
    expected = mstats.trimmed_mean_ci(noise, (0.1, 0.1), alpha=ALPHA / len(looks(96)))
    assert (found.low, found.high) == pytest.approx(tuple(expected))


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
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(UsageError, match="needs scipy") as refused:
        check_statistics()
    assert refused.value.hint == "install it: pip install 'whichtorch[measure]'"
