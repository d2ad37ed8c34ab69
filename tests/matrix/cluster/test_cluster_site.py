"""A cluster as a site: what is sent where, what is kept of what comes back, and what a lost worker costs."""

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import PASSED, FakeExecutor
from tests.matrix.cluster.fakes import FakeEngine, FakeWorker
from tests.matrix.test_lab import requests, scenario
from tests.patience import PATIENCE
from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.matrix import planning
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.cluster import batch_host
from whichtorch.matrix.cluster.cluster_site import ClusterMachines
from whichtorch.matrix.lab import MatrixRun
from whichtorch.matrix.planning import PlannedCell
from whichtorch.matrix.work import MIN_CELLS_TO_FORK, Machine
from whichtorch.model import Build, Config, Hardware, LocalProject, Outcome, Record, Request
from whichtorch.model.events import AttemptEnded, AttemptStarted, Event
from whichtorch.process.supervision import Ending, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run, read_lines
from whichtorch.suite import selection

EACH_ALONE = 0.0  # seconds of cells in a batch: one


class Outing:
    """A run on a cluster, and what was told of it."""

    def __init__(
        self, home: Path, engine: FakeEngine, batch_seconds: float = EACH_ALONE, jobs: int | None = None
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home, self.events = home, list[Event]()
        self._engine = engine
        self._machines = ClusterMachines(engine, home, jobs, batch_seconds)

    def run(self, planned: Sequence[PlannedCell]) -> MatrixRun:
        with (
            new_run(self.home, ()) as store,
            self._machines.site(Records(self.home), store, self.events.append) as site,
        ):
            self.step = MatrixRun(planned, CellScheduler(site))
            self.step.run()
        for worker in self._engine.workers.values():
            worker.host.finish()
        return self.step

    @property
    def records(self) -> list[Record]:
        return [each for file in self.home.glob("runs/*/records.jsonl") for each in read_lines(file, Record)]


def plan(tmp_path: Path, count: int = 3, *versions: str, **options: Any) -> Sequence[PlannedCell]:
    suite = [scenario(tmp_path, f"s{number}") for number in range(count)]
    return planning.plan(requests(*(versions or ("2.0.0",))), suite, planning.RunOptions(**{"cold": True} | options))


def test_cells_run_on_workers_and_their_records_and_files_come_back(tmp_path: Path) -> None:
    """Each cell is judged here, its record is in this run, and so is what its script wrote."""

    def behave(task: Task) -> Ending:
        with Path(task.stdout).open("w") as file:
            file.write("hello")
        return PASSED

    outing = Outing(tmp_path / "c", FakeEngine(FakeWorker(tmp_path, "w1", behave), FakeWorker(tmp_path, "w2", behave)))
    run = outing.run(plan(tmp_path, 3, "2.0.0", "2.1.0"))
    assert [cell.outcome for cell in run.cells] == [Outcome.PASS] * 6
    assert len(outing.records) == len({record.key for record in outing.records}) == 6
    assert {(outing.home / record.attempt.stdout).read_text() for record in outing.records} == {"hello"}
    assert sum(isinstance(event, AttemptEnded) for event in outing.events) == 6
    assert {event.host for event in outing.events if isinstance(event, AttemptStarted)} <= {"w1", "w2"}


@pytest.mark.parametrize(("count", "forked"), [(MIN_CELLS_TO_FORK, MIN_CELLS_TO_FORK), (MIN_CELLS_TO_FORK - 1, 0)])
def test_all_cells_of_an_environment_decide_whether_a_batch_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, forked: int
) -> None:
    """A batch of a single cell is forked where its environment has enough cells."""
    forking = FakeExecutor(lambda _: replace(PASSED, start="fork torch"))
    monkeypatch.setattr(batch_host, "ForkingExecutor", lambda _servers: nullcontext(forking))
    worker = FakeWorker(tmp_path, "w1")
    Outing(tmp_path / "c", FakeEngine(worker)).run(plan(tmp_path, count, cold=False))
    assert (len(forking.tasks), len(worker.executor.tasks)) == (forked, count - forked)


