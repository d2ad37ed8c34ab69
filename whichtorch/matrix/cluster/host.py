"""Where units of work are run: one state folder, with a real local pipeline for each unit."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from pydantic import ValidationError

from whichtorch.matrix.cluster.news import Bulletin, News
from whichtorch.matrix.cluster.packing import pack
from whichtorch.matrix.cluster.unit import DeliveredCell, Delivery, SharedLock, Stock, UnitOfWork
from whichtorch.matrix.environments.provider import Environments
from whichtorch.matrix.model import Record, Run
from whichtorch.matrix.plan.planning import PlannedCell
from whichtorch.matrix.process.executor import LocalExecutor
from whichtorch.matrix.process.forking_executor import ForkingExecutor
from whichtorch.matrix.records.known_records import Records, identity
from whichtorch.matrix.records.store import RunStore, new_run, read_lines, read_records
from whichtorch.matrix.run.signals import running_lines
from whichtorch.matrix.run.site import CellEnd, EnvironmentWork, LocalSite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from whichtorch.matrix.model import Environment, Request
    from whichtorch.matrix.process.executor import Executor

COMMAND = "unit"  # first word of the command of a worker's runs; the second is the client's run


class PinnedEnvironments(Environments, Protocol):
    """Environments that can be made from what others were resolved to."""

    def lock_of(self, request: Request) -> tuple[str, tuple[str, ...]] | None:
        """Return the pins that a request was resolved to, and notes on them; None where that is not known."""

    def pin(self, request: Request, text: str, notes: tuple[str, ...]) -> None:
        """Have a request, where it is not resolved yet, made from pins."""

    def stock(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys of what is installed, and of what was and may be fetched from a cache."""


@dataclass(slots=True, kw_only=True)
class _UnitSink:
    """Keeps what comes of the cells of one unit."""

    environment: Environment | None = None
    ends: list[CellEnd] = field(default_factory=list)

    def acquired(self, work: EnvironmentWork, environment: Environment) -> Mapping[int, PlannedCell]:
        self.environment = environment
        return work.cells if environment.is_usable else {}

    def ended(self, end: CellEnd) -> None:
        self.ends.append(end)

    def interrupted(self) -> None:
        """Do nothing: what is missing from the delivery says it."""


class _UnitRecords(Records):
    """What a unit goes by; what is added goes to the spool, too."""

    def __init__(self, known: Iterable[Record], spool: Records) -> None:
        super().__init__()
        for record in known:
            super().add(record)
        self._spool = spool

    def add(self, record: Record) -> None:
        """Add a record."""
        super().add(record)
        self._spool.add(record)


