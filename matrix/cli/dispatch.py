"""`whichtorch dispatch`: by which kernels environments dispatch an operator."""

from pathlib import Path
from typing import Annotated

import typer

from matrix.cli import options
from matrix.cli.session import print_lines, write_json
from matrix.environments.cache import EnvironmentCache
from matrix.process.executor import LocalExecutor
from matrix.records import store


def dispatch(
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="For example aten::mm or aten::add.Tensor.")],
    environments: Annotated[
        list[str], typer.Argument(metavar="ENV [ENV]", help="Label or id of a known environment, or a Python's path.")
    ],
    matrix_file: options.MatrixPath = None,
    json_file: Annotated[
        Path | None, options.OutputOption("--json", metavar="FILE", help="Write the tables as JSON.")
    ] = None,
) -> None:
    """Compare by which kernels two environments dispatch an operator, or show those of one.

    The tables are taken live, inside each. Exit code: 0 done; 2 wrong usage; 3 an environment cannot be had.
    """
    from matrix.inspect import dispatch_tables  # here: `matrix` starts without it

    file = options.read_matrix(matrix_file)
    cache = EnvironmentCache(store.state_folder())
    comparison = dispatch_tables.compare_operator(operator, environments, file, cache, LocalExecutor())
    print_lines(dispatch_tables.comparison_lines(comparison))
    if json_file:
        write_json(json_file, comparison)
