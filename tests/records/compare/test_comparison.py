"""Two runs, cell by cell."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.results import FAIL, HANG, PASS, attempt, cell, environment, flaky, result
from whichtorch.model import UNOBSERVED, Cell, Environment, Outcome, ProjectCommand, Scenario
from whichtorch.records.compare.comparison import ChangeKind, classify, compare, stream
from whichtorch.reports.stored_run_text import change_items

HERE = environment()
OUTCOMES = st.sampled_from(list(Outcome))
RED = [outcome for outcome in Outcome if outcome.is_red]
NO_VERDICT = [outcome for outcome in Outcome if not outcome.is_red and outcome is not PASS]


def became(old: Outcome | None, new: Outcome | None) -> ChangeKind:
    return classify(cell(HERE, old) if old else None, cell(HERE, new) if new else None)[0]


@pytest.mark.parametrize("red", RED)
def test_what_passed_and_is_red_is_a_regression(red: Outcome) -> None:
    """Each way to go wrong counts, a hang among them; the way back is a fix."""
    assert became(PASS, red) is ChangeKind.REGRESSION
    assert became(red, PASS) is ChangeKind.FIXED
    assert became(red, red) is ChangeKind.STILL_FAILING


@pytest.mark.parametrize("nothing", NO_VERDICT)
def test_no_verdict_is_neither_a_regression_nor_a_fix(nothing: Outcome) -> None:
    """What could not be installed, was skipped, slow or vacuous says nothing; a failure after it is new."""
    assert became(PASS, nothing) is ChangeKind.INCONCLUSIVE
    assert became(FAIL, nothing) is ChangeKind.INCONCLUSIVE
    assert became(nothing, PASS) is ChangeKind.INCONCLUSIVE
    assert became(nothing, HANG) is ChangeKind.NEW_FAILURE


def test_what_is_slow_now_and_then_is_most_likely_the_hang_that_it_was() -> None:
    """A hang that the clock ends before it is proven is the same failure, in either order; an exception is another."""
    slow, hang = flaky(HERE, Outcome.SLOW, 2, 5), cell(HERE, HANG, signature="stuck: wait for a queue in a.py:3")
    assert classify(slow, hang)[0] is classify(hang, slow)[0] is ChangeKind.STILL_FAILING
    assert classify(slow, cell(HERE, FAIL))[0] is ChangeKind.DIFFERENT
    assert classify(cell(HERE, Outcome.SLOW), hang)[0] is ChangeKind.NEW_FAILURE  # all slow: no verdict


DOUBTED = cell(HERE, PASS, reason=f"{UNOBSERVED}: no profiler")
THERE = cell(HERE, FAIL, signature="TypeError in f (x.py)")


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (
            cell(HERE, HANG),
            cell(HERE, FAIL),
            "different failure",
        ),  # a hang is a class of its own, whatever the signatures say
        (THERE, cell(HERE, FAIL, signature="ValueError in g (y.py)"), "different failure"),
        (THERE, THERE, "still failing"),
        (None, cell(HERE, PASS), "appeared"),
        (None, cell(HERE, HANG), "new failure"),  # nobody ran it before: no regression
        (cell(HERE, HANG), None, "disappeared"),
        (DOUBTED, cell(HERE, FAIL), "new failure"),  # its conditions nobody observed: it was not good before
        (cell(HERE, FAIL), DOUBTED, "inconclusive"),  # nor is it now
    ],
)
def test_what_became_of_a_cell(old: Cell | None, new: Cell | None, change: str) -> None:
    """By its two outcomes and signatures."""
    assert str(classify(old, new)[0]) == change


@pytest.mark.parametrize("outcome", [FAIL, HANG])
def test_lines_do_not_tell_failures_apart_once_a_script_was_edited(outcome: Outcome) -> None:
    """An edit moves lines; in one and the same script another line is another failure."""
    head = "ValueError" if outcome is FAIL else "stuck: wait for a queue"
    signatures = [f"{head} in f (a.py:{line}) < <module> (a.py:{line + 9})" for line in (3, 5)]
    before = cell(HERE, outcome, signature=signatures[0], source_hash="one")
    moved = before.model_copy(update={"signature": signatures[1]})
    edited = moved.model_copy(update={"source_hash": "two"})
    assert classify(before, edited)[0] is ChangeKind.STILL_FAILING
    assert classify(before, moved)[0] is ChangeKind.DIFFERENT


def test_one_pass_does_not_mend_what_failed_now_and_then() -> None:
    """A failure in one of three runs is gone by luck in two of three: it takes eight passes to say so."""
    change, why = classify(flaky(HERE, HANG, 1, 3), cell(HERE, PASS))
    assert change is ChangeKind.INCONCLUSIVE
    assert why == "it fails in 1 of 3 runs, so one pass may be luck: --repeat 8 tells"
    enough = cell(HERE, PASS, attempts=(attempt(PASS),) * 8)
    assert classify(flaky(HERE, HANG, 1, 3), enough) == (ChangeKind.FIXED, "")
    change, why = classify(cell(HERE, PASS), flaky(HERE, HANG, 1, 3))
    assert change is ChangeKind.REGRESSION  # worse than what was never seen to fail, though it may have done so before
    assert "one pass may be luck" in why


@given(old=st.none() | OUTCOMES, new=st.none() | OUTCOMES)
def test_only_a_pass_before_makes_a_regression(old: Outcome | None, new: Outcome | None) -> None:
    """Whatever the two outcomes are: no verdict is ever called worse or better."""
    if old is None and new is None:
        return
    change = became(old, new)
    assert (change is ChangeKind.REGRESSION) == (old is PASS and new is not None and new.is_red)
    assert (change is ChangeKind.FIXED) == (new is PASS and old is not None and old.is_red)


def kinds(old: list[Cell], new: list[Cell], **environments: list[Environment]) -> dict[str, str]:
    before = environments.get("old", [HERE])
    after = environments.get("new", [HERE])
    found = compare(result(before, old), result(after, new))
    return {change.name: str(change.change) for change in found.cells}


def test_cells_of_both_runs_are_there_once_the_worst_first() -> None:
    """Nothing is lost on the way, and the reader begins with what got worse."""
    names = ("a", "b", "c", "d")
    old = [cell(HERE, outcome, name) for name, outcome in zip(names, (PASS, PASS, HANG, FAIL), strict=True)]
    new = [
        cell(HERE, outcome, name) for name, outcome in zip(("b", "c", "d", "e"), (HANG, PASS, FAIL, PASS), strict=True)
    ]
    assert list(kinds(old, new).items()) == [
        ("b", "regression"),
        ("c", "fixed"),
        ("d", "still failing"),
        ("a", "disappeared"),
        ("e", "appeared"),
    ]


def test_an_environment_is_matched_by_its_label_when_its_packages_changed() -> None:
    """A new numpy makes another environment with the same label: it is compared, and the change is shown."""
    before = environment(id="one", packages={"numpy": "1.26.4", "torch": "2.2.2"})
    after = environment(id="two", packages={"numpy": "2.0.0", "torch": "2.2.2"})
    found = compare(result([before], [cell(before, PASS)]), result([after], [cell(after, FAIL)]))
    assert [change.change for change in found.cells] == [ChangeKind.REGRESSION]
    (difference,) = found.environments
    assert difference.packages == {"numpy": ("1.26.4", "2.0.0")}


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ([{"fingerprint": {"cpu": {"model": cpu}, "git_version": "c"}} for cpu in ("old", "new")], "cpu.model"),
        ([{"variables": {"OMP_NUM_THREADS": count}} for count in ("old", "new")], "variable OMP_NUM_THREADS"),
        ([{"label": "torch-2.11.0-pypi+fix", "patch": text} for text in ("old", "new")], "patch"),
    ],
)
def test_what_else_differs_in_an_environment_of_one_label_is_told(fields: list[dict[str, Any]], fact: str) -> None:
    """Another machine, a config of one name that sets other variables, or a patch of one name with another text."""
    before, after = (environment(id=str(number), **each) for number, each in enumerate(fields))
    found = compare(result([before], [cell(before, FAIL)]), result([after], [cell(after, PASS)]))
    assert [change.change for change in found.cells] == [ChangeKind.FIXED]
    assert [(each.facts, each.packages) for each in found.environments] == [({fact: ("old", "new")}, {})]


def test_a_nightly_is_compared_with_that_of_the_night_before() -> None:
    """Another version every night: its stream is what is the same. Commits between the two are linked."""
    earlier = environment("2.16.0.dev20261119+cpu", fingerprint={"git_version": "a" * 40})
    other = environment("2.16.0.dev20261120+cpu", fingerprint={"git_version": "b" * 40})
    found = compare(result([earlier], [cell(earlier, PASS)]), result([other], [cell(other, HANG)]))
    (change,) = found.cells
    assert change.change is ChangeKind.REGRESSION
    assert change.old is not None
    assert change.old.environment == earlier.label
    assert found.environments[0].commits == f"https://github.com/pytorch/pytorch/compare/{'a' * 40}...{'b' * 40}"
    assert stream(earlier) == stream(other) == "torch-nightly-pypi"


def test_of_several_nightlies_only_the_same_ones_are_compared() -> None:
    """Which of ten nightlies follows which is not known: those that both runs have are matched, the rest not."""
    old = [environment(f"2.16.0.dev202611{day}") for day in (17, 18, 19)]
    new = [environment(f"2.16.0.dev202611{day}") for day in (18, 19, 20, 21)]
    found = compare(
        result(old, [cell(nightly, PASS) for nightly in old]), result(new, [cell(nightly, HANG) for nightly in new])
    )
    assert sorted(str(change.change) for change in found.cells) == [
        "disappeared",
        "new failure",
        "new failure",
        "regression",
        "regression",
    ]


def test_a_script_that_was_edited_is_told() -> None:
    """The change may be the script's: who reads of a regression wants to know."""
    found = compare(
        result([HERE], [cell(HERE, PASS, source_hash="one")]), result([HERE], [cell(HERE, FAIL, source_hash="two")])
    )
    assert [change.script_changed for change in found.cells] == [True]


