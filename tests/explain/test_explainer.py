"""Which cells `explain --run` runs, with fake environments that behave as a test says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes import FakeCache
from whichtorch.base.errors import UsageError
from whichtorch.environments.configs import BUILTIN
from whichtorch.environments.expansion import environment_named
from whichtorch.explain.explainer import Explainer, Explanations, RecordedEvidence
from whichtorch.matrix.judgement import judge_cell
from whichtorch.matrix.planning import PlannedCell, RunOptions
from whichtorch.model import Attempt, Build, Cell, Environment, Outcome, Record, Request, Scenario, StoppedBy
from whichtorch.records.line_index import Records

PASS, HANG = Outcome.PASS, Outcome.HANG
CASE = Scenario(name="family/case", path=Path("/s/case.py"), source_hash="hash")


def request(torch: str, config: str = "default") -> Request:
    return Request(torch=torch, python="3.11", build=Build(name="pypi"), config=BUILTIN[config])


@dataclass
class Bench:
    """Runs cells that end as `behave` says for torch and config, and records which ones it ran."""

    cache: FakeCache
    behave: Callable[[str, str], Outcome]
    records: Records = field(default_factory=Records)
    ran: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, planned: Sequence[PlannedCell]) -> tuple[list[Environment], list[Cell]]:
        (cell,) = planned
        environment = self.cache.environment(cell.request)
        known = [] if cell.options.fresh else self.records.of(cell.key(environment))
        if known or not environment.is_usable:
            return [environment], [judge_cell(cell, environment, known, reused=len(known))]
        self.ran.append((environment.torch, environment.config))
        outcome = self.behave(environment.torch, environment.config)
        record = Record(
            key=cell.key(environment),
            environment=environment.id,
            scenario=CASE.name,
            source_hash=CASE.source_hash,
            variant={},
            limits=cell.limits,
            attempt=Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.EXIT),
        )
        self.records.add(record)
        return [environment], [judge_cell(cell, environment, [record])]


def explainer(bench: Bench, *pool: Request, here: Request | None = None) -> Explainer:
    return Explainer(
        evidence=RecordedEvidence(records=bench.records, environments={}),
        cache=bench.cache,
        options=RunOptions(),
        request_of=lambda axes, _interpreter: request(axes["torch"], axes["config"]),
        pool=pool,
        here=here,
        run=bench,
    )


def product(torches: Sequence[str], configs: Sequence[str]) -> list[Request]:
    return [request(torch, config) for torch in torches for config in configs]


def test_config_is_found_with_one_cell_beside_the_red_one(tmp_path: Path) -> None:
    """Two cells and their confirmation: the other version is never touched."""
    bench = Bench(FakeCache(tmp_path), lambda torch, config: HANG if config == "default" else PASS)
    found = explainer(bench, *product(("2.11.0", "2.15.0"), ("default", "cpp-meta"))).answer(CASE, {})
    assert bench.ran == [("2.11.0", "default"), ("2.11.0", "cpp-meta")] * 2
    assert found.experiment is not None
    assert found.experiment.changes == (("config", "default", "cpp-meta"),)
    assert found.experiment.confirmed
    assert found.is_answered


def test_version_is_found(tmp_path: Path) -> None:
    """Where the config does not help, another version is tried, and the answer is a version."""
    bench = Bench(FakeCache(tmp_path), lambda torch, config: HANG if torch == "2.11.0" else PASS)
    found = explainer(bench, *product(("2.11.0", "2.15.0"), ("default", "iomp"))).answer(CASE, {})
    assert [answer.kind for answer in found.answers] == ["version"]
    assert found.experiment is not None
    assert found.experiment.changes == (("torch", "2.11.0", "2.15.0"),)


def test_differences_to_here_are_reduced_to_the_one_that_matters(tmp_path: Path) -> None:
    """From the red environment to one that differs in version and config, the version is found not to matter."""
    bench = Bench(FakeCache(tmp_path), lambda torch, config: HANG if config == "default" else PASS)
    here = request("2.15.0", "iomp")
    found = explainer(bench, request("2.11.0"), here=here).answer(CASE, {})
    assert found.experiment is not None
    assert found.experiment.differing == ("config", "torch")
    assert found.experiment.changes == (("config", "default", "iomp"),)
    assert bench.ran[:3] == [("2.15.0", "iomp"), ("2.11.0", "default"), ("2.11.0", "iomp")]
    assert found.is_answered


def test_it_hangs_here_and_nothing_else_is_run(tmp_path: Path) -> None:
    """Where the test does hang here, one cell is enough to answer why it does not."""
    bench = Bench(FakeCache(tmp_path), lambda torch, config: HANG)
    found = explainer(bench, request("2.11.0"), here=request("2.15.0")).answer(CASE, {})
    assert [answer.kind for answer in found.answers] == ["here"]
    assert bench.ran == [("2.15.0", "default")]


def test_environment_that_cannot_be_had_is_passed_over(tmp_path: Path) -> None:
    """Unbuildable is never evidence: the next nearest environment is tried."""
    cache = FakeCache(tmp_path, missing=frozenset({"2.12.1"}))
    bench = Bench(cache, lambda torch, config: HANG if torch == "2.11.0" else PASS)
    found = explainer(bench, *product(("2.11.0", "2.12.1", "2.15.0"), ("default",))).answer(CASE, {})
    assert [answer.kind for answer in found.answers] == ["version"]
    assert {observation.environment.torch for observation in found.observations} == {"2.11.0", "2.15.0"}


def test_what_does_not_repeat_is_no_answer(tmp_path: Path) -> None:
    """A hang that does not come back decides nothing."""
    outcomes = iter([HANG, PASS, PASS, PASS])
    bench = Bench(FakeCache(tmp_path), lambda torch, config: next(outcomes))
    found = explainer(bench, *product(("2.11.0",), ("default", "iomp"))).answer(CASE, {})
    assert found.experiment is not None
    assert not found.experiment.confirmed
    assert not found.is_answered


def test_nothing_red_anywhere_is_no_answer(tmp_path: Path) -> None:
    """Every environment of the pool runs once, then the answer is that there is nothing to explain."""
    bench = Bench(FakeCache(tmp_path), lambda torch, config: PASS)
    found = explainer(bench, *product(("2.11.0", "2.15.0"), ("default",))).answer(CASE, {})
    assert len(bench.ran) == 2
    assert found.problem == "no failure to explain: it passes in all 2 environments known"
    assert not Explanations(explanations=(found,)).is_answered


def test_environment_is_named_by_label_or_id(tmp_path: Path) -> None:
    """A label or the beginning of an id names an environment; for others, the error lists similar labels."""
    known = FakeCache(tmp_path).environment(request("2.11.0"))
    assert environment_named("torch-2.11.0-pypi", {known.id: known}) == known
    assert environment_named("id-2.11", {known.id: known}) == known
    with pytest.raises(UsageError, match=r"torch-2\.11\.0-pypi"):
        environment_named("torch-2.11.1-pypi", {known.id: known})
