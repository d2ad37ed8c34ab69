"""Measured runs of several environments in one series: they take turns, so that what the machine does meets them all.

A round has a run of each environment, all with one seed of Python's hashes: a seed can slow a script by a tenth. The
next round has them in the opposite order, so that a steady drift of the machine cancels out.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from whichtorch.base.atomic_files import text_of
from whichtorch.matrix.lab import Lab, Runner
from whichtorch.matrix.variation import NOTES, Observation, Variation
from whichtorch.measure.measure import NUMBER, Measure, MeasureKind
from whichtorch.model import Cell, Environment, Outcome
from whichtorch.model.events import AttemptEnded, AttemptStarted, Emit
from whichtorch.model.record import MachineState, Measurement
from whichtorch.search.estimate import MOST_ROUNDS, Estimate, estimate, looks

if TYPE_CHECKING:
    from whichtorch.matrix.planning import PlannedCell


NOTE = "measured"  # prefix of the files that the start-up hook writes, one for each Python process
FROM_OUTPUT = {MeasureKind.PRINTED, MeasureKind.OUTPUT}  # the other measures are read from these files
OWN_PROCESS = {MeasureKind.PEAK, MeasureKind.GROWTH}  # these leave out child processes
BYTES = {"MB": 1e6, "kB": 1e3}
LEAST_STEPS = 8  # lines, of which the second half shows the growth
# of a time that torch.utils.benchmark prints
UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0}


class NoNumberError(Exception):
    """A run does not have a number that is asked for; the message says why."""

    def __init__(self, message: str, outcome: Outcome = Outcome.ERROR) -> None:
        super().__init__(message)
        self.outcome = outcome  # of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The numbers of one run."""

    values: Mapping[str, float]  # by the measure's name
    start: str  # how its process began: numbers of forked and of cold runs are not compared
    output: str = ""  # what it printed
    notes: tuple[str, ...] = ()  # on what the numbers are


def sample_of(measures: Sequence[Measure], seen: Observation, home: Path, reference: str | None) -> Sample:
    """Return the numbers of a run; `reference` is the output that it is compared with, None if it is the first.

    Raises NoNumberError if it did not pass, or does not have one of the numbers.
    """
    attempt = seen.record.attempt
    if attempt.outcome is not Outcome.PASS:
        what = seen.record.signature or attempt.note
        raise NoNumberError(f"{attempt.outcome}" + (f": {what}" if what else ""), attempt.outcome)
    output = text_of(home / attempt.stdout)
    told = {} if {each.kind for each in measures} <= FROM_OUTPUT else _measured_process(seen)
    values, notes = {}, []
    for each in measures:
        if each.kind is MeasureKind.PRINTED:
            values[each.name], note = _printed(each, output)
            notes += [note] if note else []
        elif each.kind is MeasureKind.OUTPUT:
            values[each.name] = 0.0 if reference is None else distance(reference, output)
        else:
            values[each.name] = _noted(each, told)
            if each.kind in OWN_PROCESS and told["has_children"]:
                notes.append("memory is the script's own process only: child processes are not included")
    return Sample(values=values, start=attempt.evidence.start, output=output, notes=tuple(notes))


def _measured_process(seen: Observation) -> Mapping[str, Any]:
    """Return what the start-up hook noted of a run's only process, or of the only one that imported torch.

    Raises NoNumberError where there is no such process, or where it could not be measured.
    """
    noted: list[dict[str, Any]] = [
        json.loads(text) for name, text in seen.notes.items() if name.startswith(NOTE) and name.endswith(".json")
    ]
    candidates = [told for told in noted if told.get("import")] or noted
    if not candidates:
        raise NoNumberError("its process ended without its exit handlers, so that nothing was measured")
    if len(candidates) > 1:
        raise NoNumberError("it starts several Python processes: measure each with a command of its own")
    if problem := candidates[0].get("problem"):
        raise NoNumberError(f"it could not be measured: {problem}")
    return candidates[0]


def _noted(measure: Measure, told: Mapping[str, Any]) -> float:
    """Return a number from what the start-up hook noted of a process."""
    match measure.kind:
        case MeasureKind.IMPORT | MeasureKind.IMPORT_MEMORY:
            if told["import"] is None:
                raise NoNumberError("it does not import torch")
            is_time = measure.kind is MeasureKind.IMPORT
            return float(told["import"]["seconds"] if is_time else told["import"]["memory"] / BYTES["MB"])
        case MeasureKind.PEAK:
            # of this process alone: a tree's is sampled, and a child counts twice while it shares all with its parent
            return float(told["peak"]) / BYTES["MB"]
        case MeasureKind.COMPILE:
            if not told["compile"]:
                raise NoNumberError("it compiles nothing, or this release does not time its compilers")
            return max(0.0, compile_total(told["compile"]) - float(told["gc"]))
        case MeasureKind.GROWTH:
            return growth(told["steps"])
    return float(told[str(measure.kind)])


def compile_total(phases: Mapping[str, float]) -> float:
    """Return the seconds of all phases of torch's compilers that lie within no other one.

    Dynamo's phase has those of a forward graph within it; a backward graph may be compiled later, on its own.
    """
    outer = [name for name in phases if re.search(r"(^|\.)_?compile(_inner)?$|_compile\.", name)]
    later = [name for name in phases if "bw_compiler" in name or "backward" in name.lower()]
    # one phase may be timed under several names, one within the other: the longest has them all
    return max((phases[name] for name in outer or phases), default=0.0) + max(
        (phases[name] for name in later), default=0.0
    )


def growth(steps: Sequence[int]) -> float:
    """Return by how many kB the memory grows from line to line, in the second half of the lines.

    It is the median of the slopes of all pairs of lines (Theil and Sen), so that a cache that fills and stops, or one
    large allocation, is no growth.
    """
    if len(steps) < LEAST_STEPS:
        raise NoNumberError(f"it prints {len(steps)} lines to measure the memory at; {LEAST_STEPS} are the least")
    from scipy.stats import theilslopes

    return float(theilslopes(steps[len(steps) // 2 :]).slope) / BYTES["kB"]


def _printed(measure: Measure, output: str) -> tuple[float, str]:
    """Return the last number that a pattern finds, and a note where it finds several."""
    found = [*re.finditer(measure.pattern, output, re.MULTILINE)]
    if not found:
        raise NoNumberError(f"it prints no {measure.name}")
    last = found[-1]
    try:
        value = float(last[1] or "")
    except ValueError:
        raise NoNumberError(f"it prints {last[1] or ''!r} for {measure.name}, which is no number") from None
    if not math.isfinite(value):
        raise NoNumberError(f"{measure.name} is {last[1]}")
    unit = re.match(r"[ \t]*([^\W\d_]+)\b", output[last.end(1) :])  # of a time per step as well: 1.5 ms/step, 2 ms,
    value *= UNITS.get(unit[1], 1.0) if unit else 1.0
    return value, f"it prints {measure.name} {len(found)} times: the last one counts" if len(found) > 1 else ""


def distance(first: str, second: str) -> float:
    """Return the largest difference between the numbers of two texts; infinite if other words differ, or NaN."""
    pattern = re.compile(rf"(?<![\w.])(?:{NUMBER})(?![\w])")
    if pattern.sub("#", first) != pattern.sub("#", second):
        return math.inf
    pairs = zip(map(float, pattern.findall(first)), map(float, pattern.findall(second)), strict=True)
    return max((_apart(*pair) for pair in pairs), default=0.0)


def _apart(first: float, second: float) -> float:
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    return math.inf if math.isnan(first) or math.isnan(second) else abs(first - second)


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
