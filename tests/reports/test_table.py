"""The table, its legend and the lines below it."""

from pathlib import Path

from whichtorch.model import UNOBSERVED, Attempt, Cell, Environment, Outcome, Result, Run, StoppedBy
from whichtorch.records.store import StoredRun
from whichtorch.reports.markdown import markdown_lines
from whichtorch.reports.table import cell_word, column_heads, legend_lines, matrix_lines, red_lines, summary_lines

COMMAND = "whichtorch matrix"


def environment(torch: str, config: str = "default", **fields: object) -> Environment:
    given: dict[str, object] = {
        "id": f"{torch}/{config}",
        "label": f"torch-{torch}-pypi",
        "torch": torch,
        "config": config,
    }
    given |= {"python": "3.11.7", "build": "pypi", "options": ("--torch", torch, "--build", "pypi")}
    return Environment.model_validate(given | fields)


def cell(environment: Environment, outcome: Outcome, *, expected: bool = True, **fields: object) -> Cell:
    attempt = Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.EXIT, stderr="runs/r/attempts/1/stderr.txt")
    given: dict[str, object] = {"environment": environment.id, "outcome": outcome, "expected": expected}
    given |= {"scenario": "family/case", "variant": {"op": "mm"}, "seconds": 1, "attempts": (attempt,)}
    return Cell.model_validate(given | fields)


def result(environments: list[Environment], cells: list[Cell]) -> Result:
    run = Run(id="r", started="2026-11-01T00:00:00+00:00")
    return Result(run=run, environments=tuple(environments), cells=tuple(cells))


def stored(result: Result) -> StoredRun:
    return StoredRun(folder=Path("/state/runs/r"), result=result)


OLD, NEW = environment("2.11.0"), environment("2.12.1")
MIXED = result(
    [OLD, NEW],
    [
        cell(OLD, Outcome.FAIL, signature="RuntimeError in merge_devices (fake_tensor.py)"),
        cell(NEW, Outcome.HANG, expected=False, signature="stuck: child, futex"),
        cell(OLD, Outcome.PASS, scenario="family/other", variant={}),
        cell(NEW, Outcome.PASS, scenario="family/other", variant={}),
    ],
)


def test_table_has_scenarios_down_and_environments_across() -> None:
    """One row per scenario and variant, one column per environment, and what they share said once."""
    assert list(matrix_lines(MIXED, 100)) == [
        "Everywhere: build pypi, Python 3.11.7, config default",
        "",
        "scenario            2.11.0    2.12.1",
        "------------------  --------  --------",
        "family/case[op=mm]  FAIL      HANG~!",
        "family/other        pass      pass",
        "",
    ]


def test_a_patch_is_told_where_there_is_one() -> None:
    """Columns that differ in the patch say so; where all have the same one it is said once, where none has, never."""
    fixed = environment("2.11.0", id="fixed", patch="fix@1a2b3c")
    assert column_heads([OLD, fixed])[1] == ["2.11.0\nnone", "2.11.0\nfix@1a2b3c"] or column_heads([OLD, fixed])[1] == [
        "none",
        "fix@1a2b3c",
    ]
    assert column_heads([fixed])[0].endswith("config default, patch fix@1a2b3c")
    assert column_heads([OLD])[0].endswith("config default")


def test_table_continues_below_where_the_screen_ends() -> None:
    """Sixty nightlies do not make one line of a thousand columns."""
    environments = [environment(f"2.16.0.dev202611{day:02d}") for day in range(1, 31)]
    lines = list(matrix_lines(result(environments, [cell(where, Outcome.PASS) for where in environments]), 80))
    assert max(map(len, lines)) <= 80
    assert sum(line.count("dev2026") for line in lines) == 30


def test_cell_shows_red_and_unexpected_without_colour() -> None:
    """An outcome in capitals is a failure, `!` is unexpected, k/n is flaky: nothing depends on colour."""
    assert cell_word(cell(OLD, Outcome.HANG)) == "HANG"
    assert cell_word(cell(OLD, Outcome.HANG, expected=False)) == "HANG!"
    assert cell_word(cell(OLD, Outcome.PASS, expected=False)) == "pass!"
    attempts = tuple(
        Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.EXIT)
        for outcome in (Outcome.HANG, Outcome.PASS, Outcome.PASS)
    )
    assert cell_word(cell(OLD, Outcome.HANG, attempts=attempts)) == "HANG 1/3"


