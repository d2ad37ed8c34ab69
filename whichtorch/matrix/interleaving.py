"""Measured runs of several environments in one series: they take turns, so that what the machine does meets them all.

A round has a run of each environment, all with one seed of Python's hashes: a seed can slow a script by a tenth. The
next round has them in the opposite order, so that a steady drift of the machine cancels out.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

import psutil

from whichtorch.base.errors import why_stopped
from whichtorch.base.grouping import grouped
from whichtorch.environments.configs import SINGLE_THREAD
from whichtorch.matrix.lab import Lab, Runner, opened_lab
from whichtorch.matrix.sample import NOTE, NoNumberError, Sample, sample_of
from whichtorch.matrix.variation import NOTES, Variation
from whichtorch.measure.measure import DILUTION, Measure, MeasureKind
from whichtorch.model import Basis, Cell, Environment, Outcome
from whichtorch.model.events import (
    AttemptEnded,
    AttemptStarted,
    CellDone,
    Emit,
    EnvironmentReady,
    Interrupted,
    NumbersCompared,
    Show,
)
from whichtorch.model.record import MachineState, Measurement
from whichtorch.process import kernel
from whichtorch.records.line_index import Records
from whichtorch.search.step_search import MOST_ROUNDS, Estimate, estimate, looks

if TYPE_CHECKING:
    from whichtorch.matrix.planning import Plan, PlannedCell
    from whichtorch.matrix.site import ThisMachine
    from whichtorch.records.store import RunStore


HASH_SEED = "PYTHONHASHSEED"
TRIES = 2  # runs of an environment that give no number, after which it is left out
SECONDS = 50.0  # of a series, for each of its environments
QUIET = DILUTION  # the share of its time for which a run may wait for a core, and still be evidence of time
LEAST_QUIET = 0.5  # of the runs: with fewer, what decides is something else than their time


@dataclass(slots=True, kw_only=True)
class Meter:
    """Makes measured runs of one test."""

    runner: Runner
    cells: dict[str, PlannedCell]  # by the environment's id: the test as it runs there, with the config of its own
    measures: tuple[Measure, ...]
    most: int = MOST_ROUNDS  # rounds of a series
    emit: Emit = lambda _: None
    notes: dict[str, None] = field(default_factory=dict)  # on what the numbers are, each once
    units: dict[str, str] = field(default_factory=dict)  # by measure, as the first run printed it
    because: dict[str, str] = field(default_factory=dict)  # by measure: why its basis is not what was asked for
    is_single: bool = False  # the runs have one thread
    by_cpu: set[str] = field(default_factory=set)  # measures of time of which the CPU time decides
    _warm: set[str] = field(default_factory=set)  # ids of environments whose files have been read
    _reference: str | None = None  # the output that others are compared with

    @classmethod
    def of(
        cls, lab: Lab, cells: dict[str, PlannedCell], environment: Environment, measures: tuple[Measure, ...]
    ) -> Meter:
        """Return what makes measured runs in a lab, which must be this machine: numbers of two do not compare."""
        runner = Runner(lab=lab, planned=cells[environment.id], environment=environment)
        return cls(runner=runner, cells=cells, measures=measures, emit=lab.site.emit)

    def sample(self, environment: Environment, seed: int, round_number: int) -> Sample:
        """Run the test once, with a seed of hashes, and return its numbers; a first run may only warm up.

        The progress shows the number of the round.

        Raises NoNumberError where there are none.
        """
        sample = self._run(environment, seed, round_number)
        if environment.id not in self._warm:
            self._warm.add(environment.id)
            self._reference = sample.output if self._reference is None else self._reference
            for measure in self.measures:
                self.units.setdefault(measure.name, sample.units.get(measure.name, ""))
            disturbed = [measure for measure in self.measures if not self.counts(measure, sample)]
            is_first = disturbed and len(self._warm) == 1 and sample.threads > 1  # three rounds of these take long
            if (is_first and self.avoid_waits(disturbed, sample.machine.waited, sample.threads)) or not sample.is_warm:
                sample = self._run(environment, seed, round_number)
        self.notes |= dict.fromkeys(sample.notes)
        return sample

    def basis(self, measure: Measure) -> Basis:
        """Return what decides how a measure compares."""
        if measure.name in self.by_cpu:
            return Basis.CPU_OF_ONE_THREAD if self.is_single else Basis.CPU
        return Basis.ONE_THREAD if self.is_single else Basis.ASKED

    def by_basis(self, measure: Measure) -> Measure:
        """Return a measure as it is decided: by a share of CPU time, perhaps."""
        if measure.name not in self.by_cpu:
            return measure
        change = measure.change if measure.is_share else MeasureKind.CPU.row.worse
        as_cpu = {"kind": MeasureKind.CPU, "more_is_better": False, "change": change, "is_share": True}
        return measure.model_copy(update=as_cpu)

    def value(self, measure: Measure, sample: Sample) -> float:
        """Return the number of a run that decides."""
        return sample.parts[measure.name].cpu if measure.name in self.by_cpu else sample.values[measure.name]

    def counts(self, measure: Measure, sample: Sample) -> bool:
        """Return whether a run says something about a measure: one that waited for a core says nothing of time.

        Nor of the CPU time of several threads, which spin while they wait for each other.
        """
        is_timeless = measure.name in self.by_cpu or measure.name not in sample.parts
        is_timeless |= measure.kind is MeasureKind.CPU and (self.is_single or sample.threads == 1)
        return is_timeless or sample.parts[measure.name].waited <= QUIET

    def avoid_waits(self, disturbed: Sequence[Measure], waited: float, threads: int) -> bool:
        """Measure with one thread from now on, or by CPU time; return whether the runs so far do not count."""
        configs = [planned.request.config.env for planned in self.cells.values()]
        goes_single = threads > 1 and not (self.is_single or any(SINGLE_THREAD.keys() & each for each in configs))
        if goes_single:
            self.is_single = True
        else:
            self.by_cpu |= {each.name for each in disturbed}
        beside = " with two threads or more" if goes_single else ""
        for measure in self.measures if goes_single else disturbed:
            what = "CPU time" if goes_single and measure.kind is MeasureKind.CPU else "wall time"
            self.because[measure.name] = (
                f"a core was missing for {waited:.0%} of the time: {what} cannot be measured beside this{beside}"
            )
        return goes_single

    def _run(self, environment: Environment, seed: int, round_number: int) -> Sample:
        patterns = {each.kind: each.pattern for each in self.measures}
        asked = {
            "file": f"{NOTES}/{NOTE}",
            "every": patterns.get(MeasureKind.GROWTH),
            "compile": MeasureKind.COMPILE in patterns,
        }
        planned = self.cells[environment.id]
        runner = replace(self.runner, planned=planned, environment=environment)
        variables = {} if HASH_SEED in planned.request.config.env else {HASH_SEED: str(seed)}
        variables |= SINGLE_THREAD if self.is_single else {}
        limit, label, name = planned.limits.timeout, environment.label, planned.name
        self.emit(AttemptStarted(environment=label, cell=name, limit=limit, round=round_number, rounds=self.most))
        clocks = Clocks.read()
        seen = runner.run(limit, Variation(hooks={"note_numbers": asked}, variables=variables))
        machine = machine_state(clocks, seen.record.attempt.cpu_seconds)
        self.emit(AttemptEnded(environment=label, cell=name, attempt=seen.record.attempt))
        return sample_of(self.measures, seen, runner.lab.home, self._reference, self.units, machine)


@dataclass(slots=True, kw_only=True)
class Series:
    """The numbers of several environments, round by round."""

    meter: Meter
    environments: Sequence[Environment]  # the first is the reference
    rounds_before: int = 0  # of earlier series: no seed of hashes is used twice
    samples: dict[str, list[Sample]] = field(default_factory=dict)  # by the environment's id
    missing: dict[str, NoNumberError] = field(default_factory=dict)  # by id: why an environment has no numbers
    seconds: float = 0.0
    most: int = MOST_ROUNDS  # rounds, of which there is time for no more
    _dice: random.Random = field(default_factory=lambda: random.Random(29))  # the same order every time

    @property
    def reference(self) -> Environment:
        """The environment that the others are compared with."""
        return self.environments[0]

    @property
    def rounds(self) -> int:
        """How many rounds are complete."""
        return len(self.samples.get(self.reference.id, ()))

    @property
    def machine(self) -> MachineState:
        """What else the machine did, in the median of all runs."""
        states = [sample.machine for own in self.samples.values() for sample in own]
        medians = {name: median(getattr(each, name) for each in states) for name in MachineState.model_fields if states}
        return MachineState(**medians)

    def run(self, is_enough: Callable[[Series], bool]) -> Series:
        """Make rounds until there are enough, or as many as may be, or no time is left; return the series."""
        begun, order = time.monotonic(), list(self.environments)
        end = begun + SECONDS * len(order)
        self.most = self.meter.most
        counts = looks(self.most)
        try:
            while counts and self.rounds < self.most:
                before, since = self.rounds, time.monotonic()
                self._rounds(min(counts[0], self.most), order, end)
                counts = counts[1:]
                if self.reference.id in self.missing:
                    break
                if self._avoids_waits():
                    self.samples.clear()
                    counts = looks(self.meter.most)
                    continue
                now = time.monotonic()
                pace = (now - since) / max(1, self.rounds - before)
                self.most = min(self.meter.most, self.rounds + max(0, int((end - now) / pace)))
                if is_enough(self):
                    break
        finally:
            self.seconds = time.monotonic() - begun
        return self

    def _avoids_waits(self) -> bool:
        """Return whether the meter changes what it measures, because a core was missing most of the time."""
        measured = [each for each in self.environments if each.id not in self.missing]
        disturbed = [
            measure
            for measure in self.meter.measures
            if any(len(self._pairs(measure, each)) < LEAST_QUIET * self.rounds for each in measured)
        ]
        threads = max(sample.threads for own in self.samples.values() for sample in own)
        return bool(disturbed) and self.meter.avoid_waits(disturbed, self.machine.waited, threads)

    def _rounds(self, count: int, order: list[Environment], end: float) -> None:
        """Make rounds until there are so many, or the reference has no number, or the time is over."""
        while self.rounds < count and self.reference.id not in self.missing:
            if self.rounds and time.monotonic() > end:
                break
            if self.rounds % 2 == 0 and self.rounds:  # the very first run is the reference's
                self._dice.shuffle(order)
            self._round(order)
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

    def _pairs(self, measure: Measure, environment: Environment) -> list[tuple[Sample, Sample]]:
        """Return the runs of an environment that count, each with that of the reference in the same round.

        One that waited for a core does not count for a time, unless the number never changes.
        """
        both = self.samples.get(environment.id, []), self.samples.get(self.reference.id, [])
        is_exact = all(len({self.meter.value(measure, sample) for sample in own}) == 1 for own in both)
        pairs = zip(*both, strict=False)
        return [pair for pair in pairs if is_exact or all(self.meter.counts(measure, sample) for sample in pair)]

    def values(self, measure: Measure, environment: Environment) -> list[float]:
        """Return the numbers of an environment, of the runs that count."""
        return [self.meter.value(measure, sample) for sample, _ in self._pairs(measure, environment)]

    def difference(self, measure: Measure, environment: Environment) -> Estimate | None:
        """Return by how much an environment is worse than the reference, on the measure's scale.

        None without numbers, or with too few.
        """
        by, pairs = self.meter.by_basis(measure), self._pairs(measure, environment)
        scaled = []
        for each, own in zip((environment, self.reference), zip(*pairs, strict=True), strict=False):
            try:
                scaled.append([by.on_scale(self.meter.value(measure, sample)) for sample in own])
            except ValueError as error:
                self.missing[each.id] = NoNumberError(str(error))
                return None
        # of outputs that differ in their words, the distance is infinite
        found = estimate(
            [0.0 if value == other else value - other for value, other in zip(*scaled, strict=True)], self.meter.most
        )
        return replace(found, most=self.most) if found else None

    def measurement(self, measure: Measure, environment: Environment) -> Measurement | None:
        """Return what is known of an environment's number, None where it has none."""
        values, found = self.values(measure, environment), self.difference(measure, environment)
        if not values:
            return None
        is_reference, by = environment.id == self.reference.id, self.meter.by_basis(measure)
        return Measurement(
            name=measure.name,
            unit=by.unit or self.meter.units.get(measure.name, ""),
            basis=self.meter.basis(measure),
            because=self.meter.because.get(measure.name, ""),
            value=median(values),
            samples=tuple(values),
            disturbed=len(self.samples[environment.id]) - len(values),
            reference="" if is_reference else self.reference.label,
            change=by.change_in(found) if found and not is_reference else None,
            is_share=by.is_share,
            more_is_better=by.more_is_better,
            threshold=by.change,
            either_way=by.either_way,
            effect=by.threshold.last_effect(found) if found and not is_reference else None,
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
    """Seconds since the machine was started."""

    now: float
    total: float  # of all cores
    idle: float
    stolen: float  # that the hypervisor took
    throttled: float  # for which a control group kept its processes from cores

    @classmethod
    def read(cls) -> Clocks:
        """Read them."""
        times, group = psutil.cpu_times(), os.fsdecode(kernel.field("/proc/self/cgroup", b"0::"))
        idle, stolen = times.idle + getattr(times, "iowait", 0.0), getattr(times, "steal", 0.0)
        microseconds = int(kernel.field(f"/sys/fs/cgroup{group}/cpu.stat", b"throttled_usec ") or 0)
        nanoseconds = int(kernel.field("/sys/fs/cgroup/cpu/cpu.stat", b"throttled_time ") or 0)  # of the first version
        return cls(time.monotonic(), sum(times), idle, stolen, microseconds / 1e6 + nanoseconds / 1e9)


def machine_state(since: Clocks, own: float) -> MachineState:
    """Return what the machine did since the clocks were read, in which the run used its own seconds of CPU."""
    frequency = None
    with suppress(OSError, NotImplementedError):
        frequency = psutil.cpu_freq()
    now = Clocks.read()
    seconds, total = max(now.now - since.now, 1e-9), max(now.total - since.total, 1e-9)
    busy = total - (now.idle - since.idle)
    return MachineState(
        load=round(os.getloadavg()[0], 2),
        others=round(max(0.0, busy - own) / seconds, 3),
        stolen=round(max(0.0, now.stolen - since.stolen) / total, 4),
        throttled=round(max(0.0, now.throttled - since.throttled) / seconds, 4),
        megahertz=round(frequency.current if frequency else 0.0),
    )


@contextmanager
def measured_run(
    planned: Plan, measures: tuple[Measure, ...], machines: ThisMachine, show: Show
) -> Iterator[tuple[RunStore, tuple[str, ...]]]:
    """Measure the cells of a plan in a stored run, test by test; yield the run, still open, and notes on the numbers.

    An interrupt ends it, with what was measured kept.
    """
    notes: dict[str, None] = {}
    with opened_lab(machines, Records(), show, len(planned)) as lab:
        with lab.shown(len(planned)):
            try:
                environments = _acquired(planned, lab)
                tests = grouped(enumerate(planned), lambda placed: (placed[1].scenario.source_hash, placed[1].name))
                for cells in tests.values():
                    notes |= dict.fromkeys(_measure(dict(cells), environments, measures, lab))
            except KeyboardInterrupt as interrupt:
                lab.site.emit(Interrupted(why=why_stopped(interrupt)))
                lab.store.run = lab.store.run.model_copy(update={"interrupted": True})
        yield lab.store, tuple(notes)


def _acquired(planned: Plan, lab: Lab) -> Mapping[tuple[str, ...], Environment]:
    """Make the environments of a plan ready, by the keys of their requests."""
    environments: dict[tuple[str, ...], Environment] = {}
    for request, tests in zip(planned.requests, planned.tests, strict=True):
        environment = environments[request.key] = lab.site.with_variables(request, lab.acquire(request))
        lab.store.add_environment(environment)
        lab.site.emit(EnvironmentReady(environment=environment, cells=len(tests)))
    return environments


def _measure(
    cells: Mapping[int, PlannedCell],
    environments: Mapping[tuple[str, ...], Environment],
    measures: tuple[Measure, ...],
    lab: Lab,
) -> Sequence[str]:
    """Measure one test in its environments, and store a cell of each, by its position; return notes on the numbers.

    An interrupt passes through, after what was measured is stored.
    """
    first, own = next(iter(cells.values())), [environments[cell.request.key] for cell in cells.values()]
    usable = [environment for environment in own if environment.is_usable]
    own_cells = {environment.id: cell for environment, cell in zip(own, cells.values(), strict=True)}
    lab.store.add_scenario(first.scenario)
    missing: dict[str, NoNumberError] = {}
    notes: Sequence[str] = ()
    series: Series | None = None
    interrupt: KeyboardInterrupt | None = None
    while usable:
        meter = Meter.of(lab, own_cells, usable[0], measures)
        series = Series(meter=meter, environments=usable)
        try:
            series.run(_is_decided)
        except KeyboardInterrupt as stopped:
            interrupt = stopped
        notes = tuple(meter.notes)
        missing |= series.missing
        if usable[0].id not in series.missing or interrupt:
            break
        usable = usable[1:]  # without a reference, there is nothing to compare with
    for (position, cell), environment in zip(cells.items(), own, strict=True):
        numbers = [series.measurement(each, environment) for each in measures] if series else []
        seconds = series.seconds if series else 0.0
        known = tuple(filter(None, numbers))
        if done := measured_cell(cell, environment, known, missing.get(environment.id), seconds):
            lab.store.add_cell(done, [], position)
            lab.site.emit(CellDone(environment=environment, cell=done))
    if interrupt:
        raise interrupt
    return notes


def _is_decided(series: Series) -> bool:
    """Return whether each number is told from the reference's, or is known to be alike; tell what is known so far."""
    is_done = True
    for environment in series.environments[1:]:
        words = []
        for measure in series.meter.measures:
            found, by = series.difference(measure, environment), series.meter.by_basis(measure)
            is_done = is_done and (
                environment.id in series.missing or (found is not None and by.threshold.is_decided(found))
            )
            words += [f"{measure.name} {by.words(found)}"] if found else []
        if words:
            series.meter.emit(
                NumbersCompared(environment=environment.label, reference=series.reference.label, what=", ".join(words))
            )
    return is_done
