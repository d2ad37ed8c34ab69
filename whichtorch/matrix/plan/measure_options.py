"""The options that make a number of a run the test, instead of how it ends."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.plan.environment_options import commas
from whichtorch.matrix.plan.option import Strings, option

if TYPE_CHECKING:
    from whichtorch.matrix.measure.measure import Measure

MOST_ROUNDS = 96
_number_option = partial(option, panel="Numbers")


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """Which numbers are measured, and how large a change counts."""

    measure: Strings = _number_option(
        default=(),
        metavar="NAME[,NAME]",
        help="Compare numbers: wall, cpu, import, import-memory, compile, peak, growth, output, or one that "
        "the script prints, as NAME=1.5 or NAME: 1.5.",
    )
    pattern: str | None = _number_option(
        metavar="REGEX", help="Where the number stands that the script prints: 'tokens/s: ([\\d.]+)'."
    )
    better: str | None = _number_option(
        choices=("lower", "higher"),
        metavar="[lower|higher]",
        help="Which numbers are better. [default: higher for names such as tokens/s or accuracy, else lower]",
    )
    worse: str | None = _number_option(
        metavar="CHANGE", help="How much worse counts: 10%, or a number in the measure's unit. [default: 5%]"
    )
    differs: str | None = _number_option(
        metavar="CHANGE", help="The same for a change in either direction, 1e-4 or 0.1%."
    )
    every: str | None = _number_option(
        metavar="REGEX", help="With growth: the lines at which memory is measured. [default: each line]"
    )
    rounds: int = _number_option(
        default=MOST_ROUNDS, metavar="N", least=12, help="At most so many runs of each environment in a comparison."
    )

    @property
    def measures(self) -> "tuple[Measure, ...]":
        """The measures that the options name.

        Raises UsageError for what is wrong with them, and where a program or library is missing.
        """
        details = (("--pattern", self.pattern), ("--better", self.better), ("--worse", self.worse))
        given = [name for name, value in (*details, ("--differs", self.differs), ("--every", self.every)) if value]
        names = commas(self.measure)
        if not names:
            if given or self.measure:
                what = f"{' and '.join(given)}: there is no --measure" if given else "--measure names nothing"
                raise UsageError(what, hint="name what is measured: --measure cpu")
            return ()
        from whichtorch.matrix.measure.estimate import check_statistics
        from whichtorch.matrix.measure.measure import measures_named

        check_statistics()
        return measures_named(names, self.pattern, self.better, self.worse, self.differs, self.every or "")
