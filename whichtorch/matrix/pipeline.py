"""The pipeline: take what records answer, hand the rest to a site, keep and tell what comes of every cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import FailFastError, UsageError, why_stopped
from whichtorch.base.grouping import counted
from whichtorch.matrix.judgement import counting, is_settled, judge_cell
from whichtorch.matrix.planning import PlannedCell, PlannedShare
from whichtorch.matrix.work import CellEnd, EnvironmentWork
from whichtorch.model import NO_COMMAND, NOT_TAKEN, Cell, Environment, Outcome, Record, Request, judging_records
from whichtorch.model.events import CellDone, EnvironmentReady, Interrupted, TestsFound
from whichtorch.search.worker_pool import await_all

if TYPE_CHECKING:
    from concurrent.futures import Future

    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.cell_scheduler import CellScheduler
    from whichtorch.records.known_records import Records


class MatrixRun:
    """One run of planned cells. Call `run` once, then read `environments` and `cells`."""

    def __init__(self, planned: Sequence[PlannedCell], scheduler: CellScheduler, keep_cells: bool = True) -> None:
        """Without `keep_cells` there is no `cells`: the store has them, and millions do not fit in memory."""
        self._planned, self._scheduler, self._site = planned, scheduler, scheduler.site
        # by the position of their first cell; on another machine of a cluster the same request may come out otherwise
        self._environments: dict[tuple[int, str], Environment] = {}
        # a command has several, one for each of its tests
        self._cells: dict[int, list[Cell]] | None = {} if keep_cells else None
        self._work: list[EnvironmentWork] = []  # what records do not answer
        self._begun: list[Future[None]] = []  # the same, as the scheduler has it
        self._failed = ""  # the first failure, with --fail-fast
        self.interrupt: KeyboardInterrupt | None = None

    @property
    def environments(self) -> tuple[Environment, ...]:
        """The environments in the order of the plan."""
        return tuple(self._environments[position] for position in sorted(self._environments))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that are done, in the order of the plan."""
        assert self._cells is not None
        return tuple(cell for position in sorted(self._cells) for cell in self._cells[position])

    def run(self) -> None:
        """Run to the end. An interrupt stops what runs and keeps what is done; a second one is raised."""
        try:
            self.begin()
            self._wait()
        except KeyboardInterrupt as interrupt:
            self.interrupt = interrupt
            self._site.emit(Interrupted(why=why_stopped(interrupt)))
            self.cancel()
            self._wait()

    def begin(self) -> Sequence[Future[None]]:
        """End what records answer, and have the rest run; return what ends with each environment of it."""
        self._work = self._unanswered()
        self._check_failed()
        for work in self._work:
            self._begun.append(self._scheduler.add(work, self))
        return self._begun

    def cancel(self) -> None:
        """Have it end soon; what is done is kept. May be called in another thread."""
        for work in self._work:
            self._scheduler.cancel(work)

    def _wait(self) -> None:
        await_all(self._begun, self._check_failed)
        for ended in self._begun:
            ended.result()

    def _check_failed(self) -> None:
        """Interrupt the run, in the main thread, where a failure ends it."""
        if self._failed and self.interrupt is None:
            raise FailFastError(f"{self._failed} failed, and --fail-fast ends the run")

    def _unanswered(self) -> list[EnvironmentWork]:
        """End the cells that records answer without an install; return the others by their environments."""
        work: dict[tuple[str, ...], EnvironmentWork] = {}
        shares: dict[tuple[str, ...], PlannedShare] = {}
        known: dict[tuple[str, ...], Environment | None] = {}
        answered = with_answers(self._planned, self._site.environments, self._site.records)
        for position, (key, cell, environment, answer) in enumerate(answered):
            self._site.store.add_scenario(cell.scenario)
            known[key] = environment
            if key not in work:
                shares[key] = PlannedShare(self._planned)
                work[key] = EnvironmentWork(request=cell.request, first=position, cells=shares[key])
            if environment and answer:
                self.ended(environment, answer)
            else:
                shares[key].positions.append(position)
        for asked, mine in work.items():
            if (environment := known[asked]) and not mine.cells:
                self._add_environment(environment, mine, to_run=0)
        return [each for each in work.values() if each.cells]

    def _add_environment(self, environment: Environment, work: EnvironmentWork, to_run: int) -> None:
        environment = self._site.with_variables(work.request, environment)
        self._environments[work.first, environment.id] = environment
        self._site.store.add_environment(environment)
        self._site.emit(EnvironmentReady(environment=environment, cells=to_run))

    # what the scheduler tells, from its thread

    def acquired(self, work: EnvironmentWork, environment: Environment) -> Mapping[int, PlannedCell]:
        """Keep an environment; end its cells that records answer, or all of them if it cannot be used."""
        rest = PlannedShare(self._planned)
        for position, cell in work.cells.items() if environment.is_usable else ():
            if answer := _answer(position, cell, environment, self._site.records):
                self.ended(environment, answer)
            else:
                rest.positions.append(position)
        self._add_environment(environment, work, to_run=len(rest))
        if not environment.is_usable:
            for position in work.cells:
                self.ended(environment, CellEnd(position=position))
        return rest

    def ended(self, environment: Environment, end: CellEnd) -> None:
        """Judge, store and tell a cell; of a command that has tests, the cell of each.

        A command that is red, or was prevented, has its own cell beside them.
        """
        planned = self._planned[end.position]
        own = judge_cell(planned, environment, end.records, reused=end.reused, problem=end.problem)
        is_shown = own.is_red or own.outcome.is_prevented or not end.tests
        cells = [(planned, own, end.records)] if is_shown else []
        for id_, records in end.tests.items():
            test = planned.of_test(id_)
            reused = min(end.reused, len(judging_records(records)))
            cells.append((test, judge_cell(test, environment, records, reused=reused), records))
        if end.tests:
            self._site.emit(TestsFound(environment=environment.label, cells=len(cells)))
        for test, cell, records in cells:
            if self._cells is not None:
                self._cells.setdefault(end.position, []).append(cell)
            self._site.store.add_scenario(test.scenario)
            self._site.store.add_cell(cell, [record.key for record in records], end.position)
            self._site.emit(CellDone(environment=environment, cell=cell))
            if planned.options.fail_fast and cell.has_failed:
                self._failed = self._failed or f"{cell.name} in {environment.label}"


