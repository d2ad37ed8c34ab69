"""The parties of a cluster without torch: a worker whose one environment is this Python, and a client with cells.

`python -m bench.cluster_parties worker ADDRESS HOME`, `... client ADDRESS HOME CELLS SECONDS LEDGER`; `instant` is a
worker whose cells pass at once, `stand-in` one that has no pipeline, `many ADDRESS HOME ENVIRONMENTS CELLS` a client
that says what they took.
Each cell writes its name and the pid of each process of its tree to the ledger when it begins, and its name when it
has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.hang_rows import quiet
from tests.fakes import PASSED, FakeExecutor
from whichtorch.matrix.cluster.batch_host import BatchHost
from whichtorch.matrix.cluster.cluster_machines import BATCH_SECONDS, ClusterMachines
from whichtorch.matrix.cluster.engine import DaskEngine
from whichtorch.matrix.cluster.packing import pack
from whichtorch.matrix.cluster.wire import BatchRequest, Delivery
from whichtorch.matrix.cluster.worker import Dialler, facts_of
from whichtorch.matrix.environments.provider import Stage
from whichtorch.matrix.errors import WhichtorchError
from whichtorch.matrix.model import (
    Attempt,
    Build,
    Config,
    Environment,
    Outcome,
    Record,
    Request,
    Scenario,
    StoppedBy,
    digest,
)
from whichtorch.matrix.plan.planning import PlannedCell, RunOptions, plan
from whichtorch.matrix.process.executor import LocalExecutor
from whichtorch.matrix.records.known_records import Records
from whichtorch.matrix.records.store import read_records
from whichtorch.matrix.run.cell_scheduler import CellScheduler
from whichtorch.matrix.run.environment_queue import TYPICAL_CELL
from whichtorch.matrix.run.lab import opened_lab, opened_run
from whichtorch.matrix.run.pipeline import MatrixRun
from whichtorch.matrix.run.site import LocalSite
from whichtorch.matrix.run.work import CellEnd

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.cluster.engine import Cancel
    from whichtorch.matrix.model import Cell
    from whichtorch.matrix.process.executor import Executor

SCRIPT = """
import os, subprocess, sys, time
name, seconds, ledger = {name!r}, {seconds!r}, {ledger!r}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(ledger, "a") as file:
    file.write(f"begin {{name}} {{os.getpid()}} {{child.pid}}\\n")
time.sleep(seconds)
child.kill()
child.wait()
with open(ledger, "a") as file:
    file.write(f"end {{name}}\\n")
