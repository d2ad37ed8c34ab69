"""A search through a history: real git, real records, builds and runs that are made up."""

import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.bisect.driving import CRASHED, FAILED, MadeUpBench
from tests.fakes import PASSED, FakeCache
from tests.repository import Repository
from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.commits import CommitSearch, search
from whichtorch.bisect.axes.git import Checkout, borrowed
from whichtorch.bisect.bisection import Bisection
from whichtorch.bisect.search_request import Budget, SearchRequest, Source
from whichtorch.environments import matrix_file
from whichtorch.environments.provider import Stage
from whichtorch.model import Build, Config, Environment, Request, Scenario
from whichtorch.process.supervision import Ending
from whichtorch.records import store
from whichtorch.reports.bisection_text import bisection_lines
from whichtorch.search.search_state import AnswerKind, Change, Find, SearchOptions


@dataclass
class FakeBuilds(FakeCache):
    """Commits that are built at once, but for those that are `missing`; the last one stays."""

    present: str = ""
    config: Config = field(default_factory=lambda: Config(name="default"))

    def request(self, commit: str) -> Request:
        build = Build(name="git")
        return Request(torch=commit, python="3.11", build=build, config=self.config)

    def is_installed(self, request: Request) -> bool:
        return request.torch in {self.present, *self.missing}

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        self.present = request.torch
        return super().acquire(request, cancelled, stage)


@dataclass
class World:
    """A repository, and what its commits do."""

    folder: Path
    repository: Repository
    missing: frozenset[str] = frozenset()
    goal: SearchOptions = field(default_factory=SearchOptions)
    budget: Budget = field(default_factory=Budget)
    builds: FakeBuilds = field(init=False)

    def search(self, old: str, new: str, change: Change, behave: Callable[[str], Ending]) -> Bisection:
        scenario = Scenario(name="repro.py", path=self.folder / "repro.py", source_hash="1", in_suite=False)
        request = SearchRequest(
            home=self.folder,
            file=matrix_file.read_matrix_file(matrix_file.DEFAULT_FILE),
            scenario=scenario,
            variant={},
            goal=self.goal,
            budget=self.budget,
        )
        self.builds = FakeBuilds(self.folder, self.missing, knows=True)
        checkout = Checkout.at(self.repository.folder)
        with store.new_run(self.folder, ()) as run_store, borrowed(checkout, self.folder):
            bench = MadeUpBench(self.builds, run_store, lambda commit: behave(commit.torch))
            return CommitSearch(
                checkout=checkout,
                bounds=(old, new),
                change=change,
                request=request,
                bench=bench,
                make_request=self.builds.request,
            ).run()


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return twelve commits in a line."""
    return repository_of(tmp_path_factory.mktemp("line") / "checkout", 12)


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a line of six; from its second a branch of three, merged before the last."""
    repository = repository_of(tmp_path_factory.mktemp("branched") / "checkout", 5)
    repository.branch_off(1, "side")
    for _ in range(3):
        repository.commit("")
    repository.git("checkout", "--quiet", "main")
    repository.merge("side")
    repository.commit("")
    return repository


def repository_of(folder: Path, commits: int) -> Repository:
    repository = Repository.at(folder, with_python=False)
    for _ in range(commits):
        repository.commit("")
    return repository


def failing(commits: set[str]) -> Callable[[str], Ending]:
    return lambda commit: FAILED if commit in commits else PASSED


def since(repository: Repository, culprit: str) -> set[str]:
    """Return a commit and all that descend from it."""
    listed = repository.git("rev-list", "--ancestry-path", f"{culprit}..main").split()
    return {culprit, *listed}


def test_culprit_of_a_line_is_found(tmp_path: Path, line: Repository) -> None:
    """Wherever it is, the commit that broke it is named beside its parent, in as few probes as halving takes."""
    commits = line.commits
    for culprit in (1, 11):
        bisection = World(tmp_path, line).search(
            commits[0], commits[-1], Change.REGRESSION, failing(set(commits[culprit:]))
        )
        (boundary,) = bisection.boundaries
        assert (bisection.answer, boundary.from_, boundary.to) == (
            AnswerKind.BOUNDARY,
            commits[culprit - 1],
            commits[culprit],
        )
        assert len(bisection.probes) <= 2 + 4
        assert list(bisection.values) == [commit for commit in commits if commit in bisection.values]


def test_every_culprit_of_a_merged_history_is_found(tmp_path: Path, branched: Repository) -> None:
    """On either branch, in the merge itself or after it, the commit that first fails is named."""
    commits = branched.commits
    for culprit in (commits[3], commits[6], commits[8]):
        bisection = World(tmp_path, branched).search(
            commits[0], commits[-1], Change.REGRESSION, failing(since(branched, culprit))
        )
        (boundary,) = bisection.boundaries
        parents = branched.git("rev-list", "--parents", "-1", culprit).split()[1:]
        assert boundary.to == culprit
        assert boundary.from_ in parents
        assert boundary.confidence >= 0.95


def test_only_untestable_commits_are_left(tmp_path: Path, line: Repository) -> None:
    """Where all that is left cannot be built, the boundary is as near as can be, and lists them."""
    commits = line.commits
    world = World(tmp_path, line, missing=frozenset(commits[4:8]))
    bisection = world.search(commits[0], commits[-1], Change.FIX, failing(set(commits[:6])))
    (boundary,) = bisection.boundaries
    assert (boundary.from_, boundary.to) == (commits[3], commits[8])
    assert list(boundary.untestable_between) == commits[4:8]
    few = ", ".join(commit[:10] for commit in commits[4:8])
    assert f"  between them, could not be tested: {few}" in list(bisection_lines(bisection, 120))
    assert bisection.answer is AnswerKind.BOUNDARY


