"""A measured run -> its numbers: what is read from the output and the notes, and what is no number."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.results import attempt
from whichtorch.matrix.sample import NOTE, NoNumberError, Part, Sample, compile_total, distance, growth, sample_of
from whichtorch.matrix.variation import Observation
from whichtorch.measure.measure import Measure, measures_named
from whichtorch.model import Limits, MachineState, Outcome, Record

NOTES: dict[str, Any] = {
    "wall": 2.0,
    "cpu": 3.0,
    "queued": 0.5,
    "queued_in_all": 0.7,
    "threads": 2,
    "import": {"wall": 1.5, "cpu": 1.4, "queued": 0.2, "memory": 250_000_000},
    "peak": 400_000_000,
    "has_children": False,
    "steps": [],
    "compile": None,
    "gc": 0.0,
}


def observed(
    folder: Path,
    output: str = "",
    notes: dict[str, Any] | None = NOTES,
    outcome: Outcome = Outcome.PASS,
    **fields: object,
) -> Observation:
    """Return a run that printed something, and of which the hook noted something."""
    (folder / "stdout.txt").write_text(output)
    record = Record(
        key="k",
        environment="e",
        scenario="s",
        source_hash="h",
        variant={},
        limits=Limits(timeout=60, memory_mb=1000),
        attempt=attempt(outcome, stdout="stdout.txt", **fields),
    )
    texts = {} if notes is None else {f"{NOTE}-7.json": json.dumps(notes)}
    return Observation(record=record, stderr="", notes=texts)


def measures(*names: str, **options: Any) -> tuple[Measure, ...]:
    given: dict[str, Any] = {"pattern": None, "worse": None}
    return measures_named(names, **(given | options))


def printed(folder: Path, output: str, name: str = "loss", **options: Any) -> Sample:
    return sample_of(measures(name, **options), observed(folder, output), folder, None, {})


def test_the_last_of_several_numbers_counts(tmp_path: Path) -> None:
    """A note says so; one number has no note."""
    sample = printed(tmp_path, "loss=3.5\nloss=2.5\nloss=0.25\n")
    assert sample.values == {"loss": 0.25}
    assert sample.notes == ("it prints loss 3 times: the last one counts",)
    assert printed(tmp_path, "loss=0.25").notes == ()


@pytest.mark.parametrize(
    ("output", "options", "reason"),
    [
        *((f"loss={number}\n", {}, f"^loss is {number}$") for number in ("nan", "NaN", "inf", "-inf", "Infinity")),
        ("accuracy=0.5\n", {}, "^it prints no loss$"),
        ("loss high", {"pattern": "loss (.*)"}, "for loss, which is no number$"),
        ("loss high", {"pattern": r"loss (\d+)?"}, "for loss, which is no number$"),
    ],
)
def test_what_is_not_finite_or_not_printed_is_no_number(
    tmp_path: Path, output: str, options: dict[str, Any], reason: str
) -> None:
    """It is not compared, and the reason has what was found."""
    with pytest.raises(NoNumberError, match=reason):
        printed(tmp_path, output, **options)


def test_a_number_is_found_in_a_line_and_in_json(tmp_path: Path) -> None:
    """A pattern's ^ and $ are ends of lines; loggers write a member of JSON in a line of its own."""
    assert printed(tmp_path, "step 1\nloss 0.5\nend\n", pattern=r"^loss ([\d.]+)$").values == {"loss": 0.5}
    output = json.dumps({"step": 7, "train_loss": 9.0, "loss": 0.125, "name": "loss"})
    assert printed(tmp_path, output).values == {"loss": 0.125}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Median: 250.00 us", 250e-6),
        ("Median: 1.5 ms\n  IQR: 3.00 us (1 to 2)", 1.5e-3),
        ("Median: 3 \u00b5s", 3e-6),
        ("Median: 7 ns", 7e-9),
        ("Median: 2 s", 2.0),
        ("Median: 1.5ms, 3 runs", 1.5e-3),
        ("Median: 1.5 ms/step", 1.5e-3),
        ("Median: 4\nms", 4.0),
        ("Median: 4 steps", 4.0),
    ],
)
def test_times_of_benchmarks_are_seconds(tmp_path: Path, text: str, seconds: float) -> None:
    """torch.utils.benchmark chooses the unit by the size, so that numbers of two releases may have two."""
    seen = observed(tmp_path, text)
    assert sample_of(measures("Median"), seen, tmp_path, None, {"Median": "s"}).values["Median"] == pytest.approx(
        seconds
    )


