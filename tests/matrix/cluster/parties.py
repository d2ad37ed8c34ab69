"""A cluster on this machine without torch: a scheduler, workers whose one environment is this Python, and a client.

`python -m tests.matrix.cluster.parties worker ADDRESS HOME`, `... client ADDRESS HOME CELLS SECONDS LEDGER`.
Each cell writes its name and the pid of each process of its tree to the ledger when it begins, and its name when it
has ended.
"""

import asyncio
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.process.running import until
from whichtorch.base.errors import WhichtorchError
from whichtorch.environments.provider import Stage
from whichtorch.matrix.cluster.batch_host import BatchHost
from whichtorch.matrix.cluster.cluster_site import ClusterMachines
from whichtorch.matrix.cluster.engine import DaskEngine
from whichtorch.matrix.cluster.worker import Dialler, facts_of
from whichtorch.matrix.lab import opened_lab
from whichtorch.matrix.planning import PlannedCell, RunOptions, plan
from whichtorch.model import Build, Cell, Config, Environment, Outcome, Request, Scenario, digest
from whichtorch.model.events import Emit
from whichtorch.records.line_index import Records

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
REQUEST = Request(torch="9.0.0", python="3.11", build=Build(name="stand-in"), config=Config(name="default"))


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
        """Return the key of the environment: nothing has to be installed."""
        return (REQUEST.install_key,), ()


class Party:
    """A process of a cluster that can be killed and started again."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self._command, self._folder = name, command, folder
        self.start()

    def start(self) -> None:
        """Start it, with what it says in a file."""
        with (self._folder / f"{self.name}.log").open("ab") as log:
            env = os.environ | {"WHICHTORCH_HOME": str(self._folder / self.name)}
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it, and wait for its end."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.process.wait()


def free_port() -> int:
    """Return a port that nobody listens at, and that the kernel gives to no connection until somebody does."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[tuple[str, Party, list[Party]]]:
    """Give the address of a scheduler with workers of one slot each, and the parties themselves."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    serve = [sys.executable, "-m", "whichtorch", "scheduler", "--plain", "--port", str(port)]
    scheduler = Party("scheduler", serve, folder)
    joined = [new_worker(f"worker{number}", address, folder) for number in range(workers)]
    try:
        log = folder / "scheduler.log"
        until(lambda: log.read_text().count("joined:") >= workers)
        yield address, scheduler, joined
    finally:
        for each in (*joined, scheduler):
            each.end(signal.SIGTERM if each.process.poll() is None else signal.SIGKILL)


def new_worker(name: str, address: str, folder: Path) -> Party:
    """Start a worker."""
    command = [sys.executable, "-m", "tests.matrix.cluster.parties", "worker", address, str(folder / name)]
    return Party(name, command, folder)


def new_client(address: str, folder: Path, cells: int, seconds: float) -> Party:
    """Start a client with so many cells, each of which sleeps for so many seconds."""
    command = [sys.executable, "-m", "tests.matrix.cluster.parties", "client", address, str(folder / "client")]
    return Party("client", [*command, str(cells), str(seconds), str(folder / "ledger")], folder)


def alive(ledger: Path) -> set[int]:
    """Return the processes of cells that the ledger names and that still run."""
    pids = {int(pid) for words in ledger_lines(ledger) if words[0] == "begin" and len(words) == 4 for pid in words[2:]}
    found = set()
    for pid in pids & set(psutil.pids()):
        with suppress(psutil.Error):
            line = " ".join(psutil.Process(pid).cmdline())
            if "time.sleep(600)" in line or "cell" in line:
                found.add(pid)
    return found


def ledger_lines(ledger: Path) -> Iterator[list[str]]:
    """Yield the words of each whole line of a ledger."""
    if ledger.exists():
        for line in ledger.read_text().splitlines():
            yield line.split()


def worker(address: str, home: Path) -> None:
    """Run batches in one slot until a signal comes."""
    host = BatchHost(home, ThisPython(home))

    async def work() -> None:
        dialler = Dialler(address, home / "tls", host, facts_of(host, 1), lambda line: print(line, flush=True))
        await dialler.run(None)

    asyncio.run(work())


def planned(folder: Path, cells: int, seconds: float, ledger: str) -> Sequence[PlannedCell]:
    """Return cells of scripts that are written to a folder."""
    scenarios = []
    for number in range(cells):
        name = f"cell{number:05d}"
        text, path = SCRIPT.format(name=name, seconds=seconds, ledger=ledger), folder / f"{name}.py"
        path.write_text(text)
        hashed = hashlib.sha256(text.encode()).hexdigest()[:16]
        scenarios.append(Scenario(name=name, path=path, source_hash=hashed, timeout=60))
    return plan([REQUEST], scenarios, RunOptions())


@contextmanager
def _quiet(_total: int | None) -> Iterator[Emit]:
    yield lambda _event: None


def run(address: str, home: Path, cells: Sequence[PlannedCell]) -> Sequence[Cell]:
    """Run cells on the workers of a scheduler, in a stored run of `home`."""
    engine = DaskEngine(address, home / "tls")
    try:
        with opened_lab(ClusterMachines(engine, home), Records(home), _quiet, len(cells)) as lab:
            return lab.run(cells).cells
    finally:
        engine.close()


def main() -> int:
    """Be a party; exit 3 where the scheduler or the workers have gone."""
    # a shell's background jobs ignore it, and so their children
    signal.signal(signal.SIGINT, signal.default_int_handler)
    role, address, home, *rest = sys.argv[1:]
    folder = Path(home)
    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    if role == "worker":
        worker(address, folder)
        return 0
    try:
        cells = run(address, folder, planned(folder / "scripts", int(rest[0]), float(rest[1]), rest[2]))
    except WhichtorchError as error:
        print(f"error: {error}", flush=True)
        return 3
    print(f"{len(cells)} cells", *sorted({str(cell.outcome) for cell in cells}), flush=True)
    return 0 if all(cell.outcome is Outcome.PASS for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())