def test_a_run_that_did_not_end_is_told() -> None:
    """Cells that a killed run lacks disappeared for another reason."""
    whole = result([HERE], [cell(HERE, PASS)])
    cut = whole.model_copy(update={"run": whole.run.model_copy(update={"id": "cut", "ended": False})})
    assert compare(whole, cut).incomplete == ("cut",)
    assert compare(whole, whole).incomplete == ()


def test_newly_prevented_cells_are_known() -> None:
    """A night in which nothing could be installed is not taken for a good one."""
    gone = result([HERE], [cell(HERE, Outcome.UNBUILDABLE)])
    assert compare(result([HERE], [cell(HERE, PASS)]), gone).is_prevented
    assert not compare(gone, gone).is_prevented


@pytest.mark.parametrize("red", [*(cell(HERE, outcome) for outcome in RED), flaky(HERE, Outcome.SLOW, 2, 5)])
@pytest.mark.parametrize("source", ["one", "two", ""])
def test_what_passed_and_fails_is_a_regression_whatever_changed(red: Cell, source: str) -> None:
    """A night in which the project changed is red, too; the test's own edit is told beside it."""
    before, after = cell(HERE, PASS, source_hash="one"), red.model_copy(update={"source_hash": source})
    found = compare(result([HERE], [before]), result([HERE], [after]))
    assert [change.change for change in found.cells] == [ChangeKind.REGRESSION]
    assert found.is_worse
    assert set(found.cells[0].changed) == ({"test"} if source == "two" else set())


