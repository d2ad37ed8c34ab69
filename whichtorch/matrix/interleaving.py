"""Measured runs of several environments in one series: they take turns, so that what the machine does meets them all.

A round has a run of each environment, all with one seed of Python's hashes: a seed can slow a script by a tenth. The
next round has them in the opposite order, so that a steady drift of the machine cancels out.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psutil

from whichtorch.matrix.lab import Runner
from whichtorch.matrix.sample import NOTE, NoNumberError, Sample, sample_of
from whichtorch.matrix.variation import NOTES, Variation
from whichtorch.measure.measure import Measure, MeasureKind
from whichtorch.model import Cell, Outcome
from whichtorch.model.events import AttemptEnded, AttemptStarted
from whichtorch.model.measurement import MachineState, Measurement
from whichtorch.search.estimate import MOST_ROUNDS, Estimate, estimate, looks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whichtorch.matrix.lab import Lab
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Environment
    from whichtorch.model.events import Emit

MOST_SERVERS = 8  # fork servers that are kept alive: each holds some 300 MB; with more environments, all runs are cold
HASH_SEED = "PYTHONHASHSEED"
TRIES = 2  # runs of an environment that give no number, after which it is left out
_PRESSURE = Path("/proc/pressure/cpu")


class MixedStartsError(Exception):
    """Some runs were forked and others were cold, so that their numbers cannot be compared."""


@dataclass(slots=True, kw_only=True)
class Meter:
    """Makes measured runs of one test."""

    runner: Runner
    cells: dict[str, PlannedCell]  # by the environment's id: the test as it runs there, with the config of its own
    measures: tuple[Measure, ...]
    most: int = MOST_ROUNDS  # rounds of a series
    forks: bool = True
    emit: Emit = lambda _: None
    notes: dict[str, None] = field(default_factory=dict)  # on what the numbers are, each once
    _warm: set[str] = field(default_factory=set)  # ids of environments whose files have been read
    _start: str = ""  # how all runs must begin
    _reference: str | None = None  # the output that others are compared with

    def __post_init__(self) -> None:
        self.forks = self.forks and all(each.kind.row.may_fork for each in self.measures)

    @classmethod
    def of(
        cls,
        lab: Lab,
        cells: dict[str, PlannedCell],
        environment: Environment,
        measures: tuple[Measure, ...],
        *,
        forks: bool = True,
    ) -> Meter:
        """Return what makes measured runs in a lab, which must be this machine: numbers of two do not compare."""
        runner = Runner(lab=lab, planned=cells[environment.id], environment=environment)
        return cls(runner=runner, cells=cells, measures=measures, forks=forks, emit=lab.site.emit)

    def sample(self, environment: Environment, seed: int, round_number: int) -> Sample:
        """Run the test once, with a seed of hashes, and return its numbers; the first run of all only warms up.

        The progress shows the number of the round.

        Raises NoNumberError where there are none, MixedStartsError where a run began in another way than the others.
        """
        if environment.id not in self._warm:
            first = self._run(environment, seed, round_number)
            self._warm.add(environment.id)
            self._reference = first.output if self._reference is None else self._reference
        sample = self._run(environment, seed, round_number)
        self._start = self._start or sample.start
        if sample.start != self._start:
            raise MixedStartsError(f"{self._start} and {sample.start}")
        self.notes |= dict.fromkeys(sample.notes)
        return sample

    def restart_cold(self) -> None:
        """Make all runs cold from now on."""
        self.forks, self._start = False, ""

    def _run(self, environment: Environment, seed: int, round_number: int) -> Sample:
        patterns = {each.kind: each.pattern for each in self.measures}
        asked = {
            "file": f"{NOTES}/{NOTE}",
            "every": patterns.get(MeasureKind.GROWTH),
            "compile": MeasureKind.COMPILE in patterns,
        }
        planned = self.cells[environment.id]
        runner = replace(self.runner, planned=planned, environment=environment, forks=self.forks)
        variables = {} if self.forks or HASH_SEED in planned.request.config.env else {HASH_SEED: str(seed)}
        limit = planned.limits.timeout
        label, name = environment.label, planned.name
        variation = Variation(
            hooks={"note_numbers": asked}, variables=variables, may_fork=self.forks, is_brief=self.forks
        )
        self.emit(AttemptStarted(environment=label, cell=name, limit=limit, round=round_number, rounds=self.most))
        seen = runner.run(limit, variation)
        self.emit(AttemptEnded(environment=label, cell=name, attempt=seen.record.attempt))
        return sample_of(self.measures, seen, runner.lab.home, self._reference)


@dataclass(slots=True, kw_only=True)
class Series:
    """The numbers of several environments, round by round."""

    meter: Meter
    environments: Sequence[Environment]  # the first is the reference
    rounds_before: int = 0  # of earlier series: no seed of hashes is used twice
    samples: dict[str, list[Sample]] = field(default_factory=dict)  # by the environment's id
    missing: dict[str, NoNumberError] = field(default_factory=dict)  # by id: why an environment has no numbers
    seconds: float = 0.0
    machine: MachineState = field(default_factory=MachineState)
    _dice: random.Random = field(default_factory=lambda: random.Random(29))  # the same order every time

    @property
    def reference(self) -> Environment:
        """The environment that the others are compared with."""
        return self.environments[0]

    @property
    def rounds(self) -> int:
        """How many rounds are complete."""
        return len(self.samples.get(self.reference.id, ()))

    def run(self, is_enough: Callable[[Series], bool]) -> Series:
        """Make rounds until there are enough or as many as may be; return the series."""
        begun, clocks = time.monotonic(), Clocks.now()
        order = list(self.environments)
        try:
            for count in looks(self.meter.most):
                self._rounds(count, order)
                if self.reference.id in self.missing or is_enough(self):
                    break
        finally:
            self.seconds, self.machine = time.monotonic() - begun, machine_state(clocks)
        return self

    def _rounds(self, count: int, order: list[Environment]) -> None:
        """Make rounds until there are so many, or the reference has no number."""
        while self.rounds < count and self.reference.id not in self.missing:
            if self.rounds % 2 == 0 and self.rounds:  # the very first run is the reference's
                self._dice.shuffle(order)
            try:
                self._round(order)
            except MixedStartsError:
                self.samples.clear()
                self.meter.restart_cold()
            order.reverse()

    def _round(self, order: Sequence[Environment]) -> None:
        made: dict[str, Sample] = {}
        round_number = self.rounds + 1
        for environment in order:
            if environment.id in self.missing:
                continue
            for left in reversed(range(TRIES)):
                try:
                    made[environment.id] = self.meter.sample(
                        environment, self.rounds_before + round_number, round_number
                    )
                    break
                except NoNumberError as error:
                    if not left:
                        self.missing[environment.id] = error
                        self.samples.pop(environment.id, None)
        for id_, sample in made.items():
            self.samples.setdefault(id_, []).append(sample)

    def values(self, measure: Measure, environment: Environment) -> list[float]:
        """Return the numbers of an environment."""
        return [sample.values[measure.name] for sample in self.samples.get(environment.id, ())]

    def difference(self, measure: Measure, environment: Environment) -> Estimate | None:
        """Return by how much an environment is worse than the reference, on the measure's scale.

        None without numbers, or with too few.
        """
        found = self.guess(measure, environment)
        return None if found is None or found.is_rough else found

    def guess(self, measure: Measure, environment: Environment) -> Estimate | None:
        """Return the same, but rough where there are too few numbers to decide anything."""
        scaled = []
        for each in (environment, self.reference):
            try:
                scaled.append([measure.on_scale(value) for value in self.values(measure, each)])
            except ValueError as error:
                self.missing[each.id] = NoNumberError(str(error))
                return None
        pairs = zip(*scaled, strict=False)
        # of outputs that differ in their words, the distance is infinite
        return estimate([0.0 if value == other else value - other for value, other in pairs], self.meter.most)

    def drift(self, measure: Measure) -> Estimate | None:
        """Return by how much the reference changes from one run of its to the next: what the machine adds."""
        values = self.values(measure, self.reference)
        try:
            scaled = [measure.on_scale(value) for value in values]
        except ValueError:
            return None
        pairs = zip(scaled[::2], scaled[1::2], strict=False)
        found = estimate([later - earlier for earlier, later in pairs], self.meter.most)
        return None if found is None or found.is_rough else found

    def measurement(self, measure: Measure, environment: Environment) -> Measurement | None:
        """Return what is known of an environment's number, None where it has none."""
        values, found = self.values(measure, environment), self.difference(measure, environment)
        if not values:
            return None
        is_reference, drift = environment.id == self.reference.id, self.drift(measure)
        return Measurement(
            name=measure.name,
            unit=measure.unit,
            value=median(values),
            samples=tuple(values),
            start=self.samples[environment.id][0].start,
            reference="" if is_reference else self.reference.label,
            change=measure.change_in(found) if found and not is_reference else None,
            is_share=measure.is_share,
            more_is_better=measure.more_is_better,
            threshold=measure.change,
            either_way=measure.either_way,
            effect=measure.threshold.last_effect(found) if found and not is_reference else None,
            drift=measure.change_in(drift) if drift else None,
            machine=self.machine,
        )


