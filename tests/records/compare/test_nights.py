"""Cells from night to night."""

from pathlib import Path

from tests.results import FAIL, HANG, PASS, attempt, cell, environment, result, stored
from whichtorch.model import Outcome
from whichtorch.records import stored_runs
from whichtorch.records.compare import nights
from whichtorch.reports.stored_run_text import history_lines

STABLE = environment("2.15.0")


def three_nights(home: Path) -> None:
    """Store three nights: the stable release hangs in the second, the nightly fails in the last two."""
    for number, (stable, nightly) in enumerate([(PASS, PASS), (HANG, FAIL), (PASS, FAIL)]):
        other = environment(f"2.16.0.dev2026111{number}")
        cells = [cell(STABLE, stable), cell(other, nightly), cell(STABLE, PASS, f"family/other{number}")]
        stored(home, result([STABLE, other], cells), day=f"2026-11-1{number}", id=f"night{number}")


def told(home: Path) -> nights.Histories:
    return nights.Histories.of(nights.history("family/case", stored_runs.all_runs(home)))


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
