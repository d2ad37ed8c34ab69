"""The tests of a command, with a fake executor that tells what its pytest would."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes import moving
from tests.run.test_pipeline import requests, run, scenario
from whichtorch.matrix.model import AttemptEvidence, Outcome, ProjectCommand
from whichtorch.matrix.plan import planning
from whichtorch.matrix.run.test_session import EVENTS, VARIABLE

if TYPE_CHECKING:
    from whichtorch.matrix.process.supervision import Ending, Task


def test_a_test_that_is_busy_gets_the_longer_look_in_one_environment_only(tmp_path: Path) -> None:
    """A test that was shown to hang in one environment hangs in another where it is busy at the same place."""
    (tmp_path / "pytest").touch(0o755)  # the fake environments' own
    command = ProjectCommand(words=("pytest",), project="digest", in_place=tmp_path)
    suite = [scenario(tmp_path, "-- pytest").model_copy(update={"command": command})]
    evidence = AttemptEvidence(samples=(("multiply (model.py:3)",),) * 2)

    def behave(task: Task) -> Ending:
        lines = [
            {"event": "session", "pid": 1},
            {"event": "collected", "pid": 1, "ids": ["test_it"]},
            {"event": "start", "pid": 1, "id": "test_it"},
        ]
        file = Path(task.env[VARIABLE]) / EVENTS
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return replace(moving(task), moving=False, evidence=evidence)

    planned = planning.plan(requests("2.0.0", "2.1.0"), suite, planning.RunOptions())
    ended = run(tmp_path, planned, behave, jobs=1)
    assert [task.timeout for task in ended.executor.tasks] == [60, 180, 60]
    assert {(cell.scenario, cell.outcome) for cell in ended.run.cells} == {("test_it", Outcome.HANG)}
