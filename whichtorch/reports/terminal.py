"""Live progress: a line for whatever ends, and what is running now."""

from __future__ import annotations

import re
import textwrap
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from whichtorch.base.grouping import counted
from whichtorch.environments.provider import COMMAND_MARK
from whichtorch.model import Outcome, events
from whichtorch.process.evidence.capture import NOT_PERMITTED
from whichtorch.reports.cell_text import summary
from whichtorch.reports.document import visible
from whichtorch.reports.table import cell_word

if TYPE_CHECKING:
    from whichtorch.matrix.forecast import Forecast
    from whichtorch.reports.document import Line

BAR_WIDTH = 40  # characters
REFRESH = 4  # times a second, of the lines that say what is running
REMINDER = 30.0  # seconds between lines that say what is running, where the lines cannot be rewritten

_NOT_SHOWN = {"ready", Outcome.UNBUILDABLE, Outcome.BROKEN}  # stages for which EnvironmentReady has a better line
_STYLES = {outcome.word: outcome.row.style for outcome in Outcome if outcome.is_red}
_STYLES["SLOW"] = "red"  # in some attempts only
_RED_WORD = re.compile(rf"\b({'|'.join(_STYLES)})\b[~!]*")
_COPIED = re.compile(r"\s*(rerun: |log |stacks |next: (whichtorch|nox) )")  # what users copy is not wrapped
_WRAPPER = partial(
    textwrap.wrap, expand_tabs=False, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
)
_PART = re.compile(r"; (?=(?:log|stacks|rerun:) )")  # each has a line of its own on a terminal


class Detail(IntEnum):
    """How much of what happens is told."""

    LITTLE = 0  # nothing but an interrupt
    USUAL = 1
    ALL = 2  # with known cells, commands of installs, and logs


def say(console: Console, lines: Iterable[Line]) -> None:
    """Print finished lines: failures in color; on a terminal one part a line, wrapped at its width.

    Where there is no terminal, a line stays a line: programs and logs read lines.
    """
    rows = list[Text]()
    try:
        for line in lines:
            first, *others = _PART.split("".join(line)) if console.file.isatty() else ("".join(line),)
            for part in (first, *(f"    {other}" for other in others)):
                text = Text(visible(part))
                for found in _RED_WORD.finditer(text.plain):
                    text.stylize(_STYLES[found[1]], *found.span())
                rows += _wrapped(console, text)
    finally:
        if rows:
            _print_rows(console, rows)


def _print_rows(console: Console, rows: Sequence[Text]) -> None:
    """Print rows at once: thousands, one at a time, take longer than a whole command."""
    console.print(Text("\n").join(rows), soft_wrap=True)


def _wrapped(console: Console, text: Text) -> list[Text]:
    """Return the rows of a line; on a terminal, those after the first are indented."""
    if not console.file.isatty() or len(text) <= console.width or _COPIED.match(text.plain):
        return [text]
    indent, start = " " * (len(text) - len(text.plain.lstrip()) + 4), 0
    rows = []
    for row in _WRAPPER(text.plain, console.width, subsequent_indent=indent):
        words = row.removeprefix(indent) if start else row
        start = text.plain.index(words, start) + len(words)
        rows.append(Text(indent if start > len(words) else "") + text[start - len(words) : start])
    return rows


