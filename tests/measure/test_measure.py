"""What is measured: how users name it, how large a change counts, and how changes are written."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.measure.measure import Measure, MeasureKind, change_words, measures_named, printed_pattern
from whichtorch.model import Effect
from whichtorch.search.step_search import Estimate


def named(*names: str, **options: Any) -> tuple[Measure, ...]:
    """Return the measures of options, of which most are not given."""
    given: dict[str, Any] = {"pattern": None, "worse": None}
    return measures_named(names, **(given | options))


def exactly(value: float) -> Estimate:
    return Estimate(center=value, low=value, high=value, rounds=3)


@pytest.mark.parametrize(
    "kind", [kind for kind in MeasureKind if kind not in {MeasureKind.PRINTED, MeasureKind.OUTPUT}]
)
def test_each_kind_has_its_name_unit_and_change(kind: MeasureKind) -> None:
    """A name of the list means that kind; without --worse, the change that counts is that of its row."""
    (measure,) = named(str(kind))
    assert (measure.kind, measure.unit) == (kind, kind.row.unit)
    assert (measure.change, measure.is_share) == (kind.row.worse, kind.row.is_ratio)
    assert not measure.more_is_better
    assert not measure.either_way


def test_any_other_name_is_a_number_that_the_script_prints() -> None:
    """Its pattern is made from its name, and a name that is given twice is measured once."""
    wall, loss = named("wall", "loss", "wall")
    assert wall.kind is MeasureKind.WALL
    assert (loss.kind, loss.name, loss.pattern) == (MeasureKind.PRINTED, "loss", printed_pattern("loss"))


@pytest.mark.parametrize(
    ("name", "is_better"),
    [
        ("tokens/s", True),
        ("throughput", True),
        ("val_accuracy", True),
        ("TFLOPS", True),
        ("samples_per_s", True),
        ("loss", False),
        ("step time", False),
        ("ms", False),
        ("cpu", False),
    ],
)
def test_more_is_better_where_the_name_says_so(name: str, is_better: bool) -> None:
    """A rate or an accuracy is worse if it is less; a sign of --worse says otherwise."""
    assert named(name)[0].more_is_better is named(name, worse="10%")[0].more_is_better is is_better
    assert named(name, worse="+10%")[0].more_is_better is False
    assert named(name, worse="-10%")[0].more_is_better is True


@pytest.mark.parametrize(
    ("text", "size", "is_share"),
    [("10%", 0.1, True), ("0.5 %", 0.005, True), ("1e-4", 1e-4, False), (" .5 ", 0.5, False), ("3", 3.0, False)],
)
def test_a_change_is_a_share_or_a_number(text: str, size: float, is_share: bool) -> None:
    """It may have a sign; +- is for a change in either direction."""
    (worse,), (differs,) = named("loss", worse=text), named("loss", worse=f"+-{text}")
    for measure in (worse, differs):
        assert measure.change == pytest.approx(size)
        assert measure.is_share is is_share
    assert (worse.threshold.either_way, differs.threshold.either_way) == (False, True)
    assert (worse.either_way, differs.either_way) == (False, True)


@pytest.mark.parametrize("text", ["--3%", "-+3%", "-0", "0%", "much", "", "3 percent", "nan", "inf", "1e400", "1,5"])
def test_a_change_that_is_none_is_refused(text: str) -> None:
    """The message has the option, what was written and what to write."""
    with pytest.raises(UsageError, match=f"^--worse {re.escape(text)}: write how large a change counts, as 10%"):
        named("cpu", worse=text)


def test_all_that_is_wrong_is_in_one_message() -> None:
    """Nobody repairs one option after another."""
    with pytest.raises(UsageError) as refused:
        named("wall", "output", pattern="loss (", worse="x")
    lines = str(refused.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["--worse", "--pattern", "--pattern", "--measure"]
    assert "'loss (' is no regular expression" in lines[1]
    assert lines[2].endswith("--measure names 0")
    assert lines[3] == "--measure output needs --worse, the largest difference that is none"


def test_the_pattern_of_growth_says_at_which_lines_memory_is_measured() -> None:
    """It has no number to find, and is not another number's as well."""
    assert named("growth", "cpu", pattern="step")[0].pattern == "step"
    assert named("growth")[0].pattern == ""


def test_any_change_of_the_output_counts() -> None:
    """It is a distance, which has no good direction."""
    assert named("output", worse="1e-3")[0].either_way


