"""The scheduler that workers and clients dial: it knows who is there, and passes batches on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from whichtorch.base.errors import PreventedError
from whichtorch.matrix.cluster.engine import HTTP_ADDRESS, import_distributed, make_certificates, security
from whichtorch.matrix.signals import stopping_signals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