def test_a_time_keeps_the_unit_that_was_printed_first(tmp_path: Path) -> None:
    """Later runs are told in that one."""
    first = printed(tmp_path, "Median: 12.387 ms", "Median")
    assert (first.values, first.units) == ({"Median": 12.387}, {"Median": "ms"})
    later = sample_of(measures("Median"), observed(tmp_path, "Median: 950 us"), tmp_path, None, first.units)
    assert later.values["Median"] == pytest.approx(0.95)


def test_a_run_waits_no_longer_than_others_ran(tmp_path: Path) -> None:
    """Its own threads may wait for each other's cores: that is no other work; a throttled group waits, too."""
    seen = observed(tmp_path, "ms=3", seconds=4.0)
    for others, throttled, waited in ((1.0, 0.0, 0.25), (0.05, 0.0, 0.1), (0.0, 0.4, 0.4)):
        machine = MachineState(others=others, throttled=throttled)
        sample = sample_of(measures("wall", "ms", "cpu"), seen, tmp_path, None, {}, machine)
        assert sample.parts == {name: Part(cpu=3.0, waited=waited) for name in ("wall", "ms", "cpu")}


def test_numbers_of_the_hook_have_their_units(tmp_path: Path) -> None:
    """Seconds as they are, but for what is collected while it compiles; memory in MB, of the script's process alone."""
    notes = NOTES | {"compile": {"_compile.compile_inner": 3.0}, "gc": 0.5}
    values = {"wall": 2.0, "cpu": 3.0, "import": 1.5, "import-memory": 250.0, "peak": 400.0, "compile": 2.5}
    seen = observed(tmp_path, notes=notes, peak_rss_mb=1000.0)
    assert sample_of(measures(*values), seen, tmp_path, None, {}).values == values


def test_a_note_says_that_memory_leaves_out_children(tmp_path: Path) -> None:
    """Numbers that children do not affect have no such note."""
    notes = NOTES | {"has_children": True}
    told = "memory is the script's own process only: child processes are not included"
    assert sample_of(measures("peak", "wall"), observed(tmp_path, notes=notes), tmp_path, None, {}).notes == (told,)
    assert sample_of(measures("wall", "cpu"), observed(tmp_path, notes=notes), tmp_path, None, {}).notes == ()
    assert sample_of(measures("peak"), observed(tmp_path), tmp_path, None, {}).notes == ()


@pytest.mark.parametrize(
    ("name", "notes", "reason"),
    [
        ("cpu", None, "ended without its exit handlers"),
        ("cpu", {"problem": "OSError: no"}, "could not be measured: OSError: no"),
        ("import", NOTES | {"import": None}, "does not import torch"),
        ("import-memory", NOTES | {"import": None}, "does not import torch"),
        ("compile", NOTES, "compiles nothing, or this release does not time its compilers"),
        ("growth", NOTES | {"steps": [1, 2, 3]}, "prints 3 lines to measure the memory at; 8 are the least"),
    ],
)
def test_what_was_not_noted_is_missing(tmp_path: Path, name: str, notes: dict[str, Any] | None, reason: str) -> None:
    """The reason says why."""
    with pytest.raises(NoNumberError, match=reason):
        sample_of(measures(name), observed(tmp_path, notes=notes), tmp_path, None, {})


def test_of_several_processes_the_one_with_torch_counts(tmp_path: Path) -> None:
    """A command may start a Python without torch as well; a printed number does not depend on it."""
    helper, train = json.dumps(NOTES | {"wall": 0.1, "import": None}), json.dumps(NOTES)
    seen = replace(observed(tmp_path, "loss=0.5"), notes={f"{NOTE}-7.json": train, f"{NOTE}-8.json": helper})
    assert sample_of(measures("wall", "loss"), seen, tmp_path, None, {}).values == {"wall": 2.0, "loss": 0.5}


