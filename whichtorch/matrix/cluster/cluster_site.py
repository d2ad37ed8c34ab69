"""A cluster as a site: units go to workers, one for each free slot; what comes back is taken into this run.

The client is the only writer of the run. A delivery counts only while its dispatch id is awaited: what was sent again
has another one, so a worker that was thought lost and comes back is refused.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.matrix.cluster.allotment import LOSSES, SHARES, Tenancy, bearing_on, choose
from whichtorch.matrix.cluster.engine import UndeliveredError, first_line
from whichtorch.matrix.cluster.known_environments import KnownEnvironments
from whichtorch.matrix.cluster.news import heard
from whichtorch.matrix.cluster.packing import Parcel
from whichtorch.matrix.cluster.unit import Delivery, ScriptFiles, UnitCell, UnitOfWork
from whichtorch.matrix.environments.installation import environment_of
from whichtorch.matrix.errors import GOES_ON, PreventedError
from whichtorch.matrix.model import Outcome, Record, digest
from whichtorch.matrix.records.known_records import identity
from whichtorch.matrix.run.planned_matrix import TYPICAL_CELL
from whichtorch.matrix.run.site import SIGNAL_CHECK, CellEnd, EnvironmentWork, OtherMachines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from whichtorch.matrix.cluster.engine import Member, Ticket
    from whichtorch.matrix.cluster.membership import Cluster
    from whichtorch.matrix.cluster.news import News
    from whichtorch.matrix.events import Emit
    from whichtorch.matrix.model import Environment, Request
    from whichtorch.matrix.records.known_records import Records
    from whichtorch.matrix.records.store import RunStore
    from whichtorch.matrix.run.site import CellSink, Site

PATIENCE = 60.0  # seconds without a worker that fits, after which a run that had some ends


@dataclass(slots=True, kw_only=True)
class _Sent:
    """A unit that is awaited."""

    tenancy: Tenancy
    positions: tuple[int, ...]  # none: the environment is made ready
    worker: Member
    ticket: Ticket | None = None


@dataclass
class ClusterSite:
    """The machines of a cluster, for one step of a run."""

    cluster: Cluster
    environments: KnownEnvironments
    records: Records
    store: RunStore
    emit: Emit
    _awaited: dict[str, _Sent] = field(default_factory=dict)  # by dispatch id
    _arrived: deque[tuple[str, bytes | Exception]] = field(default_factory=deque)
    _scripts: dict[str, ScriptFiles] = field(default_factory=dict)  # by source hash
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _fit_at: float = field(default_factory=time.monotonic)  # when there was a worker for what is left

    def running_lines(self) -> Sequence[str]:
        """Return for each attempt that runs now how long it has run, where it is, and on which worker."""
        return self.cluster.engine.running_lines()

    def with_variables(self, _request: Request, environment: Environment) -> Environment:
        """Return the environment: the worker has said with which variables its cells run."""
        return environment

    def cancel(self) -> None:
        """Have `run`, in another thread, stop what runs and return; what is done is kept."""
        self._cancelled.set()
        with self.cluster.changed:
            self.cluster.changed.notify_all()

    def run(self, work: Sequence[EnvironmentWork], sink: CellSink) -> None:
        """Run cells to their end. An interrupt stops what runs and keeps what is done; a second one is raised."""
        tenancies = []
        try:
            for each in work:
                if each.request.problem is None:
                    tenancies.append(Tenancy(work=each))
                else:
                    sink.acquired(each, self.environments.acquire(each.request))
            if tenancies:
                self.environments.check([tenancy.work.request for tenancy in tenancies])
                self.cluster.engine.follow(self.store.run.id, self._hear)
                self._loop(tenancies, sink)
        except KeyboardInterrupt:
            sink.interrupted()
        finally:
            for sent in self._awaited.values():
                if sent.ticket is not None:
                    sent.ticket.cancel()
                self.cluster.vacate(sent.worker.address)
            self._awaited.clear()

    def _loop(self, tenancies: list[Tenancy], sink: CellSink) -> None:
        while not self._cancelled.is_set():
            tenancies = [each for each in tenancies if not each.is_done]
            if not tenancies:
                return
            members = self.cluster.members()
            self._send_all(tenancies, members)
            if self._awaited or any(each.may_go_to(member) for each in tenancies for member in members):
                self._fit_at = time.monotonic()
            elif time.monotonic() - self._fit_at > PATIENCE:
                raise PreventedError(f"no worker is left for it at {self.cluster.engine.address}", hint=GOES_ON)
            with self.cluster.changed:
                if not (self._arrived or self._cancelled.is_set()):
                    self.cluster.changed.wait(SIGNAL_CHECK)
            while self._arrived:
                self._take(*self._arrived.popleft(), sink)

    # to the workers

    def _send_all(self, tenancies: Sequence[Tenancy], members: Sequence[Member]) -> None:
        """Send a unit for each free slot, as far as there is something that it should get."""
        slots = sum(member.facts.slots for member in members)
        is_sending = True
        while is_sending:
            is_sending = False
            for member in self.cluster.free(members):
                tenancy = choose(tenancies, member, self.environments.typical_install())
                if tenancy is not None and self.cluster.occupy(member):
                    left = sum(each.rest for each in tenancies)
                    self._send(tenancy, member, min(self.cluster.unit_seconds, left * TYPICAL_CELL / (SHARES * slots)))
                    is_sending = True

    def _send(self, tenancy: Tenancy, member: Member, most: float) -> None:
        positions: tuple[int, ...] = ()
        if tenancy.environment is None:
            tenancy.is_preparing = True
        else:
            positions = tenancy.take(member, self.records, most)
        tenancy.hosts[member.facts.host] += 1
        dispatch = f"unit-{secrets.token_hex(8)}"
        unit = self._unit(tenancy, positions, dispatch).model_dump_json(by_alias=True).encode()
        sent = _Sent(tenancy=tenancy, positions=positions, worker=member)
        self._awaited[dispatch] = sent

        def arrive(came: bytes | Exception) -> None:
            with self.cluster.changed:
                self._arrived.append((dispatch, came))
                self.cluster.changed.notify_all()

        sent.ticket = self.cluster.engine.send(unit, dispatch, member.address, arrive)

    def _unit(self, tenancy: Tenancy, positions: Sequence[int], dispatch: str) -> UnitOfWork:
        cells = [tenancy.work.cells[position] for position in positions]
        for cell in cells:
            if cell.scenario.source_hash not in self._scripts:
                self._scripts[cell.scenario.source_hash] = ScriptFiles.of(cell.scenario)
        hashes = dict.fromkeys(cell.scenario.source_hash for cell in cells)
        return UnitOfWork(
            dispatch=dispatch,
            run=self.store.run.id,
            request=tenancy.work.request,
            options=next(iter(tenancy.work.cells.values())).options,
            cells=tuple(
                UnitCell(position=position, source_hash=cell.scenario.source_hash, variant=cell.variant)
                for position, cell in zip(positions, cells, strict=True)
            ),
            scripts=tuple(self._scripts[source_hash] for source_hash in hashes),
            known=bearing_on(cells, tenancy.environment, self.records) if tenancy.environment else (),
            lock=tenancy.lock,
        )

    # from the workers

    def _hear(self, host: str, news: Iterable[News]) -> None:
        for each in news:
            if (event := heard(each, host)) is not None:
                self.emit(event)

    def _take(self, dispatch: str, came: bytes | Exception, sink: CellSink) -> None:
        """Take in what came of a unit, unless it was sent again since."""
        sent = self._awaited.pop(dispatch, None)
        if sent is None:
            return
        self.cluster.vacate(sent.worker.address)
        sent.tenancy.hosts[sent.worker.facts.host] -= 1
        sent.tenancy.is_preparing = sent.tenancy.is_preparing and bool(sent.positions)
        if isinstance(came, UndeliveredError):
            sent.tenancy.left.extendleft(reversed(sent.positions))
            return
        if isinstance(came, Exception):
            self._lost(sent, came, sink)
            return
        sent.tenancy.made_on.add(sent.worker.facts.host)
        parcel = Parcel(came)
        try:
            delivery = Delivery.model_validate_json(parcel.delivery)
            self._hear(sent.worker.name, delivery.news)
            if not sent.positions:
                self._prepared(sent, delivery, sink)
            else:
                self._delivered(sent, delivery, parcel, sink)
        finally:
            parcel.close()

    def _prepared(self, sent: _Sent, delivery: Delivery, sink: CellSink) -> None:
        """Take in that an environment is ready, or cannot be made on one worker: then another one is asked."""
        tenancy, environment = sent.tenancy, delivery.environment
        if environment is None:
            return
        tenancy.lock = delivery.lock
        if environment.is_usable:
            self.environments.remember(tenancy.work.request, environment)
            tenancy.begin(environment, sink.acquired(tenancy.work, environment))
            return
        tenancy.refused.add(sent.worker.facts.host)
        if not any(tenancy.may_go_to(member) for member in self.cluster.members()):
            self._refuse(tenancy, environment, sent.worker, sink)

    def _delivered(self, sent: _Sent, delivery: Delivery, parcel: Parcel, sink: CellSink) -> None:
        """Keep the records of a unit's cells, and end the cells; what is missing is sent again."""
        tenancy, environment = sent.tenancy, delivery.environment
        missing = set(sent.positions)
        if environment is not None and not environment.is_usable:
            tenancy.refused.add(sent.worker.facts.host)
        elif environment is not None:
            if tenancy.environment is not None and environment.id != tenancy.environment.id:
                work = tenancy.work  # a machine on which the same request comes out otherwise
                sink.acquired(EnvironmentWork(request=work.request, first=work.first, cells={}), environment)
            for cell in delivery.cells:
                missing.discard(cell.position)
                records = [self._kept(record, parcel) for record in cell.records]
                sink.ended(
                    CellEnd(
                        position=cell.position,
                        planned=tenancy.work.cells[cell.position],
                        environment=environment,
                        records=records,
                        reused=cell.reused,
                        problem=cell.problem,
                    )
                )
        tenancy.left.extendleft(sorted(missing, reverse=True))

    def _kept(self, record: Record, parcel: Parcel) -> Record:
        """Return a record as this machine has it; a new one is written to the run, with its files."""
        known = {identity(each): each for each in self.records.of(record.key)}
        if (mine := known.get(identity(record))) is not None:
            return mine
        record = parcel.moved(record, self.store)
        self.store.add_record(record)
        self.records.add(record)
        return record

    def _lost(self, sent: _Sent, error: Exception, sink: CellSink) -> None:
        """Have a lost unit's cells sent again, each alone; a cell that cost too many workers is an error."""
        tenancy, host = sent.tenancy, sent.worker.facts.machine.host
        reason = f"its worker was lost {LOSSES} times, the last time {host}: {first_line(error)}"
        for position in sent.positions or (-1,):
            tenancy.losses[position] += 1
            is_given_up = tenancy.losses[position] >= LOSSES
            if position >= 0 and not is_given_up:
                tenancy.lost_on[position] = sent.worker.facts.host
                tenancy.alone.append(position)
            elif position >= 0 and tenancy.environment is not None:
                cell = tenancy.work.cells[position]
                end = CellEnd(
                    position=position, planned=cell, environment=tenancy.environment, records=(), problem=reason
                )
                sink.ended(end)
            elif is_given_up:
                request = tenancy.work.request
                fields = {"id": digest(["not made", *request.key]), "torch": request.torch, "python": request.python}
                failed = environment_of(request, fields | {"outcome": Outcome.UNBUILDABLE, "reason": reason})
                self._refuse(tenancy, failed, sent.worker, sink)

    def _refuse(self, tenancy: Tenancy, environment: Environment, worker: Member, sink: CellSink) -> None:
        """End an environment that no worker can make or use, with all its cells."""
        where = f"{environment.reason} (on {worker.facts.machine.host})"
        sink.acquired(tenancy.work, environment.model_copy(update={"reason": where, "log": None}))
        tenancy.is_refused = True


def machines_of(cluster: Cluster, home: Path) -> OtherMachines:
    """Return the workers of a cluster as the runs of a state folder use them."""
    environments = KnownEnvironments(home, cluster)

    def make_site(records: Records, store: RunStore, emit: Emit) -> Site:
        return ClusterSite(cluster, environments, records, store, emit)

    return OtherMachines(environments=environments, make_site=make_site, slots=cluster.slots)
