"""Numbers as tests of `matrix`, `bisect` and `explain`: the options, and the measured run of the first and the last."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import Strings, option
from whichtorch.cli import command
from whichtorch.cli.command import Exit
from whichtorch.matrix.environment_options import commas

if TYPE_CHECKING:
    from whichtorch.cli.display import Display
    from whichtorch.matrix.planning import Plan
    from whichtorch.matrix.site import ThisMachine
    from whichtorch.measure.measure import Measure
    from whichtorch.records.store import StoredRun

_number_option = partial(option, panel="Numbers")


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """Which numbers are measured, and how large a change counts."""

    measure: Strings = _number_option(
        default=(),
        metavar="NAME[,NAME]",
        help="Compare numbers: wall, cpu, import, import-memory, compile, peak, growth, output, or one that "
        "the script prints.",
    )
    pattern: str | None = _number_option(
        metavar="REGEX",
        help="Where the number stands that the script prints, 'tokens/s: ([\\d.]+)'; with growth, the lines at which "
        "memory is measured. [default: NAME=1.5 or NAME: 1.5; each line]",
    )
    worse: str | None = _number_option(
        metavar="CHANGE",
        help="How much worse counts: 10%, or a number in the measure's unit. +10%: more is worse; -10%: less is; "
        "+-10%: both are. [default: 5%; less of what is named like tokens/s or accuracy is worse, more of the rest]",
    )

    @property
    def measures(self) -> "tuple[Measure, ...]":
        """The measures that the options name.

        Raises UsageError for what is wrong with them, and where a library is missing.
        """
        given = [name for name, value in (("--pattern", self.pattern), ("--worse", self.worse)) if value]
        names = commas(self.measure)
        if not names:
            if given or self.measure:
                what = f"{' and '.join(given)}: there is no --measure" if given else "--measure names nothing"
                raise UsageError(what, hint="name what is measured: --measure cpu")
            return ()
        from whichtorch.measure.measure import measures_named
        from whichtorch.search.estimate import check_statistics

        check_statistics()
        return measures_named(names, self.pattern, self.worse)


def measured(
    planned: "Plan", measures: "tuple[Measure, ...]", machines: "ThisMachine", display: "Display"
) -> "tuple[StoredRun, Exit]":
    """Measure the cells of a plan and print the numbers; return the stored run and the exit code.

    A number that is worse makes it red.

    Raises UsageError where no environment has a number.
    """
    from whichtorch.matrix.interleaving import measured_run
    from whichtorch.model import Effect
    from whichtorch.reports.numbers_text import number_lines

    opened = measured_run(planned, measures, machines, display.progress)
    with command.terminating_like_interrupt(), opened as (store, notes):
        cells = store.stored().result.cells
        is_worse = any(number.effect in {Effect.WORSE, Effect.DIFFERENT} for cell in cells for number in cell.numbers)
        code = Exit.RED if is_worse else command.exit_code(store.tally, failed=store.failed)
        code = Exit.INTERRUPTED if store.run.interrupted else code
        store.run = store.run.model_copy(update={"exit_code": int(code)})
    stored = store.stored()  # read again: the run is marked as ended now
    display.say(number_lines(stored.result, notes, display.columns))
    if code is not Exit.INTERRUPTED and cells and not any(cell.numbers for cell in cells):
        reasons = dict.fromkeys(cell.reason or str(cell.outcome) for cell in cells)
        raise UsageError(f"nothing could be measured: {'; '.join(reasons)}")
    return stored, code