@pytest.mark.parametrize("imported", [NOTES["import"], None])
def test_several_processes_alike_have_no_number(tmp_path: Path, imported: dict[str, Any] | None) -> None:
    """None is chosen arbitrarily; a printed number is not affected."""
    each = json.dumps(NOTES | {"import": imported})
    seen = replace(observed(tmp_path, "loss=0.5"), notes={f"{NOTE}-7.json": each, f"{NOTE}-8.json": each})
    with pytest.raises(NoNumberError, match="it starts several Python processes: measure each"):
        sample_of(measures("wall"), seen, tmp_path, None, {})
    assert sample_of(measures("loss"), seen, tmp_path, None, {}).values == {"loss": 0.5}


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.HANG, Outcome.CRASH, Outcome.SKIP])
def test_only_a_run_that_passes_has_numbers(tmp_path: Path, outcome: Outcome) -> None:
    """The reason is its outcome and its signature, and it keeps the outcome."""
    seen = observed(tmp_path, "loss=0.5", outcome=outcome)
    signed = replace(seen, record=seen.record.model_copy(update={"signature": "in f (a.py:3)"}))
    with pytest.raises(NoNumberError) as refused:
        sample_of(measures("loss"), signed, tmp_path, None, {})
    assert str(refused.value) == f"{outcome}: in f (a.py:3)"
    assert refused.value.outcome is outcome


def test_a_leak_is_found_in_noise() -> None:
    """100 kB a line in 200 lines, with 2 MB of noise and one large allocation."""
    dice = random.Random(29)
    steps = [int(500e6 + 100e3 * line + dice.gauss(0, 2e6) + (80e6 if line > 160 else 0)) for line in range(200)]
    calm = [int(500e6 + 100e3 * line + dice.gauss(0, 50e3)) for line in range(200)]
    assert growth(calm) == pytest.approx(100, rel=0.05)
    assert growth(steps) > 50


@pytest.mark.parametrize("fills", [20, 60, 99])
def test_a_cache_that_fills_is_no_leak(fills: int) -> None:
    """What grows in the first half and then stops does not grow, nor does what allocates once, or shrinks."""
    assert growth([500_000_000] * 180 + [900_000_000] * 20) == 0
    assert growth([10**9 - 4096 * line for line in range(40)]) == pytest.approx(-4.096)
    dice = random.Random(29)
    steps = [int(500e6 + 1e6 * min(line, fills) + dice.gauss(0, 50e3)) for line in range(200)]
    assert abs(growth(steps)) < 1


def test_nested_phases_of_the_compiler_count_once() -> None:
    """The outermost phase, under whichever of its names, and backward graphs, which are compiled later."""
    phases = {"_compile.compile_inner": 3.0, "entire_frame_compile": 3.2, "_compile": 2.9, "backend_compile": 2.0}
    assert compile_total({"_compile.compile_inner": 3.0, "GraphLowering.run": 1.0}) == 3.0
    assert compile_total(phases) == pytest.approx(3.2, rel=0.1)
    assert compile_total(phases | {"bw_compiler": 0.5}) == pytest.approx(compile_total(phases) + 0.5)
    assert compile_total({"inductor": 0.5, "lowering": 0.2}) == 0.5


def test_the_output_is_compared_with_the_first(tmp_path: Path) -> None:
    """The first run is the reference, at no distance from itself."""
    output = measures("output", worse="1e-3")
    first = sample_of(output, observed(tmp_path, "[0.5, 1.25]"), tmp_path, None, {})
    assert (first.values, first.output) == ({"output": 0.0}, "[0.5, 1.25]")
    other = sample_of(output, observed(tmp_path, "[0.5, 1.5]"), tmp_path, first.output, {})
    assert other.values == {"output": 0.25}


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ("", "", 0.0),
        ("tensor([1.0, 2.0])", "tensor([1.0, 2.5])", 0.5),
        ("x = -1e-3", "x = 1e-3", 2e-3),
        ("1 2 3", "1 2 3", 0.0),
        ("no numbers", "no numbers", 0.0),
        ("layer1.weight 3", "layer1.weight 4", 1.0),
        ("layer1 3", "layer2 3", math.inf),
        ("loss nan", "loss nan", 0.0),
        ("loss nan", "loss 1.0", math.inf),
        ("inf", "inf", 0.0),
        ("inf", "-inf", math.inf),
        ("a 1", "b 1", math.inf),
        ("1 2", "1 2 3", math.inf),
    ],
)
def test_how_far_outputs_are_apart(first: str, second: str, apart: float) -> None:
    """The largest difference of their numbers; infinite where other words, or a NaN, stand."""
    assert distance(first, second) == pytest.approx(apart)
    assert distance(second, first) == pytest.approx(apart)
