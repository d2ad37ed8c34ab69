"""The pipeline, with fake environments and a fake executor: what runs, in which order, and what is kept."""

import errno
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import PASSED, FakeCache, FakeExecutor, moving
from tests.patience import PATIENCE
from whichtorch.matrix import lab, planning
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.lab import MatrixRun
from whichtorch.matrix.site import LocalSite
from whichtorch.model import AttemptEvidence, Build, Config, Headway, Outcome, Request, Scenario
from whichtorch.model.events import CellDone, EnvironmentReady, Event
from whichtorch.process.supervision import Ending, LoopAnswers, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run


def scenario(tmp_path: Path, name: str, **fields: object) -> Scenario:
    path = tmp_path / f"{name}.py"
    path.write_text("import torch\n")
    return Scenario.model_validate({"name": name, "path": path, "source_hash": f"hash of {name}"} | fields)


def requests(*versions: str) -> list[Request]:
    return [
        Request(torch=version, python="3.11", build=Build(name="pypi"), config=Config(name="default"))
        for version in versions
    ]


def plan_one(tmp_path: Path, **options: Any) -> planning.Plan:
    """Return a plan of one script with one release."""
    return planning.plan(requests("2.0.0"), [scenario(tmp_path, "one")], planning.RunOptions(**options))


@dataclass
class Outcomes:
    """A run that has ended."""

    run: MatrixRun
    cache: FakeCache
    executor: FakeExecutor
    events: list[Event]

    def outcomes(self) -> dict[tuple[str, str], Outcome]:
        return {(cell.scenario, cell.environment): cell.outcome for cell in self.run.cells}


def run(
    tmp_path: Path,
    planned: Sequence[planning.PlannedCell],
    behave: Callable[[Task], Ending | None] = lambda task: PASSED,
    *,
    missing: frozenset[str] = frozenset(),
    knows: bool = True,
    jobs: int = 2,
    waiting: int = 0,
) -> Outcomes:
    cache, executor, events = FakeCache(tmp_path, missing, knows), FakeExecutor(behave), list[Event]()
    with new_run(tmp_path, ()) as store:
        site = LocalSite(cache, Records(tmp_path), store, events.append, executor, jobs=jobs, waiting=waiting)
        matrix_run = MatrixRun(planned, CellScheduler(site))
        matrix_run.run()
    return Outcomes(matrix_run, cache, executor, events)


def got_on(headway: dict[str, float]) -> AttemptEvidence:
    """Return the evidence of a tree that got on in some way."""
    return AttemptEvidence(headway=Headway.model_validate(headway))


def test_every_cell_runs_once_and_in_the_order_of_the_plan(tmp_path: Path) -> None:
    """Environments x scenarios x variants, whatever order they ended in."""
    suite = [scenario(tmp_path, "one"), scenario(tmp_path, "two", variants={"op": ("mm", "add")})]
    planned = planning.plan(requests("2.0.0", "2.1.0"), suite, planning.RunOptions())
    ended = run(tmp_path, planned)
    assert [(cell.environment, cell.name) for cell in ended.run.cells] == [
        (f"id-{version}-default", name)
        for version in ("2.0.0", "2.1.0")
        for name in ("one", "two[op=mm]", "two[op=add]")
    ]
    assert len(ended.executor.tasks) == 6


@pytest.mark.parametrize("knows", [True, False])
def test_nothing_is_tested_twice(tmp_path: Path, knows: bool) -> None:
    """A second run starts no script; where environments are known it does not even ask for them."""
    planned = plan_one(tmp_path)
    run(tmp_path, planned)
    again = run(tmp_path, planned, knows=knows)
    assert again.executor.tasks == []
    assert again.cache.acquired == ([] if knows else ["torch-2.0.0-pypi"])
    assert again.cache.released == again.cache.acquired
    assert [cell.reused for cell in again.run.cells] == [1]


def test_fresh_runs_again(tmp_path: Path) -> None:
    """--fresh takes no record for an answer."""
    suite = [scenario(tmp_path, "one")]
    run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions()))
    again = run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions(fresh=True)))
    assert len(again.executor.tasks) == 1