def test_legend_counts_what_occurs() -> None:
    """Only outcomes that are in the table are explained."""
    text = "\n".join(legend_lines(MIXED))
    assert "2  pass" in text
    assert "1  HANG" in text
    assert "crash" not in text.lower()


def test_another_failure_is_told_from_the_most_common_one() -> None:
    """A cell that fails otherwise than most of its row is marked in the table, its legend, below it and in Markdown."""
    third = environment("2.15.0")
    gone = "AttributeError in <module> (case.py)"
    cells = [cell(where, Outcome.FAIL, signature="AssertionError in f (x.py)") for where in (OLD, NEW)]
    mixed = result([OLD, NEW, third], [*cells, cell(third, Outcome.FAIL, signature=gone)])
    row = next(line for line in matrix_lines(mixed, 100) if "family/case" in line)
    assert row.split() == ["family/case[op=mm]", "FAIL", "FAIL", "FAIL~"]
    assert "    1  ~            another failure than the most common one of its row" in list(legend_lines(mixed))
    lines = [line for line in red_lines(stored(mixed), COMMAND) if gone in line]
    assert [line.split("  ")[0] for line in lines] == ["FAIL~ (expected) (different)"]
    assert "| FAIL | FAIL | `FAIL~` |" in "\n".join(markdown_lines(stored(mixed), COMMAND))


def test_red_cell_has_signature_log_and_rerun_command() -> None:
    """One line per red cell says what, where to read on, and how to run just that again."""
    lines = list(red_lines(stored(MIXED), COMMAND))
    assert lines == [
        "HANG~! (different)  family/case[op=mm]  torch-2.12.1-pypi: stuck: child, futex; "
        "log /state/runs/r/attempts/1/stderr.txt; "
        "rerun: whichtorch matrix 'family/case[op=mm]' --torch 2.12.1 --build pypi --fresh",
        "FAIL (expected)  family/case[op=mm]  torch-2.11.0-pypi: RuntimeError in merge_devices (fake_tensor.py); "
        "log /state/runs/r/attempts/1/stderr.txt; "
        "rerun: whichtorch matrix 'family/case[op=mm]' --torch 2.11.0 --build pypi --fresh",
    ]


def test_a_doubted_pass_says_why() -> None:
    """A vacuous cell is told though it is expected, and so is a pass whose conditions nobody could observe."""
    passed = cell(NEW, Outcome.PASS).attempts
    unobserved = f"{UNOBSERVED}: the observer wrote nothing"
    cells = [
        cell(NEW, Outcome.VACUOUS, reason="aten::mm was not dispatched", attempts=passed),
        cell(NEW, Outcome.PASS, scenario="family/other", reason=unobserved),
        cell(NEW, Outcome.PASS, scenario="family/third", reason="no /proc here"),
    ]
    lines = list(red_lines(stored(result([NEW], cells)), COMMAND))
    assert [line.partition("; ")[0] for line in lines] == [
        "vacuous (expected)  family/case[op=mm]  torch-2.12.1-pypi: aten::mm was not dispatched",
        f"pass (expected)  family/other[op=mm]  torch-2.12.1-pypi: {unobserved}",
    ]


def test_the_same_failure_in_several_environments_is_one_line() -> None:
    """It has one log, and one command that runs all of them again; another failure has a line of its own."""
    other = environment("2.13.0")
    where = [cell(each, Outcome.FAIL, expected=False, signature="ValueError in f (a.py:3)") for each in (OLD, NEW)]
    where.append(cell(other, Outcome.FAIL, expected=False, signature="KeyError in f (a.py:3)"))
    first, second = red_lines(stored(result([OLD, NEW, other], where)), COMMAND)
    assert "torch-2.11.0-pypi, torch-2.12.1-pypi: ValueError in f (a.py:3)" in first
    assert "--torch 2.11.0,2.12.1 --build pypi" in first
    assert "  family/case[op=mm]  torch-2.13.0-pypi: KeyError" in second


def test_environment_that_cannot_be_had_is_told_once() -> None:
    """Forty unbuildable cells are one line with one reason."""
    gone = environment("9.9.9", outcome=Outcome.UNBUILDABLE, reason="no wheel for this platform")
    cells = [cell(gone, Outcome.UNBUILDABLE, scenario=f"family/{n}", attempts=()) for n in range(40)]
    assert list(red_lines(stored(result([gone], cells)), COMMAND)) == [
        "unbuildable  torch-9.9.9-pypi: no wheel for this platform"
    ]


