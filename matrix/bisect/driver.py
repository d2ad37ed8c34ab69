"""Search an axis for the change: ask the strategy, run what it wants, until it has the answer.

All that a decision rests on is in the records, so whatever is interrupted goes on from there, and what a matrix has
run already counts.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from matrix.bisect.bisection import Bisection, Boundary, Searched, facts_between
from matrix.bisect.budget import Budget
from matrix.bisect.results import probe_of, shown, sighting_of
from matrix.bisect.sightings import Failure, Sighting, observations_of, reference_of
from matrix.bisect.strategy.decision import decide_parallel, partial
from matrix.bisect.strategy.evidence import AnswerKind, Costs, Purpose, Search, SearchAnswer, SearchVerdict
from matrix.bisect.strategy.view import View
from matrix.events import ProbeChosen
from matrix.model import Outcome, judging_records, variant_suffix
from matrix.plan.planning import PlannedCell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.bisect.axes.axis import Axis
    from matrix.bisect.bisection import Probe
    from matrix.bisect.prober import Probed, Prober
    from matrix.bisect.strategy import evidence as pure
    from matrix.environments.provider import Environments
    from matrix.events import Emit
    from matrix.model import Cell, Environment, Request, Scenario
    from matrix.plan.planning import RunOptions
    from matrix.records.store import Records

UNMEASURED_GOOD = 5.0  # seconds of a run that passes: eager scripts take 2 to 7 (cold, two cores)
RED = frozenset(outcome for outcome in Outcome if outcome.is_red)
SAYS_NOTHING = frozenset({Outcome.SKIP, Outcome.ERROR})  # and would say it again
STOPS = {SearchVerdict.GOOD: SAYS_NOTHING | {Outcome.PASS}, SearchVerdict.BAD: SAYS_NOTHING | RED, None: SAYS_NOTHING}


@dataclass(slots=True, kw_only=True)
class Bisector:
    """One search of one test along one axis. Call `run` once."""

    axis: Axis
    scenario: Scenario
    variant: dict[str, str]
    options: RunOptions  # of each attempt
    asked: pure.SearchOptions
    cache: Environments
    records: Records
    prober: Prober
    emit: Emit
    jobs: int = 1
    any_failure: bool = False
    named: Mapping[int, SearchVerdict] = field(default_factory=dict)  # what the user says of the bounds
    notes: tuple[str, ...] = ()  # about the question
    budget: Budget = field(default_factory=Budget)
    installs: Callable[[], int] = lambda: 0  # how many were made so far
    clock: Callable[[], float] = time.monotonic
    _sightings: dict[int, Sighting] = field(default_factory=dict)
    _purposes: dict[int, Purpose] = field(default_factory=dict)  # why each position was first tried, in order
    _reused: dict[int, int] = field(default_factory=dict)  # records that were there before, by position
    _started: float = 0.0
    _runs_before: int = 0

    def run(self) -> Bisection:
        """Search to the end of the question or of the budget.

        KeyboardInterrupt passes through; the same search goes on from the records.
        """
        self._started, self._runs_before = self.clock(), self.prober.runs
        self._recall()
        try:
            answer = self._searched()
        finally:
            self.prober.close()
        return self._bisection(answer)

    def _searched(self) -> SearchAnswer:
        seen: tuple[pure.ProbeRun, ...] = ()  # before the last probes ended
        ended: frozenset[int] = frozenset()  # where they did, but for those that were cancelled
        while True:
            search = self._search()
            step = decide_parallel(search, self.jobs)
            if isinstance(step, SearchAnswer):
                return step
            if step[0].position in ended and search.observations == seen:
                value = self.axis.values[step[0].position]
                return _cut_short(partial(search), f"{value} was run again and showed nothing that counts")
            seen, ended = search.observations, frozenset()
            if over := self._spent(step):
                return _cut_short(partial(search), over)
            if any(self._is_recalled_late(probe.position) for probe in step):
                continue  # what is known now may make the others needless
            running = self.prober.positions
            for position in running - {probe.position for probe in step}:
                self.prober.cancel(position)
            for probe in step:
                if probe.position not in running and self._is_affordable(probe):
                    self._start(probe, search)
            left = None if self.budget.seconds is None else self.budget.seconds - (self.clock() - self._started)
            probes = self.prober.wait(left)
            problems = [self._take_in(probed) for probed in probes]
            ended = frozenset(probed.position for probed in probes if probed.cell is not None)
            if problem := next(filter(None, problems), None):
                return _cut_short(partial(self._search()), problem)

    def _spent(self, step: tuple[pure.NextProbe, ...]) -> str | None:
        """Return which part of the budget is used up, so that nothing of a step can be run."""
        is_idle = not self.prober.positions
        wants_install = is_idle and not any(self._is_affordable(probe) for probe in step)
        return self.budget.used_up(self.clock() - self._started, self.installs(), wants_install=wants_install)

    def _is_affordable(self, probe: pure.NextProbe) -> bool:
        """Return whether the budget has an install for a probe, those being made counted."""
        if self.budget.installs is None or not self._is_to_install(probe.position):
            return True
        being_made = sum(self._is_to_install(position) for position in self.prober.positions)
        return self.installs() + being_made < self.budget.installs

    def _take_in(self, probed: Probed) -> str | None:
        """Take in what came of a probe; return what is in the way where that is no matter of its value."""
        environment, cell = probed.environment, probed.cell
        if environment is None or cell is None:  # cancelled
            return None
        request = self.axis.request(probed.position)
        if environment.outcome is Outcome.UNBUILDABLE and (problem := self.cache.in_the_way(request)):
            return problem
        self._reused.setdefault(probed.position, cell.reused)
        self._see(probed.position, self._planned(request), environment, cell)
        return None

    # evidence

    def _recall(self) -> None:
        """Take in what earlier runs have recorded."""
        for position in range(len(self.axis.values)):
            request = self.axis.known_request(position)
            if request is not None:
                self._recall_at(position, request)

    def _is_recalled_late(self, position: int) -> bool:
        """Return whether what a position means had to be asked for, and turns out to be known already."""
        if self.axis.known_request(position) is not None:
            return False
        self._recall_at(position, self.axis.request(position))
        return position in self._sightings

    def _recall_at(self, position: int, request: Request) -> None:
        known = self.cache.known(request)
        if known is None:
            return
        planned = self._planned(request)
        records = self.records.of(planned.key(known))
        judging = judging_records(records)
        if judging and not planned.wants_observation(records):
            self._reused[position] = len(judging)
            self._see(position, planned, known)

    def _see(self, position: int, planned: PlannedCell, environment: Environment, cell: Cell | None = None) -> None:
        """Take in all that is recorded of a position; `cell` says why where nothing could be."""
        records = self.records.of(planned.key(environment)) if environment.is_usable else []
        reused = self._reused.get(position, 0)
        self._sightings[position] = sighting_of(position, planned, environment, records, cell=cell, reused=reused)

    @property
    def _seen(self) -> list[Sighting]:
        return [self._sightings[position] for position in sorted(self._sightings)]

    def _reference(self) -> Failure | None:
        size = len(self.axis.values)
        bounds = Search(size=size, options=self.asked).bounds
        named = next((position for position, verdict in self.named.items() if verdict is SearchVerdict.BAD), None)
        return reference_of(self._seen, bounds, self.asked.find, any_failure=self.any_failure, named_bad=named)

    def _search(self) -> Search:
        reference = self._reference()
        seen = observations_of(self._seen, reference, any_failure=self.any_failure)
        return Search(
            size=len(self.axis.values),
            observations=seen,
            options=self.asked,
            costs=self._costs(),
            names=tuple(self.axis.values),
        )

    def _costs(self) -> Costs:
        """Return what probes cost, by what was measured so far."""
        telling = [record.attempt for one in self._seen for record in one.telling]
        good = [attempt.seconds for attempt in telling if attempt.outcome is Outcome.PASS]
        bad = [attempt.seconds for attempt in telling if attempt.outcome.is_red or attempt.outcome is Outcome.SLOW]
        install = self.cache.typical_install()
        return Costs(
            install=tuple(install * self._is_to_install(position) for position in range(len(self.axis.values))),
            good=statistics.median(good) if good else UNMEASURED_GOOD,
            bad=statistics.median(bad) if bad else UNMEASURED_GOOD,
        )

    def _is_to_install(self, position: int) -> bool:
        request = self.axis.known_request(position)
        return request is None or not self.cache.is_installed(request)

    # probes

    def _planned(self, request: Request, **options: object) -> PlannedCell:
        return PlannedCell(
            request=request,
            scenario=self.scenario,
            variant=self.variant,
            options=replace(self.options, **options),  # type: ignore[arg-type]
        )

    def _start(self, probe: pure.NextProbe, search: Search) -> None:
        """Begin what the strategy wants."""
        self._purposes.setdefault(probe.position, probe.purpose)
        request = self.axis.request(probe.position)
        reference = self._reference()
        # only a hang may be taken for one while it moves: any other failure would have come by then
        may_be_slow = not probe.firm and (reference is None or reference.outcome is Outcome.HANG)
        planned = self._planned(request, provisional=may_be_slow, until=STOPS[probe.until])
        seen = self._sightings.get(probe.position)
        done = planned.decided(seen.records) if seen else 0
        self._say(probe, search)
        self.prober.start(probe.position, replace(planned, options=replace(planned.options, repeat=done + probe.runs)))

    def _say(self, probe: pure.NextProbe, search: Search) -> None:
        view = View.of(search)
        before = max((position for position in view.labelled if position < probe.position), default=None)
        after = min((position for position in view.labelled if position > probe.position), default=None)
        self.emit(
            ProbeChosen(
                number=len(self._sightings.keys() | self._purposes.keys()),
                value=self.axis.values[probe.position],
                purpose=probe.purpose,
                runs=probe.runs,
                between=(self._word(before), self._word(after)),
                left=(after - before - 1) if before is not None and after is not None else len(self.axis.values),
            )
        )

    def _word(self, position: int | None) -> str | None:
        if position is None:
            return None
        return f"{self.axis.values[position]} ({self._sightings[position].cell.outcome})"

    # the answer

    def _bisection(self, answer: SearchAnswer) -> Bisection:
        view = View.of(self._search())
        reference = self._reference()
        probes = [self._probe(one, view) for one in self._seen]
        boundaries = tuple(self._boundary(one) for one in answer.boundaries)
        order = [position for position in self._purposes if position in self._sightings]
        known = [position for position in sorted(self._sightings) if position not in self._purposes]
        return Bisection(
            scenario=self.scenario.name + variant_suffix(self.variant),
            question=self.asked.find,
            axis=Searched(self.axis.name),
            values=tuple(self.axis.values),
            reference=(reference.outcome, reference.signature) if reference else None,
            boundaries=boundaries,
            probes=tuple(probes),
            order=tuple(self.axis.values[position] for position in (*known, *order)),
            installs=self.installs(),
            run=self.prober.run_id,
            runs=self.prober.runs - self._runs_before,
            seconds=round(self.clock() - self._started, 1),
            answer=answer.kind,
            reasons=(*answer.reasons, *self.notes, *self._refuted(view), *self._bound_reasons(answer)),
        )

    def _probe(self, one: Sighting, view: View) -> Probe:
        value, purpose = self.axis.values[one.position], self._purposes.get(one.position)
        return probe_of(one, value, view.label(one.position), purpose=purpose)

    def _boundary(self, one: pure.Bracket) -> Boundary:
        values = self.axis.values
        sides = self._sightings[one.before].environment, self._sightings[one.after].environment
        return Boundary(
            **{"from": values[one.before]},  # no name in Python
            to=values[one.after],
            change=one.change,
            confidence=round(one.confidence, 4),
            untestable_between=tuple(values[position] for position in one.untestable_between),
            different_between=tuple(values[position] for position in one.different_between),
            untried_between=tuple(values[position] for position in one.untried_between),
            **facts_between(*sides),
        )

    def _refuted(self, view: View) -> list[str]:
        """Return which of the user's bounds are not what they were named as, and what they showed."""
        wrong = [
            position
            for position, verdict in self.named.items()
            if position in self._sightings and view.label(position) is not verdict
        ]
        return [f"not {self.named[one]}: {shown(self._probe(self._sightings[one], view))}" for one in wrong]

    def _bound_reasons(self, answer: SearchAnswer) -> list[str]:
        """Return what each bound showed, where the bounds are the reason that there is no answer."""
        if answer.kind is AnswerKind.BOUNDARY:
            return []
        bounds = dict.fromkeys(Search(size=len(self.axis.values), options=self.asked).bounds)
        view = View.of(self._search())
        found = []
        for bound in bounds:
            one = self._sightings.get(bound)
            if one is None:
                continue
            found.append(shown(self._probe(one, view)))
        return found


def _cut_short(answer: SearchAnswer, why: str) -> SearchAnswer:
    """Return a partial answer that says which budget ended it."""
    if answer.kind is not AnswerKind.INCONCLUSIVE:
        return answer
    kept = tuple(reason for reason in answer.reasons if reason != "the budget was used up")
    return replace(answer, reasons=(why, *kept))
