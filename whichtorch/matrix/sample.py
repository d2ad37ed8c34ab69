"""The numbers of one measured run: read from the notes of the start-up hook, or from what the run printed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.base.atomic_files import text_of
from whichtorch.measure.measure import NUMBER, Measure, MeasureKind
from whichtorch.model import Attempt, Outcome
from whichtorch.model.record import MachineState

if TYPE_CHECKING:
    from whichtorch.matrix.variation import Observation

NOTE = "measured"  # prefix of the files that the start-up hook writes, one for each Python process
FROM_OUTPUT = {MeasureKind.PRINTED, MeasureKind.OUTPUT}  # the other measures are read from these files
OWN_PROCESS = {MeasureKind.PEAK, MeasureKind.GROWTH}  # these leave out child processes
BYTES = {"MB": 1e6, "kB": 1e3}
WARM = 2000  # blocks that a run may read or write, a megabyte
LEAST_STEPS = 8  # lines, of which the second half shows the growth
# of a time that torch.utils.benchmark prints
UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0}
CALM = MachineState()


class NoNumberError(Exception):
    """A run does not have a number that is asked for; the message says why."""

    def __init__(self, message: str, outcome: Outcome = Outcome.ERROR) -> None:
        super().__init__(message)
        self.outcome = outcome  # of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The numbers of one run."""

    values: Mapping[str, float]  # by the measure's name
    parts: Mapping[str, Part] = field(default_factory=dict)  # of a time, CPU time too, or a rate: what it is of
    units: Mapping[str, str] = field(default_factory=dict)  # that it printed
    threads: int = 1  # that did some of the work
    is_warm: bool = False  # it read what it needs from memory, and cached next to nothing for later runs
    machine: MachineState = CALM
    output: str = ""  # what it printed
    notes: tuple[str, ...] = ()  # on what the numbers are


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a run that a time is of."""

    cpu: float  # seconds
    waited: float  # the share of it in which a core was missing


def sample_of(
    measures: Sequence[Measure],
    seen: Observation,
    home: Path,
    reference: str | None,
    units: Mapping[str, str],
    machine: MachineState = CALM,
) -> Sample:
    """Return the numbers of a run, in the units that are given.

    `reference` is the output that it is compared with, None if it is the first; `machine` is what the machine did.

    Raises NoNumberError if it did not pass, or does not have one of the numbers.
    """
    attempt = seen.record.attempt
    if attempt.outcome is not Outcome.PASS:
        what = seen.record.signature or attempt.note
        raise NoNumberError(f"{attempt.outcome}" + (f": {what}" if what else ""), attempt.outcome)
    output = text_of(home / attempt.stdout)
    told: Mapping[str, Any] = {"wall": attempt.seconds, "cpu": attempt.cpu_seconds, "queued": attempt.evidence.queued}
    with suppress(NoNumberError) if {each.kind for each in measures} <= FROM_OUTPUT else nullcontext():
        told = _measured_process(seen)
    values, parts, notes = {}, {}, []
    printed: dict[str, str] = {}
    for each in measures:
        if each.kind is MeasureKind.PRINTED:
            values[each.name], unit, note = _printed(each, output, units.get(each.name))
            printed |= {each.name: unit} if unit else {}
            notes += [note] if note else []
        elif each.kind is MeasureKind.OUTPUT:
            values[each.name] = 0.0 if reference is None else distance(reference, output)
        else:
            values[each.name] = _noted(each, told)
            if each.kind in OWN_PROCESS and told["has_children"]:
                notes.append("memory is the script's own process only: child processes are not included")
        if each.is_time or each.kind is MeasureKind.CPU or each.name in printed:
            parts[each.name] = _part(each, told, attempt, machine)
    waited = max((part.waited for part in parts.values()), default=0.0)
    return Sample(
        values=values,
        parts=parts,
        units=printed,
        threads=told.get("threads", 1),
        is_warm=told.get("blocks", WARM + 1) <= WARM,
        machine=machine.model_copy(update={"waited": waited}),
        output=output,
        notes=tuple(notes),
    )


def _part(measure: Measure, told: Mapping[str, Any], attempt: Attempt, machine: MachineState) -> Part:
    """Return what a time is of: the import, or all after it; while it waited for a core, others had that.

    The supervisor saw how long children waited, and the process itself most of the time.
    """
    part = told["import"] if measure.kind is MeasureKind.IMPORT else told
    queued = part["queued"] + max(0.0, attempt.evidence.queued - told.get("queued_in_all", attempt.evidence.queued))
    waited = min(queued, machine.others * attempt.seconds) / max(part["wall"], 1e-9)
    return Part(cpu=part["cpu"], waited=round(min(1.0, waited + machine.stolen + machine.throttled), 3))


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
            return float(told["import"]["wall"] if is_time else told["import"]["memory"] / BYTES["MB"])
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


def _printed(measure: Measure, output: str, shown: str | None) -> tuple[float, str, str]:
    """Return the last number that a pattern finds, in the unit that is shown; its unit, and a note on several."""
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
    word = re.match(r"[ \t]*([^\W\d_]+)\b", output[last.end(1) :])  # of a time per step as well: 1.5 ms/step, 2 ms,
    unit = word[1] if word and word[1] in UNITS else ""
    value *= UNITS.get(unit, 1.0) / UNITS.get(unit if shown is None else shown, 1.0)
    return value, unit, f"it prints {measure.name} {len(found)} times: the last one counts" if len(found) > 1 else ""


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
