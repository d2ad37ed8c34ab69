"""Trials on the workers of a cluster: what comes home, and what a lost worker, a refusal and an interrupt come to."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.fakes import PASSED, FakeCache, FakeExecutor, lab_of, shows_nothing
from tests.fix.packages import environment_folder
from tests.matrix.cluster.fakes import FakeEngine, FakeWorker
from tests.matrix.test_lab import requests, scenario
from tests.patience import PATIENCE
from tests.process.running import until
from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.fix.tree_change import PACKAGES
from whichtorch.inside import tree_dump
from whichtorch.matrix.cluster.batch_host import TrialForks
from whichtorch.matrix.cluster.cluster_site import ClusterMachines
from whichtorch.matrix.lab import Runner, opened_lab
from whichtorch.matrix.planning import PlannedCell, RunOptions
from whichtorch.matrix.variation import NOTES, Variation
from whichtorch.model import Outcome
from whichtorch.process.supervision import Ending, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run


def _is_idle(worker: FakeWorker) -> bool:
    return not worker.host.is_busy


NOTING = Variation(source="print(1)\n", arguments=(f"{NOTES}/a/note.txt",))


def writes(task: Task) -> Ending:
    """Write what a script would: its output, its errors and a note."""
    note = Path(task.argv[-1])
    note.parent.mkdir()
    note.write_text("noted")
    Path(task.stdout).write_text("said")
    Path(task.stderr).write_text("complained")
    return PASSED


@dataclass
class Desk:
    """A user's machine, and the workers that it asks."""

    home: Path
    workers: tuple[FakeWorker, ...]
    engine: FakeEngine = field(init=False)

    def __post_init__(self) -> None:
        self.engine = FakeEngine(*self.workers)

    @contextmanager
    def runner(self, *versions: str) -> Iterator[Runner]:
        self.home.mkdir(exist_ok=True)
        asked = requests(*(versions or ("2.0.0",)))
        planned = PlannedCell(request=asked[0], scenario=scenario(self.home, "s"), variant={}, options=RunOptions())
        machines = ClusterMachines(self.engine, self.home)
        with opened_lab(machines, Records(), shows_nothing) as lab:
            environment, *_ = map(lab.acquire, asked)
            yield Runner(lab=lab, planned=planned, environment=environment)
        for worker in self.workers:
            assert until(partial(_is_idle, worker))
            worker.host.finish()


def test_a_trial_is_made_by_a_worker_and_its_files_and_notes_come_home(tmp_path: Path) -> None:
    """It is in the run's folder, but in no list of records: it would be taken for a run of the script as it is."""
    desk = Desk(tmp_path / "desk", (FakeWorker(tmp_path, "w1", writes), FakeWorker(tmp_path, "w2", writes)))
    with desk.runner() as runner:
        seen = runner.run(20, NOTING)
        assert (runner.lab.home / seen.record.attempt.stdout).read_text() == "said"
    assert (seen.record.attempt.outcome, seen.stderr, seen.notes) == (
        Outcome.PASS,
        "complained",
        {"a/note.txt": "noted"},
    )
    for folder in (tmp_path / "desk", tmp_path / "w1", tmp_path / "w2"):
        assert not any(file.read_text() for file in folder.glob("runs/*/records.jsonl"))


def test_the_supervisor_knows_which_runs_are_measured(tmp_path: Path) -> None:
    """They are the runs whose hook notes numbers; a measured process is not asked where its loop is."""
    worker = FakeWorker(tmp_path, "w1", writes)
    with Desk(tmp_path / "desk", (worker,)).runner() as runner:
        for hooks in ({}, {"note_numbers": {"file": f"{NOTES}/a"}}):
            runner.run(20, NOTING.model_copy(update={"hooks": hooks}))
    assert [task.is_measured for task in worker.executor.tasks] == [False, True]


@pytest.mark.parametrize(("losses", "tasks"), [(1, 2), (2, 3)])
def test_a_trial_of_a_lost_worker_is_made_again(tmp_path: Path, losses: int, tasks: int) -> None:
    """What the lost worker had seen does not count, for it may be half of it."""
    worker = FakeWorker(tmp_path, "w1", writes, losses=losses)
    with Desk(tmp_path / "desk", (worker,)).runner() as runner:
        assert runner.run(20, NOTING).record.attempt.outcome is Outcome.PASS
    assert len(worker.executor.tasks) == tasks


def test_a_trial_that_costs_three_workers_is_not_known(tmp_path: Path) -> None:
    """It is no failure of the script, and the reason is told."""
    worker = FakeWorker(tmp_path, "w1", writes, losses=3)
    with Desk(tmp_path / "desk", (worker,)).runner() as runner, pytest.raises(PreventedError, match="lost 3 times"):
        runner.run(20, NOTING)


def test_what_no_worker_can_make_is_told_with_its_reason(tmp_path: Path) -> None:
    """The environment is given as unbuildable; one that another worker can make is made there."""
    first, second = FakeWorker(tmp_path, "w1", writes), FakeWorker(tmp_path, "w2", writes)
    first.cache.missing = frozenset({"2.0.0", "2.1.0"})
    second.cache.missing = frozenset({"2.1.0"})
    with Desk(tmp_path / "desk", (first, second)).runner() as runner:
        assert runner.environment.is_usable
        assert runner.run(20, NOTING).record.attempt.outcome is Outcome.PASS
    with Desk(tmp_path / "desk", (first, second)).runner("2.1.0") as runner:
        assert (runner.environment.outcome, runner.environment.reason) == (Outcome.UNBUILDABLE, "no wheel (on here)")
    assert not first.executor.tasks