def with_answers(
    planned: Sequence[PlannedCell], environments: Environments, records: Records
) -> Iterator[tuple[tuple[str, ...], PlannedCell, Environment | None, CellEnd | None]]:
    """Yield the key of each cell's request, the cell, its environment if known, and its end if records know that."""
    known: dict[tuple[str, ...], Environment | None] = {}
    request: Request | None = None
    key: tuple[str, ...] = ()
    for position, cell in enumerate(planned):
        if cell.request is not request:  # neighbors in a plan share theirs
            request, key = cell.request, cell.request.key
            if key not in known:
                known[key] = environments.known(request)
        environment = known[key]
        yield key, cell, environment, _answer(position, cell, environment, records) if environment else None


def raise_if_impossible(cells: Iterable[Cell]) -> None:
    """Raise UsageError where no environment can have what the user asks for: the packages, or the command."""
    asked = list(cells)
    ran = [cell for cell in asked if cell.outcome not in {Outcome.UNBUILDABLE, Outcome.BROKEN}]
    if asked and all(cell.is_unresolvable for cell in asked):
        told, hint = asked, "change them, or name other releases with --torch"
    elif ran and all(cell.lacks_command for cell in ran):
        program = (ran[0].reason or "").partition(f": {NO_COMMAND}")[0]
        brings = f"it is a file: -- python {program}" if Path(program).is_file() else f"--with {program}"
        told, hint = ran, "" if NOT_TAKEN in program else brings
    else:
        return
    others = len({cell.environment for cell in told}) - 1
    more = f" (likewise in {counted(others, 'other environment')})" if others else ""
    raise UsageError(f"{told[0].reason}{more}", hint=hint)


def _answer(position: int, cell: PlannedCell, environment: Environment, records: Records) -> CellEnd | None:
    """Return the end of a cell that records answer, None where it must run."""
    known = tuple(counting(cell, records.of(cell.key(environment)), environment))
    if any(record.attempt.evidence.tests for record in known):
        tests = known_tests(cell, environment, records, known)
    else:
        tests = {} if known and is_settled(cell, known) else None
    if tests is None:
        return None
    return CellEnd(position=position, records=known, reused=len(judging_records(known)), tests=tests)


def known_tests(
    planned: PlannedCell, environment: Environment, records: Records, own: Sequence[Record]
) -> dict[str, tuple[Record, ...]] | None:
    """Return by id the records that answer the tests of a command; None where one of them must run.

    `own` are the records of the command itself.
    """
    ids = next((record.attempt.evidence.tests for record in reversed(own)), None)
    found: dict[str, tuple[Record, ...]] = {}
    for id_ in ids or ():
        test = planned.of_test(id_)
        found[id_] = tuple(counting(test, records.of(test.key(environment)), environment))
        if not planned.scenario.asks_for(id_):
            del found[id_]
        elif not is_settled(test, found[id_]):
            return None
    return found