def test_known_failures_do_not_bury_the_rest() -> None:
    """What nobody expects has a line each; up to three known failures have one, too, and more are one line."""
    known = [cell(OLD, Outcome.HANG, scenario=f"family/{n}") for n in range(40)]
    news = [cell(OLD, Outcome.HANG, scenario=f"family/new{n}", expected=False) for n in range(20)]
    lines = list(red_lines(stored(result([OLD], [*known, *news])), COMMAND))
    assert all(line.startswith("HANG!") for line in lines[:20])
    assert lines[20:] == ["40 known failures are as expected; `report` shows each"]
    lines = list(red_lines(stored(result([OLD], [*known[:3], *news])), COMMAND))
    assert all(line.startswith("HANG (expected)") for line in lines[20:])
    assert len(lines) == 23


def test_several_kinds_of_expected_cells_are_counted_apart() -> None:
    """Known failures and doubted passes are not the same."""
    cells = [cell(OLD, Outcome.FAIL, scenario=f"family/{n}") for n in range(4)]
    cells.append(cell(OLD, Outcome.VACUOUS, scenario="family/other"))
    assert list(red_lines(stored(result([OLD], cells)), COMMAND)) == [
        "4 known failures, 1 doubted pass are as expected; `report` shows each"
    ]


def called(command: str) -> str:
    return f"nox -s {command} --"


def test_a_run_as_expected_ends_in_one_sentence_and_the_next_command() -> None:
    """Nothing is wrong, and the page is the next thing to look at."""
    cells = [cell(OLD, Outcome.HANG), cell(NEW, Outcome.PASS)]
    assert list(summary_lines(result([OLD, NEW], cells), called)) == [
        "2 cells, all as expected; no unexpected hangs",
        "next: nox -s report  # makes a page that shows each cell",
    ]


def test_the_summary_counts_what_is_not_as_expected() -> None:
    """The worst unexpected cell is the one to go on with; one that passes can only be run again."""
    gone = environment("9.9.9", outcome=Outcome.UNBUILDABLE, reason="no wheel")
    cells = [cell(OLD, Outcome.FAIL, expected=False), cell(NEW, Outcome.HANG, expected=False, scenario="family/worst")]
    cells += [cell(gone, Outcome.UNBUILDABLE, expected=False, attempts=()), cell(OLD, Outcome.VACUOUS, scenario="s")]
    assert list(summary_lines(result([OLD, NEW, gone], cells), called)) == [
        "4 cells, 2 not as expected, 1 kept from running; 1 unexpected hang; 1 doubted pass",
        "next: nox -s matrix -- 'family/worst[op=mm]' --torch recent:3 --build pypi  "
        "# shows whether it hangs with other releases",
    ]
    passed = result([OLD], [cell(OLD, Outcome.PASS, expected=False)])
    assert list(summary_lines(passed, called))[1] == (
        "next: nox -s matrix -- 'family/case[op=mm]' --torch 2.11.0 --build pypi --fresh  # runs it again"
    )


def test_cells_without_a_row_are_counted() -> None:
    """A run that is too large to show says how much of it there is, and what came of all of it."""
    shown = result([OLD], [cell(OLD, Outcome.FAIL, expected=False)])
    left_out = {(Outcome.PASS, True): 150_000, (Outcome.HANG, False): 2}
    assert next(summary_lines(shown, called, left_out)) == "150003 cells, 3 not as expected; 2 unexpected hangs"
    text = "\n".join(legend_lines(shown, left_out))
    assert "150000  pass " in text
    assert "    3  ! " in text
    assert "150002 cells have no row" in text


def test_the_summary_of_a_run_that_was_stopped_says_what_is_missing() -> None:
    """An interrupted run does not look like a good one."""
    stopped = result([OLD], [cell(OLD, Outcome.PASS)])
    stopped = stopped.model_copy(update={"run": stopped.run.model_copy(update={"planned": 5})})
    goes_on = "next: what is done is kept, and the same command goes on"
    assert list(summary_lines(stopped, called)) == ["1 cell, all as expected, 4 of 5 not run", goes_on]
    interrupted = {"planned": 5, "interrupted": True}
    nothing = stopped.model_copy(update={"run": stopped.run.model_copy(update=interrupted), "cells": ()})
    assert list(summary_lines(nothing, called)) == ["interrupted after 0 cells, 5 of 5 not run", goes_on]
