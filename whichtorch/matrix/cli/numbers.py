"""Measured runs of `matrix` and `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.command import Exit
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.model import Effect

if TYPE_CHECKING:
    from whichtorch.matrix.cli.display import Display
    from whichtorch.matrix.measure.measure import Measure
    from whichtorch.matrix.plan.planning import Plan
    from whichtorch.matrix.records.store import StoredRun
    from whichtorch.matrix.run.site import ThisMachine


def measured(
    planned: Plan, measures: tuple[Measure, ...], machines: ThisMachine, display: Display, *, is_asked: bool
) -> tuple[StoredRun, Exit]:
    """Measure the cells of a plan and print the numbers; return the stored run and the exit code.

    With `is_asked`, a number that is worse makes it red.

    Raises UsageError where no environment has a number.
    """
    from whichtorch.matrix.trial.measured_matrix import measured_run
    from whichtorch.reports.numbers_text import number_lines

    opened = measured_run(planned, measures, machines, display.progress)
    with command.terminating_like_interrupt(), opened as (store, notes):
        cells = store.stored().result.cells
        is_worse = any(number.effect in {Effect.WORSE, Effect.DIFFERENT} for cell in cells for number in cell.numbers)
        code = Exit.RED if is_worse and is_asked else command.exit_code(store.tally, failed=store.failed)
        code = Exit.INTERRUPTED if store.run.interrupted else code
        store.run = store.run.model_copy(update={"exit_code": int(code)})
    stored = store.stored()  # read again: the run is marked as ended now
    display.say(number_lines(stored.result, notes))
    if code is not Exit.INTERRUPTED and cells and not any(cell.numbers for cell in cells):
        reasons = dict.fromkeys(cell.reason or str(cell.outcome) for cell in cells)
        raise UsageError(f"nothing could be measured: {'; '.join(reasons)}")
    return stored, code
