"""What comes and goes from night to night: how often a test fails, and whether a host makes it fail."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING

from whichtorch.matrix.compare.comparison import LUCK, stream
from whichtorch.matrix.grouping import grouped
from whichtorch.matrix.model import Attempt, Model, Outcome, speaking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.matrix.compare.nights import NightCell

SURE = 0.95  # of intervals of rates


class FlakeRate(Model):
    """How often a test fails that passes at other times."""

    test: str
    environment: str  # a nightly's version is `nightly`
    failures: int
    attempts: int
    low: float  # the ends of the interval of the rate: 95 %
    high: float


class HostStreak(Model):
    """A test that fails on one host, and passes on others at the same time."""

    test: str
    environment: str
    host: str
    failures: int  # in a row, on that host
    since: str  # the first of them
    passes: int  # since then, on other hosts


def flake_rates(nights: Iterable[NightCell]) -> Iterator[FlakeRate]:
    """Yield the rate of each test that comes and goes: of those that change once, it is no rate."""
    for (test, environment), attempts in _attempts(nights).items():
        turns = sum(_is_pass(old) != _is_pass(new) for old, new in pairwise(attempts))
        if turns > 1:
            failures = sum(not _is_pass(attempt) for attempt in attempts)
            low, high = rate_interval(failures, len(attempts))
            yield FlakeRate(
                test=test, environment=environment, failures=failures, attempts=len(attempts), low=low, high=high
            )


def rate_interval(hits: int, of: int) -> tuple[float, float]:
    """Return the interval of a rate (Wilson, JASA 22, 1927)."""
    z = NormalDist().inv_cdf((1 + SURE) / 2)
    center, spread = hits + z * z / 2, z * math.sqrt(hits * (of - hits) / of + z * z / 4)
    return max(0.0, (center - spread) / (of + z * z)), min(1.0, (center + spread) / (of + z * z))


def host_streaks(nights: Iterable[NightCell]) -> Iterator[HostStreak]:
    """Yield what fails on one host to this day, while it passes on others: so often that it is no luck."""
    for (test, environment), attempts in _attempts(nights).items():
        for host, own in grouped(attempts, lambda attempt: attempt.evidence.host).items():
            streak = _last_failures(own)
            if not host or not streak:
                continue
            since = streak[0].started
            others = [each for each in attempts if each.evidence.host not in {"", host} and each.started >= since]
            red, of = len(streak), len(streak) + len(others)
            is_alone = others and all(map(_is_pass, others))
            if is_alone and 1 / math.comb(of, red) <= LUCK:  # the chance that failures of any host are all of this one
                yield HostStreak(
                    test=test, environment=environment, host=host, failures=red, since=since, passes=len(others)
                )


def _last_failures(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Return the attempts since the last pass, if they all end the same way."""
    passes = [place for place, attempt in enumerate(attempts) if _is_pass(attempt)]
    streak = attempts[passes[-1] + 1 if passes else 0 :]
    return streak if len({attempt.outcome for attempt in streak}) == 1 else ()


def _is_pass(attempt: Attempt) -> bool:
    return attempt.outcome is Outcome.PASS


def _attempts(nights: Iterable[NightCell]) -> dict[tuple[str, str], list[Attempt]]:
    """Return the attempts that passed or went wrong, by test and environment, oldest first, each of them once."""
    by_cell = grouped(nights, lambda night: (night.cell.name, stream(night.environment)))
    return {
        key: sorted(
            {
                attempt.started or f"{night.run.id} {place}": attempt
                for night in own
                for place, attempt in enumerate(speaking(night.cell.attempts))
                if attempt.outcome.is_red
                or _is_pass(attempt)
                or (night.cell.is_red and attempt.outcome is Outcome.SLOW)
            }.values(),
            key=lambda attempt: attempt.started,
        )
        for key, own in by_cell.items()
    }
