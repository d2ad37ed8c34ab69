"""What one search has seen and used, kept once for every axis.

What is known of a position is its records, compared with one failure (`PositionEvidence`): no clock, no I/O.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from whichtorch.base.errors import TimeOverError
from whichtorch.base.grouping import counted
from whichtorch.bisect.bisection import Bisection, Boundary, Probe, Stretch, timeline_of, unjudged_in
from whichtorch.failures.failure import Failure, missing_in_all, needs_package
from whichtorch.matrix.judgement import judge_cell, wants_observation
from whichtorch.matrix.planning import PlannedCell
from whichtorch.model import (
    Cell,
    Doubt,
    Environment,
    Outcome,
    Record,
    combine,
    judging_records,
    lasting_records,
    name_of_test,
    speaking,
)
from whichtorch.records.compare.factors import changed_packages, commit_of, compare_link
from whichtorch.search.search_state import Costs, Find, ProbeRun, SearchState, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.bisect.search_request import Axis, SearchRequest
    from whichtorch.bisect.workbench import Probed, Workbench
    from whichtorch.search.search_state import AnswerKind, Bracket, Purpose, SearchOptions

UNMEASURED_GOOD = 5.0  # seconds of a run that passes: eager scripts take 2 to 7 (cold, two cores)
SAYS_NOTHING = frozenset({Outcome.SKIP, Outcome.ERROR})  # and another run would say nothing, either
_RED = {outcome for outcome in Outcome if outcome.is_red}
# the outcomes that end the runs of a probe, by the verdict that is enough
STOPS = {SearchVerdict.GOOD: SAYS_NOTHING | {Outcome.PASS}, SearchVerdict.BAD: SAYS_NOTHING | _RED, None: SAYS_NOTHING}


@dataclass(frozen=True, kw_only=True)
class PositionEvidence:
    """All that is known of one position."""

    position: int
    environment: Environment
    cell: Cell
    records: tuple[Record, ...] = ()  # of attempts that judge; none where the environment cannot be had
    reused: int = 0  # how many of them an earlier run made

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """The records that count.

        A slow run, which the clock ended while it moved, counts unless another explains it. A longer look stands for
        that run and for further slow ones, which get no longer look of their own.
        """
        attempts = speaking(record.attempt for record in self.records)
        speak = tuple(record for record in self.records if record.attempt in attempts)
        slow = [record for record in self.records if _is_slow(record) and record not in speak]
        shortest = min((record.attempt.limit for record in slow), default=0.0)
        longer = tuple(record for record in speak if record.attempt.limit > shortest and not _is_slow(record))
        return speak + longer[-1:] * max(0, len(slow) - len(longer))

    @property
    def is_provisional(self) -> bool:
        """True where a longer look may still decide: all runs are slow. Beside a pass, slow is most likely a hang."""
        return all(map(_is_slow, self.counted))

    @cached_property
    def failures(self) -> list[Failure]:
        """What its records show that is a failure, or may become one."""
        shown = [record for record in self.counted if record.attempt.outcome.is_red or _is_slow(record)]
        return [Failure.of(record).provisional for record in shown]

    def failure_with(self, words: str) -> Failure | None:
        """Return the first of its failures that has some words."""
        return next((failure for failure in self.failures if failure.has_words(words)), None)

    @property
    def passes(self) -> bool:
        """True where some run passed, with all that the test declares."""
        return any(record.attempt.outcome is Outcome.PASS for record in self.records) and not self.is_untestable

    @property
    def is_untestable(self) -> bool:
        """True where nothing ran, or all ended well, but perhaps without what the test declares.

        A test that passes alone is good, whatever it does after others: it is searched as it runs alone.
        """
        return not self.records or (self.cell.is_doubted and self.cell.doubt is not Doubt.ORDER)

    @property
    def lacks_feature(self) -> bool:
        """True where all its failures say that this version does not have what the test uses."""
        return all(failure.is_missing_api for failure in self.failures)

    @property
    def lacks_package(self) -> bool:
        """True where all its failures say that a package is not installed here."""
        return all(needs_package(each.signature, each.message, self.environment.packages) for each in self.failures)


def reference_of(
    evidence: Sequence[PositionEvidence],
    find: Find,
    *,
    any_failure: bool = False,
    named: str = "",
    named_bad: int | None = None,
) -> Failure | None:
    """Return the failure that a search is about, None where none was seen yet.

    It is the newest one that says `named`, and the one at the position that the user calls bad. If neither is given,
    it is the failure at the newest change: the last before what passes now, or the first after what passed before. A
    failure that says only that a version lacks what the test uses counts where something older passes, which had it,
    where the user calls it bad, or where nothing else was seen yet: only a package that is not there is no matter of
    the release.
    """
    failing = {seen.position: seen for seen in evidence if seen.failure_with(named)}
    passes = [seen.position for seen in evidence if seen.passes]
    counted = [
        position
        for position, seen in failing.items()
        if any_failure
        or named
        or not seen.lacks_feature
        or position == named_bad
        or position > min(passes, default=position)
    ]
    if not counted:
        is_asked = find is Find.FIX
        counted = [position for position, seen in failing.items() if is_asked or not (passes or seen.lacks_package)]
    if not counted:
        return None
    passing = [seen.position for seen in evidence if seen.passes and not seen.failures]
    position = named_bad if named_bad in counted else _at_newest_change(sorted(counted), passing, find)
    return failing[position].failure_with(named)


def _at_newest_change(failing: Sequence[int], passing: Sequence[int], find: Find) -> int:
    """Return which failing position is next to the newest change; the newest one where there is no such change."""
    newest = failing[-1]
    fixed = [position for position in failing if position < max(passing, default=0)]
    if find is Find.FIX:
        return max(fixed, default=newest)
    if find is not Find.REGRESSION and newest in fixed:
        return newest
    pass_before = max((position for position in passing if position < newest), default=newest - 1)
    return next(position for position in failing if position > pass_before)


def observations_of(
    evidence: Iterable[PositionEvidence], reference: Failure | None, *, any_failure: bool = False
) -> tuple[ProbeRun, ...]:
    """Return what every run says: good, bad, different or nothing."""

    def verdict(seen: PositionEvidence, record: Record) -> SearchVerdict:
        if record.attempt.outcome is Outcome.PASS:
            return SearchVerdict.GOOD
        if not (record.attempt.outcome.is_red or _is_slow(record)):
            return SearchVerdict.UNTESTABLE
        if reference is not None and (any_failure or reference.compare(Failure.of(record))):
            return SearchVerdict.BAD
        return SearchVerdict.UNTESTABLE if seen.lacks_feature else SearchVerdict.DIFFERENT

    runs = []
    for seen in evidence:
        if seen.is_untestable:
            runs.append(ProbeRun(position=seen.position, verdict=SearchVerdict.UNTESTABLE))
        else:
            runs += [
                ProbeRun(position=seen.position, verdict=verdict(seen, record), provisional=seen.is_provisional)
                for record in seen.counted
            ]
    return tuple(runs)


def _is_slow(record: Record) -> bool:
    return record.attempt.outcome is Outcome.SLOW


class SearchEndedError(Exception):
    """A search cannot go on, though nobody stopped it; the message says why."""


@dataclass(slots=True, kw_only=True)
class Ledger:
    """The positions of an axis that were seen, why each was probed, what that cost, and the answer."""

    request: SearchRequest
    bench: Workbench
    axis: Axis
    goal: SearchOptions  # the request's, with the bounds as positions
    named_bad: int | None = None  # the position that the user calls bad
    evidence: dict[int, PositionEvidence] = field(default_factory=dict)
    exhausted: set[int] = field(default_factory=set)  # positions of which another run said nothing
    purposes: dict[int, Purpose] = field(default_factory=dict)  # why each position was first probed, in order
    _reused: dict[int, int] = field(default_factory=dict)  # records that were there before, by position
    _runs_before: int = 0

    def __post_init__(self) -> None:
        self._runs_before = self.bench.runs

    # the budget

    def check_budget(self, *, wants_install: bool = False) -> None:
        """Raise TimeOverError if the search may not go on, or not with an install."""
        budget = self.request.budget
        if self.bench.stopped:
            raise TimeOverError(self.bench.stopped)
        if budget.seconds is not None and self.bench.seconds >= budget.seconds:
            raise TimeOverError(f"the time limit of {budget.seconds:g} s is over")
        if budget.installs is not None and wants_install and self.bench.installs >= budget.installs:
            raise TimeOverError(f"the limit of {counted(budget.installs, 'install')} is reached")

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the search may still take, None for no limit."""
        limit = self.request.budget.seconds
        return None if limit is None else max(0.0, limit - self.bench.seconds)

    def needs_install(self, position: int) -> bool:
        """Return whether a probe of a position would install or build something."""
        request = self.axis.known_request(position)
        return request is None or not self.bench.cache.is_installed(request)

    # probes

    def planned(self, position: int, *, until: SearchVerdict | None = None, provisional: bool = False) -> PlannedCell:
        """Return the test at a position, with one run. If it is given more runs, one that shows `until` is the last."""
        request = self.request
        stops = STOPS[until] | ({Outcome.SLOW} if provisional and until is SearchVerdict.GOOD else set())
        options = replace(request.run_options, repeat=1, until=stops, provisional=provisional, in_search=True)
        environment, scenario, variant = self.axis.request(position), request.scenario, request.variant
        return PlannedCell(request=environment, scenario=scenario, variant=variant, options=options)

    # evidence

    def recall_known(self) -> None:
        """Take in what earlier runs recorded of every position whose environment is known without asking an index."""
        for position in range(len(self.axis.values)):
            if self.axis.known_request(position) is not None:
                self.recall(position)

    def recall(self, position: int) -> bool:
        """Take in what is recorded of a position, or that its environment is broken; return False if it must run."""
        planned = self.planned(position)
        environment = self.bench.cache.known(planned.request)
        records = () if environment is None else lasting_records(self.bench.records.of(planned.key(environment)))
        is_told = judging_records(records) and not wants_observation(planned, records)
        if environment is None or (environment.is_usable and not is_told):
            return False
        self._reused.setdefault(position, len(judging_records(records)))
        self._see(position, environment)
        return True

    def stop(self, end: KeyboardInterrupt | SearchEndedError) -> str:
        """Stop what runs, take in the attempts that had ended by then, and return why the search ends, in words."""
        if isinstance(end, SearchEndedError):  # the bench stays open, because another search may use it
            return str(end)
        reason = self.bench.stop(end)
        for position in self.purposes:
            if self.axis.known_request(position) is not None:
                self._reused.setdefault(position, 0)
                self.recall(position)
        return reason

    def take_in(self, probed: Probed) -> None:
        """Take in the result of a probe that was not cancelled, at every position that has its environment."""
        assert probed.environment is not None
        assert probed.cell is not None
        self._reused.setdefault(probed.position, probed.cell.reused)
        self._see(probed.position, probed.environment, probed.cell)
        for other in self.seen:
            is_twin = other.environment.id == probed.environment.id and other.position != probed.position
            if is_twin and other.records:
                self._see(other.position, other.environment)

    def _see(self, position: int, environment: Environment, cell: Cell | None = None) -> None:
        """Take in all records of a position; without records, `cell` says why there are none."""
        planned = self.planned(position)
        records = self.bench.records.of(planned.key(environment)) if environment.is_usable else []
        self.evidence[position] = PositionEvidence(
            position=position,
            environment=environment,
            cell=judge_cell(planned, environment, records) if records or cell is None else cell,
            records=tuple(judging_records(records)),
            reused=self._reused.get(position, 0),
        )

    @property
    def seen(self) -> list[PositionEvidence]:
        """The evidence, in the order of the positions."""
        return [self.evidence[position] for position in sorted(self.evidence)]

    @property
    def reference(self) -> Failure | None:
        """The failure that is searched, None where none was seen yet."""
        any_failure, named = self.request.any_failure, self.request.failure
        return reference_of(self.seen, self.goal.find, any_failure=any_failure, named=named, named_bad=self.named_bad)

    def search(self) -> SearchState:
        """Return what the strategy decides on."""
        twins: defaultdict[str, set[int]] = defaultdict(set)  # by environment: days without a release between them
        for seen in self.seen:
            if seen.records:
                twins[seen.environment.id].add(seen.position)
        return SearchState(
            size=len(self.axis.values),
            observations=observations_of(self.seen, self.reference, any_failure=self.request.any_failure),
            options=self.goal,
            names=self.axis.values,
            twins=tuple(frozenset(positions) for positions in twins.values() if len(positions) > 1),
            exhausted=frozenset(self.exhausted),
            made=self.bench.runs - self._runs_before,
        )

    def priced_search(self) -> SearchState:
        """Return what the strategy decides on, with the costs of probes as runs and installs so far suggest them."""
        attempts = [record.attempt for seen in self.seen for record in seen.counted]
        good = [attempt.seconds for attempt in attempts if attempt.outcome is Outcome.PASS]
        bad = [attempt.seconds for attempt in attempts if attempt.outcome.is_red or attempt.outcome is Outcome.SLOW]
        install = self.bench.cache.typical_install()
        costs = Costs(
            install=tuple(install * self.needs_install(position) for position in range(len(self.axis.values))),
            good=statistics.median(good or [UNMEASURED_GOOD]),
            bad=statistics.median(bad or [UNMEASURED_GOOD]),
        )
        return replace(self.search(), costs=costs)

    # the answer

    @property
    def probes(self) -> list[Probe]:
        """What came of each position that was seen, in their order."""
        search = self.search()
        return [self._probe(seen, search.label(seen.position)) for seen in self.seen]

    def _probe(self, seen: PositionEvidence, label: SearchVerdict | None) -> Probe:
        decisive = combine([record.attempt for record in seen.records])
        value, counted = self.axis.values[seen.position], seen.counted
        return Probe(
            value=value,
            title=self.axis.subjects.get(value, ""),
            outcome=seen.cell.outcome,
            signature=seen.cell.signature,
            k=sum(record.attempt.outcome is (decisive.outcome if decisive else None) for record in counted),
            n=len(counted),
            reused=min(seen.reused, len(counted)),  # a longer look stands for the run before it
            verdict=label if label is not None else SearchVerdict.UNTESTABLE,
            # if every value is probed, no probe has a purpose of its own
            purpose=self.purposes.get(seen.position) if self.axis.name.row.is_ordered else None,
            message=decisive.message if decisive and decisive.message else seen.cell.reason or "",
            seconds=seen.cell.seconds,
            environment=seen.environment,
            cell=seen.cell,
        )

    def shown(self, *positions: int) -> list[str]:
        """Return what those of some positions that were seen showed, in words."""
        values = {self.axis.values[position] for position in positions}
        return [probe.in_words for probe in self.probes if probe.value in values]

    def boundary(self, bracket: Bracket, names: Sequence[str] = ()) -> Boundary:
        """Describe a change by the values and the environments on its two sides.

        `names` are the names of the bracket's positions, by default those of the axis.
        """
        names = names or self.axis.values
        boundary = Boundary.model_validate(
            {
                "from": names[bracket.before],
                "to": names[bracket.after],
                "change": bracket.change,
                "confidence": round(bracket.confidence, 4),
                "untestable_between": [names[position] for position in bracket.untestable_between],
                "different_between": [names[position] for position in bracket.different_between],
                "untried_between": [names[position] for position in bracket.untried_between],
                "unasked_between": self.axis.unasked(names[bracket.before], names[bracket.after]),
            }
        )
        environments = {self.axis.values[seen.position]: seen.environment for seen in self.seen}
        before, after = environments.get(boundary.from_), environments.get(boundary.to)
        if before is None or after is None:
            return boundary
        first, last = commit_of(before), commit_of(after)
        changed = {name: pair for name, pair in changed_packages(before, after).items() if name != self.axis.package}
        is_same = first is not None and first == last
        update = {"commits": compare_link(first, last), "same_commit": is_same, "packages": changed}
        return boundary.model_copy(update=update)

    def bisection(self, answer: AnswerKind, reasons: Iterable[str], boundaries: Iterable[Boundary] = ()) -> Bisection:
        """Return all that is known at the end of the search."""
        values, reference = self.axis.values, self.reference
        known = [position for position in self.evidence if position not in self.purposes]
        probed = [position for position in self.purposes if position in self.evidence]
        probes = self.probes
        timeline = timeline_of(probes) if self.axis.name.row.is_ordered else ()
        missing = missing_in_all((probe.signature, probe.message) for probe in probes if probe.n)
        return Bisection(
            scenario=name_of_test(self.request.scenario.name, self.request.variant),
            question=self.goal.find,
            axis=self.axis.name,
            values=values,
            common=self.axis.common,
            reference=(reference.outcome, reference.signature) if reference else None,
            boundaries=tuple(boundaries),
            probes=tuple(probes),
            timeline=timeline,
            unjudged=unjudged_in(probes),
            order=tuple(values[position] for position in (*known, *probed)),
            installs=self.bench.installs,
            run=self.bench.lab.store.run.id,
            runs=self.bench.runs - self._runs_before,
            seconds=round(self.bench.seconds, 1),
            answer=answer,
            interrupted=self.bench.is_interrupted,
            reasons=(*missing, *reasons, *self._about_failures(timeline)),
        )

    def _about_failures(self, timeline: Sequence[Stretch]) -> Iterator[str]:
        """Yield a sentence if no failure has the words that the user names, and one for each other failure."""
        words = self.request.failure
        if self.reference is None and words:
            yield f"no failure that was seen has the words {words!r}"
        for stretch in timeline if self.reference or words else ():
            if stretch.verdict is SearchVerdict.DIFFERENT:
                yield f"also: another failure, {stretch.outcome} in {stretch.ends}: {stretch.what or 'with no words'}"