"""
BRIEF = "import time\ntime.sleep({seconds!r})  # {name}\n"  # of a cell without a ledger


MOST_ENVIRONMENTS = 200  # that a client asks for


class ThisPython:
    """The Python that runs this as every environment: nothing is installed."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def known(self, request: Request) -> Environment:
        """Return the environment."""
        return Environment(
            id=digest(["stand-in", *request.key]),
            label=request.label,
            torch=request.torch,
            python=request.python,
            build=request.build.name,
            config=request.config.name,
            interpreter=Path(sys.executable),
        )

    def is_installed(self, _request: Request) -> bool:
        """Return True: it runs this."""
        return True

    def typical_install(self) -> float:
        """Return 0."""
        return 0.0

    def unreachable_index(self, _request: Request) -> None:
        """Return None: no index is needed."""

    def acquire(
        self, request: Request, _cancelled: threading.Event | None = None, _stage: Stage | None = None
    ) -> Environment:
        """Return the environment."""
        return self.known(request)

    def release(self, _request: Request) -> None:
        """Do nothing."""

    def lock_of(self, _request: Request) -> None:
        """Return None: nothing was resolved."""

    def pin(self, request: Request, text: str, notes: tuple[str, ...]) -> None:
        """Do nothing."""

    def requirements_of(self, _request: Request) -> dict[str, tuple[str, ...]]:
        """Return nothing: no package is installed."""
        return {}

    def stock(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys of all environments: nothing has to be installed."""
        return tuple(request.install_key for request in requests(MOST_ENVIRONMENTS)), ()


class StandInHost(BatchHost):
    """Answers a batch at once, as if each of its cells had passed in the time that a cell takes with torch."""

    def run(self, order: BatchRequest, _send: object) -> bytes:
        """Return the packed delivery of a batch."""
        environment = self.environments.known(order.request)
        assert environment is not None
        started = datetime.now(UTC).isoformat(timespec="microseconds")
        attempt = Attempt(
            outcome=Outcome.PASS, seconds=TYPICAL_CELL, stopped_by=StoppedBy.EXIT, exit_code=0, started=started
        )
        scenarios = {each.scenario.source_hash: each.scenario for each in order.scripts}
        ends = []
        for cell in order.cells:
            scenario = scenarios[cell.source_hash]
            planned = PlannedCell(request=order.request, scenario=scenario, variant={}, options=order.options)
            record = Record(
                key=planned.key(environment),
                environment=environment.id,
                scenario=scenario.name,
                source_hash=cell.source_hash,
                variant={},
                limits=planned.limits,
                attempt=attempt,
            )
            ends.append(CellEnd(position=cell.position, records=(record,)))
        delivery = Delivery(environment=environment, ends=tuple(ends))
        return pack(delivery.model_dump_json(by_alias=True), (), self.home)


def worker(address: str, home: Path, make_executor: Callable[[], Executor] | None) -> None:
    """Run batches of one slot until a signal comes; without a way to run cells, answer them."""
    host_type = BatchHost if make_executor else StandInHost
    host = host_type(home, ThisPython(home), make_executor or LocalExecutor)

    async def work() -> None:
        dialler = Dialler(address, home / "tls", host, facts_of(host, 1), lambda line: print(line, flush=True))
        await dialler.run(None)

    asyncio.run(work())


def planned(folder: Path, environments: int, cells: int, seconds: float, ledger: str = "") -> Sequence[PlannedCell]:
    """Return cells of scripts below a folder, so many of each environment."""
    scenarios = []
    for number in range(cells):
        name = f"cell{number:05d}"
        form = SCRIPT if ledger else BRIEF
        text = form.format(name=name, seconds=seconds, ledger=ledger)
        path = folder / f"{name}.py"
        if not path.exists():
            path.write_text(text)
        hashed = hashlib.sha256(text.encode()).hexdigest()[:16]
        scenarios.append(Scenario(name=name, path=path, source_hash=hashed, timeout=60))
    return plan(requests(environments), scenarios, RunOptions())


@lru_cache
def requests(environments: int) -> tuple[Request, ...]:
    """Return so many requests."""
    build, config = Build(name="stand-in"), Config(name="default")
    return tuple(
        Request(torch=f"9.{number}.0", python="3.11", build=build, config=config) for number in range(environments)
    )


class CountingEngine(DaskEngine):
    """Counts the batches that it sends."""

    batches = 0

    def send(self, order: bytes, batch: str, worker: str, arrived: Callable[[bytes | Exception], None]) -> Cancel:
        """Send a batch to a worker."""
        self.batches += 1
        return super().send(order, batch, worker, arrived)


@dataclass(frozen=True, slots=True)
class Done:
    """What came of cells, and how many batches they took."""

    cells: Sequence[Cell]
    batches: int


def run(
    address: str,
    home: Path,
    cells: Sequence[PlannedCell],
    batch_seconds: float = BATCH_SECONDS,
    keep_cells: bool = True,
) -> Done:
    """Run cells on the workers of a scheduler, in a stored run of `home`."""
    home.mkdir(exist_ok=True)
    engine = CountingEngine(address, home / "tls")
    try:
        machines = ClusterMachines(engine, home, batch_seconds=batch_seconds)
        with opened_lab(machines, read_records(home), quiet, len(cells)) as lab:
            step = lab.run(cells, keep_cells=keep_cells)
            return Done(step.cells if keep_cells else (), engine.batches)
    finally:
        engine.close()


def run_here(home: Path, cells: Sequence[PlannedCell], executor: Executor, jobs: int) -> None:
    """Run cells in the local pipeline."""
    home.mkdir()
    with opened_run(home, len(cells)) as store:
        site = LocalSite(ThisPython(home), Records(), store, lambda _event: None, executor, jobs=jobs)
        MatrixRun(cells, CellScheduler(site)).run()


def instant() -> Executor:
    """Return an executor whose tasks pass at once."""
    return FakeExecutor(lambda _task: PASSED)


def ledger_lines(ledger: Path) -> Iterator[list[str]]:
    """Yield the words of each whole line of a ledger."""
    if ledger.exists():
        for line in ledger.read_text().splitlines():
            yield line.split()


WORKERS: dict[str, Callable[[], Executor] | None] = {"worker": LocalExecutor, "instant": instant, "stand-in": None}


def main() -> int:
    """Be a party; exit 3 where the scheduler or the workers have gone."""
    # a shell's background jobs ignore it, and so their children
    signal.signal(signal.SIGINT, signal.default_int_handler)
    role, address, home, *rest = sys.argv[1:]
    folder = Path(home)
    folder.mkdir(parents=True, exist_ok=True)
    if role in WORKERS:
        worker(address, folder, WORKERS[role])
        return 0
    scripts = folder / "scripts"
    scripts.mkdir(exist_ok=True)
    try:
        if role == "many":
            cells = planned(scripts, int(rest[0]), int(rest[1]), 0.0)
            since = time.monotonic()
            batches = run(address, folder, cells, keep_cells=False).batches
            print(batches, time.monotonic() - since, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            return 0
        done = run(address, folder, planned(scripts, 1, int(rest[0]), float(rest[1]), rest[2]))
    except WhichtorchError as error:
        print(f"error: {error}", flush=True)
        return 3
    print(f"{len(done.cells)} cells", *sorted({str(cell.outcome) for cell in done.cells}), flush=True)
    return 0 if all(cell.outcome is Outcome.PASS for cell in done.cells) else 1


if __name__ == "__main__":
    sys.exit(main())
