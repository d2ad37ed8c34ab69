"""The commands. The only place that parses arguments."""

from whichtorch.cli.app import main
from whichtorch.cli.command import Exit, exit_code

__all__ = ["Exit", "exit_code", "main"]
