"""The workers of a cluster as a place where cells run: batches are sent to them, and what comes back is kept here.

The client is the only writer of the run.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.matrix.cluster.engine import first_line
from whichtorch.matrix.cluster.known_environments import KnownEnvironments
from whichtorch.matrix.cluster.packing import Parcel
from whichtorch.matrix.cluster.wire import BatchOrder, Delivery, OrderedCell, ScriptFiles, SharedLock
from whichtorch.matrix.cluster.worker_events import decoded
from whichtorch.matrix.environments.index.sources import local_folder
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.records.known_records import identity
from whichtorch.matrix.run.work import Batch, BatchResult, CellEnd, UndeliveredError, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from whichtorch.matrix.cluster.engine import Cancel, Member
    from whichtorch.matrix.cluster.membership import Cluster
    from whichtorch.matrix.cluster.worker_events import WorkerEvent
    from whichtorch.matrix.events import Emit
    from whichtorch.matrix.model import Environment, Record, Request
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.process.supervision import Supervised
    from whichtorch.matrix.records.known_records import Records
    from whichtorch.matrix.records.store import RunStore
    from whichtorch.matrix.run.work import Worker

    Done = Callable[[Callable[[], BatchResult]], None]


@dataclass
class ClusterSite:
    """The workers of a cluster, for a step of a run."""

    machines: ClusterMachines
    records: Records
    store: RunStore
    emit: Emit
    running: tuple[Supervised, ...] = ()  # none can be looked at from here
    _sent: dict[str, tuple[Cancel, Done]] = field(default_factory=dict)  # batches that are awaited, by their ids
    _scripts: dict[str, ScriptFiles] = field(default_factory=dict)  # by source hash
    _locks: dict[tuple[str, ...], SharedLock | None] = field(default_factory=dict)  # by the request's key

    def __post_init__(self) -> None:
        cluster = self.machines.cluster
        self.environments, self.engine = self.machines.environments, cluster.engine
        self.address, self.batch_seconds, self.most_batches = self.engine.address, cluster.batch_seconds, cluster.jobs

    def running_lines(self) -> Sequence[str]:
        """Return for each attempt that runs now how long it has run, where it is, and on which worker."""
        return self.engine.running_lines()

    def with_variables(self, _request: Request, environment: Environment) -> Environment:
        """Return the environment: the worker has said with which variables its cells run."""
        return environment

    def check(self, request: Request) -> None:
        """Raise UsageError or PreventedError for what no worker can make or run."""
        self.machines.check([request])

    def workers(self) -> Sequence[Member]:
        """Return the workers that are there now. Raises PreventedError where the scheduler has gone."""
        return self.machines.cluster.members()

    def start(self, batch: Batch, worker: Worker, done: Done) -> None:
        """Send a batch."""

        def arrived(came: bytes | Exception) -> None:
            done(partial(self._result, batch, worker, came))

        order = self._order(batch).model_dump_json(by_alias=True).encode()
        self._sent[batch.id] = self.engine.send(order, batch.id, worker.address, arrived), done

    def cancel(self, batch: Batch) -> None:
        """Have a batch end soon. Its worker answers no more, and keeps what is done of it."""
        cancel, done = self._sent.pop(batch.id)
        try:
            cancel()
        finally:
            done(BatchResult)

    def hear(self, host: str, events: Iterable[WorkerEvent]) -> None:
        """Tell what happens on a worker."""
        for event in events:
            self.emit(decoded(event, host))

    def _order(self, batch: Batch) -> BatchOrder:
        cells = batch.cells.values()
        for cell in cells:
            if cell.scenario.source_hash not in self._scripts:
                self._scripts[cell.scenario.source_hash] = ScriptFiles.of(cell.scenario)
        return BatchOrder(
            id=batch.id,
            run=self.store.run.id,
            request=batch.request,
            options=batch.options,
            cells=tuple(
                OrderedCell(position=position, source_hash=cell.scenario.source_hash, variant=cell.variant)
                for position, cell in batch.cells.items()
            ),
            scripts=tuple(self._scripts[each] for each in dict.fromkeys(cell.scenario.source_hash for cell in cells)),
            known=bearing_on(cells, batch.environment, self.records) if batch.environment else (),
            lock=self._locks.get(batch.request.key),
        )

    def _result(self, batch: Batch, worker: Worker, came: bytes | Exception) -> BatchResult:
        """Return what came of a batch, with its new records kept in this run."""
        self._sent.pop(batch.id, None)
        if isinstance(came, UndeliveredError):
            raise came
        assert worker.machine is not None
        host = worker.machine.host
        if isinstance(came, Exception):
            raise WorkerLostError(f"{host}: {first_line(came)}") from came
        with closing(Parcel(came)) as parcel:
            delivery = Delivery.model_validate_json(parcel.delivery)
            self.hear(worker.name, delivery.events)
            environment = delivery.environment
            if environment is None:
                return BatchResult(left=list(batch.cells))
            if not batch.cells:
                self._locks[batch.request.key] = delivery.lock
            if not environment.is_usable:
                where = {"reason": f"{environment.reason} (on {host})", "log": None}
                return BatchResult(environment=environment.model_copy(update=where), left=list(batch.cells))
            if not batch.cells:
                self.environments.remember(batch.request, environment)
            ends = {
                cell.position: CellEnd(
                    position=cell.position,
                    planned=batch.cells[cell.position],
                    environment=environment,
                    records=[self._kept(record, parcel) for record in cell.records],
                    reused=cell.reused,
                    problem=cell.problem,
                )
                for cell in delivery.cells
            }
        left = [position for position in batch.cells if position not in ends]
        return BatchResult(environment=environment, ends=list(ends.values()), left=left)

    def _kept(self, record: Record, parcel: Parcel) -> Record:
        """Return a record as this machine has it; a new one is written to the run, with its files."""
        known = {identity(each): each for each in self.records.of(record.key)}
        if (mine := known.get(identity(record))) is not None:
            return mine
        record = parcel.moved(record, self.store)
        self.store.add_record(record)
        self.records.add(record)
        return record


class ClusterMachines:
    """The workers of a cluster as the commands on a state folder use them."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster = cluster
        self.environments = KnownEnvironments(home)

    @property
    def slots(self) -> int:
        """How many cells run at once."""
        return self.cluster.slots

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UsageError for what lies on this machine only, PreventedError for what no worker can run."""
        for request in requests:
            folder = request.build.find_links
            wheel = request.torch if request.torch.endswith(".whl") else ""
            if request.interpreter is not None:
                hint = "leave out --executor, or name a release with --torch"
                raise UsageError(f"{request.interpreter} is on this machine, and workers are not", hint=hint)
            if wheel or (folder and local_folder(folder) is not None):
                hint = "leave out --executor, or serve the wheels from an index that the workers reach"
                raise UsageError(f"{wheel or folder} is on this machine, and workers are not", hint=hint)
        self.cluster.check(requests)

    def install_cost(self, _requests: Sequence[Request]) -> tuple[int, float]:
        """Return nothing: workers install."""
        return 0, 0.0

    @contextmanager
    def site(self, records: Records, store: RunStore, emit: Emit) -> Iterator[ClusterSite]:
        """Open them as a place for a step of a run."""
        site = ClusterSite(self, records, store, emit)
        self.cluster.engine.follow(store.run.id, site.hear)
        yield site


def bearing_on(cells: Iterable[PlannedCell], environment: Environment, records: Records) -> tuple[Record, ...]:
    """Return the records that a worker needs for cells, without what only people read."""
    chosen: dict[tuple[object, ...], Record] = {}
    for cell in cells:
        key = cell.key(environment)
        bearing = records.bearing_on(environment.id, cell.scenario, cell.variant, cell.request.hardware_name)
        own = cell.counting([record for record in bearing if record.key == key], environment)
        counting = set(map(identity, own))
        chosen |= {identity(each): each for each in bearing if each.key != key or identity(each) in counting}
    return tuple(map(_brief, chosen.values()))


def _brief(record: Record) -> Record:
    evidence = record.attempt.evidence
    kept = {name: getattr(evidence, name) for name in evidence.model_fields_set - {"samples", "stall", "observed"}}
    attempt = record.attempt.model_copy(update={"diagnosis": None, "evidence": type(evidence)(**kept)})
    return record.model_copy(update={"attempt": attempt})
