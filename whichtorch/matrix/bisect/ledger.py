"""What one search has seen and used, kept once for every axis."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.bisection import Bisection, Boundary, Probe, Stretch, timeline_of
from whichtorch.matrix.bisect.position_evidence import PositionEvidence, observations_of, reference_of
from whichtorch.matrix.bisect.strategy.search_state import (
    AnswerKind,
    Bracket,
    Costs,
    Purpose,
    SearchOptions,
    SearchState,
    SearchVerdict,
)
from whichtorch.matrix.bisect.strategy.view import View
from whichtorch.matrix.compare.factors import changed_packages, commit_of, compare_link
from whichtorch.matrix.events import ProbeChosen
from whichtorch.matrix.model import Cell, Environment, Outcome, Record, combine, judging_records, variant_suffix
from whichtorch.matrix.plan.planning import PlannedCell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.matrix.bisect.search_request import Axis, SearchRequest
    from whichtorch.matrix.bisect.workbench import Probed, Workbench
    from whichtorch.matrix.diagnosis.failure import Failure

UNMEASURED_GOOD = 5.0  # seconds of a run that passes: eager scripts take 2 to 7 (cold, two cores)
SAYS_NOTHING = frozenset({Outcome.SKIP, Outcome.ERROR})  # and another run would say nothing, either
_RED = {outcome for outcome in Outcome if outcome.is_red}
# the outcomes that end the runs of a probe, by the verdict that is enough
STOPS = {SearchVerdict.GOOD: SAYS_NOTHING | {Outcome.PASS}, SearchVerdict.BAD: SAYS_NOTHING | _RED, None: SAYS_NOTHING}


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

    def over(self, *, wants_install: bool = False) -> str | None:
        """Return which part of the budget is used up, in words; None where the search may go on."""
        budget = self.request.budget
        if self.bench.stopped:
            return self.bench.stopped
        if budget.seconds is not None and self.bench.seconds >= budget.seconds:
            return f"the time limit of {budget.seconds:g} s is over"
        if budget.installs is not None and wants_install and self.bench.installs >= budget.installs:
            return f"the limit of {budget.installs} installs is reached"
        return None

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

    def planned(
        self, position: int, *, repeat: int = 1, until: SearchVerdict | None = None, provisional: bool = False
    ) -> PlannedCell:
        """Return the test at a position, in `repeat` runs, or fewer if one of them shows `until`."""
        request = self.request
        stops = STOPS[until] | ({Outcome.SLOW} if provisional and until is SearchVerdict.GOOD else set())
        options = replace(request.run_options, repeat=repeat, until=stops, provisional=provisional, in_search=True)
        environment, scenario, variant = self.axis.request(position), request.scenario, request.variant
        return PlannedCell(request=environment, scenario=scenario, variant=variant, options=options)

    def start(
        self,
        position: int,
        planned: PlannedCell,
        purpose: Purpose,
        *,
        left: int,
        runs: int | None = None,
        between: tuple[str | None, str | None] = (None, None),
    ) -> None:
        """Announce and begin a probe; `runs` are the new ones, by default all that are planned."""
        self.purposes.setdefault(position, purpose)
        value, subject = self.axis.values[position], self.axis.subject(position)
        number = len(self.evidence.keys() | self.purposes.keys())
        title = f"{value[:10]} {subject}" if subject else value
        new = runs or planned.options.repeat
        self.bench.emit(ProbeChosen(number=number, value=title, purpose=purpose, runs=new, between=between, left=left))
        self.bench.start(position, planned)

    # evidence

    def recall_known(self) -> None:
        """Take in what earlier runs recorded of every position whose environment is known without asking an index."""
        for position in range(len(self.axis.values)):
            if self.axis.known_request(position) is not None:
                self.recall(position)

    def recorded(self, planned: PlannedCell) -> list[Record]:
        """Return what is recorded of a test at a position, attempts that only observe included."""
        environment = self.bench.cache.known(planned.request)
        return self.bench.records.of(planned.key(environment)) if environment is not None else []

    def recall(self, position: int) -> bool:
        """Take in what earlier runs recorded of a position; return False if they leave its outcome open."""
        planned = self.planned(position)
        records, environment = self.recorded(planned), self.bench.cache.known(planned.request)
        if environment is None or not judging_records(records) or planned.wants_observation(records):
            return False
        self._reused.setdefault(position, len(judging_records(records)))
        self._see(position, planned, environment)
        return True

    def stop(self, why: str | KeyboardInterrupt) -> str:
        """Stop what runs, take in the attempts that had ended by then, and return why in words."""
        reason = self.bench.stop(why)
        for position in self.purposes:
            if self.axis.known_request(position) is not None:
                self._reused.setdefault(position, 0)
                self.recall(position)
        return reason

    def take_in(self, probed: Probed) -> None:
        """Take in what came of a probe; a cancelled one is no evidence."""
        if probed.environment is not None and probed.cell is not None:
            self._reused.setdefault(probed.position, probed.cell.reused)
            self._see(probed.position, self.planned(probed.position), probed.environment, probed.cell)
            for other in [other for other in self.seen if other.environment.id == probed.environment.id]:
                if other.position != probed.position and other.records:
                    self._see(other.position, self.planned(other.position), other.environment)

    def _see(self, position: int, planned: PlannedCell, environment: Environment, cell: Cell | None = None) -> None:
        """Take in all records of a position; without records, `cell` says why there are none."""
        records = self.bench.records.of(planned.key(environment)) if environment.is_usable else []
        self.evidence[position] = PositionEvidence(
            position=position,
            environment=environment,
            cell=planned.judged(environment, records) if records or cell is None else cell,
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
        request = self.request
        return reference_of(
            self.seen,
            self.goal.find,
            any_failure=request.any_failure,
            named=request.failure,
            named_bad=self.named_bad,
        )

    def search(self) -> SearchState:
        """Return what the strategy decides on."""
        values, any_failure = self.axis.values, self.request.any_failure
        observations = observations_of(self.seen, self.reference, any_failure=any_failure)
        return SearchState(
            size=len(values),
            observations=observations,
            options=self.goal,
            names=values,
            twins=self._twins(),
            exhausted=frozenset(self.exhausted),
            first=self.axis.first,
            made=self.bench.runs - self._runs_before,
        )

    def _twins(self) -> tuple[frozenset[int], ...]:
        """Return the positions that turned out to be the same environment: days without a release between them."""
        positions: dict[str, set[int]] = {}
        for seen in self.seen:
            if seen.records:
                positions.setdefault(seen.environment.id, set()).add(seen.position)
        return tuple(frozenset(twins) for twins in positions.values() if len(twins) > 1)

    def priced_search(self) -> SearchState:
        """Return what the strategy decides on, with what probes cost."""
        return replace(self.search(), costs=self._costs())

    def _costs(self) -> Costs:
        """Return what probes cost, by the runs and installs so far."""
        attempts = [record.attempt for seen in self.seen for record in seen.counted]
        good = [attempt.seconds for attempt in attempts if attempt.outcome is Outcome.PASS]
        bad = [attempt.seconds for attempt in attempts if attempt.outcome.is_red or attempt.outcome is Outcome.SLOW]
        install = self.bench.cache.typical_install()
        return Costs(
            install=tuple(install * self.needs_install(position) for position in range(len(self.axis.values))),
            good=statistics.median(good or [UNMEASURED_GOOD]),
            bad=statistics.median(bad or [UNMEASURED_GOOD]),
        )

    @property
    def view(self) -> View:
        """What was seen, counted."""
        return View.of(self.search())

    # the answer

    @property
    def probes(self) -> list[Probe]:
        """What came of each position that was seen, in their order."""
        view = self.view
        return [self._probe(seen, view.label(seen.position)) for seen in self.seen]

    def _probe(self, seen: PositionEvidence, label: SearchVerdict | None) -> Probe:
        decisive = combine([record.attempt for record in seen.records])
        position, counted = seen.position, seen.counted
        return Probe(
            value=self.axis.values[position],
            title=self.axis.subject(position),
            outcome=seen.cell.outcome,
            signature=seen.cell.signature,
            k=sum(record.attempt.outcome is (decisive.outcome if decisive else None) for record in counted),
            n=len(counted),
            reused=min(seen.reused, len(counted)),  # a longer look stands for the run before it
            verdict=label if label is not None else SearchVerdict.UNTESTABLE,
            # if every value is probed, no probe has a purpose of its own
            purpose=self.purposes.get(position) if self.axis.name.row.is_ordered else None,
            message=decisive.message if decisive and decisive.message else seen.cell.reason or "",
            seconds=seen.cell.seconds,
            environment=seen.environment,
            cell=seen.cell,
        )

    def shown(self, *positions: int) -> list[str]:
        """Return what those of some positions that were seen showed, in words."""
        values = {self.axis.values[position] for position in positions}
        return [probe.in_words for probe in self.probes if probe.value in values]

    def boundary(self, bracket: Bracket) -> Boundary:
        """Describe a change by the values and the environments on its two sides."""
        values = self.axis.values
        boundary = Boundary.model_validate(
            {
                "from": values[bracket.before],
                "to": values[bracket.after],
                "change": bracket.change,
                "confidence": round(bracket.confidence, 4),
                "untestable_between": tuple(values[position] for position in bracket.untestable_between),
                "different_between": tuple(values[position] for position in bracket.different_between),
                "untried_between": tuple(values[position] for position in bracket.untried_between),
            }
        )
        if not {bracket.before, bracket.after} <= self.evidence.keys():
            return boundary
        before, after = (self.evidence[side].environment for side in (bracket.before, bracket.after))
        first, last = commit_of(before), commit_of(after)
        changed = {name: pair for name, pair in changed_packages(before, after).items() if name != "torch"}
        is_same = first is not None and first == last
        return boundary.model_copy(
            update={"commits": compare_link(first, last), "same_commit": is_same, "packages": changed}
        )

    def bisection(self, answer: AnswerKind, reasons: Iterable[str], boundaries: Iterable[Boundary] = ()) -> Bisection:
        """Return all that is known at the end of the search."""
        values, reference = self.axis.values, self.reference
        known = [position for position in self.evidence if position not in self.purposes]
        probed = [position for position in self.purposes if position in self.evidence]
        probes = self.probes
        timeline = timeline_of(probes) if self.axis.name.row.is_ordered else ()
        return Bisection(
            scenario=self.request.scenario.name + variant_suffix(self.request.variant),
            question=self.goal.find,
            axis=self.axis.name,
            values=values,
            reference=(reference.outcome, reference.signature) if reference else None,
            boundaries=tuple(boundaries),
            probes=tuple(probes),
            timeline=timeline,
            order=tuple(values[position] for position in (*known, *probed)),
            installs=self.bench.installs,
            run=self.bench.run_id,
            runs=self.bench.runs - self._runs_before,
            seconds=round(self.bench.seconds, 1),
            answer=answer,
            interrupted=self.bench.is_interrupted,
            reasons=(*reasons, *self._unseen(), *(f"also: {change}" for change in self._other_failures(timeline))),
        )

    def _unseen(self) -> list[str]:
        """Return a reason where no failure has the words that the user names."""
        words = self.request.failure
        return [f"no failure that was seen has the words {words!r}"] if words and self.reference is None else []

    def _other_failures(self, timeline: Sequence[Stretch]) -> Iterator[str]:
        """Yield each failure that was seen and is not the one that is asked about, with the values that show it."""
        if self.reference is None and not self.request.failure:
            return
        for stretch in timeline:
            if stretch.verdict is SearchVerdict.DIFFERENT:
                yield f"another failure, {stretch.outcome} in {stretch.ends}: {stretch.what or 'with no words'}"