def test_each_environment_is_asked_for_by_its_own_request(tmp_path: Path) -> None:
    """A search for a fix runs one script in two releases."""
    worker = FakeWorker(tmp_path, "w1", writes)
    with Desk(tmp_path / "desk", (worker,)).runner("2.0.0", "2.1.0") as runner:
        other = worker.cache.environment(requests("2.1.0")[0])
        assert runner.at(other).run(20, NOTING).record.environment == other.id
    assert [batch.request.torch for batch in worker.batches if batch.trial] == ["2.1.0"]


def test_an_interrupt_ends_the_trials_on_the_workers(tmp_path: Path) -> None:
    """None is begun after it, either."""
    begun, ended = threading.Event(), threading.Event()
    cancelled: list[bool] = []

    def behave(_task: Task) -> Ending | None:
        begun.set()
        ended.wait(PATIENCE)
        return None

    worker = FakeWorker(tmp_path, "w1", behave)
    with Desk(tmp_path / "desk", (worker,)).runner() as runner:
        told: list[str] = []
        runner.tell = told.append

        def run() -> None:
            with pytest.raises(KeyboardInterrupt):
                runner.run(20)
            cancelled.append(True)

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(PATIENCE)
        with pytest.raises(KeyboardInterrupt), runner.workers(1):
            raise KeyboardInterrupt
        thread.join(PATIENCE)
        ended.set()
        assert cancelled
        assert "was stopped" in told[0]
        with pytest.raises(KeyboardInterrupt):
            runner.run(20)
    assert len(worker.executor.tasks) == 1


def test_an_interpreter_of_this_machine_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """A worker does not have it."""
    worker = FakeWorker(tmp_path, "w1", writes)
    (request,) = requests("2.0.0")
    own = request.model_copy(update={"interpreter": tmp_path / "python"})
    machines = ClusterMachines(FakeEngine(worker), tmp_path)
    opened = opened_lab(machines, Records(), shows_nothing)
    with opened as lab, pytest.raises(UsageError, match="is on this machine"):
        lab.acquire(own)
    assert not worker.batches


def test_a_changed_file_travels_byte_for_byte() -> None:
    """Bytes that are no UTF-8 and line ends of any kind are what they were."""
    text = b"a = 'caf\xe9'\r\nb = '\xc3\xa9'\n".decode("utf-8", "surrogateescape")
    trial = Variation(limit=5, files={"torch/a.py": text, "torch/b.py": None})
    assert Variation.model_validate_json(trial.model_dump_json()) == trial
    assert Variation(files={"torch/a.py": text}).files["torch/a.py"] == text


def test_the_files_of_torch_are_written_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of its packages, whole, and the list of what the wheel installed."""
    files = {"torch/__init__.py": "x = 'é'\r\n", "torch/nn/a.py": "", "other/b.py": "no", "torch/c.txt": "no"}
    interpreter = environment_folder(tmp_path / "env", files)
    (site,) = interpreter.parent.parent.glob("lib/python3*/site-packages")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"purelib": str(site)})
    monkeypatch.setattr(tree_dump, "AT_ONCE", 2)
    (tmp_path / "answer").mkdir()
    tree_dump.main(str(tmp_path / "answer"))
    texts: dict[str, str] = {}
    for file in (tmp_path / "answer").iterdir():
        texts |= json.loads(file.read_text())
    (record,) = (name for name in texts if name.endswith("RECORD"))
    assert texts.pop(record) == (site / record).read_text()
    assert {name: text.encode() for name, text in texts.items()} == {
        name: (site / name).read_bytes() for name in ("torch/__init__.py", "torch/nn/a.py")
    }
    assert tree_dump.PACKAGES == PACKAGES


def test_what_trials_are_forked_from_ends_when_none_comes() -> None:
    """It is kept from one trial to the next, and never ended below one."""
    forks = TrialForks(idle=0.05)
    with forks.lent("run") as (executor, caches):
        with forks.lent("run") as again:
            assert again == (executor, caches)
        forks.close()
        assert caches.exists()
    assert until(lambda: not caches.exists())


def test_a_trial_that_cannot_be_made_is_no_other_one_s_business(tmp_path: Path) -> None:
    """What was asked ahead may fail, and nobody may ever ask for it; the next trial is made."""

    def behave(task: Task) -> Ending:
        if "bad" in task.argv:
            raise OSError("no room")
        return PASSED

    planned = PlannedCell(
        request=requests("2.0.0")[0], scenario=scenario(tmp_path, "s"), variant={}, options=RunOptions()
    )
    with new_run(tmp_path, ()) as store:
        lab = lab_of(FakeCache(tmp_path), store, FakeExecutor(behave))
        runner = Runner(lab=lab, planned=planned, environment=lab.acquire(planned.request))
        failing = runner.start(20, Variation(arguments=("bad",)))
        assert runner.run(20, Variation(arguments=("good",))).record.attempt.outcome is Outcome.PASS
        with pytest.raises(OSError, match="no room"):
            failing()
        lab.close()