def command(project: str, words: str = "pytest tests", subfolder: str = ".") -> Scenario:
    """Return the scenario of a command's test, with the files of a project."""
    test = "tests/test_a.py::test_x[1]"
    made = ProjectCommand(words=tuple(words.split()), project=project, subfolder=subfolder, test=test)
    return Scenario(name=test, path=Path("/of/user"), source_hash=f"{project} {words}", command=made)


@pytest.mark.parametrize(
    ("files", "subfolder", "words", "expected"),
    [
        (["src/vec/__init__.py"], ".", "pytest tests", {"project": ("src/vec/__init__.py",)}),
        (["tests/test_a.py"], ".", "pytest tests", {"test": ("tests/test_a.py",)}),
        (
            ["conftest.py", "tests/test_a.py"],
            ".",
            "pytest tests",
            {"test": ("tests/test_a.py",), "project": ("conftest.py",)},
        ),
        (["tests/test_a.py"], "sub", "pytest tests", {"project": ("tests/test_a.py",)}),  # it is sub/tests/test_a.py
        (["sub/tests/test_a.py"], "sub", "pytest tests", {"test": ("sub/tests/test_a.py",)}),
        (["a.py"], ".", "pytest -k x", {"test": ("its command",), "project": ("a.py",)}),
        (None, ".", "pytest tests", {"project": ("which files is not known here",)}),
    ],
)
def test_which_files_of_a_project_changed_is_told_apart_from_the_test_itself(
    tmp_path: Path, files: list[str] | None, subfolder: str, words: str, expected: dict[str, tuple[str, ...]]
) -> None:
    """The file of the test is named first; all others are the project's; without kept copies nobody guesses."""
    for project in ("old", "new") if files is not None else ():
        for name in ("same.py", *(files or ())):
            file = tmp_path / "projects" / project / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("same" if name == "same.py" else project)
    before, after = command("old", subfolder=subfolder), command("new", words, subfolder)
    cells = [
        cell(HERE, outcome, each.name, source_hash=each.source_hash, command=("pytest", each.name))
        for outcome, each in ((PASS, before), (FAIL, after))
    ]
    old, new = (
        result([HERE], [own]).model_copy(update={"scenarios": (each,)})
        for own, each in zip(cells, (before, after), strict=True)
    )
    (change,) = compare(old, new, home=tmp_path).cells
    assert (change.change, list(change.changed.items())) == (ChangeKind.REGRESSION, list(expected.items()))


