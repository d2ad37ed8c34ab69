"""The commands. The only place that parses arguments."""

from whichtorch.matrix.cli.app import main
from whichtorch.matrix.cli.command import Exit, exit_code

__all__ = ["Exit", "exit_code", "main"]
