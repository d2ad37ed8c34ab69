"""The engine as whole programs: a scheduler, workers and a client that are lost, refused or of no use."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import psutil
import pytest

from tests.matrix.cluster.parties import Party, alive, cluster, free_port, ledger_lines, new_client
from tests.patience import PATIENCE
from tests.process.running import until
from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.matrix.cluster import engine
from whichtorch.model import Record
from whichtorch.records.store import read_lines

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:8786", "tcp://localhost", "tls://head:8786", "tls://[fe80::1]:8786", "tls://10.0.0.2"]
)
def test_an_address_is_encrypted_or_of_this_machine(address: str) -> None:
    """These are; others are refused with the reason."""
    engine.check_address(address)


@pytest.mark.parametrize(("address", "words"), [("tcp://head:8786", "not encrypted"), ("head", "not the address")])
def test_a_plain_address_of_another_machine_is_refused(address: str, words: str) -> None:
    """Whoever reached it could run code."""
    with pytest.raises(UsageError, match=words) as refusal:
        engine.check_address(address)
    assert "tls://head:8786" in refusal.value.hint


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, no traceback."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PreventedError) as refusal:
        engine.import_distributed()
    assert "whichtorch[cluster]" in refusal.value.hint


def test_certificates_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    """A second start of the scheduler takes those that are there; who lacks one is told which."""
    folder = tmp_path / "tls"
    with pytest.raises(UsageError, match=r"ca\.pem"):
        engine.security("tls://head:8786", folder)
    assert engine.make_certificates(folder)
    key = (folder / "key.pem").read_text()
    assert not engine.make_certificates(folder)
    assert (folder / "key.pem").read_text() == key
    assert (folder / "key.pem").stat().st_mode & 0o077 == 0
    assert engine.security("tls://head:8786", folder) is not None


@contextmanager
def encrypted(folder: Path) -> Iterator[tuple[str, Path]]:
    """Give the address of a scheduler with certificates, and their folder."""
    port = free_port()
    tls = folder / "tls"
    options = ["--tls", str(tls), "--host", "127.0.0.1", "--port", str(port)]
    scheduler = Party("scheduler", [sys.executable, "-m", "whichtorch", "scheduler", *options], folder)
    try:
        assert until(lambda: "listening" in (folder / "scheduler.log").read_text())
        yield f"tls://127.0.0.1:{port}", tls
    finally:
        scheduler.end(signal.SIGTERM)


@pytest.mark.thorough
def test_nobody_reads_a_cluster_without_a_certificate(tmp_path: Path) -> None:
    """The library has pages with workers, logs and calls: none of them is served."""
    with encrypted(tmp_path) as (address, tls):
        options = ["--tls", str(tls), "--home", str(tmp_path / "w"), "--slots", "1"]
        worker = Party("worker", [sys.executable, "-m", "whichtorch", "worker", address, *options], tmp_path)
        try:
            assert until(lambda: "joined:" in (tmp_path / "scheduler.log").read_text())
            listening = [
                each.laddr.port
                for process in psutil.Process().children(recursive=True)
                for each in process.net_connections("tcp")
                if each.status == psutil.CONN_LISTEN
            ]
            assert len(listening) >= 3
            for port in listening:
                for page in ("/", "/health", "/info/main/workers.html", "/metrics"):
                    assert answer(port, page) in {None, 404}
        finally:
            worker.end(signal.SIGTERM)


def answer(port: int, page: str) -> int | None:
    """Return the status of an HTTP page; None where no HTTP is spoken."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", page)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def matrix(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Give a command in an empty folder."""
    (folder / "a.py").write_text("print(1)")
    environ = os.environ | {"WHICHTORCH_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "whichtorch", "matrix", "a.py", "--torch", "2.0.0", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.thorough
def test_an_unknown_certificate_and_garbage_are_refused_in_a_line(tmp_path: Path) -> None:
    """The scheduler goes on; the stranger reads one error, and no traceback."""
    with encrypted(tmp_path) as (address, tls):
        engine.make_certificates(tmp_path / "home" / "tls")
        refused = matrix(tmp_path, "--executor", address)
        assert refused.returncode == 3
        assert "Traceback" not in refused.stderr
        assert "its certificates must be those in the state folder's `tls`" in refused.stderr
        host, port = address.removeprefix("tls://").split(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        shutil.copytree(tls, tmp_path / "home" / "tls", dirs_exist_ok=True)
        idle = matrix(tmp_path, "--executor", address)
        assert idle.returncode == 3
        assert "can take work" in idle.stderr
        assert "Traceback" not in (tmp_path / "scheduler.log").read_text()


@pytest.mark.thorough
def test_killed_workers_schedulers_and_clients_lose_nothing(tmp_path: Path) -> None:
    """Each is killed while cells run, and the same command then goes on: every cell is in the records once."""
    count = 24
    ledger, log = tmp_path / "ledger", tmp_path / "client.log"

    def ended() -> int:
        return sum(words[0] == "end" for words in ledger_lines(ledger))

    with cluster(tmp_path, workers=3) as (address, scheduler, workers):
        client = new_client(address, tmp_path, count, 0.5)

        def is_far_enough(enough: int) -> bool:
            if client.process.poll():  # it gave up before the workers were back
                client.start()
            return ended() >= enough

        for enough, victim in ((2, workers[0]), (5, client), (8, scheduler), (11, workers[1])):
            assert until(partial(is_far_enough, enough))
            victim.end()
            victim.start()
            if victim is scheduler:
                client.process.wait(PATIENCE)
                client.start()
        deadline = time.monotonic() + 2 * PATIENCE
        while client.process.wait(PATIENCE) != 0:
            assert time.monotonic() < deadline, log.read_text()
            client.start()
        assert until(lambda: not alive(ledger))
    files = (tmp_path / "client" / "runs").glob("*/records.jsonl")
    names = [record.scenario for file in files for record in read_lines(file, Record)]
    assert sorted(names) == [f"cell{number:05d}" for number in range(count)]
    assert set(names) <= {words[1] for words in ledger_lines(ledger) if words[0] == "end"}


@pytest.mark.thorough
def test_a_frozen_worker_is_given_up_and_its_late_answer_refused(tmp_path: Path) -> None:
    """Its cells are done elsewhere; when it comes back it joins anew, and nothing is in the records twice."""
    count, ledger = 6, tmp_path / "ledger"
    with cluster(tmp_path, workers=2) as (address, _, workers):
        client = new_client(address, tmp_path, count, 1.0)
        assert until(lambda: sum(words[0] == "begin" for words in ledger_lines(ledger)) >= 2)
        workers[0].process.send_signal(signal.SIGSTOP)
        assert client.process.wait(2 * PATIENCE) == 0
        workers[0].process.send_signal(signal.SIGCONT)
        log = tmp_path / "scheduler.log"
        assert until(lambda: log.read_text().count("joined:") == 3)
    files = (tmp_path / "client" / "runs").glob("*/records.jsonl")
    names = sorted(record.scenario for file in files for record in read_lines(file, Record))
    assert names == [f"cell{number:05d}" for number in range(count)]


@pytest.mark.thorough
def test_what_runs_on_workers_can_be_asked(tmp_path: Path) -> None:
    """Each line says which cell, for how long, where in the script, and on which worker."""
    with cluster(tmp_path, workers=1) as (address, *_):
        client = new_client(address, tmp_path, 1, 50.0)
        asked = engine.DaskEngine(address, tmp_path)
        assert until(lambda: any("<module>" in line for line in asked.running_lines()))
        (line,) = asked.running_lines()
        asked.close()
        client.end()
    assert "cell00000  torch-9.0.0-stand-in" in line
    assert re.search(r" on .+-\d+-1$", line)


@pytest.mark.thorough
def test_an_idle_worker_ends_and_dials_again_before(tmp_path: Path) -> None:
    """It outlives its scheduler, joins the next one, and ends when it had nothing to do for long enough."""
    port = free_port()  # one that the kernel may give to the worker's own connection could be answered by itself
    command = [sys.executable, "-m", "whichtorch", "worker", f"tcp://127.0.0.1:{port}", "--idle", "20s"]
    worker = Party("worker", command, tmp_path)
    serve = [sys.executable, "-m", "whichtorch", "scheduler", "--plain", "--port", str(port)]
    log = tmp_path / "worker.log"
    assert until(lambda: "dialling again" in log.read_text())
    scheduler = Party("scheduler", serve, tmp_path)
    assert until(lambda: log.read_text().count("joined") == 1)
    scheduler.end()
    assert until(lambda: "has gone" in log.read_text())
    assert worker.process.wait(PATIENCE) == 0
