"""What a user asks of `matrix`: the cells, what is known of them already, and what the rest takes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.environments.cache import EnvironmentCache
from whichtorch.matrix.environments.machine import check_hardware
from whichtorch.matrix.plan.planning import Plan, PlannedCell, plan_matrix
from whichtorch.matrix.process.executor import default_jobs
from whichtorch.matrix.records.store import RunStore, read_records
from whichtorch.matrix.run.pipeline import MatrixRun, recorded_run, with_answers
from whichtorch.matrix.run.site import INSTALLS_AT_ONCE, DistantEnvironments, OtherMachines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from whichtorch.matrix.events import Show
    from whichtorch.matrix.model import Request
    from whichtorch.matrix.plan.matrix_request import MatrixRequest
    from whichtorch.matrix.records.known_records import Records

TYPICAL_CELL = 5.5  # seconds: 152 cells of the suite take eight minutes on two cores, with four installs


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMatrix:
    """The cells that a user asks for, and what earlier runs know of them."""

    planned: Plan
    cache: EnvironmentCache | DistantEnvironments
    records: Records
    jobs: int  # attempts at once
    waiting: int = 0  # more of them that are expected to hang
    notes: tuple[str, ...] = ()  # on how the environments were chosen
    elsewhere: OtherMachines | None = None  # None: on this machine

    @classmethod
    def of(cls, request: MatrixRequest, elsewhere: OtherMachines | None = None) -> PlannedMatrix:
        """Plan the cells of a request, and read what is known.

        Raises PreventedError for a kind of hardware that is not there, and UsageError as `OtherMachines` does.
        """
        planned, notes = plan_matrix(request)
        records = read_records(request.home)
        if elsewhere is not None:
            environments = elsewhere.environments
            environments.check(planned.requests)
            jobs = min(elsewhere.slots, request.jobs or elsewhere.slots)
            return cls(
                planned=planned, cache=environments, records=records, jobs=jobs, notes=notes, elsewhere=elsewhere
            )
        check_hardware(planned.requests)
        disk_budget, limit = request.disk_budget_mb, request.install_timeout
        cache = EnvironmentCache(request.home, disk_budget_mb=disk_budget, install_timeout=limit)
        jobs = request.jobs or default_jobs()
        waiting = 0 if request.jobs else jobs
        return cls(planned=planned, cache=cache, records=records, jobs=jobs, waiting=waiting, notes=notes)

    @contextmanager
    def run(self, show: Show) -> Iterator[tuple[MatrixRun, RunStore]]:
        """Run the cells in a stored run of their own, which stays open."""
        with recorded_run(self.cache, self.records, show, len(self.planned), self.elsewhere) as run_steps:
            yield run_steps.run(self.planned, self.jobs, self.waiting, keep_cells=False), run_steps.store

    def forecast(self) -> Iterator[str]:
        """Yield what a user reads before a run: how much is known, and about how much disk and time the rest takes.

        Installs have the usual size and duration.
        """
        wanted = known_bugs = 0
        seconds = 0.0
        requests: dict[tuple[str, ...], Request] = {}  # of environments that are to run something, by their keys
        for cell, _, answers in with_answers(self.planned, self.cache, self.records):
            expected = cell.expectation(None)
            known_bugs += expected is not None and expected.outcome.is_red
            wanted += not answers
            if not answers and cell.request.problem is None:
                requests[cell.request.key] = cell.request
                seconds += expected_seconds(cell, self.records)
        environments = len({request.label for request in self.planned.requests})
        words = [f"{_number(environments, 'environment')}, {_number(len(self.planned), 'cell')}"]
        if wanted < len(self.planned):
            words.append(f"{len(self.planned) - wanted} known, {wanted} to run" if wanted else "all known")
        yield "; ".join([*words, *self._cost(seconds, requests.values())])
        if known_bugs:
            verbs = "shows a known bug and is" if known_bugs == 1 else "show known bugs and are"
            yield f"{known_bugs} of them {verbs} expected to fail or hang"

    def _cost(self, seconds: float, requests: Iterable[Request]) -> Iterator[str]:
        """Yield how much disk and time cells take that take so many seconds, one after another."""
        distinct = {} if self.elsewhere else {request.install_key: request for request in requests}
        installs = [request for request in distinct.values() if not self.cache.is_installed(request)]
        if installs:
            yield f"installs about {max(1, round(self.cache.expected_size(installs) / 1e9))} GB"
        install_seconds = self.cache.typical_install() * len(installs) / min(INSTALLS_AT_ONCE, len(installs) or 1)
        if total := install_seconds + seconds / self.jobs:
            yield f"about {_duration(total)} with {_number(self.jobs, 'job')}"


def expected_seconds(cell: PlannedCell, records: Records) -> float:
    """Return about how long a cell takes."""
    slowest = records.slowest_pass(cell.scenario, cell.variant, cell.request.hardware_name)
    return cell.options.repeat * min(cell.limits.timeout, TYPICAL_CELL if slowest is None else slowest)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return "a minute" if seconds > 30 else f"{max(1, round(seconds / 10)) * 10} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{round(seconds / 3600)} hours"
