"""What is left to run of each environment, and which of it a worker gets next."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.matrix.judgement import may_fork

if TYPE_CHECKING:
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.matrix.work import EnvironmentWork, Worker, WorkListener
    from whichtorch.model import Environment
    from whichtorch.records.known_records import Records

TYPICAL_CELL = 3.0  # seconds: the 152 cells of the suite take 2.3 s each on a core if they ran before, else 3.8 s


@dataclass(slots=True, kw_only=True, eq=False)
class EnvironmentQueue:
    """An environment with its cells that are still to be run."""

    work: EnvironmentWork
    run: WorkListener
    over: Future[None] = field(default_factory=Future)
    environment: Environment | None = None  # None: no worker has made it ready yet
    failure: Exception | None = None  # why a trial could not be made
    is_preparing: bool = False
    is_closed: bool = False  # cancelled, or no worker can make or use it: nothing more of it is sent
    left: deque[int] = field(default_factory=deque)  # positions, in the order in which they are sent
    alone: deque[int] = field(default_factory=deque)  # those whose worker was lost: each is a batch of its own
    losses: Counter[int] = field(default_factory=Counter)  # workers, by position; -1: while it was made ready
    lost_on: dict[int, str] = field(default_factory=dict)  # the host that had it, by position
    refused: set[str] = field(default_factory=set)  # hosts where it could not be made or used
    made_on: set[str] = field(default_factory=set)  # hosts that have it
    hosts: Counter[str] = field(default_factory=Counter)  # that have batches of it now
    install_key: str = field(init=False)
    _rank: tuple[int, tuple[bool, float]] = (-1, (False, 0.0))  # of the next cell, by its position

    def __post_init__(self) -> None:
        self.install_key = self.work.request.unpatched.install_key

    @property
    def rest(self) -> int:
        """How many cells are still to be sent."""
        return len(self.left) + len(self.alone)

    @property
    def is_over(self) -> bool:
        """True when nothing of it is to be sent or awaited."""
        is_all_sent = self.is_closed or (self.environment is not None and not self.rest)
        return is_all_sent and not self.hosts.total()

    @property
    def order(self) -> tuple[bool, float, bool, int]:
        """The place of the next cell among those of all environments, the lowest first.

        Expected hangs are the last: by then passes elsewhere have shortened their limit. Of the others the longest are
        the first, so that none is left over at the end. Forked cells are short. Those of an environment come together,
        and each slot prefers to stay with one environment, because they share what it has imported.
        """
        position = (self.alone or self.left)[0]
        if self._rank[0] != position:
            self._rank = position, self._rank_of(position)
        return *self._rank[1], bool(self.hosts.total()), position

    def _rank_of(self, position: int) -> tuple[bool, float]:
        """Return whether a cell is expected to hang, and how short it is, as far as the plan says."""
        planned, environment = self.work.cells[position], self.environment
        assert environment is not None
        forks = bool(self.work.fork_levels) and may_fork(planned, environment, ())
        shortness = 0.0 if forks else -planned.scenario.timeout
        return planned.expects_hang(environment), shortness

    def is_at_hand(self, worker: Worker) -> bool:
        """Return whether the environment is there on a worker's host."""
        return self.work.environment is not None or worker.host in self.made_on or self.install_key in worker.installed

    def may_go_to(self, worker: Worker) -> bool:
        """Return whether a worker is of the hardware that is asked for, and has not refused the environment."""
        hardware = self.work.request.hardware
        fits = hardware is None or worker.machine is None or not worker.machine.lack(hardware)
        return fits and worker.host not in self.refused

    def begin(self, environment: Environment, cells: Iterable[int]) -> None:
        """Take in that the environment is ready, with the cells that are to be run."""
        self.environment = environment
        self.left.extend(sorted(cells, key=lambda position: (*self._rank_of(position), position)))

    def take(self, worker: Worker, records: Records, most: float) -> dict[int, PlannedCell]:
        """Remove and return the cells of a batch of about `most` seconds, by their positions."""
        cells = self.work.cells
        if self.alone:  # the same host may have done it
            mine = (each for each in self.alone if self.lost_on.get(each) == worker.host)
            position = next(mine, self.alone[0])
            self.alone.remove(position)
            return {position: cells[position]}
        taken: dict[int, PlannedCell] = {}
        seconds = 0.0
        while self.left and (not taken or seconds < most):
            position = self.left.popleft()
            taken[position] = cells[position]
            seconds += expected_seconds(taken[position], records) if most else 0.0
        return taken

    def close(self) -> None:
        """Send nothing more of it."""
        self.is_closed = True
        self.left.clear()
        self.alone.clear()


def candidates(
    queues: Sequence[EnvironmentQueue], worker: Worker, typical_install: Callable[[], float], *, is_alone: bool
) -> list[EnvironmentQueue | None]:
    """Return the environments of which a worker may get the next batch, the best one of each kind.

    First one that is there and has cells left: the one whose next cell comes first where the worker `is_alone`, else
    the one with most cells left, so that all workers end at about the same time. Then one that nobody has made ready
    yet: rather one that needs no install there, or no download. Then one that others work at, where enough is left of
    it to be worth an install.
    """
    fitting = [each for each in queues if not each.is_closed and each.may_go_to(worker)]
    ready = [each for each in fitting if each.environment is not None and each.rest]
    at_hand = [each for each in ready if each.is_at_hand(worker)]
    if is_alone:
        first = min(at_hand, key=lambda each: each.order, default=None)
    else:
        first = max(at_hand, key=lambda each: (bool(each.alone), each.rest), default=None)
    begun = {each.install_key for each in queues if each.is_preparing}
    new = [each for each in fitting if each.environment is None and each.install_key not in begun]
    installed, fetched = worker.installed, worker.fetched
    fresh = max(new, key=lambda each: (each.install_key in installed, each.install_key in fetched), default=None)
    if first or fresh or not ready:
        return [first, fresh]
    seconds = typical_install()
    worth = [each for each in ready if each.rest * TYPICAL_CELL / max(1, each.hosts.total()) > seconds]
    stranded = [each for each in ready if not each.hosts.total()]
    return [max(worth or stranded, key=lambda each: each.rest, default=None)]


def expected_seconds(cell: PlannedCell, records: Records) -> float:
    """Return about how long a cell takes; the slowest pass of a chain has the seconds of all its runs."""
    slowest = records.slowest_pass(cell.scenario, cell.variant, cell.request.hardware_name)
    runs = cell.runs
    return cell.options.repeat * min(runs * cell.limits.timeout, runs * TYPICAL_CELL if slowest is None else slowest)
