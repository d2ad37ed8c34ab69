"""The options that make a number of a run the test, instead of how it ends."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.plan.environment_options import commas
from whichtorch.matrix.plan.option import Strings, option

if TYPE_CHECKING:
    from whichtorch.matrix.measure.measure import Measure

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
        from whichtorch.matrix.measure.estimate import check_statistics
        from whichtorch.matrix.measure.measure import measures_named

        check_statistics()
        return measures_named(names, self.pattern, self.worse)