def test_repeat_makes_only_the_missing_attempts(tmp_path: Path) -> None:
    """Of five attempts asked for, those an earlier run made are not made again."""
    suite = [scenario(tmp_path, "one")]
    run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions(repeat=2)))
    again = run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions(repeat=5)))
    assert len(again.executor.tasks) == 3
    assert len(again.run.cells[0].attempts) == 5


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"])
def test_what_is_compiled_is_left_to_no_other_attempt(tmp_path: Path, name: str) -> None:
    """Each attempt has caches of compilers and a folder of extensions of its own, whose locks go with it."""
    tasks = run(tmp_path, plan_one(tmp_path, repeat=3)).executor.tasks
    assert all(task.env[name].startswith(task.env["TMPDIR"]) for task in tasks)
    assert len({task.env[name] for task in tasks}) == 3


def test_missing_environment_costs_only_its_own_cells(tmp_path: Path) -> None:
    """What cannot be installed is told in its cells; the rest of the matrix runs."""
    planned = planning.plan(requests("2.0.0", "2.1.0"), [scenario(tmp_path, "one")], planning.RunOptions())
    ended = run(tmp_path, planned, missing=frozenset({"2.0.0"}))
    assert ended.outcomes() == {
        ("one", "id-2.0.0-default"): Outcome.UNBUILDABLE,
        ("one", "id-2.1.0-default"): Outcome.PASS,
    }
    assert ended.run.cells[0].reason == "no wheel"


def test_every_environment_is_let_go_with_its_last_cell(tmp_path: Path) -> None:
    """What was acquired is released exactly once, so that the disk can be used again."""
    suite = [scenario(tmp_path, name) for name in ("one", "two", "three")]
    ended = run(tmp_path, planning.plan(requests("2.0.0", "2.1.0", "2.2.0"), suite, planning.RunOptions()))
    assert Counter(ended.cache.released) == Counter(ended.cache.acquired)
    assert max(Counter(ended.cache.released).values()) == 1


def test_slow_attempt_is_decided_by_a_longer_one(tmp_path: Path) -> None:
    """What was still moving at the default limit gets three times as long once; a pass that takes so long counts."""
    late = replace(PASSED, seconds=70.0)
    ended = run(tmp_path, plan_one(tmp_path), lambda task: moving(task) if task.timeout < 100 else late)
    assert [(task.timeout, task.goal, task.is_hard) for task in ended.executor.tasks] == [
        (60, None, False),
        (180, 180, False),
    ]
    assert ended.outcomes() == {("one", "id-2.0.0-default"): Outcome.PASS}


@pytest.mark.parametrize("timeout", [None, 15])
def test_what_is_slow_now_and_then_is_told(tmp_path: Path, timeout: float | None) -> None:
    """Of ten attempts, some of which stand still where others pass at once, the cell is red: slow, k of n."""
    options = planning.RunOptions(repeat=10, timeout=timeout)
    made: list[Task] = []

    def behave(task: Task) -> Ending:
        made.append(task)
        return moving(task) if len(made) in {2, 5, 8} else PASSED

    (cell,) = run(tmp_path, planning.plan(requests("2.0.0"), [scenario(tmp_path, "one")], options), behave).run.cells
    slow = sum(attempt.outcome is Outcome.SLOW for attempt in cell.attempts)
    assert slow >= 2
    assert (cell.outcome, cell.is_red, cell.expected) == (Outcome.SLOW, True, False)
    assert cell.flaky == f"{slow} of {len(cell.attempts)}"
    assert len(cell.attempts) >= 10


@pytest.mark.parametrize(
    ("again", "outcome", "flaky", "tasks"),
    [
        (PASSED, Outcome.PASS, None, 3),  # two were asked for
        (None, Outcome.SLOW, "1 of 2", 3),
    ],
)
def test_what_waited_for_a_core_is_made_again(
    tmp_path: Path, again: Ending | None, outcome: Outcome, flaky: str | None, tasks: int
) -> None:
    """A slow attempt on a crowded machine says nothing; made again, it counts, however crowded the machine is then."""
    crowded = got_on({"paused": 0.5, "needed": 12, "stretch": 4.0})
    made: list[Task] = []

    def behave(task: Task) -> Ending:
        made.append(task)
        waiting = replace(moving(task), evidence=crowded)
        return {1: PASSED, 2: waiting}.get(len(made), again or waiting)

    options = planning.RunOptions(repeat=2, timeout=15)
    (cell,) = run(tmp_path, planning.plan(requests("2.0.0"), [scenario(tmp_path, "one")], options), behave).run.cells
    assert (cell.outcome, cell.flaky, cell.is_red) == (outcome, flaky, flaky is not None)
    assert [task.timeout for task in made] == [15] * tasks


