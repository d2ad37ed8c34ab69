"""What a user asks of `matrix`: the cells, what is known of them already, and what the rest takes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.grouping import counted
from whichtorch.matrix.plan.planning import Plan, plan_matrix
from whichtorch.matrix.records.store import RunStore, read_records
from whichtorch.matrix.records.stored_runs import all_runs
from whichtorch.matrix.run.environment_queue import TYPICAL_CELL, expected_seconds
from whichtorch.matrix.run.pipeline import MatrixRun, recorded_run, with_answers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from whichtorch.matrix.environments.provider import Environments
    from whichtorch.matrix.events import Show
    from whichtorch.matrix.model import Request
    from whichtorch.matrix.plan.environment_options import MatrixRequest
    from whichtorch.matrix.records.known_records import Records
    from whichtorch.matrix.run.work import Machines


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMatrix:
    """The cells that a user asks for, and what earlier runs know of them."""

    planned: Plan
    machines: Machines
    records: Records
    notes: tuple[str, ...] = ()  # on how the environments were chosen

    @classmethod
    def of(cls, request: MatrixRequest, machines: Machines) -> PlannedMatrix:
        """Plan the cells of a request, and read what is known.

        Raises PreventedError for a kind of hardware that is not there, and UsageError as `Machines.check` does.
        """
        planned, notes = plan_matrix(request)
        if request.last_failed:
            planned, note = _failed_last(planned, request.home)
            notes = (*notes, note)
        records = read_records(request.home)
        machines.check(planned.requests)
        return cls(planned=planned, machines=machines, records=records, notes=notes)

    @property
    def environments(self) -> Environments:
        """What is known of the environments."""
        return self.machines.environments

    @contextmanager
    def run(self, show: Show) -> Iterator[tuple[MatrixRun, RunStore]]:
        """Run the cells in a stored run of their own, which stays open."""
        with recorded_run(self.machines, self.records, show, len(self.planned)) as run_steps:
            yield run_steps.run(self.planned, keep_cells=False), run_steps.store

    def forecast(self) -> Iterator[str]:
        """Yield what a user reads before a run: how much is known, and about how much disk and time the rest takes.

        Installs have the usual size and duration.
        """
        wanted = known_bugs = 0
        has_untimed = False
        seconds = 0.0
        labels: set[str] = set()
        requests: dict[tuple[str, ...], Request] = {}  # of environments that are to run something, by their keys
        for key, cell, _, answer in with_answers(self.planned, self.environments, self.records):
            labels.add(cell.request.label)
            expected = cell.expectation(None)
            known_bugs += expected is not None and expected.outcome.is_red
            wanted += answer is None
            if answer is None and cell.request.problem is None:
                requests[key] = cell.request
                seconds += expected_seconds(cell, self.records)
                has_untimed |= (
                    self.records.slowest_pass(cell.scenario, cell.variant, cell.request.hardware_name) is None
                )
        environments = len(labels)
        words = [f"{counted(environments, 'environment')}, {counted(len(self.planned), 'cell')}"]
        if wanted < len(self.planned):
            words.append(f"{len(self.planned) - wanted} known, {wanted} to run" if wanted else "all known")
        yield "; ".join([*words, *self._cost(seconds, list(requests.values()), has_untimed=has_untimed)])
        if known_bugs:
            verbs = "shows a known bug and is" if known_bugs == 1 else "show known bugs and are"
            yield f"{known_bugs} of them {verbs} expected to fail or hang"

    def _cost(self, seconds: float, requests: Sequence[Request], *, has_untimed: bool) -> Iterator[str]:
        """Yield how much disk and time cells take that take so many seconds, one after another.

        With `has_untimed`, some cells never passed before, so their time is a guess.
        """
        size, install_seconds = self.machines.install_cost(requests)
        jobs = self.machines.slots
        if size:
            yield f"installs about {max(1, round(size / 1e9))} GB"
        if total := install_seconds + seconds / jobs:
            guess = f", longer if a test that never ran takes more than {TYPICAL_CELL:.0f} s" if has_untimed else ""
            yield f"about {_duration(total)} with {counted(jobs, 'job')}{guess}"


def _failed_last(planned: Plan, home: Path) -> tuple[Plan, str]:
    """Return the plan of what failed unexpectedly in the last run of a matrix, all of it where nothing did; a note."""
    last = next((head for head in reversed(all_runs(home)) if head.run.kind == "matrix"), None)
    if last is None:
        return planned, "--last-failed: there is no earlier run, so all cells are run"
    result = last.read().result
    labels = {environment.id: environment.label for environment in result.environments}
    red = [cell for cell in result.cells if cell.outcome.is_red and not cell.expected]
    chosen = planned.only({(labels[cell.environment], cell.name) for cell in red})
    if not chosen:
        return planned, f"--last-failed: none of these cells failed in {last.run.id}, so that all are run"
    return chosen, f"--last-failed: {len(chosen)} of {counted(len(planned), 'cell')}, as of {last.run.id}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return "a minute" if seconds > 30 else f"{max(1, round(seconds / 10)) * 10} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{round(seconds / 3600)} hours"