def test_a_pattern_is_for_one_printed_number() -> None:
    """Which may be among others that are measured."""
    assert named("cpu", "loss", pattern=r"l=(\d+)")[1].pattern == r"l=(\d+)"


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("tokens/s", {"worse": "100%"}, "tokens/s cannot fall by so much"),
        ("cpu", {"worse": "-100%"}, "cpu cannot fall by so much"),
        ("growth", {"worse": "5%"}, "--measure growth has no value to take a share of"),
        ("output", {"worse": "5%"}, "--measure output has no value to take a share of"),
        ("loss accuracy", {"pattern": r"(\d+)"}, "--measure names 2"),
        ("growth loss", {"pattern": "step"}, "--measure names 2"),
        ("growth", {"pattern": "["}, "'[' is no regular expression"),
        ("loss", {"pattern": "loss: .*"}, "has 0 groups: put parentheses around the number"),
        ("loss", {"pattern": r"(loss): (\d+)"}, "has 2 groups: put parentheses around the number"),
    ],
)
def test_what_cannot_be_measured_is_refused(names: str, options: dict[str, str], message: str) -> None:
    """Only what may grow without end can become worse by its size, and a pattern is for one number."""
    with pytest.raises(UsageError, match=re.escape(message)):
        named(*names.split(), **options)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("loss=0.25", "0.25"),
        ("loss: -1e-3", "-1e-3"),
        ('{"step": 3, "loss": 2.5}', "2.5"),
        ("{'loss': 7}", "7"),
        ("val loss = .5", ".5"),
        ("loss=nan", "nan"),
        ("loss: -Infinity", "-Infinity"),
        ("train_loss=0.25 my.loss=0.25 loss 0.25 losses: 3 loss=high", None),
    ],
)
def test_the_pattern_of_a_name_finds_its_number(text: str, number: str | None) -> None:
    """As NAME=1.5, NAME: 1.5 or a member of JSON; a longer name is another one, and signs stand for themselves."""
    found = re.search(printed_pattern("loss"), text)
    assert (found and found[1]) == number
    assert re.search(printed_pattern("tokens/s (mean)"), "tokens/s (mean): 12.5")
    assert not re.search(printed_pattern("a.b"), "axb=1")


def test_more_is_worse_on_the_scale_of_differences() -> None:
    """Shares are differences of logarithms; a rate that falls is worse."""
    (seconds,), (rate,), (loss,) = named("cpu"), named("tokens/s"), named("loss", worse="+-1e-4")
    assert seconds.on_scale(1.1) - seconds.on_scale(1.0) == pytest.approx(math.log(1.1))
    assert rate.on_scale(90) - rate.on_scale(100) == pytest.approx(-math.log(0.9))
    assert loss.on_scale(0.5) - loss.on_scale(0.25) == 0.25


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_share_of_nothing_is_refused(value: float) -> None:
    """A number that is not positive has no share."""
    with pytest.raises(ValueError, match="a share of that says nothing"):
        named("loss")[0].on_scale(value)


def test_changes_are_those_of_the_value() -> None:
    """Also where more is better: a rate that falls by 10 % changes by -10 %, in the order of numbers."""
    (rate,) = named("tokens/s", worse="10%")
    fell = Estimate(center=-math.log(0.9), low=-math.log(0.92), high=-math.log(0.88), rounds=9)
    assert rate.change_in(fell) == pytest.approx((-0.1, -0.12, -0.08))
    assert rate.words(fell) == "-10 % [-12, -8]"
    assert rate.threshold.effect(fell) is Effect.WORSE


def test_no_change_has_no_sign() -> None:
    """Also where more is better, on whose scale it is negative."""
    for measure in (*named("tokens/s"), *named("tokens/s", worse="+-1")):
        assert measure.words(exactly(0.0)) == ("+0 %" if measure.is_share else "+0")


def test_a_change_of_the_size_counts_in_both_scales() -> None:
    """--worse 10% is 10 % more seconds, and 10 % less of a rate."""
    assert named("cpu", worse="100%")[0].change == 1
    (seconds,), (rate,) = named("cpu", worse="10%"), named("tokens/s", worse="10%")
    assert seconds.threshold.effect(exactly(seconds.on_scale(1.1) - seconds.on_scale(1))) is Effect.WORSE
    assert rate.threshold.effect(exactly(rate.on_scale(0.9) - rate.on_scale(1))) is Effect.WORSE
    assert rate.threshold.effect(exactly(rate.on_scale(1.3) - rate.on_scale(1))) is Effect.BETTER


@pytest.mark.parametrize("value", [0.25, 0.2501, 0.2499, 12345.6])
@pytest.mark.parametrize("size", [1e-4, 0.1, 3.0])
def test_rounding_does_not_hide_a_change_of_the_size(value: float, size: float) -> None:
    """A printed number is exact: one that differs by 1e-4 differs by --worse +-1e-4, in either direction."""
    (measure,) = named("loss", worse=f"+-{size}")
    for other in (value + size, value - size):
        assert measure.threshold.effect(exactly(measure.on_scale(other) - measure.on_scale(value))) is Effect.DIFFERENT


@pytest.mark.parametrize(
    ("change", "unit", "is_share", "words"),
    [
        ((0.072, 0.059, 0.084), "s", True, "+7.2 % [+5.9, +8.4]"),
        ((-0.03, -0.23, 10.5), "s", True, "0.97 times [0.77, 11.5]"),
        ((100.0, 99.0, 101.5), "kB a line", False, "+100 kB a line [+99, +102]"),
        ((0.25, 0.25, 0.25), "", False, "+0.25"),
        (None, "s", True, "too few runs to compare"),
    ],
)
def test_changes_are_written_with_their_interval(
    change: tuple[float, float, float] | None, unit: str, is_share: bool, words: str
) -> None:
    """An exact one has none."""
    assert change_words(change, unit, is_share=is_share) == words