def test_a_release_is_compared_with_the_one_that_took_its_place() -> None:
    """A night with the newest release only: another torch is what changed, and what passed and fails is worse."""
    before, after = environment("2.11.0"), environment("2.12.0")
    found = compare(result([before], [cell(before, PASS)]), result([after], [cell(after, FAIL)]))
    assert [change.change for change in found.cells] == [ChangeKind.REGRESSION]
    assert [(change.old, change.new) for change in found.environments] == [(before.label, after.label)]
    other = environment("2.12.0", config="single-thread")
    apart = compare(result([before], [cell(before, PASS)]), result([other], [cell(other, FAIL)]))
    assert {change.change for change in apart.cells} == {ChangeKind.NEW_FAILURE, ChangeKind.DISAPPEARED}


def test_tests_that_fail_for_one_cause_are_one_item() -> None:
    """The first is the example, the others are named; one that fails otherwise is an item of its own."""
    names = [f"tests/test_a.py::test_one[{number}]" for number in range(4)]
    old = [cell(HERE, PASS, name=name) for name in names]
    new = [cell(HERE, FAIL, name=name, signature="KeyError: 'w'" if name != names[2] else "OSError") for name in names]
    compared = compare(result([HERE], old), result([HERE], new))
    first, others, alone = map("".join, change_items(compared))
    assert f"pass -> FAIL!  {names[0]}  {HERE.label}: KeyError: 'w'" in first
    assert others == f"    and 2 more like it: {names[1]}, {names[3]}"
    assert names[2] in alone