def test_slow_for_too_long_is_a_hang(tmp_path: Path) -> None:
    """Still moving at three times the limit, after the limit itself, is a hang, and says so."""
    ended = run(tmp_path, plan_one(tmp_path), moving)
    (cell,) = ended.run.cells
    assert cell.outcome is Outcome.HANG
    assert cell.reason == "still moving after 180 s"
    assert [attempt.outcome for attempt in cell.attempts] == [Outcome.SLOW, Outcome.HANG]
    assert cell.signature == "spins, moving"
    assert cell.flaky is None


KILLED = Ending(stopped_by="exit", signal="SIGKILL", seconds=0.5, peak_rss_mb=28, oom_kills=1)


@pytest.mark.parametrize("ending", [PASSED, replace(PASSED, exit_code=1)])
def test_what_the_machine_did_once_is_made_again(tmp_path: Path, ending: Ending) -> None:
    """What comes of the second attempt counts; its note tells of the first one, which does not make the cell flaky."""
    endings = [KILLED, ending]
    (cell,) = run(tmp_path, plan_one(tmp_path), lambda _: endings.pop(0)).run.cells
    expected = Outcome.FAIL if ending.exit_code else Outcome.PASS
    (attempt,) = cell.attempts
    assert attempt.note.endswith("run again, because the machine ran out of memory; this test used 28 MB of its 4,096")
    assert (attempt.outcome, cell.outcome, cell.flaky) == (expected, expected, None)


@pytest.mark.parametrize(
    ("options", "made"), [({}, 2), ({"repeat": 3}, 6), ({"until": {Outcome.ERROR}, "repeat": 9}, 2)]
)
def test_what_the_machine_does_again_is_an_error(tmp_path: Path, options: dict[str, Any], made: int) -> None:
    """Each attempt is made once more, and the cell says why it has no other outcome."""
    ended = run(tmp_path, plan_one(tmp_path, **options), lambda _: KILLED)
    (cell,) = ended.run.cells
    assert (cell.outcome, len(ended.executor.tasks)) == (Outcome.ERROR, made)
    assert cell.reason == "the machine ran out of memory; this test used 28 MB of its 4,096"


def test_repeated_attempts_lose_none_to_the_machine(tmp_path: Path) -> None:
    """Three passes are three passes, with an attempt that the machine ended among them."""
    endings = [PASSED, KILLED, PASSED, PASSED]
    (cell,) = run(tmp_path, plan_one(tmp_path, repeat=3), lambda _: endings.pop(0)).run.cells
    assert cell.agreement == (3, 3)


def test_native_code_gets_the_longer_look_in_one_environment_only(tmp_path: Path) -> None:
    """What is busy at one place gets three times as long once; elsewhere a brief look confirms the place."""
    planned = planning.plan(requests("2.0.0", "2.1.0"), [scenario(tmp_path, "one")], planning.RunOptions())
    evidence = AttemptEvidence(samples=(("multiply (model.py:3)",),) * 2)
    ended = run(tmp_path, planned, lambda task: replace(moving(task), moving=False, evidence=evidence), jobs=1)
    assert [task.timeout for task in ended.executor.tasks] == [60, 180, 15]
    assert {cell.outcome for cell in ended.run.cells} == {Outcome.HANG}
    decided = [[attempt.evidence.decided for attempt in cell.attempts] for cell in ended.run.cells]
    # Either environment may be ready first.
    assert sorted(decided) == [["known place"], ["native", "longer look"]]


@pytest.mark.parametrize(("stretch", "outcome"), [(1.2, Outcome.HANG), (4.0, Outcome.SLOW)])
def test_longer_look_is_made_once(tmp_path: Path, stretch: float, outcome: Outcome) -> None:
    """However crowded the machine, all looks take four times the limit at most; without cores enough, it stays slow."""

    def behave(task: Task) -> Ending:
        return replace(moving(task), evidence=got_on({"paused": 0.5, "needed": 12, "stretch": stretch}))

    ended = run(tmp_path, plan_one(tmp_path), behave)
    assert [(task.timeout, task.idle_limit) for task in ended.executor.tasks] == [(60, None), (180, 60)]
    (cell,) = ended.run.cells
    assert [attempt.outcome for attempt in cell.attempts] == [Outcome.SLOW, outcome]


