"""The commands. The only place that parses arguments."""

from matrix.cli.app import main
from matrix.cli.command import Exit, exit_code

__all__ = ["Exit", "exit_code", "main"]
