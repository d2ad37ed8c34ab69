"""The engine below a cluster: Dask's `distributed`, for membership, transport and the detection of death only.

What it does not promise (dispatch, fencing, records) is the business of `cluster_site` and `batch_host`.
Each setting below has its reason beside it; all were tried by killing workers, schedulers and clients.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.base.errors import GOES_ON, PreventedError, UsageError
from whichtorch.matrix.cluster import PORT
from whichtorch.matrix.cluster.wire import BatchRequest, WorkerFacts
from whichtorch.matrix.work import UndeliveredError, Worker

if TYPE_CHECKING:
    from distributed import Security

    from whichtorch.matrix.cluster.batch_host import BatchHost
    from whichtorch.matrix.cluster.wire import WorkerEvent

FACTS = "whichtorch"  # names what a worker says of itself, and its plugin
CONNECT_TIMEOUT = 5.0  # seconds
MESSAGE_INTERVAL = 0.001  # seconds between two messages to the scheduler
TCP_TIMEOUT = 15.0  # seconds without an answer after which a connection is given up; 10 or less breaks every one
WORKER_TTL = 20.0  # seconds without a heartbeat after which a worker is given up
HTTP_ADDRESS = "127.0.0.1:0"  # scheduler and worker always serve HTTP, to whoever comes: here nothing, on loopback
_SETTINGS = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.scheduler.allowed-failures": 0,  # whichtorch dispatches again
    "distributed.scheduler.work-stealing": False,  # a batch is where it was sent
    "distributed.scheduler.no-workers-timeout": "5s",  # a pinned batch whose worker has gone
    "distributed.scheduler.worker-ttl": f"{WORKER_TTL:g}s",
    "distributed.admin.low-level-log-length": 10,
    "distributed.admin.tick.limit": "1h",  # a machine that works is no news
    "distributed.comm.timeouts.tcp": f"{TCP_TIMEOUT:g}s",
    "distributed.comm.timeouts.connect": f"{CONNECT_TIMEOUT:g}s",
    "distributed.comm.retry.count": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,  # a cell's memory is not the worker's
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.client.scheduler-info-interval": "1h",  # asked for when it is needed
}
_LOOPBACK = re.compile(r"tcp://(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?")
_TLS = re.compile(r"tls://[^/\s:]+(:\d+)?|tls://\[[0-9a-fA-F:]+\](:\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Worker):
    """A worker that is there now, with what it says of itself."""

    facts: WorkerFacts

    @classmethod
    def of(
        cls, address: str, name: str, facts: WorkerFacts, stock: tuple[Collection[str], Collection[str]] = ((), ())
    ) -> Member:
        """Return the worker that says this of itself; `stock` has the install keys of what it need not fetch."""
        return cls(
            address=address,
            name=name,
            host=facts.host,
            machine=facts.machine,
            slots=facts.slots,
            installed=frozenset(stock[0]),
            fetched=frozenset(stock[1]),
            facts=facts,
        )


Cancel = Callable[[], None]  # has the worker stop, and wants no answer


def import_distributed() -> Any:
    """Return the library, set up. Raises PreventedError with the way to install it."""
    try:
        import dask
        import distributed
    except ImportError as error:
        hint = "install it with: pip install 'whichtorch[cluster]', on this machine and on each worker's"
        raise PreventedError(f"a cluster needs distributed: {error}", hint=hint) from None
    dask.config.set(_SETTINGS)
    warnings.filterwarnings("ignore", message="Sending large graph")  # a trial may change a thousand files
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "distributed":  # we say in one line what matters
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return distributed


def first_line(error: BaseException) -> str:
    """Return what an error says first, or its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


def check_address(address: str) -> None:
    """Raise UsageError for an address that is none, or that would let anybody in."""
    if _LOOPBACK.fullmatch(address) or _TLS.fullmatch(address):
        return
    if address.startswith("tcp://"):
        hint = f"use {address.replace('tcp', 'tls', 1)}; `whichtorch scheduler` makes the certificates"
        raise UsageError(f"{address} is not encrypted, and anybody who reaches it could run code", hint=hint)
    raise UsageError(f"{address!r} is not the address of a scheduler", hint=f"write it as tls://head:{PORT}")


def security(address: str, folder: Path) -> Security | None:
    """Return the certificates for an address, None for a plain one. Raises UsageError where they are missing."""
    if not address.startswith("tls://"):
        return None
    distributed = import_distributed()
    files = {name: folder / f"{name}.pem" for name in ("ca", "cert", "key")}
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        hint = f"copy the folder that `whichtorch scheduler` made to {folder}"
        raise UsageError(f"no certificate {', '.join(missing)}", hint=hint)
    roles = ("client", "scheduler", "worker")
    certificates = {f"tls_{role}_{part}": str(files[part]) for role in roles for part in ("cert", "key")}
    found: Security = distributed.Security(tls_ca_file=str(files["ca"]), require_encryption=True, **certificates)
    return found