@pytest.mark.parametrize(
    ("fields", "options"), [({}, planning.RunOptions(timeout=30)), ({"has_timeout": True}, planning.RunOptions())]
)
def test_a_timeout_that_somebody_chose_is_not_looked_beyond(
    tmp_path: Path, fields: dict[str, object], options: planning.RunOptions
) -> None:
    """What is slow at a timeout of the user's, or of a header, stays slow."""
    suite = [scenario(tmp_path, "one", timeout=30, **fields)]
    ended = run(tmp_path, planning.plan(requests("2.0.0"), suite, options), moving)
    assert [(task.timeout, task.is_hard) for task in ended.executor.tasks] == [(30, True)]
    assert ended.outcomes() == {("one", "id-2.0.0-default"): Outcome.SLOW}


@pytest.mark.parametrize(("place", "outcome", "timeouts"), [("a", Outcome.HANG, [15]), ("b", Outcome.SLOW, [15, 60])])
def test_expected_hang_is_confirmed_by_a_brief_look(
    tmp_path: Path, place: str, outcome: Outcome, timeouts: list[float]
) -> None:
    """Busy at one place in a quarter of its timeout is the hang that is expected; what moves gets all of its time."""
    hangs = {"expect": ({"outcome": "hang"},), "has_timeout": True}
    planned = planning.plan(requests("2.0.0"), [scenario(tmp_path, "one", **hangs)], planning.RunOptions())
    ended = run(tmp_path, planned, lambda task: replace(moving(task), moving=place != "a"))
    assert [task.timeout for task in ended.executor.tasks] == timeouts
    assert ended.outcomes() == {("one", "id-2.0.0-default"): outcome}


def test_default_limit_is_raised_for_a_test_that_takes_long(tmp_path: Path) -> None:
    """Twice the longest run known, at most four times the limit; what ends at a raised limit is not looked at again."""
    suite = [scenario(tmp_path, "one")]
    options = planning.RunOptions()
    failed = replace(PASSED, seconds=50.0, exit_code=1)
    run(tmp_path, planning.plan(requests("1.0.0"), suite, options), lambda _: failed)
    ended = run(tmp_path, planning.plan(requests("2.0.0"), suite, options), moving)
    (task,) = ended.executor.tasks
    assert task.timeout == 100
    assert ended.outcomes() == {("one", "id-2.0.0-default"): Outcome.SLOW}
    chosen = planning.plan(requests("3.0.0"), suite, planning.RunOptions(timeout=60))
    assert {task.timeout for task in run(tmp_path, chosen).executor.tasks} == {60}


