"""What a cluster costs, and what it loses when its parties are killed: a scheduler and workers on this machine."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.cluster_parties import MOST_ENVIRONMENTS, instant, ledger_lines, planned, run, run_here
from bench.row import BenchRow, Figure
from whichtorch.matrix.cluster.engine import TCP_TIMEOUT
from whichtorch.matrix.model import Record
from whichtorch.matrix.process.executor import LocalExecutor
from whichtorch.matrix.records.store import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORKERS = 4
KILLS = {"worker": 100, "scheduler": 10, "client": 10}
CELLS, CELL_SECONDS = 120, 0.3  # of a round of the kill trial
START_PATIENCE = 30.0  # seconds for a party to be there
TREE_TARGET = 3.0  # seconds
OVERHEAD_TARGET = 0.02  # seconds a batch


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
def cluster(folder: Path, workers: int = WORKERS, mode: str = "worker") -> Iterator[tuple[str, Party, list[Party]]]:
    """Give the address of a scheduler with workers of one slot each, and the parties themselves."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = Party(
        "scheduler", [sys.executable, "-m", "whichtorch", "scheduler", "--plain", "--port", str(port)], folder
    )
    party = [sys.executable, "-m", "bench.cluster_parties", mode, address]
    joined = [Party(f"worker{number}", [*party, str(folder / f"worker{number}")], folder) for number in range(workers)]
    try:
        log = folder / "scheduler.log"
        _wait(lambda: log.read_text().count("joined:") >= workers)
        yield address, scheduler, joined
    finally:
        for each in (*joined, scheduler):
            each.end(signal.SIGTERM if each.process.poll() is None else signal.SIGKILL)


def new_client(address: str, folder: Path, cells: int, seconds: float) -> Party:
    command = [sys.executable, "-m", "bench.cluster_parties", "client", address, str(folder / "client")]
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


def _records(home: Path) -> list[Record]:
    return [each for file in (home / "runs").glob("*/records.jsonl") for each in read_lines(file, Record)]


