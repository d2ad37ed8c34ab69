"""What holds of the workflow whatever a night brings: pins, permissions, time limits, and no text run as commands."""

import re
from typing import Any

import pytest

from tests.ci.service import INSTALLED, WORKFLOW, evaluate, expanded, remarks, workflow

JOBS: dict[str, dict[str, Any]] = workflow()["jobs"]
STEPS: list[dict[str, Any]] = [step for job in JOBS.values() for step in job["steps"]]
LONGEST = 360  # minutes that the service gives a job


def test_actions_are_pinned_by_hash() -> None:
    """A tag can be moved; the comment says which one it was, the same for the same hash."""
    lines = re.findall(r"uses: (.*)", WORKFLOW.read_text(encoding="utf-8"))
    assert len(lines) == sum("uses" in step for step in STEPS)
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in lines), lines
    assert len({line.partition("@")[0] for line in lines}) == len(set(lines))


def test_permissions_are_the_least() -> None:
    """None but what a job names; only the one that writes the issue may write anything."""
    assert workflow()["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "plan": {"contents": "read"},
        "environments": {"contents": "read"},
        "merge": {"contents": "read", "actions": "read", "issues": "write"},
    }
    checkouts = [step for step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False] * len(JOBS)


def test_every_job_ends() -> None:
    """Each has a time limit; what runs scripts has one of its own, that leaves time to hand over records."""
    assert all(0 < job["timeout-minutes"] <= LONGEST for job in JOBS.values())
    (run,) = (step for step in JOBS["environments"]["steps"] if step.get("name") == "Run")
    assert run["timeout-minutes"] < JOBS["environments"]["timeout-minutes"]


def test_one_environment_does_not_end_the_others() -> None:
    """All run, some at a time; what they found is handed over and merged whatever became of them."""
    strategy = JOBS["environments"]["strategy"]
    assert strategy["fail-fast"] is False
    assert strategy["max-parallel"] > 0
    assert JOBS["merge"]["if"] == "always()"
    assert JOBS["environments"]["steps"][-1]["if"] == "always()"
    assert workflow()["concurrency"]["cancel-in-progress"] is False


def test_no_text_becomes_a_command() -> None:
    """What comes from outside reaches a step's commands through its environment, never through their text."""
    assert all("${{" not in step.get("run", "") for step in STEPS)


@pytest.mark.parametrize("script", [step["run"] for step in STEPS if "run" in step])
def test_commands_are_sound(script: str) -> None:
    """Nothing in them is what shellcheck warns of."""
    assert remarks("bash", script) == ""


def test_it_runs_at_night_and_by_hand() -> None:
    """Not for a pull request, whose author may be anybody."""
    assert workflow()["on"].keys() == {"schedule", "workflow_dispatch"}


def test_what_the_tests_leave_out_is_known() -> None:
    """They run every step with commands but these, which install nox from the network."""
    assert {step["run"] for step in STEPS if step.get("name") in INSTALLED} == {
        'python -m pip install --quiet "nox[uv]>=2025.5"'
    }


def test_expressions_mean_what_they_mean_there() -> None:
    """The little reader of expressions that these tests rest on."""
    contexts = {"a": {"b-c": "x", "n": ""}, "s": {"o": {"m": '["y"]'}}}
    assert expanded("${{ a.b-c }}-${{ s.none.at.all || a.b-c }}", contexts) == "x-x"
    assert expanded("${{ fromJSON(s.o.m) }}", contexts) == ["y"]
    assert expanded({"x": "${{ fromJSON(s.j).k }}"}, {"s": {"j": '{"k": [1]}'}}) == {"x": [1]}
    assert evaluate("always() && (a.n == 'y' || a.b-c != 'y')", contexts, failed=True)
    assert not evaluate("a.b-c == 'x'", contexts, failed=True)
    assert not evaluate("a.n", contexts, failed=False)
