"""Who is there: the workers of a scheduler, which of them get work, and which of their slots are taken."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from whichtorch.matrix.cluster.allotment import UNIT_SECONDS
from whichtorch.matrix.cluster.unit import code_version
from whichtorch.matrix.errors import PreventedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from whichtorch.matrix.cluster.engine import Engine, Member
    from whichtorch.matrix.environments.machine import Machine
    from whichtorch.matrix.model import Request

FRESHNESS = 1.0  # seconds for which the list of workers is believed; one that has gone fails what it is sent


class Cluster:
    """The workers of one scheduler, and their slots that this client has taken; the steps of a run share it."""

    def __init__(self, engine: Engine, jobs: int | None = None, unit_seconds: float = UNIT_SECONDS) -> None:
        self.engine, self.unit_seconds = engine, unit_seconds
        self._jobs = jobs  # units at once, None for as many as there are slots
        self.changed = threading.Condition()  # guards what is below, and tells of deliveries
        self._busy: Counter[str] = Counter()  # units, by worker
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
        if self._jobs is not None:
            return min(by_host.total(), self._jobs)
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

    def check(self, requests: Iterable[Request]) -> None:
        """Raise PreventedError, before anything is sent, for what no worker can run."""
        members = self.members()
        if not members:
            hint = "; ".join(self.misfits()) or f"start one with: whichtorch worker {self.engine.address}"
            raise PreventedError(f"no worker at {self.engine.address} can take work", hint=hint)
        for hardware in {request.hardware_name: request.hardware for request in requests}.values():
            lacks = [(each.facts.machine.host, each.facts.machine.lack(hardware)) for each in members if hardware]
            if hardware is not None and all(lack for _, lack in lacks):
                told = "; ".join(dict.fromkeys(f"{host}: {lack}" for host, lack in lacks))
                raise PreventedError(f"no worker is of the hardware {hardware.name}", hint=told)

    def free(self, members: Iterable[Member]) -> list[Member]:
        """Return the workers with a free slot, the least busy first; none where `jobs` units are on their way."""
        with self.changed:
            free = [each for each in members if self._is_free(each)]
            return sorted(free, key=lambda each: self._busy[each.address] / each.facts.slots)

    def occupy(self, member: Member) -> bool:
        """Take a slot of a worker; return whether there still was one."""
        with self.changed:
            is_free = self._is_free(member)
            self._busy[member.address] += is_free
            return is_free

    def vacate(self, worker: str) -> None:
        """Give a slot back."""
        with self.changed:
            self._busy[worker] -= 1
            self.changed.notify_all()

    def _is_free(self, member: Member) -> bool:
        is_full = self._jobs is not None and self._busy.total() >= self._jobs
        return not is_full and self._busy[member.address] < member.facts.slots

    def _all(self) -> Sequence[Member]:
        listed_at, members = self._listed
        if time.monotonic() - listed_at > FRESHNESS:
            members = self.engine.members()
            self._listed = time.monotonic(), members
        return members
