"""Numbers of two runs."""

from pathlib import Path

from tests.records.compare.synthetic_nights import measurement
from tests.results import PASS, cell, environment, result, stored
from whichtorch.model import Effect, Result
from whichtorch.records.compare.comparison import ChangeKind, Comparison, compare
from whichtorch.records.compare.nights import measured_before
from whichtorch.reports.stored_run_text import remarks_of

OLD, NEW = environment("2.9.1"), environment("2.16.0.dev20261110")


def night(number: int, level: float, reference: str = OLD.label, **fields: object) -> Result:
    """Return a night in which the nightly differs so from the reference, and all is slower than the night before."""
    own = cell(OLD, PASS, numbers=(measurement(number / 10, ""),))
    other = cell(NEW, PASS, numbers=(measurement(level, reference, **fields),))
    made = result([OLD, NEW], [own, other], id_=f"night{number}")
    return made.model_copy(update={"run": made.run.model_copy(update={"started": f"2026-11-1{number}T00:00:00+00:00"})})


def compared(*levels: float, old: int) -> Comparison:
    """Return the last night compared with another one, all nights being stored."""
    nights = [night(number, level) for number, level in enumerate(levels)]
    return compare(nights[old], nights[-1], nights[-2:-4:-1])


def test_a_number_that_is_worse_is_told_and_red_in_the_second_night() -> None:
    """The first night that shows it is no proof; the second one is, whichever of the two one compares with."""
    first = compared(0.0, 0.0, 0.2, old=1)
    (change,) = first.of(ChangeKind.WORSE_NUMBER)
    assert change.numbers[0].effect is Effect.WORSE
    assert change.numbers[0].change[1] < 0.2214 < change.numbers[0].change[2]
    assert not first.is_worse
    for old in (1, 2):
        second = compared(0.0, 0.0, 0.2, 0.2, old=old)
        assert second.is_worse
        assert second.of(ChangeKind.WORSE_NUMBER)[0].numbers[0].since == "night1"
    assert not compared(0.0, 0.0, 0.2, 0.2, 0.2, old=3).cells[0].numbers  # no news in the third


def test_one_night_alone_is_not_red() -> None:
    """It was the machine, or will be seen again."""
    assert not compared(0.0, 0.0, 0.2, 0.0, old=2).is_worse
    assert not compared(0.0, 0.2, 0.0, 0.2, old=0).is_worse


def test_a_better_number_is_told() -> None:
    """It is good news, and not red."""
    better = compared(0.2, 0.2, 0.0, 0.0, old=1)
    assert [change.name for change in better.of(ChangeKind.BETTER_NUMBER)] == ["family/case"]
    assert not better.is_worse


def test_more_may_be_better() -> None:
    """Of tokens per second, fewer are worse."""
    (old, new) = (night(number, level, more_is_better=True) for number, level in enumerate((0.2, 0.0)))
    assert compare(old, new).of(ChangeKind.WORSE_NUMBER)


def test_numbers_without_the_same_reference_are_never_compared() -> None:
    """Neither values of two days, nor changes from different environments; nor are changes that do not count."""
    assert not compare(night(0, 0.0), night(1, 0.5, "torch-2.10.0-pypi")).cells[-1].numbers
    assert not compare(night(0, 0.0, ""), night(1, 0.5, "")).cells[-1].numbers
    assert not compare(night(0, 0.0), night(1, 0.5, threshold=0.7)).cells[-1].numbers


def test_the_change_is_said_with_its_interval() -> None:
    """It names the run, the reference, and what would prove it."""
    (change,) = compared(0.0, 0.0, 0.2, old=1).of(ChangeKind.WORSE_NUMBER)
    (words,) = remarks_of(change)
    assert words == (
        "wall is worse than in night1: +22.1 % [+20.6, +23.7] (against torch-2.9.1-pypi +0 %, now +22.1 %); "
        "seen once: measure again, or wait for the next night"
    )


def test_the_runs_before_are_those_with_numbers(tmp_path: Path) -> None:
    """A run without numbers, and a later one, are left out."""
    for number in range(4):
        made = night(number, 0.0)
        if number == 2:
            made = result([OLD], [cell(OLD, PASS)])
        stored(tmp_path, made, day=f"2026-11-1{number}", id=f"night{number}")
    new = night(3, 0.0)
    assert [before.run.id for before in measured_before(new, tmp_path)] == ["night1", "night0"]
    assert measured_before(result([OLD], [cell(OLD, PASS)]), tmp_path) == []