def measured_cell(
    planned: PlannedCell,
    environment: Environment,
    numbers: Sequence[Measurement],
    missing: NoNumberError | None,
    seconds: float = 0.0,
) -> Cell | None:
    """Return what a test showed in an environment: that it passes, with its numbers, or why it has none.

    None where nothing is known, because an interrupt came first.
    """
    if environment.is_usable and not (numbers or missing):
        return None
    outcome = environment.outcome or (missing.outcome if missing else Outcome.PASS)
    return Cell(
        environment=environment.id,
        scenario=planned.scenario.name,
        variant=planned.variant,
        source_hash=planned.scenario.source_hash,
        outcome=outcome,
        expected=outcome is Outcome.PASS,
        seconds=round(seconds, 1),
        reason=environment.reason or (str(missing) if missing else None),
        numbers=tuple(numbers),
    )


@dataclass(frozen=True, slots=True)
class Clocks:
    """The seconds of all cores since the machine was started, and those that the hypervisor took."""

    total: float
    stolen: float

    @classmethod
    def now(cls) -> Clocks:
        """Read them."""
        times = psutil.cpu_times()
        return cls(sum(times), float(getattr(times, "steal", 0.0)))


def machine_state(since: Clocks) -> MachineState:
    """Return what the machine does now, and what the hypervisor took since the clocks were read."""
    frequency = pressure = None
    with suppress(OSError, NotImplementedError):
        frequency = psutil.cpu_freq()
    with suppress(OSError, LookupError, ValueError):
        pressure = float(_PRESSURE.read_text().split("avg10=")[1].split()[0])
    now = Clocks.now()
    passed = max(now.total - since.total, 1e-9)
    return MachineState(
        load=round(os.getloadavg()[0], 2),
        pressure=pressure,
        steal=round(max(0.0, now.stolen - since.stolen) / passed, 4),
        megahertz=round(frequency.current) if frequency else None,
    )
