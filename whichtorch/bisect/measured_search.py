"""Search an ordered axis for the place where a number changes, instead of an outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.grouping import grouped
from whichtorch.bisect.ledger import PositionEvidence
from whichtorch.matrix.interleaving import Meter, Series, measured_cell
from whichtorch.matrix.sample import NoNumberError
from whichtorch.model import Basis, Outcome
from whichtorch.model.events import NumbersCompared
from whichtorch.model.record import Curve, CurveStep, Effect, MachineState
from whichtorch.search.search_state import AnswerKind, Bracket, Change, SearchVerdict
from whichtorch.search.step_search import ALPHA, Estimate, NumberStep, StepSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whichtorch.bisect.bisection import Bisection, Probe
    from whichtorch.bisect.ledger import Ledger
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.measure.measure import Measure
    from whichtorch.model import Environment, Measurement

# a change in whichever direction breaks a script that should print what it did
CHANGES = {Effect.WORSE: Change.REGRESSION, Effect.DIFFERENT: Change.REGRESSION, Effect.BETTER: Change.FIX}


def measured_search(ledger: Ledger, notes: Iterable[str]) -> Bisection:
    """Search between the bounds of a ledger's goal for steps of the number that its request measures.

    Raises UsageError where no value has the number.
    """
    search = _MeasuredSearch(ledger)
    return search.bisection(search.run(), notes)


class _OtherBasisError(Exception):
    """The number is measured otherwise from now on, so that what was compared before does not count."""


@dataclass(slots=True)
class _MeasuredSearch:
    ledger: Ledger
    search: StepSearch = field(init=False)
    machine: MachineState = field(default_factory=MachineState)
    stopped: tuple[str, ...] = ()  # why the search ended early
    _meter: Meter | None = None
    _rounds_done: int = 0
    _environments: dict[int, Environment] = field(default_factory=dict)
    _cells: dict[str, PlannedCell] = field(default_factory=dict)  # by the environment's id: the test as it runs there
    _numbers: dict[str, Measurement] = field(default_factory=dict)  # by the environment's id: as first compared
    _missing: dict[int, NoNumberError] = field(default_factory=dict)

    @property
    def measure(self) -> Measure:
        """What decides."""
        return self._meter.by_basis(self.asked) if self._meter else self.asked

    @property
    def asked(self) -> Measure:
        """What is measured."""
        assert self.ledger.request.measure is not None
        return self.ledger.request.measure

    @property
    def low(self) -> int:
        """The position of the lower bound."""
        return self.ledger.goal.low

    def run(self) -> StepSearch:
        """Search to the end, or until the budget is spent or a user stops it."""
        ledger = self.ledger
        high = len(ledger.axis.values) - 1 if ledger.goal.high is None else ledger.goal.high
        is_done = False
        while not is_done:
            search = self.search = StepSearch(high - self.low + 1, self._compared, self.measure.search_threshold)
            try:
                search.run()
                is_done = True
            except _OtherBasisError:
                self._numbers.clear()
            except KeyboardInterrupt as interrupt:
                self.stopped, is_done = (ledger.bench.stop(interrupt),), True
        if search.ends is None and not self.stopped and not self._numbers:
            raise UsageError(f"{self.measure.name} cannot be measured: {self._reasons()}")
        return search

    def _reasons(self) -> str:
        """Return each reason why there is no number, with the first value that it concerns and how many more."""
        reasons = []
        for reason, positions in grouped(sorted(self._missing), lambda each: str(self._missing[each])).items():
            more = f" and {len(positions) - 1} more" if len(positions) > 1 else ""
            reasons.append(f"{reason} ({self.ledger.axis.values[positions[0]]}{more})")
        return "; ".join(reasons)

    def _compared(self, first: int, second: int, is_enough: Callable[[Estimate], bool]) -> Estimate | int:
        """Return by how much a position of the search is worse than another, or one of them that has no number."""
        ledger, asked = self.ledger, self.asked
        positions = {first: first + self.low, second: second + self.low}
        environments = []
        for place, position in positions.items():
            environment = self._environment(position)
            if not environment.is_usable:
                outcome = environment.outcome or Outcome.BROKEN
                self._missing[position] = NoNumberError(environment.reason or str(outcome), outcome)
                return place
            environments.append(environment)
        reference, other = environments
        if reference.id == other.id:  # days without a release between them
            return Estimate(center=0.0, low=0.0, high=0.0, rounds=0)
        meter = self._meter_of(reference)
        basis = meter.basis(asked)
        series = Series(meter=meter, environments=environments, rounds_before=self._rounds_done)

        def is_told(so_far: Series) -> bool:
            ledger.check_budget()
            found = so_far.difference(asked, other)
            if found is not None:
                what = self.measure.words(found)
                ledger.bench.emit(NumbersCompared(environment=other.label, reference=reference.label, what=what))
            return other.id in so_far.missing or (found is not None and is_enough(found))

        series.run(is_told)
        self.machine, self._rounds_done = series.machine, self._rounds_done + series.rounds
        if meter.basis(asked) is not basis and self._numbers:
            raise _OtherBasisError
        self.search.threshold = self.measure.search_threshold
        found = series.difference(asked, other)
        if found is None and other.id not in series.missing:
            series.missing[other.id] = NoNumberError("its runs take too long here to compare it")
        for position, environment in zip(positions.values(), environments, strict=True):
            if reason := series.missing.get(environment.id):
                self._missing[position] = reason
            elif reference.id not in series.missing and (number := series.measurement(asked, environment)):
                self._numbers.setdefault(environment.id, number)
        for place, position in positions.items():
            if position in self._missing:
                return place
        assert found is not None
        return found

    def _environment(self, position: int) -> Environment:
        """Return the environment of a position, made first if needed."""
        if position not in self._environments:
            ledger, request = self.ledger, self.ledger.axis.request(position)
            ledger.check_budget(wants_install=ledger.needs_install(position))
            lab = ledger.bench.lab
            environment = self._environments[position] = lab.site.with_variables(request, lab.acquire(request))
            self._cells[environment.id] = ledger.planned(position)
        return self._environments[position]

    def _meter_of(self, environment: Environment) -> Meter:
        """Return what makes the runs, opened with the first environment."""
        if self._meter is None:
            self._meter = Meter.of(self.ledger.bench.lab, self._cells, environment, (self.asked,))
        return self._meter

    def bisection(self, search: StepSearch, notes: Iterable[str]) -> Bisection:
        """Return all that the search has shown."""
        ledger, goal = self.ledger, self.ledger.goal
        self._keep_cells()
        search.steps.sort(key=lambda step: step.before)
        steps = [step for step in search.steps if goal.find.wants(CHANGES[step.effect])]
        is_known = search.ends is not None and not (self.stopped or search.alike or search.is_open)
        kind = AnswerKind.BOUNDARY if steps else AnswerKind.NONE if is_known else AnswerKind.INCONCLUSIVE
        reasons = (*self.stopped, *notes, *(self._meter.notes if self._meter else ()))
        found = ledger.bisection(kind, reasons, [ledger.boundary(self._bracket(step)) for step in steps])
        half = self.measure.threshold.size / 2
        worse = {
            ledger.axis.values[self.low + place]
            for place, level in search.levels.items()
            if (abs(level.center) if self.measure.either_way else level.center) > half
        }
        probes = tuple(_with_number(probe, is_worse=probe.value in worse) for probe in found.probes)
        curve = self._curve(search, probes)
        return found.model_copy(update={"curve": curve, "probes": probes, "timeline": (), "unjudged": {}})

    def _curve(self, search: StepSearch, probes: Iterable[Probe]) -> Curve:
        """Return the number along the axis, with steps that were not asked for, too: they explain it."""
        measure, values = self.measure, self.ledger.axis.values[self.low :]
        return Curve(
            name=measure.name,
            unit=next((number.unit for number in self._numbers.values()), measure.unit),
            is_share=measure.is_share,
            basis=self._meter.basis(self.asked) if self._meter else Basis.ASKED,
            because=self._meter.because.get(measure.name, "") if self._meter else "",
            threshold=measure.change,
            total=measure.change_in(search.levels[search.ends[1]]) if search.ends else None,
            steps=tuple(
                CurveStep(
                    before=values[step.before],
                    after=values[step.after],
                    change=measure.change_in(step.estimate),
                    effect=step.effect,
                )
                for step in search.steps
            ),
            levels={values[place]: measure.change_in(level) for place, level in sorted(search.levels.items())},
            values={probe.value: number.value for probe in probes for number in probe.cell.numbers},
            missing={probe.value: probe.message for probe in probes if probe.outcome is not Outcome.PASS},
            alike=tuple((values[before], values[after]) for before, after in search.alike),
            machine=self.machine,
        )

    def _keep_cells(self) -> None:
        """Store what each position showed, and give it to the ledger."""
        ledger, store = self.ledger, self.ledger.bench.lab.store
        store.add_scenario(ledger.request.scenario)
        for position, environment in self._environments.items():
            missing, number = self._missing.get(position), self._numbers.get(environment.id)
            numbers = (number,) if number and not missing else ()
            store.add_environment(environment)
            if cell := measured_cell(ledger.planned(position), environment, numbers, missing):
                store.add_cell(cell, [], position)
                ledger.evidence[position] = PositionEvidence(position=position, environment=environment, cell=cell)

    def _bracket(self, step: NumberStep) -> Bracket:
        before, after = step.before + self.low, step.after + self.low
        missing = tuple(each for each in range(before + 1, after) if each in self._missing)
        change = CHANGES[step.effect]
        return Bracket(before=before, after=after, change=change, confidence=1 - ALPHA, untestable_between=missing)


def _with_number(probe: Probe, *, is_worse: bool) -> Probe:
    """Return a probe with what its number says, or what it seems to say."""
    number = next(iter(probe.cell.numbers), None)
    is_open = number is None or number.effect in {None, Effect.UNDECIDED}
    is_bad = is_worse if is_open or number is None else number.effect in {Effect.WORSE, Effect.DIFFERENT}
    shown = SearchVerdict.BAD if is_bad else SearchVerdict.GOOD
    verdict = shown if probe.outcome is Outcome.PASS else SearchVerdict.UNTESTABLE
    rounds = len(number.samples) if number else 0
    return probe.model_copy(update={"verdict": verdict, "k": rounds, "n": rounds})
