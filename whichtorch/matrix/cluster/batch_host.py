"""Where batches are run: one state folder, with this machine's own way to run cells for each batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from whichtorch.base.atomic_files import remove_tree
from whichtorch.environments.provider import ResolvedEnvironments
from whichtorch.matrix.cluster.wire import BatchRequest, Delivery, EventSender, SharedLock, WorkerEvent, pack
from whichtorch.matrix.planning import PlannedCell
from whichtorch.matrix.signals import running_lines
from whichtorch.matrix.site import LocalSite
from whichtorch.matrix.work import Batch, BatchResult
from whichtorch.model import Record, Request, Run
from whichtorch.process.executor import Executor, ForkingExecutor, LocalExecutor
from whichtorch.process.marks import temporary_folder
from whichtorch.records.line_index import Records, identity
from whichtorch.records.store import RunStore, folder_of, new_run, read_lines

COMMAND = "unit"  # first word of the command of a worker's runs; the second is the client's run


class PinnedEnvironments(ResolvedEnvironments, Protocol):
    """Environments that can be made from what others were resolved to."""

    def lock_of(self, request: Request) -> SharedLock | None:
        """Return the pins that a request was resolved to, and notes on them; None where that is not known."""

    def pin(self, request: Request, text: str, notes: tuple[str, ...]) -> None:
        """Have a request, where it is not resolved yet, made from pins."""

    def stock(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys of what is installed, and of what was and may be fetched from a cache."""


class _BatchRecords(Records):
    """What a batch goes by; what is added goes to the spool, too."""

    def __init__(self, known: Iterable[Record], spool: Records) -> None:
        super().__init__()
        for record in known:
            super().add(record)
        self._spool = spool

    def add(self, record: Record) -> None:
        """Add a record."""
        super().add(record)
        self._spool.add(record)


class BatchHost:
    """Runs batches in a state folder; its own records are the spool, so what was done is answered, not run again.

    Its methods may be called from several threads.
    """

    def __init__(
        self, home: Path, environments: PinnedEnvironments, make_executor: Callable[[], Executor] = LocalExecutor
    ) -> None:
        self.home, self.environments = home, environments
        self._make_executor = make_executor
        self._guard = threading.Lock()  # of all below
        self._stores: dict[str, RunStore] = {}  # by the client's run
        self._sites: dict[str, LocalSite] = {}  # of the batches that run now, by their ids
        self._cancelled: dict[str, threading.Event] = {}  # of these, and of those that may be about to begin
        self.is_closing = False
        self._forks = TrialForks()

    @property
    def is_busy(self) -> bool:
        """True while a batch runs."""
        with self._guard:
            return bool(self._sites)

    def running_lines(self) -> list[str]:
        """Return for each attempt that runs how long it has run, and where it is."""
        with self._guard:
            running = [attempt for site in self._sites.values() for attempt in site.running]
        return running_lines(running)

    def run(self, order: BatchRequest, send: Callable[[list[WorkerEvent]], None]) -> bytes:
        """Run a batch to its end, or until it is cancelled; return its packed delivery.

        Meanwhile `send` is called with what happens, in any thread.
        """
        if order.lock is not None:
            self.environments.pin(order.request, *order.lock)
        events = EventSender(send)
        cells = _planned(order, self.home)
        records = self._records_for(order, cells.values())
        with ExitStack() as held:
            with self._guard:
                store = self._store_for(order.run)
                site = LocalSite(self.environments, records, store, events, self._make_executor())
                self._sites[order.id] = site
                cancelled = self._cancelled.setdefault(order.id, threading.Event())
                if self.is_closing:
                    cancelled.set()
            try:
                if order.trial is not None and order.trial.may_fork:
                    site.forking, site.caches = held.enter_context(self._forks.lent(order.run))
                elif order.fork_levels:
                    site.forking = held.enter_context(ForkingExecutor(1))
                batch = Batch(
                    id=order.id,
                    request=order.request,
                    cells=cells,
                    trial=order.trial,
                    fork_levels=order.fork_levels,
                    cancelled=cancelled,
                )
                result = site.run(batch)
            finally:
                with self._guard:
                    del self._sites[order.id], self._cancelled[order.id]
        environment = result.environment
        if environment is not None and environment.is_usable:
            self.environments.release(order.request)
            result = replace(result, environment=site.with_variables(order.request, environment))
        return self._packed(order, result, events.rest())

    def cancel(self, batch: str) -> None:
        """Have a batch end soon; what is done of it is kept."""
        with self._guard:
            self._cancelled.setdefault(batch, threading.Event()).set()

    def close(self) -> None:
        """Have all batches end soon, and begin no other."""
        with self._guard:
            self.is_closing = True
            for cancelled in self._cancelled.values():
                cancelled.set()

    def _packed(self, order: BatchRequest, result: BatchResult, events: tuple[WorkerEvent, ...]) -> bytes:
        delivery = Delivery(
            environment=result.environment,
            lock=self.environments.lock_of(order.request),
            requires={} if order.cells else self.environments.requirements_of(order.request),
            ends=tuple(result.ends),
            events=events,
        )
        known = {identity(record) for record in order.known}
        new = [record for end in result.ends for record in end.all_records if identity(record) not in known]
        packed = pack(delivery.model_dump_json(by_alias=True), new, self.home)
        for record in new if order.trial else ():  # nobody asks for the same trial again
            if folder := folder_of(record.attempt):
                remove_tree(self.home / folder)
        return packed

    def _store_for(self, client_run: str) -> RunStore:
        """Return the stored run for a client's run; close those of clients that have nothing left here."""
        used = [site.store for site in self._sites.values()]
        for run, store in list(self._stores.items()):
            if run != client_run and store not in used:
                _finish(self._stores.pop(run))
        if client_run not in self._stores:
            self._stores[client_run] = new_run(self.home, (COMMAND, client_run))
        return self._stores[client_run]

    @cached_property
    def _spool(self) -> Records:
        """The records of this state folder, read with the first batch."""
        return Records(self.home)

    def _records_for(self, order: BatchRequest, cells: Iterable[PlannedCell]) -> Records:
        """Return the records that bear on a batch's cells: the client's, and those made here.

        Of a fresh run only those count here that were made for it.
        """
        if order.trial is not None:
            return Records()  # a trial's script was varied, so no record applies to it
        with self._guard:
            spool = self._spool
        own = _made_for(self.home, order.run) if order.options.fresh else None
        distinct = {identity(record): record for record in order.known}
        for cell in cells:
            known = spool.of_test(cell.scenario.source_hash, cell.variant)
            for record in (*known, *spool.of_tests(cell.scenario, cell.variant)):
                if own is None or identity(record) in own:
                    distinct.setdefault(identity(record), record)
        return _BatchRecords(distinct.values(), spool)

    def finish(self) -> None:
        """Write the end of all stored runs."""
        with self._guard:
            for store in self._stores.values():
                _finish(store)
            self._stores.clear()
        self._forks.close()


