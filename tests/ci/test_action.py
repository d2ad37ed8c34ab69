"""The action in somebody's own repository: the very steps of action.yml, as docs/examples/github.yml uses it."""

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ci.conftest import COMMANDS, Outside
from tests.ci.service import ACTION, INSTALLED, ROOT, Job, Service, remarks, shell, workflow

EXAMPLE = ROOT / "docs" / "examples" / "github.yml"
STEPS: list[dict[str, Any]] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["runs"]["steps"]


@pytest.fixture
def own(tmp_path: Path, outside: Outside, repositories: Callable[[], Path]) -> Service:
    """Return GitHub with the user's repository and the workflow of the example."""

    def checkout() -> Path:
        folder = repositories()
        command = folder.parent / "temp" / "whichtorch" / "bin" / "whichtorch"  # where the action installs it
        command.parent.mkdir(parents=True)
        command.write_text(COMMANDS["whichtorch"])
        command.chmod(0o755)
        return folder

    return Service(tmp_path, outside.environ, checkout, EXAMPLE)


def errors(job: Job) -> list[str]:
    return re.findall(r"^::error.*", job.log, flags=re.MULTILINE)


@pytest.mark.nights
@pytest.mark.xdist_group("nightly")
def test_shares_are_run_merged_and_told(own: Service, outside: Outside) -> None:
    """Four jobs for two environments: two have none and are green; one failure is red, with its line and its report."""
    outside.publish(v9_2_0="worse")
    try:
        done = own.run("1")
    finally:
        outside.publish()
    assert [job.result for job in done["shares"]] == ["success"] * 3 + ["failure"], [job.log for job in done["shares"]]
    assert [errors(job) for job in done["shares"]] == [[]] * 4, "the report tells it, once"
    kept = own.state / "artifacts" / "1"
    assert [path.name for path in sorted(kept.iterdir())] == [
        "whichtorch-report",
        "whichtorch-runs-2-of-4",
        "whichtorch-runs-4-of-4",
    ]
    (job,) = done["report"]
    assert job.result == "failure"
    assert errors(job) == [
        "::error file=repros/turns.py,line=4,title=FAIL! repros/turns.py::"
        "AssertionError: planted: 100%25, in check (turns.py:4) < <module> (turns.py:6)%0Ain torch-9.2.0-pypi"
    ]
    assert "repros/turns.py" in job.summary
    assert {"index.html", "report.md", "junit.xml", "result.json"} <= {
        path.name for path in (kept / "whichtorch-report").iterdir()
    }


@pytest.mark.nights
@pytest.mark.xdist_group("nightly")
@pytest.mark.parametrize(
    ("given", "result", "said"),
    [
        ({}, "success", "4 cells, all as expected"),
        ({"torch": "9.1.0", "scripts": "repros/fine.py\n", "args": "--repeat 2"}, "success", "1 cell, all as expected"),
        ({"matrix": "nowhere.toml"}, "failure", "::error::whichtorch ended with exit code 2"),
    ],
)
def test_one_job_does_it_all(own: Service, tmp_path: Path, given: dict[str, str], result: str, said: str) -> None:
    """Without a share the environments run in one job, which has the report; inputs become options."""
    example = workflow(EXAMPLE)
    example["jobs"] = {"all": {"steps": [{"uses": "OWNER/whichtorch@0", "with": given}]}}
    (tmp_path / "one.yml").write_text(yaml.safe_dump(example))
    ((job,),) = replace(own, file=tmp_path / "one.yml").run("1").values()
    assert job.result == result, job.log
    assert said in job.log
    assert (own.state / "artifacts" / "1" / "whichtorch-report" / "index.html").exists() == (result == "success")


def test_no_text_becomes_a_command() -> None:
    """What comes from outside reaches a step's commands through its environment, never through their text."""
    assert all("${{" not in step.get("run", "") for step in STEPS)


@pytest.mark.parametrize("script", [step["run"] for step in STEPS if "run" in step])
def test_commands_are_sound(script: str) -> None:
    """Nothing in them is what shellcheck warns of."""
    assert remarks("bash", script) == ""


def test_actions_are_the_pinned_ones_of_the_nightly_workflow() -> None:
    """One commit for each action that the project uses, wherever it uses it."""
    lines = re.compile(r"uses: (actions/.*)")
    used = lines.findall(ACTION.read_text()) + lines.findall(EXAMPLE.read_text())
    assert len(used) == 6
    assert set(used) <= set(lines.findall((ROOT / ".github" / "workflows" / "nightly.yml").read_text()))


def test_what_the_tests_leave_out_is_known() -> None:
    """They run every step with commands but the one that installs whichtorch from the action's own checkout."""
    (step,) = (step for step in STEPS if step.get("name") in INSTALLED)
    assert step["run"].splitlines() == [
        'python -m venv "$RUNNER_TEMP/whichtorch"',
        '"$RUNNER_TEMP/whichtorch/bin/python" -m pip install --quiet "$GITHUB_ACTION_PATH"',
    ]


@pytest.mark.parametrize(("schema", "file"), [("github-actions", ACTION), ("github-workflows", EXAMPLE)])
def test_the_service_knows_all_its_words(tmp_path: Path, schema: str, file: Path) -> None:
    """The action and the example are such by the schemas that check-jsonschema brings."""
    shutil.copy(file, tmp_path)
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", file.name]
    ended = shell(words, tmp_path, {})
    assert ended.returncode == 0, ended.stdout
