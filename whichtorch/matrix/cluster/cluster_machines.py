"""The workers of a scheduler: who is there, which of them get work, and what they cannot do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.environments.index.sources import local_folder
from whichtorch.matrix.cluster.cluster_site import ClusterSite
from whichtorch.matrix.cluster.known_environments import KnownEnvironments
from whichtorch.matrix.cluster.wire import code_version

if TYPE_CHECKING:
    from whichtorch.environments.machine import Machine
    from whichtorch.matrix.cluster.engine import DaskEngine, Member
    from whichtorch.model import Request
    from whichtorch.model.events import Emit
    from whichtorch.records.known_records import Records
    from whichtorch.records.store import RunStore

BATCH_SECONDS = 60.0  # of cells in a batch: what a lost worker costs at most, beside the cell that it ran
_LOCAL_PIN = "@ file:"  # in a line of a lock: the package is a file on a disk
FRESHNESS = 1.0  # seconds for which the list of workers is believed; one that has gone fails what it is sent


class ClusterMachines:
    """The workers of a scheduler as the commands on a state folder use them."""

    def __init__(
        self, engine: DaskEngine, home: Path, jobs: int | None = None, batch_seconds: float = BATCH_SECONDS
    ) -> None:
        self.engine, self.environments, self.batch_seconds = engine, KnownEnvironments(home), batch_seconds
        self.jobs = jobs  # batches at once, None for as many as there are slots
        self._listed: tuple[float, Sequence[Member]] = (0.0, ())

    def members(self) -> list[Member]:
        """Return the workers that have this program's version. Raises PreventedError where the scheduler has gone."""
        return [member for member in self._all() if member.facts.code == code_version()]

    @property
    def slots(self) -> int:
        """How many cells a search had better try at once: by default as many as each host has slots and cores for."""
        by_host: Counter[Machine] = Counter()
        for member in self.members():
            by_host[member.facts.machine] += member.facts.slots
        if self.jobs is not None:
            return min(by_host.total(), self.jobs)
        return sum(min(slots, machine.cores or slots) for machine, slots in by_host.items())

    def remarks(self) -> list[str]:
        """Return a line for each worker that gets no work, or that cannot tell where a hang is stuck."""
        blind = [member for member in self.members() if member.facts.ptrace]
        return [
            *self.misfits(),
            *(f"hangs on {member.name} are told without stacks: {member.facts.ptrace}" for member in blind),
        ]

    def misfits(self) -> list[str]:
        """Return a line for each worker of another version: it gets no work."""
        others = [member for member in self._all() if member.facts.code != code_version()]
        return [
            f"no work for {member.facts.machine.host}: it has whichtorch {member.facts.code}, here is {code_version()}"
            for member in others
        ]

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UsageError for what lies on this machine only, PreventedError for what no worker can run."""
        for request in requests:
            folder = request.build.find_links
            wheel = request.torch if request.torch.endswith(".whl") else ""
            wheel = next((f"the project {project.name}" for project in request.projects), wheel)
            if request.interpreter is not None:
                hint = "leave out --executor, or name a release with --torch"
                raise UsageError(f"{request.interpreter} is on this machine, and workers are not", hint=hint)
            pinned = next((line for line in request.lock if _LOCAL_PIN in line), "")
            if wheel or pinned or (folder and local_folder(folder) is not None):
                hint = "leave out --executor, or serve the wheels from an index that the workers reach"
                raise UsageError(f"{wheel or pinned or folder} is on this machine, and workers are not", hint=hint)
        members = self.members()
        if not members:
            hint = "; ".join(self.misfits()) or f"start one with: whichtorch worker {self.engine.address}"
            raise PreventedError(f"no worker at {self.engine.address} can take work", hint=hint)
        for hardware in {request.hardware_name: request.hardware for request in requests}.values():
            lacks = [(each.facts.machine.host, each.facts.machine.lack(hardware)) for each in members if hardware]
            if hardware is not None and all(lack for _, lack in lacks):
                told = "; ".join(dict.fromkeys(f"{host}: {lack}" for host, lack in lacks))
                raise PreventedError(f"no worker is of the hardware {hardware.name}", hint=told)

    def install_cost(self, _requests: Sequence[Request]) -> tuple[int, float]:
        """Return nothing: workers install."""
        return 0, 0.0

    @contextmanager
    def site(self, records: Records, store: RunStore, emit: Emit) -> Iterator[ClusterSite]:
        """Open them as a place where cells run."""
        site = ClusterSite(self, records, store, emit)
        self.engine.follow(store.run.id, site.hear)
        yield site

    def _all(self) -> Sequence[Member]:
        listed_at, members = self._listed
        if time.monotonic() - listed_at > FRESHNESS:
            members = self.engine.members()
            self._listed = time.monotonic(), members
        return members