def test_what_is_known_is_not_sent(tmp_path: Path) -> None:
    """The same command again asks no worker, and with new cells it sends just these."""
    worker = FakeWorker(tmp_path, "w1")
    Outing(tmp_path / "c", FakeEngine(worker)).run(plan(tmp_path, 2))
    sent = len(worker.batches)
    Outing(tmp_path / "c", FakeEngine(worker)).run(plan(tmp_path, 2))
    assert len(worker.batches) == sent
    Outing(tmp_path / "c", FakeEngine(worker)).run(plan(tmp_path, 3))
    assert [cell.source_hash for batch in worker.batches[sent:] for cell in batch.cells] == ["hash of s2"]


def test_a_client_that_knows_nothing_is_answered_from_the_workers_records(tmp_path: Path) -> None:
    """What a worker has done for a client that was killed is not run again, and is written once."""
    worker = FakeWorker(tmp_path, "w1")
    Outing(tmp_path / "killed", FakeEngine(worker)).run(plan(tmp_path, 2))
    again = Outing(tmp_path / "c", FakeEngine(worker))
    run = again.run(plan(tmp_path, 2))
    assert len(worker.executor.tasks) == 2
    assert [cell.reused for cell in run.cells] == [1, 1]
    assert len(again.records) == 2


def test_fresh_runs_again_but_not_twice(tmp_path: Path) -> None:
    """A worker's older records do not answer a fresh run; those that were made for it do, if it is asked again."""
    worker = FakeWorker(tmp_path, "w1")
    Outing(tmp_path / "c", FakeEngine(worker)).run(plan(tmp_path, 2))
    worker.losses = 1
    fresh = Outing(tmp_path / "c", FakeEngine(worker))
    fresh.run(plan(tmp_path, 2, fresh=True))
    assert len(worker.executor.tasks) == 4
    assert len(fresh.records) == 4


def test_repeats_are_all_kept(tmp_path: Path) -> None:
    """Attempts of one cell that took equally long are still several."""
    outing = Outing(tmp_path / "c", FakeEngine(FakeWorker(tmp_path, "w1")))
    (cell,) = outing.run(plan(tmp_path, 1, repeat=5)).cells
    assert len(cell.attempts) == len(outing.records) == 5


def test_a_lost_batches_cells_go_to_the_same_host_first_and_its_late_answer_is_refused(tmp_path: Path) -> None:
    """What that host had done is answered from its records; nothing is run or written twice."""
    first, second = FakeWorker(tmp_path, "w1", losses=1), FakeWorker(tmp_path, "w2")
    engine = FakeEngine(first)
    outing = Outing(tmp_path / "c", engine, batch_seconds=60)
    engine.workers["w2"] = second
    run = outing.run(plan(tmp_path, 3))
    for late in engine.late:
        late()
    assert [cell.outcome for cell in run.cells] == [Outcome.PASS] * 3
    assert len(first.executor.tasks) + len(second.executor.tasks) == 3
    assert len(outing.records) == 3


def test_a_cell_that_costs_three_workers_is_an_error_and_the_others_are_done(tmp_path: Path) -> None:
    """It says so, and nothing is learnt of torch; the same command tries again."""
    worker = FakeWorker(tmp_path, "w1", losses=3)
    outing = Outing(tmp_path / "c", FakeEngine(worker))
    (cell,) = outing.run(plan(tmp_path, 1)).cells
    assert cell.outcome is Outcome.ERROR
    assert "lost 3 times" in (cell.reason or "")
    (again,) = Outing(tmp_path / "c", FakeEngine(worker)).run(plan(tmp_path, 1)).cells
    assert again.outcome is Outcome.PASS