def make_certificates(folder: Path) -> bool:
    """Write a certificate for all parties of a cluster where there is none; return whether one was made."""
    if (folder / "key.pem").exists():
        return False
    distributed = import_distributed()
    try:
        made = distributed.Security.temporary()
    except ImportError as error:
        hint = "install it with: pip install 'whichtorch[cluster]'"
        raise PreventedError(f"making certificates needs cryptography: {error}", hint=hint) from None
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    parts = {"ca": made.tls_ca_file, "cert": made.tls_scheduler_cert, "key": made.tls_scheduler_key}
    for name, text in parts.items():
        file = folder / f"{name}.pem"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
    return True


class DaskEngine:
    """Carries batches to workers and their deliveries back, by a scheduler of Dask's that others have started.

    Its methods may be called from any thread.
    """

    def __init__(self, address: str, tls: Path) -> None:
        check_address(address)
        distributed = import_distributed()
        self.address = address
        certificates = security(address, tls)
        try:
            self._client: Any = distributed.Client(
                address, security=certificates, timeout=CONNECT_TIMEOUT, set_as_default=False
            )
        except (OSError, TimeoutError) as error:
            hint = "start one with `whichtorch scheduler`; its certificates must be those in the state folder's `tls`"
            raise PreventedError(f"no scheduler answers at {address}: {first_line(error)}", hint=hint) from None
        # by default a message waits for 10 ms for more of them, which is half of what a batch may cost
        self._client.scheduler_comm.interval = MESSAGE_INTERVAL

    def close(self) -> None:
        """Leave; what still runs for this client is stopped by its workers."""
        self._client.close(timeout=CONNECT_TIMEOUT)

    def members(self) -> list[Member]:
        """Return the workers that are there now. Raises PreventedError where the scheduler has gone."""
        if self._client.status != "running":
            raise self._gone()
        try:
            workers = self._client.sync(self._client.scheduler.identity, n_workers=-1)["workers"]
        except (OSError, TimeoutError):
            raise self._gone() from None
        found = []
        for address, row in workers.items():
            if FACTS in row and row["status"] == "running":
                told = (row.get("metrics") or {}).get(FACTS)
                facts = WorkerFacts.model_validate_json(row[FACTS])
                found.append(Member.of(address, str(row["name"]), facts, json.loads(told) if told else ((), ())))
        return found

    def send(self, order: bytes, batch: str, worker: str, arrived: Callable[[bytes | Exception], None]) -> Cancel:
        """Send a batch to a worker; `arrived` is called once, in any thread, unless it is cancelled."""

        def take(done: Any) -> None:
            if done.status == "cancelled":  # by us, or with the scheduler
                arrived(ConnectionError("the scheduler has gone"))
                return
            try:
                arrived(done.result(timeout=TCP_TIMEOUT))
            except Exception as error:  # noqa: BLE001  of the engine, or of the batch
                is_undelivered = type(error).__name__ == "NoValidWorkerError"
                arrived(UndeliveredError(str(error)) if is_undelivered else error)

        future = self._client.submit(
            run_batch,
            zlib.compress(order, 1),
            key=batch,
            workers=[worker],
            allow_other_workers=False,
            retries=0,
            pure=False,
        )
        future.add_done_callback(take)
        return partial(future.cancel, force=True)

    def follow(self, run: str, hear: Callable[[str, list[WorkerEvent]], None]) -> None:
        """Have what happens in the batches of a run told while it happens: on which worker, and what."""
        self._client.subscribe_topic(topic_of(run), lambda event: hear(event[1]["host"], event[1]["events"]))

    def running_lines(self) -> list[str]:
        """Return what runs now on all workers."""
        try:
            answers = self._client.run(lines_of_worker, on_error="ignore")
        except (OSError, TimeoutError, ValueError):
            return []
        return [line for lines in answers.values() for line in lines]

    def _gone(self) -> PreventedError:
        return PreventedError(f"the scheduler at {self.address} has gone", hint=GOES_ON)


def topic_of(run: str) -> str:
    """Return the topic under which workers tell what happens in the batches of a run."""
    return f"{FACTS}-{run}"


# the worker's side of the calls


def run_batch(data: bytes) -> bytes:
    """Run a compressed batch on the worker that calls this; return its packed delivery."""
    from distributed import get_worker

    worker = get_worker()
    order = BatchRequest.model_validate_json(zlib.decompress(data))
    topic = topic_of(order.run)

    def send(events: list[WorkerEvent]) -> None:
        with suppress(Exception):  # the delivery holds all
            worker.log_event(topic, {"host": str(worker.name), "events": events})

    return _host_of(worker).run(order, send)


def lines_of_worker(dask_worker: Any) -> list[str]:
    """Return what runs now on a worker; called there by the engine."""
    return [f"{line}  on {dask_worker.name}" for line in _host_of(dask_worker).running_lines()]


def _host_of(worker: Any) -> BatchHost:
    host: BatchHost = worker.plugins[FACTS].host
    return host
