"""The nightly workflow, night after night: its very commands, on stand-in wheels, with a stand-in for `gh` alone."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ci.conftest import Outside
from tests.ci.service import Job, Service, evaluate, workflow
from tests.wheels import build_wheel

pytestmark = [pytest.mark.nights, pytest.mark.xdist_group("nightly")]  # they share the jobs that were really run


@dataclass
class Half:
    """A night up to what the environments' jobs have handed over."""

    artifacts: Path
    jobs: dict[str, list[Job]]


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory, outside: Outside, machines: Callable[[], Path]) -> dict[str, Half]:
    """Plan a night and run its environments; then another one, in which one environment has a regression."""
    state = tmp_path_factory.mktemp("nights")
    service = Service(state, outside.environ, machines)
    found = {}
    for name, behaviours in (("well", {}), ("worse", {"v9_2_0": "worse"})):
        outside.publish(**behaviours)
        jobs: dict[str, list[Job]] = {}
        for job in ("plan", "environments"):
            jobs[job] = service.jobs(job, name, jobs)
        found[name] = Half(state / "artifacts" / name, jobs)
    return found


def merge(service: Service, id_: str, half: Half, *, ref: str = "main") -> Job:
    """End a night: merge, report, compare, tell; then it is over."""
    shutil.copytree(half.artifacts, service.state / "artifacts" / id_)
    (job,) = service.jobs("merge", id_, half.jobs, ref=ref)
    service.complete(id_)
    return job


@pytest.fixture(scope="module")
def first(
    tmp_path_factory: pytest.TempPathFactory, outside: Outside, machines: Callable[[], Path], halves: dict[str, Half]
) -> tuple[Service, Job]:
    """Run the first night to its end; all is well in it."""
    service = Service(tmp_path_factory.mktemp("first"), outside.environ, machines)
    return service, merge(service, "1", halves["well"])


@pytest.fixture
def second(service: Service, first: tuple[Service, Job]) -> Service:
    """Return GitHub after the first night."""
    shutil.copytree(first[0].state, service.state, dirs_exist_ok=True)
    return service


def issues(service: Service) -> dict[str, list[str]]:
    file = service.state / "issues.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def kept(service: Service, id_: str, artifact: str) -> set[str]:
    return {path.name for path in (service.state / "artifacts" / id_ / artifact).glob("*")}


def test_each_environment_has_a_job(halves: dict[str, Half]) -> None:
    """The plan lists the environments of the matrix file; each job hands over its run; a red cell is no failure."""
    for half in halves.values():
        (plan,) = half.jobs["plan"]
        assert [row["name"] for row in json.loads(plan.outputs["plan"])["shares"]] == [
            "torch-9.1.0-pypi",
            "torch-9.2.0-pypi",
        ]
        assert [job.result for job in half.jobs["environments"]] == ["success"] * 2, half.jobs["environments"]
        for job in ("runs-0", "runs-1"):
            assert len(list((half.artifacts / job).glob("*/run.json"))) == 1
    assert "FAIL" in halves["worse"].jobs["environments"][1].log


def test_the_first_night_has_nothing_to_compare_with(first: tuple[Service, Job]) -> None:
    """It is merged, told and kept, and green."""
    service, job = first
    assert job.result == "success", job.log
    assert "Compare with the last night" not in job.steps
    assert "night/turns" in job.summary
    assert kept(service, "1", "report") == {"index.html", "junit.xml", "report.md", "result.json"}
    assert len(kept(service, "1", "nights")) == 1
    assert issues(service) == {}


def test_a_night_like_the_last_is_green(second: Service, halves: dict[str, Half]) -> None:
    """Nothing is worse: no issue; both nights are kept. One that died before it was kept is passed over."""
    second.complete("died")
    job = merge(second, "2", halves["well"])
    assert job.result == "success", job.log
    assert "6  still passing" in job.log
    assert "the last night is that of run 1" in job.log
    assert len(kept(second, "2", "nights")) == 2
    assert issues(second) == {}


def test_a_regression_is_red_and_one_issue(second: Service, halves: dict[str, Half]) -> None:
    """It is opened, with what got worse and the run's address; the night after, still worse, is no news."""
    job = merge(second, "2", halves["worse"])
    assert job.result == "failure", job.log
    ((said,),) = issues(second).values()
    assert "https://github.com/somebody/whichtorch/actions/runs/2" in said
    assert "    regression  pass -> FAIL!  night/turns  torch-9.2.0-pypi" in said
    assert "nox > " not in said, "only what compare says"
    third = merge(second, "3", halves["worse"])
    assert third.result == "success", third.log
    assert [len(texts) for texts in issues(second).values()] == [1]