def test_a_batch_that_reaches_no_worker_costs_its_cells_nothing(tmp_path: Path) -> None:
    """A worker had gone before it was sent: however often that happens, the cells are no error."""
    worker = FakeWorker(tmp_path, "w1", misses=5)
    run = Outing(tmp_path / "c", FakeEngine(worker), batch_seconds=60).run(plan(tmp_path, 3))
    assert [cell.outcome for cell in run.cells] == [Outcome.PASS] * 3


def test_an_environment_that_one_host_cannot_make_is_made_on_another(tmp_path: Path) -> None:
    """A full disk on one machine is no reason to give up; where none can make it, it is unbuildable and says where."""
    broken, other = FakeWorker(tmp_path, "w1", missing=frozenset({"2.0.0"})), FakeWorker(tmp_path, "w2")
    run = Outing(tmp_path / "c", FakeEngine(broken, other)).run(plan(tmp_path, 2))
    assert [cell.outcome for cell in run.cells] == [Outcome.PASS] * 2
    other.cache.missing = frozenset({"2.1.0"})
    broken.cache.missing = frozenset({"2.1.0"})
    run = Outing(tmp_path / "c", FakeEngine(broken, other)).run(plan(tmp_path, 2, "2.1.0"))
    assert [cell.outcome for cell in run.cells] == [Outcome.UNBUILDABLE] * 2
    assert "(on here)" in (run.cells[0].reason or "")


def test_the_second_host_installs_what_the_first_resolved(tmp_path: Path) -> None:
    """Otherwise a release of numpy between two installs would make two environments of one."""
    workers = [FakeWorker(tmp_path, name) for name in ("w1", "w2")]
    Outing(tmp_path / "c", FakeEngine(*workers)).run(plan(tmp_path, 30))
    assert all(worker.executor.tasks for worker in workers)
    first, second = sorted(workers, key=lambda worker: not any(not batch.cells for batch in worker.batches))
    assert second.cache.pins["2.0.0"] == f"torch==2.0.0 resolved by {first.name}"


def test_cells_that_ask_for_hardware_go_where_it_is(tmp_path: Path) -> None:
    """Their environments and labels name it; a kind that no worker has is refused before anything is sent."""
    h100 = Hardware(name="h100", gpu="*H100*", driver=">=570")
    machine = Machine(host="gpu1", arch="x86_64", gpus=("NVIDIA H100 80GB HBM3",), driver="575.51.03")
    plain, placed = FakeWorker(tmp_path, "w1"), FakeWorker(tmp_path, "w2", machine=machine)
    build, config = Build(name="pypi"), Config(name="default")
    request = Request(torch="2.0.0", python="3.11", build=build, config=config, hardware=h100)
    suite = [scenario(tmp_path, "s0")]
    planned = planning.plan([request], suite, planning.RunOptions())
    run = Outing(tmp_path / "c", FakeEngine(plain, placed)).run(planned)
    assert (len(plain.batches), run.environments[0].label) == (0, "torch-2.0.0-pypi@h100")
    assert run.cells[0].attempts[0].evidence.hardware == "h100"
    with pytest.raises(PreventedError, match="no worker is of the hardware h100") as refusal:
        Outing(tmp_path / "d", FakeEngine(plain)).run(planned)
    assert "it has no GPU" in refusal.value.hint


def test_a_worker_of_another_version_gets_no_work_and_is_named(tmp_path: Path) -> None:
    """A record of another program would say what this one cannot check."""
    old, new = FakeWorker(tmp_path, "w1", code="0.0.9, schema 0"), FakeWorker(tmp_path, "w2")
    Outing(tmp_path / "c", FakeEngine(old, new)).run(plan(tmp_path))
    assert old.batches == []
    (line,) = ClusterMachines(FakeEngine(old, new), tmp_path).misfits()
    assert "0.0.9, schema 0" in line
    with pytest.raises(PreventedError, match="can take work"):
        Outing(tmp_path / "d", FakeEngine(old)).run(plan(tmp_path))