class UnitHost:
    """Runs units in a state folder; its own records are the spool, so what was done is answered, not run again.

    Its methods may be called from several threads.
    """

    def __init__(
        self, home: Path, environments: PinnedEnvironments, make_executor: Callable[[], Executor] = LocalExecutor
    ) -> None:
        self.home, self.environments = home, environments
        self._make_executor = make_executor
        self._guard = threading.Lock()  # of all below
        self._records: Records | None = None  # read with the first unit
        self._stores: dict[str, RunStore] = {}  # by the client's run
        self._units: Counter[str] = Counter()  # that run now, by the client's run
        self._sites: dict[str, LocalSite] = {}  # by dispatch id
        self._cancelled: set[str] = set()
        self.is_closing = False

    @property
    def is_busy(self) -> bool:
        """True while a unit runs."""
        with self._guard:
            return bool(self._sites)

    @property
    def stock(self) -> Stock:
        """What need not be fetched."""
        installed, fetched = self.environments.stock()
        return Stock(installed=installed, fetched=fetched)

    def running_lines(self) -> list[str]:
        """Return for each attempt that runs how long it has run, and where it is."""
        with self._guard:
            running = [attempt for site in self._sites.values() for attempt in site.running]
        return running_lines(running)

    def run(self, unit: UnitOfWork, send: Callable[[list[News]], None]) -> bytes:
        """Run a unit to its end, or until it is cancelled; return its packed delivery.

        Meanwhile `send` is called with what happens, in any thread.
        """
        if unit.lock is not None:
            self.environments.pin(unit.request, unit.lock.text, unit.lock.notes)
        store, records = self._opened(unit), self._records_for(unit)
        sink = _UnitSink()
        work = EnvironmentWork(request=unit.request, first=0, cells=_planned(unit, self.home))
        bulletin = Bulletin(send)
        with ExitStack() as held:
            site = LocalSite(self.environments, self._make_executor(), records, store, bulletin)
            if unit.options.fork:
                site.forking = held.enter_context(ForkingExecutor(1))
            with self._guard:
                self._sites[unit.dispatch] = site
                is_cancelled = self.is_closing or unit.dispatch in self._cancelled
            if is_cancelled:
                site.cancel()
            try:
                site.run([work], sink)
            finally:
                self._ended(unit)
        if sink.environment is not None:
            sink.environment = site.with_variables(unit.request, sink.environment)
        return self._packed(unit, sink, bulletin.rest())

    def cancel(self, dispatch: str) -> None:
        """Have a unit end soon; what is done of it is kept."""
        with self._guard:
            site = self._sites.get(dispatch)
            if site is None:
                self._cancelled.add(dispatch)  # it may be about to begin
        if site is not None:
            site.cancel()

    def close(self) -> None:
        """Have all units end soon, and begin no other."""
        with self._guard:
            self.is_closing = True
            sites = list(self._sites.values())
        for site in sites:
            site.cancel()

    def _packed(self, unit: UnitOfWork, sink: _UnitSink, news: tuple[News, ...]) -> bytes:
        lock = self.environments.lock_of(unit.request)
        cells = tuple(
            DeliveredCell(position=end.position, records=tuple(end.records), reused=end.reused, problem=end.problem)
            for end in sink.ends
        )
        is_usable = sink.environment is not None and sink.environment.is_usable
        delivery = Delivery(
            environment=sink.environment,
            lock=SharedLock(text=lock[0], notes=lock[1]) if lock else None,
            cells=cells,
            news=news,
            is_cut=sink.environment is None or (is_usable and len(cells) < len(unit.cells)),
        )
        known = {identity(record) for record in unit.known}
        new = [record for cell in cells for record in cell.records if identity(record) not in known]
        return pack(delivery.model_dump_json(by_alias=True), new, self.home)

    def _opened(self, unit: UnitOfWork) -> RunStore:
        """Return the stored run for a client's run; close those of clients that have nothing left here."""
        with self._guard:
            for run in [run for run in self._stores if run != unit.run and not self._units[run]]:
                _finish(self._stores.pop(run))
            if unit.run not in self._stores:
                self._stores[unit.run] = new_run(self.home, (COMMAND, unit.run))
            self._units[unit.run] += 1
            return self._stores[unit.run]

    def _ended(self, unit: UnitOfWork) -> None:
        with self._guard:
            del self._sites[unit.dispatch]
            self._cancelled.discard(unit.dispatch)
            self._units[unit.run] -= 1

    def _spool(self) -> Records:
        if self._records is None:
            self._records = read_records(self.home)
        return self._records

    def _records_for(self, unit: UnitOfWork) -> Records:
        """Return the records that bear on a unit's cells: the client's, and those made here.

        Of a fresh run only those count here that were made for it.
        """
        with self._guard:
            spool = self._spool()
        own = _made_for(self.home, unit.run) if unit.options.fresh else None
        distinct = {identity(record): record for record in unit.known}
        for cell in unit.cells:
            for record in spool.of_test(cell.source_hash, cell.variant):
                if own is None or identity(record) in own:
                    distinct.setdefault(identity(record), record)
        return _UnitRecords(distinct.values(), spool)

    def finish(self) -> None:
        """Write the end of all stored runs."""
        with self._guard:
            for store in self._stores.values():
                _finish(store)
            self._stores.clear()


def _finish(store: RunStore) -> None:
    with store:
        store.finish(store.run)


def _planned(unit: UnitOfWork, home: Path) -> dict[int, PlannedCell]:
    """Lay the scripts of a unit, and return its cells."""
    folder = home / "cluster" / "scripts"
    scripts = {each.scenario.source_hash: each.laid(folder) for each in unit.scripts}
    options = replace(unit.options, fresh=False)  # the records are chosen instead
    return {
        cell.position: PlannedCell(
            request=unit.request, scenario=scripts[cell.source_hash], variant=cell.variant, options=options
        )
        for cell in unit.cells
    }


def _made_for(home: Path, client_run: str) -> set[tuple[object, ...]]:
    """Return what identifies the records that workers of this state folder made for a client's run."""
    found = set()
    for file in (home / "runs").glob("*/run.json"):
        with suppress(OSError, ValidationError):
            if Run.model_validate_json(file.read_bytes()).command == (COMMAND, client_run):
                found |= {identity(record) for record in read_lines(file.with_name("records.jsonl"), Record)}
    return found