def _finish(store: RunStore) -> None:
    with store:
        store.finish(store.run)


def _planned(order: BatchRequest, home: Path) -> dict[int, PlannedCell]:
    """Lay the scripts of a batch, and return its cells."""
    scripts = {each.scenario.source_hash: each.laid(home) for each in order.scripts}
    options = replace(order.options, fresh=False)  # the records are chosen instead
    return {
        cell.position: PlannedCell(
            request=order.request,
            scenario=scripts[cell.source_hash].model_copy(update={"only": cell.only}),
            variant=cell.variant,
            options=options,
        )
        for cell in order.cells
    }


def _made_for(home: Path, client_run: str) -> set[tuple[object, ...]]:
    """Return what identifies the records that workers of this state folder made for a client's run."""
    found = set()
    for file in (home / "runs").glob("*/run.json"):
        with suppress(OSError, ValidationError):
            if Run.model_validate_json(file.read_bytes()).command == (COMMAND, client_run):
                found |= {identity(record) for record in read_lines(file.with_name("records.jsonl"), Record)}
    return found


IDLE = 60.0  # seconds without a trial after which the kept processes end, because they hold memory


class TrialForks:
    """Executors that fork, with folders for the caches of compilers, kept as long as trials come."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._guard = threading.Lock()  # of everything below
        self._users = 0
        self._kept: dict[str, tuple[Executor, Path, ExitStack]] = {}  # by client's run
        self._timer: threading.Timer | None = None

    @contextmanager
    def lent(self, run: str) -> Iterator[tuple[Executor, Path]]:
        """Lend an executor and a folder for caches to a trial of a client's run."""
        with self._guard:
            self._users += 1
            if run not in self._kept:
                held = ExitStack()
                executor = held.enter_context(ForkingExecutor())
                caches = held.enter_context(temporary_folder())
                self._kept[run] = executor, caches, held
            lent, folder, _ = self._kept[run]
        try:
            yield lent, folder
        finally:
            with self._guard:
                self._users -= 1
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = threading.Timer(self._idle, self.close)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """End the kept executors, unless a trial uses one."""
        with self._guard:
            if self._users:
                return
            kept = list(self._kept.values())
            self._kept.clear()
        for *_, held in kept:
            held.close()
