"""The programs of a cluster: the scheduler that workers and clients dial, and a worker.

A worker runs the batches that it is sent, and dials again when the scheduler has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.base.errors import PreventedError
from whichtorch.matrix.cluster.engine import (
    CONNECT_TIMEOUT,
    FACTS,
    HTTP_ADDRESS,
    check_address,
    first_line,
    import_distributed,
    make_certificates,
    security,
)
from whichtorch.matrix.cluster.wire import WorkerFacts, code_version
from whichtorch.matrix.signals import stopping_signals
from whichtorch.matrix.work import this_machine
from whichtorch.records.store import clear_left_behind

if TYPE_CHECKING:
    from whichtorch.matrix.cluster.batch_host import BatchHost


DIAL_AGAIN = 1.0  # seconds after a scheduler that does not answer; doubled up to
DIAL_SELDOM = 15.0
IDLE_CHECK = 0.5  # seconds
END_PATIENCE = 10.0  # seconds for a worker's threads to end, once their trees have gone


class _HostPlugin:
    """What links a host to Dask's worker: it hears when a batch is no longer wanted, and when the worker ends."""

    name = FACTS

    def __init__(self, host: BatchHost) -> None:
        self.host = host

    def transition(self, key: str, start: str, finish: str, **_: Any) -> None:
        """Stop a batch that nobody waits for: a thread goes on unless it is asked.

        What it goes through once it has ended does not matter: its id would be kept for ever.
        """
        if start in {"executing", "long-running"} and finish not in {"memory", "error"}:
            self.host.cancel(key)

    async def teardown(self, _worker: Any) -> None:
        """Stop all batches: the scheduler has gone, or the worker is to end."""
        await asyncio.to_thread(self.host.close)


def facts_of(host: BatchHost, slots: int, ptrace: str = "") -> WorkerFacts:
    """Return what a worker of this machine says of itself."""
    home = str(host.home)
    return WorkerFacts(code=code_version(), machine=this_machine(), home=home, slots=slots, ptrace=ptrace)


class Dialler:
    """Keeps a worker at a scheduler until it is told to stop, or has had nothing to do for long enough."""

    def __init__(
        self, address: str, tls: Path, host: BatchHost, facts: WorkerFacts, tell: Callable[[str], None]
    ) -> None:
        check_address(address)
        self._address, self._host, self._facts, self._tell = address, host, facts, tell
        self._distributed = import_distributed()
        self._security = security(address, tls)
        self._stop = asyncio.Event()
        self._busy_at = time.monotonic()
        self._number = itertools.count(1)

    async def run(self, idle: float | None) -> None:
        """Dial, work, and dial again; return after `idle` seconds without a batch, or when a signal says so."""
        loop = asyncio.get_running_loop()
        for number in stopping_signals():
            loop.add_signal_handler(number, self._stop.set)
        patience = DIAL_AGAIN
        clear_left_behind(self._host.home)
        said = ""
        while not self._is_over(idle):
            self._host.is_closing = False
            try:
                await self._work(idle)
                patience = DIAL_AGAIN
                said = ""
            except (OSError, TimeoutError, ValueError, RuntimeError) as error:
                reason = first_line(error)
                if reason != said:
                    self._tell(f"cannot join {self._address}: {reason}; dialling again")
                said = reason
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), patience)
                patience = min(DIAL_SELDOM, 2 * patience)
        self._host.finish()

    async def _work(self, idle: float | None) -> None:
        """Be a worker until the scheduler goes, or until it is time to end."""
        worker = self._distributed.Worker(
            self._address,
            nthreads=self._facts.slots,
            name=f"{this_machine().host}-{os.getpid()}-{next(self._number)}",  # no two workers may have one name
            security=self._security,
            local_directory=str(self._host.home / "cluster" / "engine"),
            memory_limit=0,
            dashboard=False,
            dashboard_address=HTTP_ADDRESS,
            plugins=[_plugin(self._distributed, self._host)],
            startup_information={FACTS: lambda _worker: self._facts.model_dump_json()},
            metrics={FACTS: lambda _worker: json.dumps(self._host.environments.stock())},
            death_timeout=CONNECT_TIMEOUT,  # then it says that nobody answers, and dials again
        )
        await worker
        self._tell(f"joined {self._address}")
        stop = asyncio.ensure_future(self._stop.wait())
        finished = asyncio.ensure_future(worker.finished())
        while not (finished.done() or self._is_over(idle)):
            if worker.status.name in {"closing", "closed", "failed"}:
                self._host.close()
            await asyncio.wait({stop, finished}, timeout=IDLE_CHECK, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if finished.done():
            self._tell(f"the scheduler at {self._address} has gone; dialling again")
            return
        await asyncio.to_thread(self._host.close)
        await worker.close(timeout=END_PATIENCE, reason="it is time to end")

    def _is_over(self, idle: float | None) -> bool:
        if self._host.is_busy:
            self._busy_at = time.monotonic()
        return self._stop.is_set() or (idle is not None and time.monotonic() - self._busy_at > idle)


def _plugin(distributed: Any, host: BatchHost) -> Any:
    """Return the link as a plugin of the library, which wants its own base class."""
    return type("HostPlugin", (_HostPlugin, distributed.WorkerPlugin), {})(host)


async def serve(address: str, tls: Path, tell: Callable[[str], None]) -> None:
    """Listen at an address until a signal says to stop. Raises PreventedError where the port is taken."""
    distributed = import_distributed()
    if address.startswith("tls://") and make_certificates(tls):
        tell(f"made certificates in {tls}: copy this folder to the machines of all workers and users; it is the key")
    certificates = security(address, tls)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in stopping_signals():
        loop.add_signal_handler(number, stop.set)
    host, _, port = address.rpartition("://")[2].rpartition(":")
    protocol = address.partition("://")[0]
    try:
        scheduler = await distributed.Scheduler(
            host=host,
            port=int(port),
            protocol=protocol,
            security=certificates,
            dashboard=False,
            dashboard_address=HTTP_ADDRESS,
            validate=False,
        )
    except (OSError, RuntimeError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise PreventedError(f"cannot listen at {address}: {reason}", hint="choose another --port") from None
    tell(f"listening at {scheduler.address}")
    watch = asyncio.ensure_future(_watch(scheduler, tell))
    await stop.wait()
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch
    await scheduler.close()


async def _watch(scheduler: Any, tell: Callable[[str], None]) -> None:
    """Tell who comes and goes."""
    there: dict[str, str] = {}
    while True:
        now = {address: str(worker.name) for address, worker in scheduler.workers.items()}
        for address in now.keys() - there.keys():
            tell(f"joined: {now[address]}")
        for address in there.keys() - now.keys():
            tell(f"gone: {there[address]}")
        there = now
        await asyncio.sleep(1)
