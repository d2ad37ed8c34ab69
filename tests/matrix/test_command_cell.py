"""The tests of a command, with a fake executor that tells what its pytest would."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import PASSED, moving
from tests.matrix.test_lab import KILLED, Outcomes, requests, run, scenario
from whichtorch.matrix import planning
from whichtorch.matrix.test_session import EVENTS, VARIABLE
from whichtorch.model import AttemptEvidence, Outcome, ProjectCommand
from whichtorch.process.supervision import Ending, Task


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


def pytest_that(
    tmp_path: Path, sessions: list[tuple[list[dict[str, object]], Ending]], ids: Sequence[str] = ("test_a", "test_b")
) -> Outcomes:
    """Run a command whose pytest tells and ends so in one session after another."""
    (tmp_path / "pytest").touch(0o755)
    command = ProjectCommand(words=("pytest",), project="digest", in_place=tmp_path)
    suite = [scenario(tmp_path, "-- pytest").model_copy(update={"command": command})]

    def behave(task: Task) -> Ending:
        lines, ending = sessions.pop(0)
        session = {"event": "session", "pid": 1}, {"event": "collected", "pid": 1, "ids": ids}
        told = [*session, *({"pid": 1, **line} for line in lines)] if lines else []
        file = Path(task.env[VARIABLE]) / EVENTS
        file.write_text("".join(json.dumps(line) + "\n" for line in told))
        Path(task.stderr).touch()
        return ending

    planned = planning.plan(requests("2.0.0"), suite, planning.RunOptions())
    return run(tmp_path, planned, behave, jobs=1)


def of(id_: str, outcome: str = "", **fields: object) -> list[dict[str, object]]:
    """Return the lines of a test that begins, and perhaps ends."""
    begun: list[dict[str, object]] = [{"event": "start", "id": id_}]
    return begun + ([{"event": "end", "id": id_, "outcome": outcome, "seconds": 1, **fields}] if outcome else [])


DONE: list[dict[str, object]] = [{"event": "finish", "code": 0}]


FULL = 'Traceback (most recent call last):\n  File "a.py", line 1, in test_b\nOSError: No space left on device\n'
NO_ROOM = of("test_a", "pass") + of("test_b", "fail", traceback=FULL) + DONE


@pytest.mark.parametrize(
    ("first", "ending", "again"),
    [
        (of("test_a", "pass") + of("test_b"), KILLED, of("test_b", "pass")),
        ([], KILLED, of("test_a", "pass") + of("test_b", "pass")),  # before its tests: the command is given again
        (NO_ROOM, replace(PASSED, exit_code=1), of("test_b", "pass")),
    ],
)
def test_what_the_machine_ends_has_not_failed(
    tmp_path: Path, first: list[dict[str, object]], ending: Ending, again: list[dict[str, object]]
) -> None:
    """A test whose process was killed, or that had no room on the disk, is run alone, and the others lose nothing."""
    ended = pytest_that(tmp_path, [(first, ending), (again + DONE, PASSED)])
    assert {(cell.scenario, cell.outcome, cell.doubt) for cell in ended.run.cells} == {
        ("test_a", Outcome.PASS, None),
        ("test_b", Outcome.PASS, None),
    }


def test_of_tests_that_fail_for_one_cause_one_is_run_alone(tmp_path: Path) -> None:
    """It fails so alone, too: the others of its signature count as they were. One of another signature is run."""

    def failed(id_: str, error: str) -> list[dict[str, object]]:
        words = f'Traceback (most recent call last):\n  File "a.py", line 1, in weights\n{error}\n'
        return of(id_, "fail", traceback=words)

    ending = replace(PASSED, exit_code=1)
    alike = [line for id_ in ("test_b", "test_c", "test_d") for line in failed(id_, "KeyError: 'w'")]
    sessions = [
        (of("test_a", "pass") + alike + failed("test_e", "OSError: w") + DONE, ending),
        (failed("test_b", "KeyError: 'w'") + DONE, ending),
        (of("test_e", "pass") + DONE, PASSED),
    ]
    ended = pytest_that(tmp_path, sessions, ["test_a", "test_b", "test_c", "test_d", "test_e"])
    assert not sessions
    outcomes = {cell.scenario: (cell.outcome, cell.attempts[-1].note) for cell in ended.run.cells}
    said = "fails like test_b, which fails so alone, too"
    assert {id_: outcomes[id_] for id_ in ("test_c", "test_d")} == dict.fromkeys(
        ("test_c", "test_d"), (Outcome.FAIL, said)
    )
    assert outcomes["test_b"][0] is Outcome.FAIL
    assert outcomes["test_e"][0] is Outcome.PASS
