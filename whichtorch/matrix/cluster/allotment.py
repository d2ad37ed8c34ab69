"""Which cells go to which worker next: what is left of each environment, and what a free slot should get of it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.matrix.records.known_records import identity
from whichtorch.matrix.run.planned_matrix import TYPICAL_CELL, expected_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from whichtorch.matrix.cluster.engine import Member
    from whichtorch.matrix.cluster.unit import SharedLock
    from whichtorch.matrix.model import Environment, Record
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.records.known_records import Records
    from whichtorch.matrix.run.site import EnvironmentWork

UNIT_SECONDS = 60.0  # of cells in a unit: what a lost worker costs at most, beside the cell that it ran
SHARES = 2  # units for each slot, at least, so that all slots end at about the same time
LOSSES = 3  # workers that a cell may cost


@dataclass(slots=True, kw_only=True, eq=False)
class Tenancy:
    """An environment with its cells that are still to be run."""

    work: EnvironmentWork
    environment: Environment | None = None  # None: no worker has made it ready yet
    lock: SharedLock | None = None
    is_preparing: bool = False
    is_refused: bool = False  # no worker can make or use it; its cells have ended
    left: deque[int] = field(default_factory=deque)  # positions, in the order in which they are sent
    alone: deque[int] = field(default_factory=deque)  # those whose worker was lost: each is a unit of its own
    losses: Counter[int] = field(default_factory=Counter)  # workers, by position; -1: while it was made ready
    lost_on: dict[int, str] = field(default_factory=dict)  # the host that had it, by position
    refused: set[str] = field(default_factory=set)  # hosts where it could not be made or used
    made_on: set[str] = field(default_factory=set)  # hosts that have it
    hosts: Counter[str] = field(default_factory=Counter)  # that have units of it now
    request_key: str = field(init=False)  # of its installation

    def __post_init__(self) -> None:
        self.request_key = self.work.request.unpatched.install_key

    def may_go_to(self, member: Member) -> bool:
        """Return whether a worker is of the hardware that is asked for, and has not refused the environment."""
        hardware = self.work.request.hardware
        fits = hardware is None or not member.facts.machine.lack(hardware)
        return fits and member.facts.host not in self.refused

    def begin(self, environment: Environment, cells: Iterable[int]) -> None:
        """Take in that the environment is ready, with the cells that are to be run: hangs last, the longest first."""
        self.environment = environment
        cost = {position: self.work.cells[position] for position in cells}
        self.left.extend(
            sorted(cost, key=lambda each: (cost[each].expects_hang(environment), -cost[each].scenario.timeout, each))
        )

    def take(self, member: Member, records: Records, most: float) -> tuple[int, ...]:
        """Remove and return the positions of a unit of about `most` seconds; none where nothing is left."""
        if self.alone:
            mine = [each for each in self.alone if self.lost_on.get(each) == member.facts.host]
            position = (mine or list(self.alone))[0]
            self.alone.remove(position)
            return (position,)
        taken: list[int] = []
        seconds = 0.0
        while self.left and (not taken or seconds < most):
            taken.append(self.left.popleft())
            seconds += expected_seconds(self.work.cells[taken[-1]], records)
        return tuple(taken)

    @property
    def is_done(self) -> bool:
        """True when nothing of it is to be sent or awaited."""
        return self.is_refused or not (self.environment is None or self.rest or self.hosts.total())

    @property
    def rest(self) -> int:
        """How many cells are still to be sent."""
        return len(self.left) + len(self.alone)


def choose(tenancies: Sequence[Tenancy], member: Member, install_seconds: float) -> Tenancy | None:
    """Return the environment of which a free slot of a worker should get a unit; None where it had better wait.

    In this order: one that is there and has cells left; one that nobody has made ready yet, those first that need no
    install there, or no download; one that others work at, where enough is left of it to be worth an install.
    """
    fitting = [each for each in tenancies if not each.is_done and each.may_go_to(member)]
    installed, fetched = set(member.stock.installed), set(member.stock.fetched)
    ready = [each for each in fitting if each.environment is not None and each.rest]
    at_hand = [each for each in ready if each.request_key in installed or member.facts.host in each.made_on]
    if at_hand:
        return max(at_hand, key=lambda each: (bool(each.alone), each.rest))
    begun = {each.request_key for each in tenancies if each.is_preparing}
    new = [each for each in fitting if each.environment is None and not each.is_preparing]
    fresh = [each for each in new if each.request_key not in begun]
    if fresh:
        return max(fresh, key=lambda each: (each.request_key in installed, each.request_key in fetched))
    worth = [each for each in ready if each.rest * TYPICAL_CELL / max(1, each.hosts.total()) > install_seconds]
    stranded = [each for each in ready if not each.hosts.total()]
    return max(worth or stranded, key=lambda each: each.rest, default=None)


def bearing_on(cells: Iterable[PlannedCell], environment: Environment, records: Records) -> tuple[Record, ...]:
    """Return the records that a worker needs for cells, without what only people read."""
    chosen: dict[tuple[object, ...], Record] = {}
    for cell in cells:
        key = cell.key(environment)
        bearing = records.bearing_on(environment.id, cell.scenario, cell.variant, cell.request.hardware_name)
        own = cell.counting([record for record in bearing if record.key == key], environment)
        counting = set(map(identity, own))
        chosen |= {identity(each): each for each in bearing if each.key != key or identity(each) in counting}
    return tuple(map(_brief, chosen.values()))


def _brief(record: Record) -> Record:
    evidence = record.attempt.evidence
    kept = {name: getattr(evidence, name) for name in evidence.model_fields_set - {"samples", "stall", "observed"}}
    attempt = record.attempt.model_copy(update={"diagnosis": None, "evidence": type(evidence)(**kept)})
    return record.model_copy(update={"attempt": attempt})
