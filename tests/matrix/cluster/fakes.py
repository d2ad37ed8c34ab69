"""An engine in this process: each worker is a real host with a folder, and may be lost, frozen or of another kind."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import PASSED, FakeCache, FakeExecutor
from whichtorch.matrix.cluster.batch_host import BatchHost
from whichtorch.matrix.cluster.engine import Cancel, DaskEngine, Member
from whichtorch.matrix.cluster.wire import BatchRequest, WorkerEvent, WorkerFacts, code_version
from whichtorch.matrix.work import Machine, UndeliveredError
from whichtorch.model import Request
from whichtorch.process.supervision import Ending, Task

Arrived = Callable[[bytes | Exception], None]


@dataclass
class PinnedCache(FakeCache):
    """Environments that keep what they were pinned to."""

    pins: dict[str, str] = field(default_factory=dict)  # by release

    def lock_of(self, request: Request) -> tuple[str, tuple[str, ...]]:
        return self.pins.get(request.torch, f"torch=={request.torch} resolved by {self.home.name}"), ()

    def pin(self, request: Request, text: str, notes: tuple[str, ...]) -> None:
        self.pins[request.torch] = text

    def requirements_of(self, request: Request) -> dict[str, tuple[str, ...]]:
        return {"torch": (f"needed-by-{request.torch}",)}

    def stock(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (), ()


@dataclass
class FakeWorker:
    """A worker of a fake engine."""

    home: Path
    name: str
    behave: Callable[[Task], Ending | None] = lambda _task: PASSED
    machine: Machine = field(default_factory=lambda: Machine(host="here", arch="x86_64"))
    code: str = field(default_factory=code_version)
    slots: int = 1
    losses: int = 0  # batches that it will lose
    misses: int = 0  # batches that will not reach it
    missing: frozenset[str] = frozenset()  # releases that it cannot install
    is_there: bool = True

    def __post_init__(self) -> None:
        folder = self.home / self.name
        folder.mkdir(exist_ok=True)
        self.executor = FakeExecutor(self.behave)
        self.cache = PinnedCache(folder, self.missing)
        self.host = BatchHost(folder, self.cache, lambda: self.executor)
        self.batches: list[BatchRequest] = []

    @property
    def member(self) -> Member:
        facts = WorkerFacts(code=self.code, machine=self.machine, home=str(self.home / self.name), slots=self.slots)
        return Member.of(self.name, self.name, facts)


class FakeEngine(DaskEngine):
    """Carries units to workers of this process."""

    address = "tcp://127.0.0.1:1"

    def __init__(self, *workers: FakeWorker) -> None:
        self.workers = {worker.name: worker for worker in workers}
        self.late: list[Callable[[], None]] = []  # answers of batches that were given up
        self._hear: Callable[[str, list[WorkerEvent]], None] = lambda _host, _events: None

    def members(self) -> list[Member]:
        return [worker.member for worker in self.workers.values() if worker.is_there]

    def follow(self, run: str, hear: Callable[[str, list[WorkerEvent]], None]) -> None:
        self._hear = hear

    def running_lines(self) -> list[str]:
        return [line for worker in self.workers.values() for line in worker.host.running_lines()]

    def send(self, order: bytes, batch: str, worker: str, arrived: Arrived) -> Cancel:
        chosen, cancelled = self.workers[worker], threading.Event()
        parsed = BatchRequest.model_validate_json(order)
        chosen.batches.append(parsed)

        def work() -> None:
            if chosen.misses and parsed.cells:
                chosen.misses -= 1
                arrived(UndeliveredError("no such worker"))
                return
            try:
                packed = chosen.host.run(parsed, lambda events: self._hear(chosen.name, events))
            except Exception as error:  # noqa: BLE001  as the library does
                arrived(error)
                return
            if chosen.losses and parsed.cells:
                chosen.losses -= 1
                self.late.append(lambda: arrived(packed))
                arrived(RuntimeError(f"{worker} is gone"))
            elif not cancelled.is_set():
                arrived(packed)

        def cancel() -> None:
            cancelled.set()
            chosen.host.cancel(batch)

        threading.Thread(target=work, daemon=True).start()
        return cancel
