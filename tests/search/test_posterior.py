"""The posterior against plain enumeration, and the batch chosen by it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtorch.search.search_state import ALWAYS, FAILURE_RATES, NO_CHANGE, Costs, Posterior, Tally

SIZE = 8


def tally_of(good: int, bad: int) -> Tally:
    return Tally(good=good, bad=bad)


seen_runs = st.dictionaries(st.integers(0, SIZE - 1), st.builds(tally_of, st.integers(0, 5), st.integers(0, 3)))


def _enumerated(runs: dict[int, Tally], *, flaky: bool) -> list[float]:
    """Weigh every hypothesis and rate, one by one."""
    always = 0.0 if flaky else ALWAYS
    bad_rates = [(rate, (1 - always) / len(FAILURE_RATES)) for rate in FAILURE_RATES] + [(1.0, always)]
    weights = []
    for first_bad in range(SIZE + 1):
        prior = NO_CHANGE if first_bad in {0, SIZE} else (1 - 2 * NO_CHANGE) / (SIZE - 1)
        weight = 0.0
        for bad_rate, bad_prior in bad_rates:
            rates = {position: bad_rate if position >= first_bad else 0.0 for position in runs}
            likelihood = math.prod(rates[p] ** counts.bad * (1 - rates[p]) ** counts.good for p, counts in runs.items())
            weight += bad_prior * likelihood
        weights.append(prior * weight)
    return weights


@given(runs=seen_runs, flaky=st.booleans())
def test_the_posterior_is_what_enumeration_gives(runs: dict[int, Tally], flaky: bool) -> None:
    """Each hypothesis weighs as much as when all are enumerated, and so does the evidence."""
    weights = _enumerated(runs, flaky=flaky)
    posterior = Posterior(0, SIZE - 1, runs, flaky=flaky)
    expected = [weight / sum(weights) for weight in weights]
    assert [posterior.between(k - 1, k) for k in range(SIZE + 1)] == pytest.approx(expected, abs=1e-9)
    assert (posterior.all_bad, posterior.none_bad) == pytest.approx((expected[0], expected[-1]), abs=1e-9)
    assert posterior.log_evidence == pytest.approx(math.log(sum(weights)))


def test_many_runs_do_not_underflow() -> None:
    """Thousands of runs still leave probabilities that sum to one."""
    posterior = Posterior(0, 99, {10: tally_of(5000, 0), 20: tally_of(2000, 3000), 90: tally_of(0, 4000)})
    assert posterior.between(-1, 100) == pytest.approx(1)
    assert posterior.between(10, 20) == pytest.approx(1, abs=1e-6)


def _gain(posterior: Posterior, runs: dict[int, Tally], batch: tuple[int, int]) -> float:
    """Return the bits that a batch is expected to give, by looking at both results."""

    def bits(weighed: Posterior) -> float:
        return -sum(p * math.log2(p) for k in range(SIZE + 1) if (p := weighed.between(k - 1, k)) > 0)

    position, length = batch
    before = runs.get(position, Tally())
    quiet = Posterior(0, SIZE - 1, runs | {position: tally_of(before.good + length, before.bad)})
    chance = math.exp(quiet.log_evidence - posterior.log_evidence)
    after = 0.0
    for passes in range(length):
        loud = Posterior(0, SIZE - 1, runs | {position: tally_of(before.good + passes, before.bad + 1)})
        after += math.exp(loud.log_evidence - posterior.log_evidence) * bits(loud)
    return bits(posterior) - chance * bits(quiet) - after


@given(runs=seen_runs.filter(lambda runs: all(counts.bad == 0 or p > 4 for p, counts in runs.items())))
def test_a_batch_never_tells_less_than_nothing(runs: dict[int, Tally]) -> None:
    """Whatever was seen, the batch chosen is expected to tell something about the culprit."""
    posterior = Posterior(0, SIZE - 1, runs)
    batch = posterior.best_batch(Costs(install=(1.0,) * SIZE), range(SIZE))
    assert batch is None or _gain(posterior, runs, batch) > 0


def test_the_middle_is_chosen_where_all_is_equal() -> None:
    """With ends known and equal costs the first batch is at the middle."""
    posterior = Posterior(0, 100, {0: tally_of(30, 0), 100: tally_of(0, 30)}, flaky=False)
    batch = posterior.best_batch(Costs(install=(10.0,) * 101), range(101))
    assert batch is not None
    assert abs(batch[0] - 50) <= 2


def test_what_is_installed_is_run_again_before_another_install() -> None:
    """A dear install makes an undecided position worth more runs; a free one does not."""
    runs = {0: tally_of(20, 0), 50: tally_of(2, 0), 100: tally_of(2, 4)}
    posterior = Posterior(0, 100, runs)
    dear = posterior.best_batch(Costs(install=tuple(0.0 if p in runs else 1000.0 for p in range(101))), range(101))
    free = posterior.best_batch(Costs(), range(101))
    assert dear is not None
    assert free is not None
    assert (dear[0], free[0] in runs) == (50, False)
