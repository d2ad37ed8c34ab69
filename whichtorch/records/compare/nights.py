"""Cells from night to night: what each stored run made of them, and what comes and goes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from operator import attrgetter
from statistics import NormalDist
from typing import Self

from pydantic import Field

from whichtorch.base.grouping import grouped
from whichtorch.model import Attempt, Model, Outcome, Result, Run, speaking, split_test
from whichtorch.records.compare.comparison import LUCK, stream
from whichtorch.records.compare.number_nights import NightCell, NumberNights, numbers_of
from whichtorch.records.line_index import LineIndex
from whichtorch.records.store import CELLS, ENVIRONMENTS, RunFolder, unknown_environment

_OF_NAME = "name = :name and run = :run"


class Night(Model):
    """What one run made of the cells of another."""

    run: Run
    cells: int
    outcomes: dict[Outcome, int]


class Histories(Model):
    """What `history --json` writes: the cells of runs, oldest first, by name."""

    schema_: int = Field(default=1, alias="schema")
    histories: dict[str, list[NightCell]]
    numbers: tuple[NumberNights, ...] = ()  # that were measured
    flakes: tuple[FlakeRate, ...] = ()  # of tests that come and go
    hosts: tuple[HostStreak, ...] = ()  # on which a test fails that passes on others

    @classmethod
    def of(cls, histories: dict[str, list[NightCell]]) -> Self:
        """Return histories with what they say of numbers, and of what comes and goes."""
        every = [night for own in histories.values() for night in own]
        numbers, flakes, hosts = numbers_of(every), flake_rates(every), host_streaks(every)
        return cls(histories=histories, numbers=numbers, flakes=tuple(flakes), hosts=tuple(hosts))


def nights(result: Result, before: Sequence[RunFolder]) -> tuple[Night, ...]:
    """Return what earlier runs of a state folder, then this one, made of this one's cells; others are left out.

    A nightly is compared with the nightlies of the other runs.
    """
    streams = {environment.id: stream(environment) for environment in result.environments}
    names = {(streams[cell.environment], cell.name) for cell in result.cells}
    found = [(result.run, Counter(cell.outcome for cell in result.cells))]
    if before:
        home = before[0].folder.parents[1]
        cells, environments = LineIndex(CELLS, home), LineIndex(ENVIRONMENTS, home)
        for head in reversed(before):
            run = head.folder.name
            rows = cells.rows("environment, name, source, outcome", "run = :run order by start", run=run)
            latest = {tuple(cell): outcome for *cell, outcome in rows}
            described = environments.latest("environment", "run = :run", run=run)
            streams = {id_: stream(environment) for id_, environment in described.items()}
            shared = [outcome for (id_, name, _), outcome in latest.items() if (streams.get(id_, id_), name) in names]
            found.append((head.run, Counter(Outcome[outcome] for outcome in shared)))
    return tuple(
        Night(run=run, cells=outcomes.total(), outcomes=dict(outcomes)) for run, outcomes in reversed(found) if outcomes
    )


def history(name: str, heads: Sequence[RunFolder]) -> dict[str, list[NightCell]]:
    """Return what runs of a state folder, oldest first, made of a test or of those that match a glob, by name.

    Where there is none, it is those whose name contains the text.
    """
    if not heads:
        return {}
    home = heads[0].folder.parents[1]
    cells, environments = LineIndex(CELLS, home), LineIndex(ENVIRONMENTS, home)
    pattern = name.replace("[", "[[]")

    def is_match(known: str) -> bool:
        return known == name or fnmatchcase(known, pattern)

    every = [known for (known,) in cells.rows("distinct name")]
    exactly = [known for known in every if is_match(known) or known.startswith((f"{name}[", f"{name} -- "))]
    names = exactly or [known for known in every if name in known]
    found: dict[str, list[NightCell]] = {}
    for head in heads:
        run = head.folder.name
        in_run = [cells.latest("environment || ' ' || source", _OF_NAME, name=known, run=run) for known in names]
        lines = [line for latest in in_run for line in latest.values()]
        described = environments.latest("environment", "run = :run", run=run) if lines else {}
        for line in sorted(lines, key=attrgetter("place")):
            cell = line.cell
            if name == split_test(cell.scenario)[0] or is_match(cell.name) or not exactly:
                environment = described.get(cell.environment) or unknown_environment(cell.environment)
                found.setdefault(cell.name, []).append(NightCell(run=head.run, environment=environment, cell=cell))
    return found


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
        if sum(_is_pass(old) != _is_pass(new) for old, new in pairwise(attempts)) > 1:
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
