"""`whichtorch plan`: the environments of a matrix, and how jobs share them."""

from dataclasses import dataclass
from pathlib import Path

from whichtorch.base.option import json_output, option
from whichtorch.cli import command
from whichtorch.matrix.environment_options import MatrixAxes


@dataclass(frozen=True, kw_only=True)
class PlanOptions(MatrixAxes):
    """The options of `plan`."""

    shares: int | None = option(
        metavar="N", least=1, help="How many jobs share the environments. [default: one for each, 256 at most]"
    )
    json_file: Path | None = json_output()


def plan(options: PlanOptions) -> None:
    """Share the environments of a matrix among the jobs of a CI service.

    Each job then runs its share: the second of four is `matrix --share 2/4`, with the same other options. Exit code:
    0; 2 wrong usage or matrix file, or no environment.
    """
    from whichtorch.environments.expansion import expand
    from whichtorch.environments.share_plan import SharePlan

    file = options.file
    expansion = expand(file, cache=command.state_folder() / "cache")
    planned = SharePlan.of(expansion.requests, options.shares)
    for note in (*options.found_note, *expansion.build_notes, *expansion.notes):
        print(note)
    for row in planned.shares:
        print(f"{row.share:>7}  {', '.join(row.environments)}")
    command.write_json(options.json_file, planned)