def _kills(folder: Path) -> Figure:
    """Kill parties at random moments, start them again, and give the same command until all is done."""
    left = [party for party, count in KILLS.items() for _ in range(count)]
    random.Random(14).shuffle(left)
    lost = twice = unwritten = commands = rounds = 0
    while left:
        place = folder / f"round{rounds}"
        place.mkdir()
        rounds += 1
        with cluster(place) as (address, scheduler, workers):
            client = new_client(address, place, CELLS, CELL_SECONDS)
            commands += 1
            while True:
                time.sleep(random.uniform(0.2, 2.0))
                if client.process.poll() is not None:
                    if client.process.returncode == 0:
                        break
                    client.start()
                    commands += 1
                elif left:
                    name = left.pop()
                    victim = {"client": client, "scheduler": scheduler}.get(name) or random.choice(workers)
                    victim.end()
                    victim.start()
                    commands += name == "client"
        counts = Counter(record.scenario for record in _records(place / "client"))
        ended = {words[1] for words in ledger_lines(place / "ledger") if words[0] == "end"}
        lost += CELLS - len(counts)
        twice += sum(count > 1 for count in counts.values())
        unwritten += len(set(counts) - ended)
    deadline = time.monotonic() + TREE_TARGET
    while (orphans := {pid for each in folder.iterdir() for pid in alive(each / "ledger")}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    text = (
        f"{sum(KILLS.values())} kills, {commands} commands, {rounds * CELLS} cells: {lost} lost, {twice} twice, "
        f"{unwritten} not in the ledger, {len(orphans)} processes left"
    )
    return Figure(text=text, met=not (lost or twice or unwritten or orphans))


def _have_begun(ledger: Path, processes: int) -> bool:
    return len(alive(ledger)) >= processes


def _trees(folder: Path) -> Figure:
    """Measure how long the trees of cells live on after an interrupt, a killed client and a killed scheduler."""
    seconds = {}
    for what in ("interrupt", "client", "scheduler"):
        place = folder / what
        place.mkdir()
        with cluster(place) as (address, scheduler, _):
            client = new_client(address, place, WORKERS, 300.0)
            _wait(partial(_have_begun, place / "ledger", 2 * WORKERS))
            begun = len(alive(place / "ledger"))
            victim = scheduler if what == "scheduler" else client
            since = time.monotonic()
            victim.process.send_signal(signal.SIGINT if what == "interrupt" else signal.SIGKILL)
            while alive(place / "ledger") and time.monotonic() - since < START_PATIENCE:
                time.sleep(0.02)
            seconds[f"{what} ({begun} processes)"] = time.monotonic() - since
            client.end()
    text = ", ".join(f"{what} {took:.1f} s" for what, took in seconds.items())
    return Figure(text=text, met=all(took <= TREE_TARGET for took in seconds.values()))


def _efficiency(folder: Path) -> Figure:
    """Compare cells that sleep for a second on four workers with the local pipeline's four jobs, and with no cost."""
    cells = planned(folder, 1, 120, 1.0)
    since = time.monotonic()
    run_here(folder / "local", cells, LocalExecutor(), WORKERS)
    local = time.monotonic() - since
    with cluster(folder) as (address, *_):
        run(address, folder / "first", planned(folder, 1, WORKERS, 0.0))  # the engine is imported
        since = time.monotonic()
        run(address, folder / "client", cells)
        remote = time.monotonic() - since
    ideal = len(cells) / WORKERS
    text = f"{local / remote:.3f}: {remote:.1f} s, {local:.1f} s in the local pipeline; {ideal / remote:.3f} of no cost"
    return Figure(text=text, met=local / remote >= 0.95)


def _overhead(folder: Path) -> Figure:
    """Time batches of one cell that ends at once, beside the same cells in the local pipeline."""
    cells = planned(folder, 1, 300, 0.0)
    with cluster(folder, workers=1, mode="instant") as (address, *_):
        run(address, folder / "first", cells[:1])
        since = time.monotonic()
        batches = run(address, folder / "client", cells, batch_seconds=0.0).batches
        remote = time.monotonic() - since
    since = time.monotonic()
    run_here(folder / "local", cells, instant(), 1)
    local = time.monotonic() - since
    each = (remote - local) / batches
    text = f"{1000 * each:.1f} ms: {batches} batches of one cell in {remote:.1f} s, {local:.1f} s in the local pipeline"
    return Figure(text=text, met=each <= OVERHEAD_TARGET)


def _scale(folder: Path, cells: int) -> Figure:
    """Plan and dispatch the cells of 200 environments to workers whose cells end at once."""
    command = [sys.executable, "-m", "bench.cluster_parties", "many"]
    with cluster(folder, mode="stand-in") as (address, *_):
        arguments = [address, str(folder / "client"), str(MOST_ENVIRONMENTS), str(cells // MOST_ENVIRONMENTS)]
        answer = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    batches, seconds, peak = (float(word) for word in answer.stdout.split())
    each, memory = seconds / batches, peak / 1e9
    text = f"{cells} cells: {1000 * each:.1f} ms for each of {batches:.0f} batches, client {memory:.2f} GB"
    return Figure(text=text, met=each <= OVERHEAD_TARGET and memory <= 1.0)


NEAR, FAR = "10.213.7.1", "10.213.7.2"  # addresses of the two ends of a link that is cut
TCP_TARGET = 2 * TCP_TIMEOUT


def _link(folder: Path) -> Figure:
    """Cut the link to a worker in a network namespace of its own; its work is done elsewhere."""
    space = f"whichtorch-{os.getpid()}"
    port, tls = free_port(), folder / "tls"
    address = f"tls://{NEAR}:{port}"
    party = [sys.executable, "-m", "bench.cluster_parties", "worker", address]
    for home in ("near", "far", "client"):
        (folder / home).mkdir()
        (folder / home / "tls").symlink_to(tls)
    with _linked(space) as cut:
        options = ["--tls", str(tls), "--host", NEAR, "--port", str(port)]
        parties = [Party("scheduler", [sys.executable, "-m", "whichtorch", "scheduler", *options], folder)]
        log = folder / "scheduler.log"
        _wait(lambda: "listening" in log.read_text())
        parties.append(Party("far", ["ip", "netns", "exec", space, *party, str(folder / "far")], folder))
        parties.append(Party("near", [*party, str(folder / "near")], folder))
        _wait(lambda: log.read_text().count("joined:") == 2)
        client = new_client(address, folder, 40, 1.0)
        _wait(lambda: sum(words[0] == "begin" for words in ledger_lines(folder / "ledger")) > 4)
        cut()
        since = time.monotonic()
        _wait(lambda: "gone:" in log.read_text(), 2 * TCP_TARGET)
        noticed = time.monotonic() - since
        code = client.process.wait(10 * TCP_TARGET)
        counts = Counter(record.scenario for record in _records(folder / "client"))
        _wait(lambda: not alive(folder / "ledger"), 2 * TCP_TARGET)
        left = len(alive(folder / "ledger"))
        for each in reversed(parties):
            each.end(signal.SIGTERM)
    done = f"{len(counts)} of 40 cells in the records, {sum(counts.values()) - len(counts)} twice, exit {code}"
    text = f"noticed after {noticed:.0f} s; {done}; {left} processes left"
    is_whole = len(counts) == sum(counts.values()) == 40
    return Figure(text=text, met=noticed <= TCP_TARGET and is_whole and not (code or left))


@contextmanager
def _linked(space: str) -> Iterator[Callable[[], object]]:
    """Make a network namespace with a link to it, and give what cuts the link; needs root and iproute2."""

    def ip(words: str) -> object:
        return subprocess.run(["ip", *words.split()], check=True)

    near = f"wt{os.getpid()}"
    ip(f"netns add {space}")
    try:
        ip(f"link add {near} type veth peer name far netns {space}")
        ip(f"addr add {NEAR}/24 dev {near}")
        ip(f"link set {near} up")
        ip(f"-n {space} addr add {FAR}/24 dev far")
        ip(f"-n {space} link set far up")
        ip(f"-n {space} link set lo up")
        yield lambda: ip(f"link set {near} down")
    finally:
        ip(f"netns del {space}")


def _wait(condition: Callable[[], bool], patience: float = START_PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)


def _row(name: str, what: str, target: str, measure: Callable[[Path], Figure]) -> BenchRow:
    return BenchRow(name=f"cluster-{name}", what=what, target=target, measure=measure, group="cluster")


ROWS = [
    _row("unit", "a batch through a cluster: more than in the local pipeline", "<= 20 ms", _overhead),
    _row(
        "efficiency",
        "cells that sleep 1 s, four workers: share of the speed of four local jobs",
        ">= 0.95",
        _efficiency,
    ),
    _row("trees", "the trees of cells, after an interrupt, a killed client, a killed scheduler", "<= 3 s", _trees),
    _row("kills", "100 workers, 10 schedulers, 10 clients killed", "0 lost, 0 twice, 0 left", _kills),
    _row("link", "the link to a worker cut: noticed; needs root", f"<= {TCP_TARGET:g} s, done elsewhere", _link),
    _row(
        "scale", "200 environments, 100,000 cells", "<= 20 ms a batch, <= 1 GB", lambda folder: _scale(folder, 100_000)
    ),
    BenchRow(
        name="cluster-millions",
        what="200 environments, 2,000,000 cells",
        target="<= 20 ms a batch, <= 1 GB",
        measure=lambda folder: _scale(folder, 2_000_000),
        group="millions",
    ),
]
