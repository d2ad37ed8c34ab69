"""What a user asks of `matrix`: the cells, what is known of them already, and what the rest takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted, grouped
from whichtorch.matrix.forecast import Forecast
from whichtorch.matrix.lab import opened_lab
from whichtorch.matrix.planning import Plan, plan_matrix
from whichtorch.records.store import RunStore, read_records
from whichtorch.records.stored_runs import all_runs

if TYPE_CHECKING:
    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.environment_options import MatrixRequest
    from whichtorch.matrix.pipeline import MatrixRun
    from whichtorch.matrix.work import Machines
    from whichtorch.model import Result
    from whichtorch.model.events import Show
    from whichtorch.records.known_records import Records


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
        with opened_lab(self.machines, self.records, show, len(self.planned)) as lab:
            yield lab.run(self.planned, keep_cells=False), lab.store

    def forecast(self) -> Forecast:
        """Return how much is known, and about how much disk and time the rest takes."""
        return Forecast.of(self.planned, self.machines, self.records)


def _failed_last(planned: Plan, home: Path) -> tuple[Plan, str]:
    """Return the plan that runs again what failed unexpectedly in the last run of a matrix, and a note.

    Of a command it is the last run of that command. Where nothing failed, it is the whole plan.
    """
    words = next((test.command.words for own in planned.tests for test, _ in own if test.command), None)
    results = (head.read().result for head in reversed(all_runs(home)) if head.run.kind == "matrix")
    last = next((each for each in results if words is None or words in _commands_of(each)), None)
    if last is None:
        return planned, "--last-failed: there is no earlier run, so all cells are run"
    labels = {environment.id: environment.label for environment in last.environments}
    red = [cell for cell in last.cells if cell.has_failed]
    by_label = grouped(red, lambda cell: labels[cell.environment]).items()
    chosen = planned.only({label: [cell.name for cell in cells] for label, cells in by_label})
    if not chosen:
        return planned, f"--last-failed: none of these cells failed in {last.run.id}, so that all are run"
    count = sum(len(test.only or "1") for own in chosen.tests for test, _ in own)
    total = counted(len(last.cells if words else planned), "cell")
    again = replace(chosen, options=replace(chosen.options, fresh=True))
    return again, f"--last-failed: {count} of {total}, as of {last.run.id}"


def _commands_of(result: Result) -> list[tuple[str, ...]]:
    return [scenario.command.words for scenario in result.scenarios if scenario.command]