def test_a_search_on_a_busy_machine_gives_each_run_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default limit grows with the load, up to four times; a brief look and a chosen timeout stay within it."""
    suite, search = [scenario(tmp_path, "one")], planning.RunOptions(provisional=True, fresh=True)
    for load, timeouts in ((3.0, [180.0, 45.0]), (5.0, [240.0, 60.0])):
        monkeypatch.setattr("whichtorch.matrix.cell_runner.load_slowdown", lambda load=load: load)
        home = tmp_path / str(load)
        home.mkdir()
        first = run(home, planning.plan(requests("1.0.0"), suite, search), moving)
        second = run(home, planning.plan(requests("2.0.0"), suite, search), moving)
        assert [task.timeout for task in (*first.executor.tasks, *second.executor.tasks)] == timeouts
        chosen = planning.plan(requests("3.0.0"), suite, replace(search, timeout=60))
        assert {task.timeout for task in run(home, chosen).executor.tasks} == {timeouts[1]}


@pytest.mark.parametrize(("place", "timeouts"), [("repro.py:3", [60]), ("repro.py:4", [60, 180])])
def test_a_place_that_was_looked_at_in_vain_is_not_looked_at_again(
    tmp_path: Path, place: str, timeouts: list[float]
) -> None:
    """Where the longer look of another environment left a loop slow, it is not repeated for the same loop."""
    suite = [scenario(tmp_path, "one")]

    def behave(task: Task) -> Ending:
        answers = [answer(tmp_path, place if "2.0.0" in task.name else "repro.py:3", second) for second in (1, 2)]
        return replace(
            moving(task), moving=False, loop=LoopAnswers.model_validate({"repeats": False, "answers": answers})
        )

    (tmp_path / "repro.py").write_text("a = b = 0\n\nwhile a < 9: pass\nwhile b < 9: pass\n")
    run(tmp_path, planning.plan(requests("1.0.0"), suite, planning.RunOptions()), behave)
    ended = run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions()), behave)
    assert [task.timeout for task in ended.executor.tasks] == timeouts
    assert ended.outcomes() == {("one", "id-2.0.0-default"): Outcome.SLOW}


@pytest.mark.parametrize("fresh", [False, True])
def test_a_look_on_a_crowded_machine_is_made_again_in_the_next_run(tmp_path: Path, *, fresh: bool) -> None:
    """The machine may have cores then, also in the same environment; with --fresh, every look is made again."""
    suite = [scenario(tmp_path, "one")]
    (tmp_path / "repro.py").write_text("a = 0\nwhile a < 9: pass\n")
    stretch = 1.0 if fresh else 4.0

    def behave(task: Task) -> Ending:
        answers = [answer(tmp_path, "repro.py:2", second if fresh else 1) for second in (1, 2)]
        loop = LoopAnswers.model_validate({"repeats": False, "answers": answers})
        headway = got_on({"paused": 0.5, "needed": 12, "stretch": stretch})
        return replace(moving(task), moving=False, loop=loop, evidence=headway)

    for version in ("1.0.0", "2.0.0", "2.0.0"):
        ended = run(tmp_path, planning.plan(requests(version), suite, planning.RunOptions(fresh=fresh)), behave)
        assert len(ended.executor.tasks) == 2
        (cell,) = ended.run.cells
        assert cell.outcome is Outcome.SLOW


@pytest.mark.parametrize(
    ("seconds", "outcome"), [((3, 5, 8), Outcome.HANG), ((3, 5, 25), Outcome.HANG), ((20, 25), Outcome.SLOW)]
)
def test_a_loop_that_got_on_before_a_long_pause_gets_on_no_more(
    tmp_path: Path, seconds: tuple[int, ...], outcome: Outcome
) -> None:
    """What a training loop's variables did before its last step waits for ever does not make it slow."""
    (tmp_path / "repro.py").write_text("a = b = 0\n\nwhile a < 9: pass\n")
    answers = [answer(tmp_path, "repro.py:3", second) for second in seconds]
    answers_seen = LoopAnswers.model_validate({"repeats": False, "answers": answers})
    evidence = got_on({"paused": 20.0, "needed": 6.0})

    def behave(task: Task) -> Ending:
        return Ending(stopped_by="timeout", seconds=30.0, evidence=evidence, loop=answers_seen)

    options = planning.RunOptions(timeout=30.0)
    ended = run(tmp_path, planning.plan(requests("2.0.0"), [scenario(tmp_path, "one")], options), behave)
    assert set(ended.outcomes().values()) == {outcome}


def answer(folder: Path, place: str, second: float) -> dict[str, object]:
    """Return what a process answers that is in a loop at a place, whose variables change."""
    name, line = place.split(":")
    values = {"a": [second, str(second)], "b": [second, str(second)]}
    frame = {"file": str(folder / name), "function": "<module>", "line": int(line), "values": values}
    return {"after": second, "frames": [frame], "hidden": ""}


