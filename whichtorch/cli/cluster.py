"""`whichtorch scheduler` and `whichtorch worker`."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from whichtorch.base.option import argument, duration, group, option
from whichtorch.cli.command import certificates, state_folder
from whichtorch.matrix.cluster import PORT
from whichtorch.matrix.options import Storage

_tls = partial(option, metavar="DIR", help="A cluster's certificates. [default: tls in the state folder]")


def _print_line(line: str) -> None:
    print(line, flush=True)


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """The options of `scheduler`."""

    port: int = option(default=PORT, metavar="N", least=0, most=65535, help="Where to listen.")
    host: str = option(
        default="0.0.0.0",  # noqa: S104  workers of other machines dial it; who has no certificate is refused
        metavar="ADDRESS",
        help="The address to listen at; 127.0.0.1 with --plain.",
    )
    tls: Path | None = _tls()
    plain: bool = option(default=False, help="No certificates; only for workers and users on this machine.")


def scheduler(options: SchedulerOptions) -> None:
    """Let the workers and users of a cluster find each other.

    Where --tls has no certificates, they are made: copy the folder to all machines that take part. Whoever has it
    can run code on every worker. Ctrl-C ends it; workers then stop what they run, and dial again.
    Exit code: 0 ended by a signal; 2 wrong usage; 3 the port is taken, or distributed is not installed.
    """
    import asyncio

    from whichtorch.matrix.cluster.worker import serve

    address = f"tcp://127.0.0.1:{options.port}" if options.plain else f"tls://{options.host}:{options.port}"
    asyncio.run(serve(address, options.tls or certificates(), _print_line))


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options of `worker`."""

    address: str = argument("ADDRESS", "Of the scheduler, tls://head:8786.")
    slots: int | None = option(
        metavar="N", least=1, help="Attempts that run at once. [default: cores, memory permitting]"
    )
    home: Path | None = option(
        metavar="DIR", help="A separate state folder on a local disk. [default: WHICHTORCH_HOME]"
    )
    idle: float | None = duration(help="Exit after this long without work. [default: never]")
    storage: Storage = group(Storage)
    tls: Path | None = _tls()


def worker(options: WorkerOptions) -> None:
    """Run cells for the users of a cluster.

    It dials again when the scheduler has gone. Ctrl-C or SIGTERM ends it: what runs is stopped, what is done is kept in
    its state folder and sent when the same is asked for again.
    Exit code: 0 idle for long enough, or ended by a signal; 2 wrong usage; 3 distributed is not installed.
    """
    import asyncio

    from whichtorch.matrix.cluster.batch_host import BatchHost
    from whichtorch.matrix.cluster.worker import Dialler, facts_of
    from whichtorch.process.executor import default_jobs
    from whichtorch.watch.checkup import CheckState, ptrace_check

    tls = options.tls or certificates()  # before --home changes the state folder, where they are by default
    if options.home is not None:
        os.environ["WHICHTORCH_HOME"] = str(options.home.absolute())
    home = state_folder()
    host = BatchHost(home, options.storage.cache(home))

    ptrace = ptrace_check()
    lack = "" if ptrace.state is CheckState.GOOD else ptrace.found
    if lack:
        _print_line(f"{lack}; remedy: {ptrace.remedy}")
    facts = facts_of(host, options.slots or default_jobs(), lack)
    dialler = Dialler(options.address, tls, host, facts, _print_line)

    async def work() -> None:
        await dialler.run(options.idle)

    asyncio.run(work())
