"""The plan: which environments a job of a CI service takes."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import pytest

from tests.ci.service import ROOT


def listing(number: int, build: str = "cpu") -> str:
    """Return what nox lists of so many environments, and of other sessions."""
    environments = [
        {"session": f"env(torch-2.{minor}.0-{build})", "name": "env", "call_spec": {"options": options(minor, build)}}
        for minor in range(number)
    ]
    return json.dumps([*environments, {"session": "tests", "name": "tests", "call_spec": {}}])


def options(minor: int, build: str) -> list[str]:
    return ["--torch", f"2.{minor}.0", "--build", build]


def plan(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "plan.py"), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)


def rows(text: str) -> list[dict[str, str]]:
    ended = plan(text)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("\n") == 1, "an output of a job is one line"
    found = json.loads(ended.stdout)["include"]
    assert isinstance(found, list)
    return found


def test_one_environment_is_one_job() -> None:
    """The job is called what the environment is called, and runs its session."""
    assert rows(listing(1)) == [
        {"name": "torch-2.0.0-cpu", "sessions": "env(torch-2.0.0-cpu)", "cache": "wheels-2.0.0-cpu"}
    ]


@pytest.mark.parametrize(("number", "jobs", "most"), [(256, 256, 1), (257, 256, 2), (1000, 256, 4)])
def test_no_more_jobs_than_allowed(number: int, jobs: int, most: int) -> None:
    """Beyond 256 environments jobs take several: as many each, all once, in order; names tell it."""
    found = rows(listing(number))
    taken = [row["sessions"].split("\n") for row in found]
    assert len(found) == jobs
    assert {len(sessions) for sessions in taken} <= {most - 1, most}
    assert [session for sessions in taken for session in sessions] == [
        f"env(torch-2.{minor}.0-cpu)" for minor in range(number)
    ]
    assert len({row["name"] for row in found}) == jobs
    assert all(("more" in row["name"]) == (len(sessions) > 1) for row, sessions in zip(found, taken, strict=True))


@pytest.mark.parametrize(
    ("text", "cached"),
    [(listing(32), True), (listing(33), False), (listing(2, "pypi"), False), (listing(2, "nightly-cpu"), False)],
)
def test_caches_fit_into_what_the_service_keeps(text: str, cached: bool) -> None:
    """Releases for the CPU are cached, as many as there is room for; gigabytes of CUDA and nightlies are not."""
    assert {bool(row["cache"]) for row in rows(text)} == {cached}


def test_environments_of_the_same_wheels_share_a_cache() -> None:
    """Two that differ in their config take the same wheels."""
    default, single = (
        {"session": f"env({label})", "name": "env", "call_spec": {"options": [*options(9, "cpu"), *more]}}
        for label, more in (("a", []), ("b", ["--config", "single-thread"]))
    )
    assert [row["cache"] for row in rows(json.dumps([default, single]))] == ["wheels-2.9.0-cpu"] * 2


@pytest.mark.parametrize("jobs", [1, 3, 4, 9])
def test_shares_are_the_whole(jobs: int) -> None:
    """Jobs that know their number only take all environments between them, also where some get none."""
    taken = [plan(listing(4), "--share", f"{job}/{jobs}").stdout.splitlines() for job in range(1, jobs + 1)]
    assert [session for sessions in taken for session in sessions] == [
        f"env(torch-2.{minor}.0-cpu)" for minor in range(4)
    ]
    assert all(len(share) - len(following) <= 1 for share, following in pairwise(taken))


def test_what_pip_says_before_is_left_out() -> None:
    """Without uv nox lets pip speak on standard output before the list."""
    assert len(rows(f"Looking in indexes: [a]\nRequirement already satisfied: nox\n{listing(2)}\n")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not what `nox -l --json -s env` writes"),
        ('{"a": 1}', "this is not what `nox -l --json -s env` writes"),
        ("[]", "no environments are listed"),
        (listing(0), "no environments are listed"),
    ],
)
def test_nothing_to_plan_is_an_error(text: str, message: str) -> None:
    """An empty matrix would be a night that is green because nothing ran."""
    ended = plan(text)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"error: {message}" in ended.stderr
