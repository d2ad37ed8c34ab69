"""Telling values without an order apart: which fail, which pass, how often each is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from matrix.bisect.axes.values import _Comparison, tell_apart
from matrix.bisect.bisection import Bisection, Searched
from matrix.bisect.budget import Budget
from matrix.bisect.question import SearchQuestion
from matrix.bisect.strategy.evidence import AnswerKind, SearchOptions
from matrix.errors import UsageError
from matrix.model import Build, Config, Request, Scenario
from matrix.plan import matrix_file
from matrix.process.supervision import Ending
from matrix.records import store
from reports.bisection_text import bisection_lines
from tests.bisect.inline import FAILED, InlineProber, bench_of
from tests.fakes import PASSED, FakeCache
from tests.wheels import build_wheel

CRASHED = Ending(stopped_by="exit", exit_code=None, signal="SIGSEGV", seconds=1.0)


class Installed(FakeCache):
    def is_installed(self, request: Request) -> bool:
        return request.label in self.acquired


@dataclass
class Comparing:
    """Compares configs by what their runs do, one after another."""

    home: Path

    def question(self, **changes: object) -> SearchQuestion:
        scenario = Scenario(name="repro.py", path=self.home / "repro.py", source_hash="1", in_suite=False)
        file = matrix_file.checked({"axes": {"torch": ["9.1.0"], "build": ["mine"]}, **self.builds}, "a test")
        given = {"home": self.home, "file": file, "scenario": scenario, "variant": {}, **changes}
        return SearchQuestion(**given)  # type: ignore[arg-type]

    @property
    def builds(self) -> dict[str, object]:
        return {"build": {"mine": {"find-links": str(self.home / "wheels")}}}

    def __call__(
        self, ends: dict[str, list[Ending]], missing: frozenset[str] = frozenset(), **changes: object
    ) -> tuple[Bisection, Counter[str]]:
        """Return the answer, and how often each config was run; the last ending stands for all later runs."""
        runs: Counter[str] = Counter()

        def behave(request: Request) -> Ending:
            name = request.config.name
            runs[name] += 1
            return ends[name][min(runs[name], len(ends[name])) - 1]

        requests = {
            name: Request(
                torch="9.1.0" if name not in missing else "gone",
                python="3.11",
                build=Build(name="mine"),
                config=Config(name=name),
            )
            for name in ends
        }
        cache = Installed(self.home, frozenset({"gone"}) if missing else frozenset())
        with store.new_run(self.home, ()) as run_store:
            bench = bench_of(InlineProber(cache, run_store, behave))
            made = _Comparison(question=self.question(**changes), axis=Searched.CONFIG, requests=requests, bench=bench)
            return made.run(), runs


@pytest.fixture
def comparing(tmp_path: Path) -> Comparing:
    return Comparing(tmp_path)


def test_each_value_is_tried_once_and_the_failing_ones_again(comparing: Comparing) -> None:
    """The first failure is what the others are held against; one that fails otherwise is a group of its own."""
    found, runs = comparing({"a": [FAILED], "b": [PASSED], "c": [CRASHED], "d": [FAILED]})
    assert found.groups == {"good": ("b",), "bad": ("a", "d"), "different": ("c",), "untestable": ()}
    assert found.answer is AnswerKind.BOUNDARY
    assert runs == {"a": 3, "b": 1, "c": 3, "d": 3}
    assert "fails with a, d; fails in another way with c; passes with b" in list(bisection_lines(found, 120))


def test_flaky_value_is_bad_and_makes_the_others_run_again(comparing: Comparing) -> None:
    """Once runs of a value disagree, what passed once is not yet good."""
    found, runs = comparing({"a": [FAILED, PASSED], "b": [PASSED, FAILED], "c": [PASSED]})
    assert (found.groups["bad"], found.groups["good"]) == (("a", "b"), ("c",))
    assert runs == {"a": 2, "b": 2, "c": 3}
    assert [reason.rpartition("; ")[2] for reason in found.reasons] == ["it is flaky", "it is flaky"]


def test_flaky_from_the_start(comparing: Comparing) -> None:
    """Asked to expect it, every value is run several times, whatever the first run shows."""
    found, runs = comparing({"a": [PASSED, PASSED, FAILED], "b": [PASSED]}, asked=SearchOptions(flaky=True))
    assert (found.groups["bad"], found.groups["good"]) == (("a",), ("b",))
    assert runs == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    ("ending", "words"), [(FAILED, "fails with a, b"), (PASSED, "passes with a, b")], ids=["fails", "passes"]
)
def test_values_that_agree_are_none(comparing: Comparing, ending: Ending, words: str) -> None:
    """Where all fail or all pass, the axis does not decide."""
    found, _ = comparing({"a": [ending], "b": [ending]})
    assert found.answer is AnswerKind.NONE
    assert words in list(bisection_lines(found, 120))


def test_one_testable_value_is_inconclusive(comparing: Comparing) -> None:
    """What cannot be installed is no evidence, and the reason is told."""
    found, _ = comparing({"a": [FAILED], "b": [PASSED]}, missing=frozenset("b"))
    assert (found.answer, found.groups["untestable"]) == (AnswerKind.INCONCLUSIVE, ("b",))
    assert "  no evidence: b: unbuildable: no wheel" in list(bisection_lines(found, 120))


def test_budget_ends_it(comparing: Comparing) -> None:
    """When no more may be installed, what is known is told as inconclusive."""
    found, runs = comparing({"a": [FAILED], "b": [PASSED], "c": [PASSED]}, budget=Budget(installs=1))
    assert (found.answer, sum(runs.values())) == (AnswerKind.INCONCLUSIVE, 1)
    assert found.reasons == ("the 1 installs that it may make are made",)


@pytest.mark.parametrize(
    ("axis", "named", "words"),
    [
        (Searched.CONFIG, ("default",), "not two configs"),
        (Searched.BUILD, (), "not two builds"),
        (Searched.PYTHON, ("3.11", "3.11"), "not two pythons"),
    ],
)
def test_fewer_than_two_values_are_refused(
    comparing: Comparing, axis: Searched, named: tuple[str, ...], words: str
) -> None:
    """Nothing is run where there is nothing to compare."""
    with pytest.raises(UsageError, match=words):
        tell_apart(comparing.question(), axis, named, Installed(comparing.home), nothing_shown)  # type: ignore[arg-type]


def test_several_versions_are_refused(comparing: Comparing) -> None:
    """Another axis than torch needs one torch."""
    for version in ("9.1.0", "9.2.0"):
        build_wheel(comparing.home / "wheels", version)
    file = matrix_file.checked({"axes": {"torch": [">=9"], "build": ["mine"]}, **comparing.builds}, "a test")
    with pytest.raises(UsageError, match="names 2 versions"):
        tell_apart(comparing.question(file=file), Searched.CONFIG, (), Installed(comparing.home), nothing_shown)  # type: ignore[arg-type]


def nothing_shown(_total: int | None) -> Callable[[object], None]:
    raise AssertionError("it was begun")
