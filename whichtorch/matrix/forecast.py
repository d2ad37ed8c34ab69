"""An estimate of the disk and time that a run takes, and of the time left as it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted
from whichtorch.matrix.cell_scheduler import TYPICAL_CELL, expected_seconds
from whichtorch.matrix.lab import with_answers
from whichtorch.model.events import CellDone, EnvironmentReady, Event, TestsFound

if TYPE_CHECKING:
    from whichtorch.matrix.planning import Plan
    from whichtorch.matrix.work import Machines
    from whichtorch.model import Request
    from whichtorch.records.line_index import Records


@dataclass
class Forecast:
    """How much is known, and about how much disk and time the rest takes. Installs have the usual size and duration."""

    cells: int
    jobs: int
    labels: set[str] = field(default_factory=set)  # of environments
    wanted: int = 0  # cells to run
    known_bugs: int = 0  # cells that are expected to fail or hang
    is_guess: bool = False  # some cells never passed before
    size: int = 0  # bytes to install
    seconds: float = 0.0  # in all
    done: float = 0.0  # of these seconds, while it goes on
    _shares: dict[tuple[str, str], float] = field(default_factory=dict)  # seconds by label and cell; "": its install
    _tests: dict[str, float] = field(default_factory=dict)  # seconds of each test of a command, by label

    @classmethod
    def of(cls, planned: Plan, machines: Machines, records: Records) -> Forecast:
        """Estimate from records what some cells will take."""
        forecast = cls(cells=len(planned), jobs=machines.slots)
        requests: dict[tuple[str, ...], Request] = {}  # of environments that are to run something, by their keys
        for key, cell, _, answer in with_answers(planned, machines.environments, records):
            label = cell.request.label
            forecast.labels.add(label)
            expected = cell.expectation(None)
            forecast.known_bugs += expected is not None and expected.outcome.is_red
            forecast.wanted += answer is None
            if answer is None and cell.request.problem is None:
                requests[key] = cell.request
                if writer := cell.writer:
                    requests[writer.key] = writer
                    forecast.labels.add(writer.label)
                forecast._shares[label, cell.name] = expected_seconds(cell, records) / forecast.jobs
                forecast.is_guess |= (
                    records.slowest_pass(cell.scenario, cell.variant, cell.request.hardware_name) is None
                )
        forecast.size, seconds = machines.install_cost(list(requests.values()))
        missing = [request.label for request in requests.values() if not machines.environments.is_installed(request)]
        forecast._shares |= {(label, ""): seconds / len(missing) for label in missing if seconds}
        forecast.seconds = sum(forecast._shares.values())
        return forecast

    def lines(self) -> Iterator[str]:
        """Yield what a user reads before a run."""
        words = [f"{counted(len(self.labels), 'environment')}, {counted(self.cells, 'cell')}"]
        if self.wanted < self.cells:
            words.append(f"{self.cells - self.wanted} known, {self.wanted} to run" if self.wanted else "all known")
        if self.size:
            words.append(f"installs about {max(1, round(self.size / 1e9))} GB")
        if self.seconds:
            guess = f", longer if a test that never ran takes more than {TYPICAL_CELL:.0f} s" if self.is_guess else ""
            words.append(f"about {_duration(self.seconds)} with {counted(self.jobs, 'job')}{guess}")
        yield "; ".join(words)
        if self.known_bugs:
            verbs = "shows a known bug and is" if self.known_bugs == 1 else "show known bugs and are"
            yield f"{self.known_bugs} of them {verbs} expected to fail or hang"

    def update(self, event: Event) -> None:
        """Count what has ended."""
        match event:
            case EnvironmentReady():
                self.done += self._shares.pop((event.environment.label, ""), 0.0)
            case TestsFound(environment=label, cells=cells):  # of a command, the only cell of its environment
                commands = [key for key in self._shares if key[0] == label and key[1]]
                self._tests[label] = sum(map(self._shares.pop, commands)) / cells
            case CellDone():
                label = event.environment.label
                self.done += self._shares.pop((label, event.cell.name), self._tests.get(label, 0.0))

    @property
    def share_done(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.done / self.seconds) if self.seconds else 0.0

    def time_left(self, elapsed: float) -> str:
        """Return in words how long the rest takes: first by what was expected, then more and more by the pace seen."""
        left = 1 - self.share_done
        if not left:
            return "almost done"
        return f"about {_duration(left * (elapsed + left * self.seconds))} left"


def _duration(seconds: float) -> str:
    """Return about how long something takes, in words."""
    if seconds < 90:
        return f"{max(1, round(seconds / 10)) * 10} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{round(seconds / 3600)} hours"
