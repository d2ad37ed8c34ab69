"""Cells and numbers from night to night: what each stored run made of them, what comes and goes, where a level changes.

Two machines, or one on two days, do not give the same number. So a night's number counts by its change from a
reference that was measured in turns with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate, pairwise
from operator import attrgetter
from pathlib import Path
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field
from pydantic_core import from_json

from whichtorch.base.grouping import counted, grouped
from whichtorch.measure.measure import Measure
from whichtorch.model import (
    Attempt,
    Cell,
    Effect,
    Environment,
    Measurement,
    Model,
    Outcome,
    Quantity,
    Result,
    Run,
    ValueChange,
    speaking,
    split_test,
)
from whichtorch.records.compare.comparison import LUCK, stream, stream_name
from whichtorch.records.line_index import LineIndex
from whichtorch.records.store import CELLS, ENVIRONMENTS, LEFT_OUT, RunFolder, unknown_environment
from whichtorch.records.stored_runs import COMPARABLE, all_runs
from whichtorch.search.step_search import ALPHA, Estimate

if TYPE_CHECKING:
    from whichtorch.search.step_search import Threshold

_Found = tuple[str, str, Run, dict[str, Any]]  # a test, an environment, a run, and fields of a Measurement
_SHARED = ("reference", "unit", "is_share", "more_is_better", "basis")  # what two nights must share to be compared
NO_REFERENCE = "nothing was measured in turns with it, so that a change may be the machine's"

_OF_NAME = "name = :name and run = :run"


class NightCell(Model):
    """A cell as one run left it."""

    run: Run
    environment: Environment
    cell: Cell


class NumberNight(Model):
    """A number in one night."""

    run: str  # id
    started: str
    value: float
    change: ValueChange | None = None  # against the reference of the same night


class LevelChange(Model):
    """A night from which on a number has another level."""

    run: str  # id of the first that has it
    started: str
    before: str  # id of the last that does not
    change: ValueChange  # of the level: shares of it, or in the number's unit
    effect: Effect


class NumberNights(Quantity):
    """A number of a test in an environment, night after night."""

    test: str
    environment: str  # a nightly's version is `nightly`
    reference: str = ""  # label of the environment that it was compared with in each night
    nights: tuple[NumberNight, ...]
    changes: tuple[LevelChange, ...] = ()
    note: str = ""  # why changes are doubtful, or were not looked for


def numbers_of(nights: Iterable[NightCell]) -> tuple[NumberNights, ...]:
    """Return the numbers of the cells of nights, oldest first, by test, environment and measure."""
    nights = tuple(nights)
    parts = {part for night in nights for part in night.run.parts}
    own = (night for night in nights if night.run.id not in parts)
    return tuple(
        _joined(each for night in own for each in _numbers_in(night.cell, stream(night.environment), night.run))
    )


def numbers_until(result: Result, before: Sequence[RunFolder]) -> tuple[NumberNights, ...]:
    """Return the numbers of a run's cells over earlier runs of a state folder and this one."""
    if not any(cell.numbers for cell in result.cells):
        return ()
    streams = {environment.id: stream(environment) for environment in result.environments}
    references = {(cell.name, number.reference) for cell in result.cells for number in cell.numbers}
    wanted = {(cell.name, streams[cell.environment]) for cell in result.cells if cell.numbers} - references
    parts = {part for head in before for part in head.run.parts}
    runs = {head.folder.name: head.run for head in before if head.run.id not in parts}
    found: list[_Found] = []
    if before:
        home = before[0].folder.parents[1]
        described = LineIndex(ENVIRONMENTS, home).rows("distinct run, environment, label, torch")
        names: dict[tuple[str, str], str] = {
            (run, id_): stream_name(label, torch) for run, id_, label, torch in described
        }
        rows = LineIndex(CELLS, home).rows("run, environment, name, numbers", "numbers is not null order by run, start")
        latest: dict[tuple[str, str, str], str] = {}
        for run, id_, name, text in rows:
            where = names.get((run, id_)) or str(id_)
            if run in runs and (name, where) in wanted:
                latest[run, where, name] = text
        order = {run: place for place, run in enumerate(runs)}
        keys = sorted(latest, key=lambda key: order[key[0]])
        parsed = from_json(f"[{','.join(latest[key] for key in keys)}]")  # at once, which is faster
        for (run, environment, name), numbers in zip(keys, parsed, strict=True):
            found += [(name, environment, runs[run], fields) for fields in numbers]
    found += [each for cell in result.cells for each in _numbers_in(cell, streams[cell.environment], result.run)]
    return tuple(_joined(found))


