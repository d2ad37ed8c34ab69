"""Options for how much a command prints, and in which form; and the printing itself."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.option import STDOUT, option, output_file

if TYPE_CHECKING:
    from rich.console import Console

    from whichtorch.matrix.forecast import Forecast
    from whichtorch.model.events import Emit, Event
    from whichtorch.reports.document import Line
    from whichtorch.reports.event_lines import EventLog

_output_option = partial(option, panel="Output", default=False)


@dataclass(frozen=True, kw_only=True)
class Display:
    """What a command prints, and in which form."""

    quiet: bool = _output_option("-q --quiet", help="Print failures and the summary only.")
    verbose: bool = _output_option(
        "-v --verbose",
        help="Also print known cells, each test of a command, the logs of cells, and how installs are made, with logs.",
    )
    events_file: Path | None = output_file(
        "--events", help="Write events as JSON Lines as they happen; - for standard output."
    )

    @cached_property
    def console(self) -> "Console":
        """The terminal, or whatever standard output is."""
        from rich.console import Console

        return Console()

    @property
    def columns(self) -> int:
        """How wide a table may be: the width of the terminal, or 160 columns without one."""
        return self.console.width if self.console.file.isatty() else shutil.get_terminal_size((160, 24)).columns

    @cached_property
    def _log(self) -> "EventLog | None":
        from whichtorch.reports.event_lines import EventLog

        if self.events_file is None:
            return None
        stream = sys.__stdout__ if self.events_file == STDOUT else self.events_file.open("w", encoding="utf-8")
        return EventLog(stream) if stream else None

    @contextmanager
    def progress(self, total: int | None, forecast: "Forecast | None" = None) -> Iterator["Emit"]:
        """Show progress through `total` cells, None if their number is not known, with the time left of a forecast."""
        from whichtorch.reports.terminal import Detail, Progress

        detail = Detail.LITTLE if self.quiet else Detail.ALL if self.verbose else Detail.USUAL
        with Progress(self.console, total, detail, forecast) as show:

            def emit(event: "Event") -> None:
                show(event)
                if self._log:
                    self._log(event)

            yield emit

    def say(self, lines: "Iterable[Line]") -> None:
        """Print finished lines, wrapped and colored as the terminal can."""
        from whichtorch.reports.terminal import say

        say(self.console, lines)