def test_longer_look_that_had_its_goal_ends_before_its_limit(tmp_path: Path) -> None:
    """The load of a moment makes the limit, not the wait; the record keeps what was given, and decides as much."""
    suite = [scenario(tmp_path, "one")]

    def behave(task: Task) -> Ending:
        headway = {"paused": 0.5, "needed": 12, "stretch": 1.25 if task.goal else 8.0}
        seconds = min(task.goal * 1.25, task.timeout) if task.goal else task.timeout
        return replace(moving(task), seconds=seconds, limit=seconds, evidence=got_on(headway))

    run(tmp_path, planning.plan(requests("1.0.0"), suite, planning.RunOptions()))  # in 2 s, so that it is due in 20 s
    ended = run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions()), behave)
    assert [(task.timeout, task.goal) for task in ended.executor.tasks] == [(20, None), (180, 60)]
    (cell,) = ended.run.cells
    assert [(attempt.outcome, attempt.limit) for attempt in cell.attempts] == [(Outcome.SLOW, 20), (Outcome.HANG, 75)]
    again = planning.plan(requests("2.0.0"), [scenario(tmp_path, "one", timeout=100)], planning.RunOptions())
    assert [task.goal for task in run(tmp_path, again, behave).executor.tasks] == [None]


def test_longer_look_is_skipped_where_one_is_on_record(tmp_path: Path) -> None:
    """A test that was given long enough once, under other limits, is not given it again."""
    suite = [scenario(tmp_path, "one")]
    run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions()), moving)
    for timeout, timeouts in ((30, [10]), (70, [17.5]), (100, [25, 300])):  # a brief look, as it is known to hang
        again = run(
            tmp_path,
            planning.plan(requests("2.0.0"), [scenario(tmp_path, "one", timeout=timeout)], planning.RunOptions()),
            moving,
        )
        assert [task.timeout for task in again.executor.tasks] == timeouts
        assert again.outcomes() == {("one", "id-2.0.0-default"): Outcome.HANG}


def test_limit_shrinks_once_the_test_has_passed_elsewhere(tmp_path: Path) -> None:
    """Ten times the slowest pass, at least 10 s, at most the timeout."""
    suite = [scenario(tmp_path, "one")]
    run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions()))
    later = run(tmp_path, planning.plan(requests("2.1.0"), suite, planning.RunOptions()))
    assert [task.timeout for task in later.executor.tasks] == [20]


def test_expected_hangs_run_last(tmp_path: Path) -> None:
    """Passes elsewhere come first, for they shorten the limit of a hang."""
    suite = [scenario(tmp_path, "hangs", expect=({"outcome": "hang", "torch": "<2.1"},)), scenario(tmp_path, "passes")]
    ended = run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions()), jobs=1)
    assert [task.argv[1].rpartition("/")[2] for task in ended.executor.tasks] == ["passes.py", "hangs.py"]


def test_expected_hangs_wait_beside_what_works(tmp_path: Path) -> None:
    """Beyond the jobs only expected hangs run, and only when nothing else is left to begin."""
    suite = [scenario(tmp_path, f"hangs{n}", expect=({"outcome": "hang"},)) for n in range(3)]
    suite += [scenario(tmp_path, f"passes{n}") for n in range(4)]
    lock, together = threading.Lock(), threading.Barrier(3)
    working, most = 0, 0

    def behave(task: Task) -> Ending:
        nonlocal working, most
        if "hangs" in task.argv[1].rpartition("/")[2]:
            together.wait(PATIENCE)  # all three at once, though there is one job
            return PASSED
        with lock:
            working += 1
            most = max(most, working)
        with lock:
            working -= 1
        return PASSED

    ended = run(tmp_path, planning.plan(requests("2.0.0"), suite, planning.RunOptions()), behave, jobs=1, waiting=2)
    assert len(ended.run.cells) == 7
    assert most == 1


def test_error_of_a_thread_reaches_the_caller(tmp_path: Path) -> None:
    """A defect in the harness ends the run instead of hanging it."""

    def explode(task: Task) -> Ending:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        run(tmp_path, plan_one(tmp_path), explode)


def test_interrupted_attempt_is_no_record(tmp_path: Path) -> None:
    """An attempt that an interrupt cut short leaves its cell undone, for the next run to make."""
    planned = planning.plan(
        requests("2.0.0"), [scenario(tmp_path, "one"), scenario(tmp_path, "two")], planning.RunOptions()
    )

    def behave(task: Task) -> Ending | None:
        if "two" in task.argv[1]:
            signal.raise_signal(signal.SIGINT)
            return None
        return PASSED

    ended = run(tmp_path, planned, behave, jobs=1)
    assert ended.run.interrupt is not None
    assert [cell.scenario for cell in ended.run.cells] == ["one"]
    again = run(tmp_path, planned)
    assert [task.argv[1].rpartition("/")[2] for task in again.executor.tasks] == ["two.py"]