def measured_before(new: Result, home: Path) -> list[Result]:
    """Return the two runs of a state folder that are the last with numbers before a run that has some, latest first."""
    if not any(cell.numbers for cell in new.cells):
        return []
    measured = {run for (run,) in LineIndex(CELLS, home).rows("distinct run", "numbers is not null")}
    moment = new.run.started, new.run.id
    earlier = [
        head
        for head in all_runs(home)
        if head.folder.name in measured and head.run.kind in COMPARABLE and (head.run.started, head.run.id) < moment
    ]
    return [head.read().result for head in reversed(earlier[-2:])]


def _numbers_in(cell: Cell, environment: str, run: Run) -> list[_Found]:
    return [(cell.name, environment, run, number.model_dump(exclude=LEFT_OUT)) for number in cell.numbers]


def _joined(found: Iterable[_Found]) -> Iterator[NumberNights]:
    """Yield the numbers of nights, oldest first.

    The nights count that have the reference of the latest one, and its rule. A reference has no numbers of its own.
    """
    by_series = grouped(found, lambda each: (each[0], each[1], each[3]["name"]))
    references = {(test, each[3]["reference"], name) for (test, _, name), own in by_series.items() for each in own}
    for (test, environment, name), series in by_series.items():
        if (test, environment, name) in references:
            continue
        last = Measurement.model_validate(series[-1][3])
        rule = [series[-1][3].get(name) for name in _SHARED]
        nights = [
            {"run": run.id, "started": run.started, "value": fields["value"], "change": fields["change"]}
            for _, _, run, fields in series
            if [fields.get(name) for name in _SHARED] == rule and (fields["change"] is not None or not last.reference)
        ]
        if not nights:
            continue
        shared = last.model_dump(include={"name", "unit", "reference", "is_share"})
        made = NumberNights.model_validate({"test": test, "environment": environment, "nights": nights} | shared)
        changes, note = _changes(made.nights, last)
        others = len(series) - len(nights)
        notes = (
            f"{counted(others, 'night')} left out, with another reference or without a change" if others else "",
            note,
            "" if last.reference else NO_REFERENCE,
        )
        yield made.model_copy(update={"changes": tuple(changes), "note": "; ".join(filter(None, notes))})


def _changes(nights: Sequence[NumberNight], number: Measurement) -> tuple[list[LevelChange], str]:
    """Return where the level changes, and why that is not known."""
    measure = Measure.of(number)
    if problem := missing_libraries():
        return [], f"no changes were looked for: {problem}"
    try:
        levels = [_level(night, measure) for night in nights]
    except ValueError as error:
        return [], f"no changes were looked for: {error}"
    return [
        LevelChange(
            run=nights[point.night].run,
            started=nights[point.night].started,
            before=nights[point.night - 1].run,
            change=measure.change_in(point.shift),
            effect=point.effect,
        )
        for point in change_points(levels, measure.threshold)
    ], ""


def _level(night: NumberNight, measure: Measure) -> float:
    """Return a night's number on the scale on which more is worse. Raises ValueError where it has none."""
    number = night.value if night.change is None else night.change[0] + measure.is_share
    if not math.isfinite(number):
        raise ValueError(f"{measure.name} was {number:g} in {night.run}")
    return measure.on_scale(number)


