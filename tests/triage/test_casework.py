"""From a failing script to a case, step by step, with a runner that starts no process."""

from pathlib import Path
from typing import cast

from tests.fakes import FakeCache, lab_of
from tests.results import environment
from tests.triage.fake_runner import BROKEN, HEALTHY, MESSAGE, Crowd, FakeReleases, FakeRunner
from whichtorch.environments.matrix_file import MatrixFile
from whichtorch.matrix.planning import PlannedCell, RunOptions
from whichtorch.model import Build, Config, Outcome, Request
from whichtorch.process.executor import LocalExecutor
from whichtorch.records.store import new_run
from whichtorch.suite import selection
from whichtorch.triage.case import Case
from whichtorch.triage.casework import Casework
from whichtorch.triage.ladder import first_failing
from whichtorch.triage.places import CasePlace, CaseTest, OtherReleases
from whichtorch.triage.step import Step, TriageRequest

SCRIPT = """import torch

settings = {"rate": 1, "shape": 7, "name": "run"}


def scaled(shape):
    return shape * settings["rate"]


class Model:
    def __init__(self, factor):
        self.factor = factor
        self.history = []

    def forward(self, shape):
        self.history.append(shape)
        return shape * self.factor


model = Model(2)
for epoch in range(2):
    print(settings["name"], epoch, scaled(3))
step = torch.compile(model.forward)
print(step(3))
print(step(settings["shape"]))
"""


def triaged(
    folder: Path, *, steps: tuple[Step, ...] = tuple(Step), jobs: int = 1
) -> tuple[Case, FakeRunner, FakeReleases]:
    """Return the case of SCRIPT in the broken release, and what was asked of the runner and of other releases."""
    script = folder / "repro.py"
    script.write_text(SCRIPT)
    broken = environment(BROKEN)
    with new_run(folder / "home", ()) as store:
        runner = FakeRunner(
            planned=PlannedCell(
                request=Request(torch=BROKEN, python="3.11", build=Build(name="pypi"), config=Config(name="default")),
                scenario=selection.script(str(script)),
                variant={},
                options=RunOptions(timeout=20),
            ),
            environment=broken,
            lab=lab_of(FakeCache(folder / "home"), store, LocalExecutor()),
            beside=folder,
            crowd=Crowd(wanted=3 if jobs > 1 else 0),  # a candidate is two runs, one of them with nothing compiled
        )
        releases = FakeReleases(runner=runner, healthy=environment(HEALTHY))
        request = TriageRequest(
            place=CasePlace(home=folder / "home", file=MatrixFile(), beside=folder, jobs=jobs),
            test=CaseTest(scenario=runner.planned.scenario, variant={}, options=RunOptions(timeout=20)),
            folder=folder / "case",
            steps=steps,
            tell=lambda _: None,
        )
        return Casework(request, runner, cast("OtherReleases", releases)).done(), runner, releases


def test_a_script_becomes_a_case(tmp_path: Path) -> None:
    """How often, at which layer, the smallest script, a test, the change, the fix: each step finds its part."""
    case, runner, releases = triaged(tmp_path)
    assert case.reproduction is not None
    assert (case.reproduction.failing, case.reproduction.runs) == (3, 3)
    assert case.reproduction.message == MESSAGE
    assert case.ladder is not None
    assert [(rung.name, rung.outcome) for rung in case.ladder.rungs][:2] == [
        ("off", Outcome.PASS),
        ("eager", Outcome.PASS),
    ]
    assert first_failing(case.ladder.rungs) == "Inductor"
    assert case.classification is not None
    assert case.minimal is not None
    assert case.minimal.is_verified
    assert case.minimal.lines < case.minimal.lines_before / 3
    assert "7" in case.minimal.source
    assert (case.failing_release, case.healthy_release) == (BROKEN, HEALTHY)
    assert case.unit_test is not None
    assert (case.unit_test.fails_in, case.unit_test.passes_in) == (f"torch-{BROKEN}-pypi", f"torch-{HEALTHY}-pypi")
    assert case.newest is not None
    assert (case.newest.torch, case.newest.outcome) == (HEALTHY, Outcome.PASS)
    assert (tmp_path / "case" / "fix.patch").read_text() == "-    if shape == 7:\n"
    assert releases.searched_scripts == [case.bisected]
    assert {variation.source for variation in runner.asked} >= {None, case.minimal.source}


def test_several_candidates_are_tried_at_once(tmp_path: Path) -> None:
    """The smallest script is the same, and its candidates ran side by side."""
    steps = tuple(Step)[:6]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    (alone, _, _), (beside, runner, _) = (
        triaged(folder, steps=steps, jobs=jobs) for jobs, folder in enumerate(folders, 1)
    )
    assert alone.minimal is not None
    assert beside.minimal is not None
    assert beside.minimal.source == alone.minimal.source
    assert runner.crowd.most > 2


def test_a_case_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Steps that are done are not taken again, and candidates that were answered are not run again."""
    triaged(tmp_path, steps=tuple(Step)[:6])
    case, runner, _ = triaged(tmp_path)
    assert case.unit_test is not None
    assert len(runner.asked) < 6