class Progress:
    """Show events as they come, from any thread. `total` is the number of cells, None where unknown."""

    def __init__(
        self, console: Console, total: int | None, detail: Detail = Detail.USUAL, forecast: Forecast | None = None
    ) -> None:
        self._console, self._total, self._detail, self._forecast = console, total, detail, forecast
        self._begun = time.monotonic()
        self._rewrites = console.is_terminal and console.file.isatty()  # FORCE_COLOR makes a terminal of any file
        self._done = self._known = 0
        self._told: set[tuple[str, str | None]] = set()  # environments and signatures of tests that failed so
        self._is_refusal_told = False
        self._stages: dict[str, str] = {}  # environments on their way
        self._running: dict[tuple[str, str], tuple[float, str]] = {}  # since, how long it may take
        self._seen: Mapping[str, str] = {}  # the lines of Python that attempts were last seen at
        self._lock = threading.Lock()
        self._live = Live(
            console=console,
            refresh_per_second=REFRESH,
            get_renderable=self._renderable,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._stopped = threading.Event()
        self._reminder = threading.Thread(target=self._remind, daemon=True)

    def __enter__(self) -> Self:
        if self._detail is Detail.LITTLE:
            return self
        if self._rewrites:
            self._live.start()
        else:
            self._reminder.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        if self._live.is_started:
            self._live.stop()
        if self._total is not None and 0 < self._known < self._total and self._detail:  # the plan says so if all are
            self._console.print(
                f"{self._known} of {counted(self._total, 'cell')} known from earlier runs", highlight=False
            )

    def __call__(self, event: events.Event) -> None:
        """Print the line of an event, if it has one."""
        with self._lock:
            line = self._line(event)
            if self._forecast:
                self._forecast.update(event)
        if line and (self._detail or isinstance(event, events.Interrupted | events.StatusShown)):
            line.plain = visible(line.plain)  # it may hold anybody's words
            _print_rows(self._console, _wrapped(self._console, line))

    def _line(self, event: events.Event) -> Text | None:
        match event:
            case events.EnvironmentStage(stage=stage) if stage.startswith(COMMAND_MARK):
                return Text(f"{event.label}: {stage}", "dim") if self._detail is Detail.ALL else None
            case events.EnvironmentStage():
                new = self._stages.get(event.label) != event.stage and event.stage not in _NOT_SHOWN
                self._stages[event.label] = event.stage
                if event.stage == "ready":
                    del self._stages[event.label]
                host = f" on {event.host}" if event.host else ""
                return Text(f"{event.label}: {event.stage}{host}", "dim") if new else None
            case events.EnvironmentReady():
                self._stages.pop(event.environment.label, None)
                return self._environment_line(event)
            case events.AttemptStarted():
                host = f" on {event.host}" if event.host else ""
                turn = f", round {event.round} of at most {event.rounds}" if event.round else ""
                self._running[event.environment, event.cell] = (time.monotonic(), event.time + host + turn)
                again = f"{event.cell}  {event.environment}  again for {event.time}: {event.why}"
                return Text(again, "dim") if event.why else None
            case events.TestsFound(cells=cells):
                self._total = None if self._total is None else self._total + cells - 1
                return None
            case events.AttemptEnded():
                self._running.pop((event.environment, event.cell), None)
                return self._refusal_line(event)
            case events.CellDone():
                return self._cell_line(event)
            case events.ProbeChosen():
                return self._probe_line(event)
            case events.NumbersCompared():
                return Text(f"{event.environment} against {event.reference}: {event.what}", "dim")
            case events.StatusShown():
                stages = [f"{label}: {stage}" for label, stage in self._stages.items()]
                head = event.why or ("running:" if event.lines else "no cell is running")
                return Text("\n".join([head, *(f"  {line}" for line in (*event.lines, *stages))]))
            case events.ProbeDropped():
                self._stages.pop(event.label, None)
                self._running = {key: since for key, since in self._running.items() if key[0] != event.label}
                return None
            case events.StacksSeen():
                self._seen = event.lines
                return None
            case events.Interrupted():
                head = f"{event.why}: stopping what runs, keeping what is done (press Ctrl-C again to stop at once)"
                return Text("\n".join([head, *(f"  {line}" for line in self._running_lines())]), "yellow")

    def _environment_line(self, event: events.EnvironmentReady) -> Text | None:
        environment = event.environment
        if environment.outcome is not None:
            return Text(f"{environment.label}: {environment.outcome}: {environment.reason}", "yellow")
        if not event.cells:
            return None
        facts = [f"ready, torch {environment.torch} on Python {environment.python}", *environment.notes]
        return Text(f"{environment.label}: {'; '.join(facts)}", "dim")

    def _probe_line(self, event: events.ProbeChosen) -> Text:
        """Return which value is tried, why, and how much is left."""
        before, after = event.between
        if before is not None and after is not None:
            bracket = f"between {before} and {after}, {event.left} left"
        else:
            bracket = f"after {before}" if before is not None else f"before {after}" if after is not None else ""
        why = "" if event.purpose == "narrow" else event.purpose
        runs = f"up to {event.runs} runs" if event.runs > 1 else ""
        tests = counted(event.tests, "test") if event.tests else ""
        words = "; ".join(filter(None, (why, runs, tests, bracket)))
        return Text.assemble((f"probe {event.number}: {event.value}", "bold"), (f"  {words}", "dim"))

    def _refusal_line(self, event: events.AttemptEnded) -> Text | None:
        """Return once, for the first hang it concerns, that stacks may not be read."""
        if self._is_refusal_told or NOT_PERMITTED not in event.attempt.note:
            return None
        self._is_refusal_told = True
        return Text(f"{NOT_PERMITTED}; `whichtorch doctor` names the remedy", "yellow")

    def _cell_line(self, event: events.CellDone) -> Text | None:
        self._done += 1
        cell = event.cell
        self._running.pop((event.environment.label, cell.name), None)  # a worker that was lost did not tell
        is_reused = bool(cell.reused) and cell.reused == len(cell.attempts)
        self._known += is_reused
        if (is_reused and self._detail is not Detail.ALL) or not event.environment.is_usable:
            return None
        cause = event.environment.label, cell.signature
        if cell.command and cell.is_red and cause in self._told and self._detail is not Detail.ALL:
            return None  # of one cause, one is told; the table counts them
        self._told.add(cause)
        word, style = cell_word(cell), cell.outcome.row.style
        if cell.expected and cell.is_red:  # marked, so that it frightens nobody
            word, style = f"{word} (known)", "dim red"
        count = f"[{self._done:>{len(str(self._total))}}/{self._total}]" if self._total is not None else " "
        said = summary(cell, "")
        what = f"  {said}" if said else ""
        what += "  (known)" if is_reused else ""
        if self._detail is Detail.ALL and cell.attempts:
            what += f"  log {cell.attempts[-1].stderr}"
        rest = f" {cell.name}  {event.environment.label}  {cell.seconds:.1f} s{what}"
        return Text.assemble((count, "dim"), " ", (f"{word:<8}", style), rest)

    def _renderable(self) -> RenderableType:
        with self._lock:
            lines: list[RenderableType] = [] if self._total is None else [self._bar()]
            lines += [Text(f"  {label}: {stage}", "dim") for label, stage in self._stages.items()]
            lines += [Text(f"  {visible(line)}") for line in self._running_lines()]
        return Group(*lines)

    def _bar(self) -> RenderableType:
        """Return how many cells are done, and about how long the rest takes."""
        count = Text(f"{self._done}/{self._total} cells", "bold")
        if self._forecast is None or not self._forecast.seconds:
            return count
        left = self._forecast.time_left(time.monotonic() - self._begun)
        bar = ProgressBar(total=1.0, completed=self._forecast.share_done, width=BAR_WIDTH)
        return Columns([count, bar, Text(left, "dim")])

    def _running_lines(self) -> list[str]:
        now = time.monotonic()
        lines = []
        for (label, name), (since, allowed) in self._running.items():
            attempt = f"{name}  {label}"
            seen = f"  at {self._seen[attempt]}" if attempt in self._seen else ""  # a line of Python
            lines.append(f"{attempt}  {now - since:.0f} of {allowed}{seen}")
        return lines

    def _remind(self) -> None:
        while not self._stopped.wait(REMINDER):
            with self._lock:
                running = self._running_lines()
            for line in running:
                self._console.print(Text(f"running: {visible(line)}", "dim"), soft_wrap=True)