LEAST = 5  # nights of a level: fewer may be a busy machine
LEVEL = 1e-5  # of the rank test: a year of nights of many cells is looked through
EXACT = 20  # nights of a level up to which the test is exact, if no two numbers are the same
PENALTY = 0.25  # of a cut, for the ranks between 0 and 1, and for each e-fold of nights: 3 times their variance


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A night from which on the level is another one."""

    night: int  # its index
    shift: Estimate  # from the level before, where positive is worse
    effect: Effect


def missing_libraries() -> str:
    """Return why the search cannot be made, "" where it can."""
    try:
        import ruptures  # noqa: F401  they take a second, and an extra brings them
        import scipy.stats  # noqa: F401
    except ImportError:
        return "that needs scipy and ruptures: pip install 'whichtorch[measure]'"
    return ""


def change_points(numbers: Sequence[float], threshold: Threshold) -> list[ChangePoint]:
    """Return where the level of numbers changes by what counts, in order; positive changes are worse."""
    if len(numbers) < 2 * LEAST or len(set(numbers)) == 1:
        return []
    ends, seen = [0, *_cuts(numbers)], set[tuple[int, ...]]()
    while len(ends) > 2:
        tried = [_tested(numbers, *each, threshold) for each in zip(ends, ends[1:], ends[2:], strict=False)]
        worst = max(range(len(tried)), key=lambda place: tried[place][0])
        if tried[worst][0] > LEVEL:
            del ends[worst + 1]
        elif tuple(ends) in seen:
            return [point for _, point in tried]
        else:
            seen.add(tuple(ends))
            ends = _moved(numbers, ends)
    return []


def _moved(numbers: Sequence[float], ends: Sequence[int]) -> list[int]:
    """Return the ends of levels with each cut where the numbers fit best to the medians on both sides.

    Ranks say less of the place: they make small differences of one level large.
    """
    moved = list(ends)
    for place, (before, cut, end) in enumerate(zip(ends, ends[1:], ends[2:], strict=False), 1):
        start = moved[place - 1]  # not crossed
        old, new = median(numbers[before:cut]), median(numbers[cut:end])
        misfits = list(accumulate(abs(number - old) - abs(number - new) for number in numbers[start:end]))
        moved[place] = min(range(start + LEAST, end - LEAST + 1), key=lambda night: misfits[night - start - 1])
    return moved


def _cuts(numbers: Sequence[float]) -> list[int]:
    """Return the ends of the levels that fit the ranks best."""
    from ruptures import KernelCPD
    from scipy.stats import rankdata

    ranks = rankdata(numbers).reshape(-1, 1) / len(numbers)
    search = KernelCPD(kernel="linear", min_size=LEAST, jump=1).fit(ranks)
    return list(map(int, search.predict(pen=PENALTY * math.log(len(numbers)))))


def _tested(
    numbers: Sequence[float], start: int, night: int, end: int, threshold: Threshold
) -> tuple[float, ChangePoint]:
    """Return the change between two levels, and how likely chance makes it: 1 and more where it does not count."""
    from scipy.stats import mannwhitneyu

    before, after = numbers[start:night], numbers[night:end]
    shift = _shift(before, after)
    effect = threshold.effect(shift)
    if not effect.counts:
        chance = 1 + 1 / (1 + abs(shift.center))
    else:
        is_short = min(len(before), len(after)) <= EXACT and len({*before, *after}) == end - start
        chance = float(mannwhitneyu(before, after, method="exact" if is_short else "asymptotic").pvalue)
    return chance, ChangePoint(night=night, shift=shift, effect=effect)


def _shift(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return the median of all differences between two groups, and the interval that belongs to the rank test."""
    differences = sorted(new - old for new in after for old in before)
    pairs = len(differences)
    deviation = math.sqrt(pairs * (len(before) + len(after) + 1) / 12)
    outer = max(0, math.floor(pairs / 2 - NormalDist().inv_cdf(1 - ALPHA / 2) * deviation))
    middle = (differences[(pairs - 1) // 2] + differences[pairs // 2]) / 2
    return Estimate(center=middle, low=differences[outer], high=differences[-1 - outer], rounds=pairs)


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