def test_an_interrupt_stops_the_workers_and_keeps_what_is_done(tmp_path: Path) -> None:
    """What was delivered is written; what a worker had done of the rest answers the same command."""
    begun, go_on = threading.Event(), threading.Event()

    def behave(task: Task) -> Ending | None:
        if "s2" in task.argv[-1] and not go_on.is_set():
            begun.set()
            go_on.wait(PATIENCE)
            return None
        return PASSED

    worker = FakeWorker(tmp_path, "w1", behave)
    outing = Outing(tmp_path / "c", FakeEngine(worker))
    thread = threading.Thread(target=outing.run, args=(plan(tmp_path, 3),))
    thread.start()
    assert begun.wait(PATIENCE)
    outing.step.cancel()
    thread.join(PATIENCE)
    go_on.set()
    assert len(outing.records) == 2
    run = Outing(tmp_path / "c", FakeEngine(worker)).run(plan(tmp_path, 3))
    assert [cell.outcome for cell in run.cells] == [Outcome.PASS] * 3


def test_what_lies_on_this_machine_only_is_refused(tmp_path: Path) -> None:
    """An interpreter, a folder of wheels and a project that is installed are not on the workers."""
    machines = ClusterMachines(FakeEngine(FakeWorker(tmp_path, "w1")), tmp_path)
    (request,) = requests("2.0.0")
    project = LocalProject(name="tide", digest="d1", subfolder=".")
    for update in ({"interpreter": tmp_path / "python"}, {"torch": "/tmp/torch-2.0.0.whl"}, {"projects": (project,)}):
        with pytest.raises(UsageError, match="is on this machine"):
            machines.check([request.model_copy(update=update)])


def test_a_file_that_a_users_script_opens_is_in_the_folder_that_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it lies beside the script or where the user is."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "a.py").write_text("print(open('beside.txt').read(), open('where/i/am.txt').read())\n")
    (tmp_path / "scripts" / "beside.txt").write_text("one")
    (tmp_path / "where" / "i").mkdir(parents=True)
    (tmp_path / "where" / "i" / "am.txt").write_text("two")
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []

    def behave(task: Task) -> Ending:
        seen.extend(Path(task.cwd, name).read_text() for name in ("beside.txt", "where/i/am.txt"))
        return PASSED

    planned = planning.plan(requests("2.0.0"), [selection.script("scripts/a.py")], planning.RunOptions())
    Outing(tmp_path / "c", FakeEngine(FakeWorker(tmp_path, "w", behave))).run(planned)
    assert seen == ["one", "two"]


@pytest.mark.parametrize(("cores", "jobs", "slots"), [(2, None, 3), (0, None, 5), (8, None, 5), (2, 4, 4), (2, 9, 5)])
def test_a_search_tries_no_more_at_once_than_hosts_have_cores(
    tmp_path: Path, cores: int, jobs: int | None, slots: int
) -> None:
    """However many workers are on a host; where --jobs asks for more, it gets more."""
    here, there = (Machine(host=host, arch="x86_64", cores=cores) for host in ("here", "there"))
    workers = [FakeWorker(tmp_path, str(number), machine=here, slots=2) for number in range(2)]
    engine = FakeEngine(*workers, FakeWorker(tmp_path, "far", machine=there))
    assert ClusterMachines(engine, tmp_path, jobs).slots == slots


def test_jobs_bound_the_batches_that_are_on_their_way(tmp_path: Path) -> None:
    """Of a worker's many slots no more are taken than the user allows, and those are."""
    lock, together = threading.Lock(), threading.Barrier(2)
    working, most = 0, 0

    def behave(_task: Task) -> Ending:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        together.wait(PATIENCE)
        with lock:
            working -= 1
        return PASSED

    worker = replace(FakeWorker(tmp_path, "w1", behave), slots=8)
    run = Outing(tmp_path / "c", FakeEngine(worker), jobs=2).run(plan(tmp_path, 4))
    assert [cell.outcome for cell in run.cells] == [Outcome.PASS] * 4
    assert most == 2
