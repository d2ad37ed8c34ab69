"""Numbers from night to night, and what comes and goes."""

import sys
from pathlib import Path

import pytest

from tests.records.compare.synthetic_nights import Year, measurement, night_of
from tests.results import FAIL, PASS, attempt, cell, environment, result, stored
from whichtorch.model import Outcome
from whichtorch.records import stored_runs
from whichtorch.records.compare import nights
from whichtorch.records.compare.nights import rate_interval
from whichtorch.records.compare.number_nights import NO_REFERENCE, numbers_until
from whichtorch.reports.stored_run_text import history_lines

HERE = environment()


def year(home: Path, count: int = 24) -> Year:
    """Store some nights of two tests, of which the second has a step in night 12."""
    made = Year(seed=3, nights=count, cells=2, steps=0)
    noise = [0.01 * (night * 7 % 24) / 24 for night in range(count)]
    made.numbers = [[*noise], [each + 0.2 * (night >= 12) for night, each in enumerate(noise)]]
    for night in range(count):
        stored(home, night_of(made, night), day=f"2026-11-{night + 1:02}", id=f"night{night:02}")
    return made


def told(home: Path, name: str) -> nights.Histories:
    return nights.Histories.of(nights.history(name, stored_runs.all_runs(home)))


def test_history_tells_from_which_night_on_a_number_has_another_level(tmp_path: Path) -> None:
    """The number of each night is there, and the step with its size; the reference has no line of its own."""
    year(tmp_path)
    found = told(tmp_path, "family0/case1")
    (numbers,) = found.numbers
    assert (numbers.environment, numbers.reference, len(numbers.nights)) == (
        "torch-nightly-pypi",
        "torch-2.9.1-pypi",
        24,
    )
    (step,) = numbers.changes
    assert (step.run, step.before, str(step.effect)) == ("night12", "night11", "worse")
    assert step.change[1] < 0.2214 < step.change[2]
    lines = list(history_lines(found))
    assert "wall 0.2 s +0 % [-1, +1]" in lines[2]
    assert any("worse from 2026-11-13 on, night12: +2" in line for line in lines)


def test_a_run_has_the_numbers_of_the_nights_before_it(tmp_path: Path) -> None:
    """They are read from the index: it says the same as the cells."""
    year(tmp_path)
    *before, last = stored_runs.all_runs(tmp_path)
    found = numbers_until(last.read().result, before)
    assert [(each.test, len(each.nights), len(each.changes)) for each in found] == [
        ("family0/case0", 24, 0),
        ("family0/case1", 24, 1),
    ]
    assert found[1:] == told(tmp_path, "family0/case1").numbers


def test_numbers_without_a_reference_are_told_with_a_doubt(tmp_path: Path) -> None:
    """What changes from night to night may be the machine; nights of another reference are left out."""
    for night, reference in enumerate(("torch-2.9.1-pypi", "", "")):
        made = result([HERE], [cell(HERE, PASS, numbers=(measurement(0.0, reference),))])
        stored(tmp_path, made, day=f"2026-11-0{night + 1}")
    (numbers,) = told(tmp_path, "family/case").numbers
    assert len(numbers.nights) == 2
    assert numbers.note == f"1 night left out, with another reference or without a change; {NO_REFERENCE}"


def test_without_the_libraries_the_numbers_are_there_and_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and how to have them."""
    year(tmp_path)
    monkeypatch.setitem(sys.modules, "ruptures", None)
    (numbers,) = told(tmp_path, "family0/case1").numbers
    assert (len(numbers.nights), numbers.changes) == (24, ())
    assert numbers.note == (
        "no changes were looked for: that needs scipy and ruptures: pip install 'whichtorch[measure]'"
    )


def test_the_interval_of_a_rate() -> None:
    """Those of textbooks: Wilson's."""
    assert rate_interval(1, 20) == pytest.approx((0.0089, 0.2361), abs=1e-4)
    assert rate_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)


def outcomes(home: Path, *found: tuple[Outcome, str]) -> nights.Histories:
    """Store a night for each outcome with its host, and return their history."""
    for night, (outcome, host) in enumerate(found, 1):
        started = f"2026-11-{night:02}T02:00:00+00:00"
        attempts = (attempt(outcome, started=started, evidence={"host": host}),)
        stored(home, result([HERE], [cell(HERE, outcome, attempts=attempts)]), day=f"2026-11-{night:02}")
    return told(home, "family/case")


def test_a_test_that_comes_and_goes_has_a_rate(tmp_path: Path) -> None:
    """One that broke once has none."""
    found = outcomes(tmp_path, *[(PASS, ""), (FAIL, ""), (PASS, ""), (PASS, "")])
    assert [(each.failures, each.attempts) for each in found.flakes] == [(1, 4)]
    assert outcomes(tmp_path / "other", (PASS, ""), (FAIL, ""), (FAIL, "")).flakes == ()


def test_what_fails_on_one_host_only_is_told_as_the_host(tmp_path: Path) -> None:
    """Three runs in a row there, while it passes elsewhere; a host name is known of clusters."""
    found = outcomes(tmp_path, *[(PASS, "a"), *[(FAIL, "a"), (PASS, "b")] * 3])
    assert [(each.host, each.failures, each.passes) for each in found.hosts] == [("a", 3, 3)]
    assert any("only on a: the last 3 runs there fail" in line for line in history_lines(found))
    broken = outcomes(tmp_path / "all", *[(PASS, "a"), *[(FAIL, "a"), (FAIL, "b")] * 3])
    few = outcomes(tmp_path / "few", (FAIL, "a"), (PASS, "b"), (PASS, "b"))
    local = outcomes(tmp_path / "local", *[(FAIL, ""), (PASS, "b")] * 3)
    assert broken.hosts == few.hosts == local.hosts == ()