def test_every_cell_and_environment_is_told(tmp_path: Path) -> None:
    """Reports hear of each environment once and of each cell once."""
    suite = [scenario(tmp_path, "one"), scenario(tmp_path, "two")]
    ended = run(tmp_path, planning.plan(requests("2.0.0", "2.1.0"), suite, planning.RunOptions()))
    assert sum(isinstance(event, CellDone) for event in ended.events) == 4
    assert sum(isinstance(event, EnvironmentReady) for event in ended.events) == 2


def test_a_failure_on_a_full_disk_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script whose output nobody can write may fail without a word of it; one that passed has passed."""

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("whichtorch.matrix.attempt.tempfile.TemporaryFile", full)
    failed = replace(PASSED, exit_code=120)
    scenarios = [scenario(tmp_path, "passes"), scenario(tmp_path, "prints")]
    planned = planning.plan(requests("2.11.0"), scenarios, planning.RunOptions())
    done = run(tmp_path, planned, lambda task: failed if "prints" in task.argv[1] else PASSED)
    assert [cell.outcome for cell in done.run.cells] == [Outcome.PASS, Outcome.ERROR]
    assert done.run.cells[1].attempts[-1].note == "could not write to the disk: No space left on device"


def test_what_was_an_error_is_run_again(tmp_path: Path) -> None:
    """The next command does not keep what the machine made of a test; what was a verdict is known."""
    scenarios = [scenario(tmp_path, "passes"), scenario(tmp_path, "unlucky")]
    planned = planning.plan(requests("2.11.0"), scenarios, planning.RunOptions())
    died = Ending(stopped_by="exit", seconds=1.0, problem="the supervisor died")
    first = run(tmp_path, planned, lambda task: died if "unlucky" in task.argv[1] else PASSED)
    assert [cell.outcome for cell in first.run.cells] == [Outcome.PASS, Outcome.ERROR]
    again = run(tmp_path, planned)
    assert [cell.outcome for cell in again.run.cells] == [Outcome.PASS, Outcome.PASS]
    assert len(again.executor.tasks) == 1


def test_nobody_follows_what_stands_for_a_script_s_output(tmp_path: Path) -> None:
    """A link or a pipe in place of the files that a script wrote is removed, and neither read nor waited for."""
    (tmp_path / "secret").write_text("of this machine")

    def replacing(task: Task) -> Ending:
        for path in (task.stdout, task.stderr):
            Path(path).unlink(missing_ok=True)
        Path(task.stdout).symlink_to(tmp_path / "secret")
        os.mkfifo(task.stderr)
        return replace(PASSED, exit_code=1)

    planned = planning.plan(requests("2.11.0"), [scenario(tmp_path, "odd")], planning.RunOptions())
    (made,) = run(tmp_path, planned, replacing).run.cells
    assert (made.outcome, made.attempts[0].message) == (Outcome.FAIL, "")
    assert not list(tmp_path.glob("runs/*/attempts/*/std*"))


def test_known_tests_of_a_command_are_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of hundreds of tests take a while to read."""

    def behave(task: Task) -> Ending:
        events = [{"event": "session"}, {"event": "collected", "ids": ["a::x"]}, {"event": "start", "id": "a::x"}]
        events += [{"event": "end", "id": "a::x", "outcome": "pass"}, {"event": "finish", "code": 0}]
        told = Path(task.stdout).parent / "tests" / "tests.jsonl"
        told.write_text("\n".join(map(json.dumps, events)))
        return PASSED

    command = {"words": ["true"], "project": "", "in_place": tmp_path}
    planned = planning.plan(requests("2.0.0"), [scenario(tmp_path, "-- true", command=command)], planning.RunOptions())
    run(tmp_path, planned, behave)
    looked_up: list[object] = []

    def known_tests(*arguments: Any) -> object:
        looked_up.append(arguments)
        return known(*arguments)

    known = lab.known_tests
    monkeypatch.setattr(lab, "known_tests", known_tests)
    again = run(tmp_path, planned, behave)
    assert again.outcomes() == {("a::x", "id-2.0.0-default"): Outcome.PASS}
    assert (len(again.executor.tasks), len(looked_up)) == (0, 1)