@pytest.mark.thorough
def test_flaky_commits_do_not_mislead(tmp_path: Path, line: Repository) -> None:
    """With a failure that shows in half of the runs, the right commit is blamed, or none."""
    commits, right = line.commits, 0
    for seed in range(3):
        chance = random.Random(seed)

        def behave(commit: str, chance: random.Random = chance) -> Ending:
            return FAILED if commit in commits[7:] and chance.random() < 0.5 else PASSED

        bisection = World(tmp_path, line, goal=SearchOptions(flaky=True)).search(
            commits[0], commits[-1], Change.REGRESSION, behave
        )
        blamed = [boundary.to for boundary in bisection.boundaries if bisection.answer is AnswerKind.BOUNDARY]
        assert blamed in ([], [commits[7]])
        right += bool(blamed)
    assert right >= 2


def test_swapped_bounds_show_the_other_change(tmp_path: Path, line: Repository) -> None:
    """Where the bound that is said to be bad is the good one, the search turns round and says so."""
    commits = line.commits
    bisection = World(tmp_path, line).search(commits[0], commits[-1], Change.REGRESSION, failing(set(commits[:5])))
    (boundary,) = bisection.boundaries
    assert (boundary.change, boundary.to) == (Change.FIX, commits[5])
    assert bisection.reasons == ("no regression was found; the bounds show a fix instead",)


@pytest.mark.parametrize(
    ("bad", "words"), [(slice(0, 0), "it passes at both bounds"), (slice(0, 12), "it fails at both bounds")]
)
def test_bounds_that_agree_end_it(tmp_path: Path, line: Repository, bad: slice, words: str) -> None:
    """Both bounds are checked first; where they agree nothing else is built, and each is told."""
    commits = line.commits
    bisection = World(tmp_path, line).search(commits[0], commits[-1], Change.FIX, failing(set(commits[bad])))
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert bisection.values == (commits[0], commits[-1])
    assert words in bisection.reasons[0]
    assert [reason.split(":")[0] for reason in bisection.reasons[1:]] == [commits[0], commits[-1]]


def test_budget_ends_in_a_bracket(tmp_path: Path, line: Repository) -> None:
    """When no more may be built, what is known is told, and nothing is blamed."""
    commits = line.commits
    world = World(tmp_path, line, budget=Budget(installs=3))
    bisection = world.search(commits[0], commits[-1], Change.REGRESSION, failing(set(commits[9:])))
    (boundary,) = bisection.boundaries
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert bisection.reasons == ("the limit of 3 installs is reached",)
    first, last = commits.index(boundary.from_), commits.index(boundary.to)
    assert first < 9 <= last
    assert list(boundary.untried_between) == commits[first + 1 : last]


def test_change_before_the_merge_base_is_told(tmp_path: Path, branched: Repository) -> None:
    """Where the newer bound does not descend from the older, and their merge base fails, git's answer is passed on."""
    main, side = branched.commits[4], branched.commits[7]
    base = branched.commits[1]
    bisection = World(tmp_path, branched).search(main, side, Change.REGRESSION, failing({base, side}))
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert f"their merge base {base[:10]} is like the newer one: the test was fixed" in bisection.reasons[0]


def test_another_failure_is_skipped(tmp_path: Path, line: Repository) -> None:
    """What fails in another way than the bad bound is neither good nor bad."""
    commits = line.commits

    def behave(commit: str) -> Ending:
        return CRASHED if commit in commits[5:7] else FAILED if commit in commits[7:] else PASSED

    bisection = World(tmp_path, line).search(commits[0], commits[-1], Change.REGRESSION, behave)
    (boundary,) = bisection.boundaries
    assert (boundary.from_, boundary.to) == (commits[4], commits[7])
    assert list(boundary.different_between) == commits[5:7]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bad": "main"}, "needs both bounds; missing is good"),
        ({"good": "main", "bad": "main"}, "both mean"),
        ({"good": "main", "bad": "nowhere"}, "'nowhere' is no commit"),
        ({"good": "main", "bad": "main~3", "goal": SearchOptions(find=Find.ALL)}, "finds one change"),
        (
            {"good": "main", "bad": "main~3", "goal": SearchOptions(find=Find.REGRESSION)},
            "can be no regression between",
        ),
        ({"good": "main", "bad": "main~3"}, r"there is no interpreter .*/\.venv/bin/python"),
    ],
)
def test_bounds_and_interpreter_are_checked_before_anything_is_run(
    tmp_path: Path, line: Repository, changes: dict[str, Any], message: str
) -> None:
    """What is wrong with the options is told without touching the checkout."""
    scenario = Scenario(name="repro.py", path=tmp_path / "repro.py", source_hash="1")
    file = matrix_file.read_matrix_file(matrix_file.DEFAULT_FILE)
    source = Source(checkout=line.folder, command="true")
    request = SearchRequest(home=tmp_path, file=file, scenario=scenario, variant={}, source=source, **changes)
    with pytest.raises(UsageError, match=message):
        search(request, FakeBuilds(tmp_path), lambda _total: nullcontext(print))
    assert line.state == ("main", "")
