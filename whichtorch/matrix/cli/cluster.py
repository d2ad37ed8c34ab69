"""`whichtorch scheduler` and `whichtorch worker`, and how other commands use them: --executor and --tls."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.command import RunningOption
from whichtorch.matrix.cluster.engine import PORT
from whichtorch.matrix.environments.cache import EnvironmentCache
from whichtorch.matrix.environments.commander import INSTALL_TIMEOUT
from whichtorch.matrix.process.executor import default_jobs
from whichtorch.matrix.records import store

if TYPE_CHECKING:
    from whichtorch.matrix.run.site import ThisMachine
    from whichtorch.matrix.run.work import Machines


Executor = Annotated[
    str | None,
    RunningOption(metavar="ADDRESS", help="Run on the workers of a scheduler, tls://head:8786. [default: here]"),
]
TlsFolder = Annotated[
    Path | None,
    RunningOption("--tls", metavar="DIR", help="A cluster's certificates. [default: tls in the state folder]"),
]


def tls_folder(tls: Path | None) -> Path:
    """Return the folder of a cluster's certificates."""
    return tls or store.state_folder() / "tls"


@contextmanager
def machines_at(
    address: str | None, tls: Path | None, here: "ThisMachine", jobs: int | None = None
) -> Iterator["Machines"]:
    """Give the workers of a scheduler, or this machine where none is named; say which workers get no work."""
    if address is None:
        yield here
        return
    from whichtorch.matrix.cluster.cluster_machines import ClusterMachines
    from whichtorch.matrix.cluster.engine import DaskEngine

    engine = DaskEngine(address, tls_folder(tls))
    try:
        machines = ClusterMachines(engine, here.environments.home, jobs)
        for line in machines.remarks():
            print(line, file=sys.stderr)
        yield machines
    finally:
        engine.close()


def _tell(line: str) -> None:
    print(line, flush=True)


def scheduler(
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Where to listen.")] = PORT,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen at; 127.0.0.1 with --plain.")
    ] = "0.0.0.0",  # noqa: S104  workers of other machines dial it; who has no certificate is refused
    tls: TlsFolder = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="No certificates, for workers and users of this very machine only.")
    ] = False,
) -> None:
    """Let workers and users of a cluster find each other.

    Where --tls has no certificates, they are made: copy the folder to all machines that take part. Whoever has it
    can run code on every worker. Ctrl-C ends it; workers then stop what they run, and dial again.
    Exit code: 0 ended by a signal; 2 wrong usage; 3 the port is taken, or distributed is not installed.
    """
    from whichtorch.matrix.cluster.scheduler import serve

    address = f"tcp://127.0.0.1:{port}" if plain else f"tls://{host}:{port}"
    asyncio.run(serve(address, tls_folder(tls), _tell))


def worker(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Of the scheduler, tls://head:8786.")],
    slots: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Attempts at once. [default: cores, memory permitting]")
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="State folder of its own, on a local disk. [default: WHICHTORCH_HOME]"),
    ] = None,
    idle: Annotated[
        str | None, typer.Option(metavar="TIME", help="End after so long without work: 90s, 10m, ... [default: never]")
    ] = None,
    disk: command.Disk = None,
    install_timeout: Annotated[
        float, typer.Option(metavar="S", min=1, help="Seconds after which a step of an install is given up.")
    ] = INSTALL_TIMEOUT,
    tls: TlsFolder = None,
) -> None:
    """Run cells for the users of a cluster.

    It dials again when the scheduler has gone. Ctrl-C or SIGTERM ends it: what runs is stopped, what is done is kept in
    its state folder and sent when the same is asked for again.
    Exit code: 0 idle for long enough, or ended by a signal; 2 wrong usage; 3 distributed is not installed.
    """
    from whichtorch.matrix.cluster.batch_host import BatchHost
    from whichtorch.matrix.cluster.worker import Dialler, facts_of
    from whichtorch.matrix.inspect.checkup import CheckState, ptrace_check

    seconds = command.seconds(idle)
    certificates = tls_folder(tls)  # before --home: its default is the user's own
    if home is not None:
        os.environ["WHICHTORCH_HOME"] = str(home.absolute())
    state = store.state_folder()
    cache = EnvironmentCache(state, disk_budget_mb=command.megabytes(disk), install_timeout=install_timeout)
    host = BatchHost(state, cache)

    ptrace = ptrace_check()
    lack = "" if ptrace.state is CheckState.GOOD else ptrace.found
    if lack:
        _tell(f"{lack}; remedy: {ptrace.remedy}")
    dialler = Dialler(address, certificates, host, facts_of(host, slots or default_jobs(), lack), _tell)

    async def work() -> None:
        await dialler.run(seconds)

    asyncio.run(work())
