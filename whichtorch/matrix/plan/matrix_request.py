"""The request for a matrix."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from whichtorch.matrix.plan.environment_options import MatrixAxes, Storage, environment_option
from whichtorch.matrix.plan.option import Strings, group, option
from whichtorch.matrix.plan.run_options import RunOptions, running_option

_scenario_option = partial(option, panel="Scenarios", default=())


@dataclass(frozen=True, kw_only=True)
class MatrixRequest(MatrixAxes, Storage):
    """What a user asks `matrix` for."""

    home: Path = Path(".whichtorch")  # the state folder
    interpreters: tuple[Path, ...] = environment_option(
        "--interpreter",
        default=(),
        metavar="PATH",
        help="Python of an existing environment, used as it is. Repeatable.",
    )
    scenarios: Strings = _scenario_option(
        "--scenario", metavar="GLOB", help="Scenarios by name, 'tag:NAME', or 'NAME[variant=value]'. Repeatable."
    )
    scripts: Strings = _scenario_option("--script", metavar="FILE", help="Any script of your own. Repeatable.")
    options: RunOptions = group(RunOptions)
    jobs: int | None = running_option(
        metavar="N", least=1, help="Attempts at once. [default: cores, memory permitting; twice that for hangs]"
    )

    @property
    def product(self) -> bool:
        """Whether environments of the matrix are meant, not just the interpreters."""
        return bool(self.torch) or not self.interpreters
