"""Cells and numbers from night to night, and what comes and goes."""

import sys
from pathlib import Path

import pytest

from tests.records.compare.synthetic_nights import Year, measurement, night_of
from tests.results import FAIL, HANG, PASS, attempt, cell, environment, result, stored
from whichtorch.model import Outcome
from whichtorch.records import stored_runs
from whichtorch.records.compare import nights
from whichtorch.records.compare.nights import NO_REFERENCE, numbers_until, rate_interval
from whichtorch.reports.stored_run_text import history_lines

STABLE = environment("2.15.0")

HERE = environment()


def three_nights(home: Path) -> None:
    """Store three nights: the stable release hangs in the second, the nightly fails in the last two."""
    for number, (stable, nightly) in enumerate([(PASS, PASS), (HANG, FAIL), (PASS, FAIL)]):
        other = environment(f"2.16.0.dev2026111{number}")
        cells = [cell(STABLE, stable), cell(other, nightly), cell(STABLE, PASS, f"family/other{number}")]
        stored(home, result([STABLE, other], cells), day=f"2026-11-1{number}", id=f"night{number}")


def told(home: Path, name: str = "family/case") -> nights.Histories:
    return nights.Histories.of(nights.history(name, stored_runs.all_runs(home)))


def test_history_has_a_line_per_night_and_environment(tmp_path: Path) -> None:
    """Where it changed is said; a nightly is compared with that of the night before."""
    three_nights(tmp_path)
    lines = list(history_lines(told(tmp_path)))
    assert [" ".join(line.split()) for line in lines] == [
        "family/case",
        "2026-11-10 02:00 night0 torch-2.15.0-pypi pass 1.5 s",
        "2026-11-10 02:00 night0 torch-2.16.0.dev20261110-pypi pass 1.5 s",
        "2026-11-11 02:00 night1 torch-2.15.0-pypi HANG! 1.5 s regression",
        "2026-11-11 02:00 night1 torch-2.16.0.dev20261111-pypi FAIL! 1.5 s regression",
        "2026-11-12 02:00 night2 torch-2.15.0-pypi pass 1.5 s fixed",
        "2026-11-12 02:00 night2 torch-2.16.0.dev20261112-pypi FAIL! 1.5 s",
        "comes and goes in torch-2.15.0-pypi: fails in 1 of 3 runs, 33 % [6, 79]",
        "",
    ]


def test_what_a_night_did_not_run_again_is_told(tmp_path: Path) -> None:
    """A night that rests on what an earlier one found is no new evidence."""
    found = cell(STABLE, PASS, attempts=(attempt(PASS, started="2026-11-10T02:00:05+00:00"),))
    for day in ("2026-11-10", "2026-11-11"):
        stored(tmp_path, result([STABLE], [found]), day=day, id=day)
    lines = list(history_lines(told(tmp_path)))
    assert ["known since 2026-11-10" in line for line in lines] == [False, False, True, False]


def test_history_takes_a_glob(tmp_path: Path) -> None:
    """A family's history is that of its cells, each by itself."""
    three_nights(tmp_path)
    assert list(nights.history("family/o*", stored_runs.all_runs(tmp_path))) == [
        f"family/other{number}" for number in range(3)
    ]
    assert nights.history("nobody/*", stored_runs.all_runs(tmp_path)) == {}


def test_nights_count_what_became_of_the_cells_of_a_run(tmp_path: Path) -> None:
    """Earlier runs are seen as far as they hold this run's cells; the last night is the run itself."""
    three_nights(tmp_path)
    *before, last = stored_runs.all_runs(tmp_path)
    found = nights.nights(last.read().result, before)
    assert [(night.run.id, night.cells, night.outcomes) for night in found] == [
        ("night0", 2, {PASS: 2}),
        ("night1", 2, {HANG: 1, FAIL: 1}),
        ("night2", 3, {PASS: 2, Outcome.FAIL: 1}),
    ]


def year(home: Path, count: int = 24) -> Year:
    """Store some nights of two tests, of which the second has a step in night 12."""
    made = Year(seed=3, nights=count, cells=2, steps=0)
    noise = [0.01 * (night * 7 % 24) / 24 for night in range(count)]
    made.numbers = [[*noise], [each + 0.2 * (night >= 12) for night, each in enumerate(noise)]]
    for night in range(count):
        stored(home, night_of(made, night), day=f"2026-11-{night + 1:02}", id=f"night{night:02}")
    return made


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