def test_an_open_issue_is_commented(second: Service, halves: dict[str, Half]) -> None:
    """The next regression is told where the last one is, as long as that is open."""
    (second.state / "issues.json").write_text(json.dumps({"7": ["the last one"]}))
    merge(second, "2", halves["worse"])
    assert [text.count("regression  pass -> FAIL!") for text in issues(second)["7"]] == [0, 1]
    assert issues(second).keys() == {"7"}


@pytest.mark.parametrize(("ref", "opens"), [("main", True), ("feature", False)])
def test_another_branch_opens_no_issue(ref: str, opens: bool) -> None:
    """A run by hand is compared with the nights, and red, and that is all."""
    (step,) = (step for step in workflow()["jobs"]["merge"]["steps"] if step.get("name") == "Open or update the issue")
    contexts = {
        "steps": {"compare": {"outputs": {"worse": "yes"}}},
        "env": {"MAIN": "main"},
        "github": {"ref_name": ref},
    }
    assert evaluate(step["if"], contexts, failed=False) == opens
    assert evaluate(step["if"], contexts, failed=True) == opens, "whatever became of the report"


def test_a_night_that_lost_jobs_says_so(second: Service, halves: dict[str, Half], tmp_path: Path) -> None:
    """What is left is merged and compared; it is red, and the next night is compared with the one before."""
    well = halves["well"]
    left = Half(
        Path(shutil.copytree(well.artifacts, tmp_path / "left")),
        well.jobs | {"environments": [well.jobs["environments"][0], Job(result="failure")]},
    )
    shutil.rmtree(left.artifacts / "runs-1")
    job = merge(second, "2", left)
    assert job.result == "failure"
    assert "**Not all was tested**: the plan ended with success, the environments' jobs with failure; 1" in job.summary
    assert "3  still passing" in job.log
    assert kept(second, "2", "nights") == set(), "else its gaps would hide what got worse in them"


@pytest.mark.parametrize(
    "dead",
    [
        {"environments": [Job(result="failure")] * 2},
        {"plan": [Job(result="failure")], "environments": [Job(result="skipped")]},
    ],
)
def test_a_night_without_any_environment_is_red(
    second: Service, halves: dict[str, Half], dead: dict[str, list[Job]], tmp_path: Path
) -> None:
    """It says how the plan and the jobs ended; it is no night to compare with, and no regression."""
    (tmp_path / "none").mkdir()
    job = merge(second, "2", Half(tmp_path / "none", halves["well"].jobs | dead))
    assert job.result == "failure"
    ended = [dead.get("plan", halves["well"].jobs["plan"])[0].result, dead["environments"][0].result]
    assert "no environment was tested: the plan ended with {}, the jobs with {}".format(*ended) in job.log
    assert "**Not all was tested**" in job.summary
    assert kept(second, "2", "nights") == set()
    assert issues(second) == {}


def test_a_plan_that_cannot_be_made_fails(service: Service, sources: Path) -> None:
    """There is no empty matrix: the plan says why, and nothing else runs but the merge, which is red."""
    file = sources / "whichtorch" / "matrix" / "default.toml"
    before = file.read_text()
    file.write_text(before.replace("[axes]", "[axis]"))
    try:
        night = service.run("1")
    finally:
        file.write_text(before)
    assert {name: jobs[0].result for name, jobs in night.items()} == {
        "plan": "failure",
        "environments": "skipped",
        "merge": "failure",
    }
    assert "default.toml:2: axis: unknown key; did you mean 'axes'?" in night["plan"][0].log


def test_an_environment_that_cannot_be_installed_fails_its_job(
    service: Service, halves: dict[str, Half], outside: Outside
) -> None:
    """Exit code 3 is no result of torch: the job is red, and hands over what it has all the same."""
    (plan,) = halves["well"].jobs["plan"]
    rows = json.dumps({"shares": json.loads(plan.outputs["plan"])["shares"][1:]})
    build_wheel(outside.wheels, "9.2.0", requires=("nothing-that-is-there",))
    try:
        (job,) = service.jobs("environments", "1", {"plan": [Job(outputs={"plan": rows})]})
    finally:
        outside.publish()
    assert job.result == "failure"
    assert "::error::share 2/2 ended with exit code 3" in job.log
    assert len(list((service.state / "artifacts" / "1" / "runs-0").glob("*/run.json"))) == 1


def test_a_job_that_left_no_run_fails(
    service: Service, halves: dict[str, Half], outside: Outside, tmp_path: Path
) -> None:
    """Where nox cannot install the tool it ends with 1, as for a red cell; no run tells the difference."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nox").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "nox").chmod(0o755)
    service.environ = outside.environ | {"PATH": f"{tmp_path}/bin:{outside.environ['PATH']}"}
    jobs = service.jobs("environments", "1", halves["well"].jobs)
    assert [job.result for job in jobs] == ["failure", "failure"]
    assert "::error::share 1/2 made no run: exit code 1" in jobs[0].log
