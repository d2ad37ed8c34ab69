"""Telling values without an order apart: which fail, which pass, how often each is run."""

from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.bisect.driving import CRASHED, FAILED, MadeUpBench
from tests.fakes import PASSED, FakeCache
from tests.wheels import build_wheel
from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.values import compare_values, search
from whichtorch.bisect.bisection import Bisection
from whichtorch.bisect.ledger import Ledger
from whichtorch.bisect.search_request import Axis, AxisName, Budget, SearchRequest
from whichtorch.environments import matrix_file
from whichtorch.model import Build, Config, Request, Scenario
from whichtorch.model.events import Emit
from whichtorch.process.supervision import Ending
from whichtorch.records import store
from whichtorch.reports.bisection_text import bisection_lines
from whichtorch.search.search_state import AnswerKind, Find, SearchOptions


class Installed(FakeCache):
    def is_installed(self, request: Request) -> bool:
        return request.label in self.acquired


@dataclass
class Comparing:
    """Compares configs by what their runs do, one after another."""

    home: Path

    def request(
        self, axis: AxisName = AxisName.CONFIG, values: tuple[str, ...] = (), torch: str = "9.1.0"
    ) -> SearchRequest:
        scenario = Scenario(name="repro.py", path=self.home / "repro.py", source_hash="1", in_suite=False)
        builds = {"mine": {"find-links": str(self.home / "wheels")}}
        file = matrix_file.checked({"axes": {"torch": [torch], "build": ["mine"]}, "build": builds}, "a test")
        return SearchRequest(home=self.home, file=file, scenario=scenario, variant={}, axis=axis, values=values)

    def __call__(
        self,
        ends: dict[str, list[Ending]],
        missing: frozenset[str] = frozenset(),
        *,
        flaky: bool = False,
        budget: Budget | None = None,
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
            request = replace(self.request(), budget=budget or Budget())
            axis = Axis(name=AxisName.CONFIG, values=tuple(requests), requests=tuple(requests.values()))
            goal = SearchOptions(find=Find.FIX, flaky=flaky)
            bench = MadeUpBench(cache, run_store, behave)
            return compare_values(Ledger(request=request, bench=bench, axis=axis, goal=goal)), runs


@pytest.fixture
def comparing(tmp_path: Path) -> Comparing:
    return Comparing(tmp_path)


def test_each_value_is_tried_once_and_the_failing_ones_again(comparing: Comparing) -> None:
    """The first failure is what the others are held against; one that fails otherwise is a group of its own."""
    bisection, runs = comparing({"a": [FAILED], "b": [PASSED], "c": [CRASHED], "d": [FAILED]})
    assert bisection.groups == {"good": ("b",), "bad": ("a", "d"), "different": ("c",), "untestable": ()}
    assert bisection.answer is AnswerKind.BOUNDARY
    assert runs == {"a": 3, "b": 1, "c": 3, "d": 3}
    assert "fails with a, d; fails in another way with c; passes with b" in list(bisection_lines(bisection, 120))


def test_flaky_value_is_bad_and_makes_the_others_run_again(comparing: Comparing) -> None:
    """Once runs of a value disagree, what passed once is not yet good."""
    bisection, runs = comparing({"a": [FAILED, PASSED], "b": [PASSED, FAILED], "c": [PASSED]})
    assert (bisection.groups["bad"], bisection.groups["good"]) == (("a", "b"), ("c",))
    assert runs == {"a": 2, "b": 2, "c": 3}
    assert [reason.rpartition("; ")[2] for reason in bisection.reasons] == ["it is flaky", "it is flaky"]


def test_flaky_from_the_start(comparing: Comparing) -> None:
    """Asked to expect it, every value is run several times, whatever the first run shows."""
    bisection, runs = comparing({"a": [PASSED, PASSED, FAILED], "b": [PASSED]}, flaky=True)
    assert (bisection.groups["bad"], bisection.groups["good"]) == (("a",), ("b",))
    assert runs == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    ("ending", "words"), [(FAILED, "fails with a, b"), (PASSED, "passes with a, b")], ids=["fails", "passes"]
)
def test_values_that_agree_are_none(comparing: Comparing, ending: Ending, words: str) -> None:
    """Where all fail or all pass, the axis does not decide."""
    bisection, _ = comparing({"a": [ending], "b": [ending]})
    assert bisection.answer is AnswerKind.NONE
    assert words in list(bisection_lines(bisection, 120))


def test_one_testable_value_is_inconclusive(comparing: Comparing) -> None:
    """What cannot be installed is no evidence, and the reason is told."""
    bisection, _ = comparing({"a": [FAILED], "b": [PASSED]}, missing=frozenset("b"))
    assert (bisection.answer, bisection.groups["untestable"]) == (AnswerKind.INCONCLUSIVE, ("b",))
    assert "  no evidence: b: unbuildable: no wheel" in list(bisection_lines(bisection, 120))


def test_budget_ends_it(comparing: Comparing) -> None:
    """When no more may be installed, what is known is told as inconclusive."""
    bisection, runs = comparing({"a": [FAILED], "b": [PASSED], "c": [PASSED]}, budget=Budget(installs=1))
    assert (bisection.answer, sum(runs.values())) == (AnswerKind.INCONCLUSIVE, 1)
    assert bisection.reasons == ("the limit of 1 install is reached",)


@pytest.mark.parametrize(
    ("axis", "named", "words"),
    [
        (AxisName.CONFIG, ("default",), "not two configs"),
        (AxisName.BUILD, (), "not two builds"),
        (AxisName.PYTHON, ("3.11", "3.11"), "not two pythons"),
    ],
)
def test_fewer_than_two_values_are_refused(
    comparing: Comparing, axis: AxisName, named: tuple[str, ...], words: str
) -> None:
    """Nothing is run where there is nothing to compare."""
    with pytest.raises(UsageError, match=words):
        search(comparing.request(axis, named), Installed(comparing.home), nothing_shown)


def test_several_versions_are_refused(comparing: Comparing) -> None:
    """Another axis than torch needs one torch."""
    for version in ("9.1.0", "9.2.0"):
        build_wheel(comparing.home / "wheels", version)
    with pytest.raises(UsageError, match="names 2 versions"):
        search(comparing.request(torch=">=9"), Installed(comparing.home), nothing_shown)


def nothing_shown(_total: int | None) -> AbstractContextManager[Emit]:
    raise AssertionError("it was begun")
