"""The scheduler of cells: what is left to run of each environment, where it runs, and what a lost worker costs."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.base.errors import GOES_ON, PreventedError
from whichtorch.environments.installation import unbuildable
from whichtorch.matrix.judgement import may_fork
from whichtorch.matrix.work import (
    Batch,
    BatchResult,
    CellEnd,
    EnvironmentWork,
    Site,
    UndeliveredError,
    Worker,
    WorkerLostError,
    WorkListener,
)

if TYPE_CHECKING:
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Environment
    from whichtorch.records.line_index import Records


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


CHECK = 0.5  # seconds between looks at who is there
SHARES = 2  # batches for each slot, at least, so that all slots end at about the same time
LOSSES = 3  # workers that a cell may cost
PATIENCE = 60.0  # seconds without a worker that fits, after which a run that had some ends


class Slot(Enum):
    """What a slot of a worker is for."""

    CELL = "cell"
    HANG = "hang"
    INSTALL = "install"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """A batch that is awaited."""

    queue: EnvironmentQueue
    batch: Batch
    worker: Worker
    slot: Slot


class CellScheduler:
    """Has cells run on the workers of a site, each where its environment is or can be made.

    Its methods may be called from any thread, while others run, too. A thread of its own, which lives as long as there
    is work, does the rest.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self._changed = threading.Condition()  # guards the two below
        self._inbox: deque[Callable[[], None]] = deque()
        self._has_thread = False
        # all below is the thread's own
        self._queues: list[EnvironmentQueue] = []
        self._awaited: dict[str, _Sent] = {}  # by the batch's id
        self._busy: Counter[tuple[str, Slot]] = Counter()  # batches, by the worker's address
        self._failure: BaseException | None = None
        self._fit_at = 0.0  # when there was a worker for what is left

    def add(self, work: EnvironmentWork, run: WorkListener) -> Future[None]:
        """Have cells run. The future ends when none of them is left to run or awaited.

        It holds the error that came; after one nothing more is run.
        """
        queue = EnvironmentQueue(work=work, run=run)
        self._post(partial(self._accept, queue))
        return queue.over

    def cancel(self, work: EnvironmentWork) -> None:
        """Have work end soon; what is done is kept."""
        self._post(partial(self._cancel, work))

    def _post(self, message: Callable[[], None]) -> None:
        with self._changed:
            self._inbox.append(message)
            self._changed.notify_all()
            if not self._has_thread:
                self._has_thread = True
                self._fit_at = time.monotonic()
                threading.Thread(target=self._run, name="cell scheduler", daemon=True).start()

    # below: in the thread

    def _run(self) -> None:
        while self._has_work():
            try:
                self._end_queues()
                self._send_all()
                self._wait()
                while self._inbox:
                    self._inbox.popleft()()
            except BaseException as error:  # noqa: BLE001  the futures have it
                self._failure = self._failure or error

    def _has_work(self) -> bool:
        with self._changed:
            self._has_thread = bool(self._inbox or self._queues)
            return self._has_thread

    def _wait(self) -> None:
        with self._changed:
            if self._queues and not self._inbox:
                self._changed.wait(CHECK)

    def _accept(self, queue: EnvironmentQueue) -> None:
        self._queues.append(queue)
        request = queue.work.request
        if request.problem is not None:
            queue.close()
            queue.run.acquired(queue.work, self.site.environments.acquire(request))
            return
        self.site.check(request)
        if (environment := queue.work.environment) is not None:
            queue.begin(environment, queue.work.cells)

    def _cancel(self, work: EnvironmentWork) -> None:
        for queue in self._queues:
            if queue.work is work:
                self._close(queue)

    def _close(self, queue: EnvironmentQueue) -> None:
        queue.close()
        for sent in list(self._awaited.values()):
            if sent.queue is queue and not sent.batch.cancelled.is_set():
                sent.batch.cancelled.set()
                self.site.cancel(sent.batch)

    def _end_queues(self) -> None:
        for queue in self._queues if self._failure else ():
            self._close(queue)
        for queue in [each for each in self._queues if each.is_over]:
            self._queues.remove(queue)
            try:
                if queue.environment is not None and queue.work.is_lent:
                    self.site.environments.release(queue.work.request)
            except BaseException as error:  # noqa: BLE001  the future has it
                self._failure = self._failure or error
            if (failure := self._failure or queue.failure) is not None:
                queue.over.set_exception(failure)
            else:
                queue.over.set_result(None)

    # to the workers

    def _send_all(self) -> None:
        """Send a batch for each free slot, as far as there is something that it should get."""
        workers = self.site.workers() if any(not queue.is_closed for queue in self._queues) else ()
        slots = sum(worker.slots for worker in workers)
        is_sending = True
        while is_sending:
            is_sending = False
            for worker in sorted(workers, key=lambda each: self._busy[each.address, Slot.CELL] / each.slots):
                if (chosen := self._choose(worker, is_alone=len(workers) == 1)) is not None:
                    left = sum(each.rest for each in self._queues)
                    most = min(self.site.batch_seconds, left * TYPICAL_CELL / (SHARES * slots))
                    self._send(*chosen, worker, most)
                    is_sending = True
        if self._awaited or any(each.may_go_to(worker) for each in self._queues for worker in workers):
            self._fit_at = time.monotonic()
        elif time.monotonic() - self._fit_at > PATIENCE:
            raise PreventedError(f"no worker is left for it at {self.site.address}", hint=GOES_ON)

    def _choose(self, worker: Worker, *, is_alone: bool) -> tuple[EnvironmentQueue, Slot] | None:
        """Return the environment of which a worker should get a batch now, and the slot for it; None where it waits."""
        most = self.site.most_batches
        if most is not None and len(self._awaited) >= most:
            return None
        typical_install = self.site.environments.typical_install
        for queue in candidates(self._queues, worker, typical_install, is_alone=is_alone):
            if queue is not None and (slot := self._free_slot(worker, queue)) is not None:
                return queue, slot
        return None

    def _free_slot(self, worker: Worker, queue: EnvironmentQueue) -> Slot | None:
        """Return a free slot for the next batch of an environment, None where there is none."""
        fitting = [(Slot.CELL, worker.slots)]
        if queue.environment is None and worker.install_slots is not None:
            fitting = [(Slot.INSTALL, worker.install_slots)]
        elif worker.hang_slots and queue.environment is not None and queue.order[0]:
            fitting = [(Slot.HANG, worker.hang_slots), *fitting]
        return next((slot for slot, count in fitting if self._busy[worker.address, slot] < count), None)

    def _send(self, queue: EnvironmentQueue, slot: Slot, worker: Worker, most: float) -> None:
        queue.is_preparing = queue.environment is None
        batch = Batch(
            id=f"batch-{secrets.token_hex(8)}",
            request=queue.work.request,
            environment=queue.environment,
            cells={} if queue.is_preparing else queue.take(worker, self.site.records, most),
            trial=queue.work.trial,
            fork_levels=queue.work.fork_levels,
        )
        self.site.start(batch, worker, lambda result: self._post(partial(self._take, batch.id, result)))
        self._awaited[batch.id] = _Sent(queue=queue, batch=batch, worker=worker, slot=slot)
        queue.hosts[worker.host] += 1
        self._busy[worker.address, slot] += 1

    # from the workers

    def _take(self, batch_id: str, result: Callable[[], BatchResult]) -> None:
        """Take in what came of a batch, unless it was sent again since: a worker that seemed lost may come back."""
        sent = self._awaited.pop(batch_id, None)
        if sent is None:
            return
        queue, worker = sent.queue, sent.worker
        self._busy[worker.address, sent.slot] -= 1
        queue.hosts[worker.host] -= 1
        queue.is_preparing = queue.is_preparing and bool(sent.batch.cells)
        try:
            came = result()
        except UndeliveredError:
            self._send_again(queue, list(sent.batch.cells))
        except WorkerLostError as error:
            self._lost(sent, str(error))
        except Exception as error:
            if queue.work.trial is None:
                raise
            queue.failure = error  # nobody else's business
            queue.close()
        else:
            if came.environment is not None:
                queue.made_on.add(worker.host)
                self._take_environment(sent, came.environment)
                for end in came.ends:
                    queue.run.ended(came.environment, end)
            self._send_again(queue, came.left)

    def _take_environment(self, sent: _Sent, environment: Environment) -> None:
        """Take in what a worker made of an environment; where that is of no use, another host is asked."""
        queue = sent.queue
        if not environment.is_usable:
            queue.refused.add(sent.worker.host)
            is_first = queue.environment is queue.work.environment  # nobody has made it, or only for its giver
            if is_first and not any(map(queue.may_go_to, self.site.workers())):
                self._refuse(queue, environment)
        elif queue.environment is None:
            if queue.is_closed:
                self.site.environments.release(queue.work.request)
            else:
                queue.begin(environment, queue.run.acquired(queue.work, environment))
        elif environment.id != queue.environment.id:  # a machine on which the same request comes out otherwise
            work = EnvironmentWork(request=queue.work.request, first=queue.work.first, cells={})
            queue.run.acquired(work, environment)

    def _refuse(self, queue: EnvironmentQueue, environment: Environment) -> None:
        """End an environment that no worker can make or use, with all its cells."""
        queue.close()
        queue.run.acquired(queue.work, environment)

    def _send_again(self, queue: EnvironmentQueue, positions: Sequence[int]) -> None:
        if not queue.is_closed:
            queue.left.extendleft(reversed(positions))

    def _lost(self, sent: _Sent, why: str) -> None:
        """Have a lost batch's cells sent again, each alone; a cell that cost too many workers is an error."""
        queue = sent.queue
        reason = f"its worker was lost {LOSSES} times, the last time {why}"
        for position in sent.batch.cells or (-1,):
            queue.losses[position] += 1
            is_given_up = queue.losses[position] >= LOSSES
            if queue.is_closed:
                continue
            if position >= 0 and not is_given_up:
                queue.lost_on[position] = sent.worker.host
                queue.alone.append(position)
            elif position >= 0 and queue.environment is not None:
                queue.run.ended(queue.environment, CellEnd(position=position, problem=reason))
            elif is_given_up:
                self._refuse(queue, unbuildable(queue.work.request, reason))
