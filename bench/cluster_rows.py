"""How soon a cluster ends what nobody waits for, and notices a lost worker: a scheduler and workers on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.row import BenchRow, Figure
from tests.matrix.cluster.parties import Party, alive, cluster, free_port, ledger_lines, new_client, new_worker
from tests.process.running import until
from whichtorch.matrix.cluster.engine import TCP_TIMEOUT
from whichtorch.model import Record
from whichtorch.records.store import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORKERS = 4
START_PATIENCE = 30.0  # seconds that trees may live on
TREE_TARGET = 3.0  # seconds


def _have_begun(ledger: Path, processes: int) -> bool:
    return len(alive(ledger)) >= processes


def _trees(folder: Path) -> Figure:
    """Measure how long the trees of cells live on after an interrupt, a killed client and a killed scheduler."""
    seconds = {}
    for what in ("interrupt", "client", "scheduler"):
        place = folder / what
        place.mkdir()
        with cluster(place, WORKERS) as (address, scheduler, _):
            client = new_client(address, place, WORKERS, 300.0)
            until(partial(_have_begun, place / "ledger", 2 * WORKERS))
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


NEAR, FAR = "10.213.7.1", "10.213.7.2"  # addresses of the two ends of a link that is cut
TCP_TARGET = 2 * TCP_TIMEOUT


def _link(folder: Path) -> Figure:
    """Cut the link to a worker in a network namespace of its own; its work is done elsewhere."""
    space = f"whichtorch-{os.getpid()}"
    port, tls = free_port(), folder / "tls"
    address = f"tls://{NEAR}:{port}"
    for home in ("near", "far", "client"):
        (folder / home).mkdir()
        (folder / home / "tls").symlink_to(tls)
    with _linked(space) as cut:
        options = ["--tls", str(tls), "--host", NEAR, "--port", str(port)]
        parties = [Party("scheduler", [sys.executable, "-m", "whichtorch", "scheduler", *options], folder)]
        log = folder / "scheduler.log"
        until(lambda: "listening" in log.read_text())
        parties.append(new_worker("far", address, folder, "ip", "netns", "exec", space))
        parties.append(new_worker("near", address, folder))
        until(lambda: log.read_text().count("joined:") == 2)
        client = new_client(address, folder, 40, 1.0)
        until(lambda: sum(words[0] == "begin" for words in ledger_lines(folder / "ledger")) > 4)
        cut()
        since = time.monotonic()
        until(lambda: "gone:" in log.read_text())
        noticed = time.monotonic() - since
        code = client.process.wait(10 * TCP_TARGET)
        files = (folder / "client" / "runs").glob("*/records.jsonl")
        counts = Counter(record.scenario for file in files for record in read_lines(file, Record))
        until(lambda: not alive(folder / "ledger"))
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


ROWS = [
    BenchRow(
        name="cluster-trees",
        what="the trees of cells, after an interrupt, a killed client, a killed scheduler",
        target=f"<= {TREE_TARGET:g} s",
        measure=_trees,
        group="cluster",
    ),
    BenchRow(
        name="cluster-link",
        what="the link to a worker cut: noticed; needs root",
        target=f"<= {TCP_TARGET:g} s, done elsewhere",
        measure=_link,
        group="cluster",
    ),
]
