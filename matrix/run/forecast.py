"""What a run will take: how much of it is known, and about how much disk and time the rest costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.run.site import INSTALLS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.environments.cache import EnvironmentCache
    from matrix.model import Environment, Record
    from matrix.plan.planning import PlannedCell
    from matrix.records.store import Records

TYPICAL_CELL = 5.5  # seconds: 152 cells of the suite take eight minutes on two cores, with four installs


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is known of a plan before anything of it is run."""

    environments: int
    cells: int
    known: int  # cells that earlier runs have answered
    known_bugs: int  # cells that a scenario's header expects to be red
    installs: int
    install_bytes: int
    seconds: float  # of the installs and of what is left to run
    jobs: int

    @property
    def lines(self) -> Iterator[str]:
        """What a user reads before the run."""
        words = [f"{_number(self.environments, 'environment')}, {_number(self.cells, 'cell')}"]
        if self.known:
            left = self.cells - self.known
            words.append(f"{self.known} known, {left} to run" if left else "all known")
        if self.installs:
            words.append(f"installs about {max(1, round(self.install_bytes / 1e9))} GB")
        if self.seconds:
            words.append(f"about {_duration(self.seconds)} with {_number(self.jobs, 'job')}")
        yield "; ".join(words)
        if self.known_bugs == 1:
            yield "1 of them shows a known bug and is expected to fail or hang"
        elif self.known_bugs:
            yield f"{self.known_bugs} of them show known bugs and are expected to fail or hang"


def forecast(planned: Sequence[PlannedCell], cache: EnvironmentCache, records: Records, jobs: int) -> Forecast:
    """Return what running these cells will take: `jobs` attempts at once, installs of the usual size and duration."""
    wanted = [cell for cell, environment, answers in with_answers(planned, cache, records) if not answers]
    requests = {cell.request.install_key: cell.request for cell in wanted if cell.request.problem is None}
    installs = [request for request in requests.values() if not cache.is_installed(request)]
    expected = [cell.expectation(None) for cell in planned]
    attempts = 0.0
    for cell in wanted:
        if cell.request.problem is None:
            slowest = records.slowest_pass(cell.scenario, cell.variant)
            attempts += cell.options.repeat * min(cell.limits.timeout, TYPICAL_CELL if slowest is None else slowest)
    install_seconds = cache.typical_install() * len(installs) / min(INSTALLS_AT_ONCE, len(installs) or 1)
    return Forecast(
        environments=len({cell.request.label for cell in planned}),
        cells=len(planned),
        known=len(planned) - len(wanted),
        known_bugs=sum(line is not None and line.outcome.is_red for line in expected),
        installs=len(installs),
        install_bytes=cache.expected_size(installs),
        seconds=install_seconds + attempts / jobs,
        jobs=jobs,
    )


def with_answers(
    planned: Sequence[PlannedCell], cache: EnvironmentCache, records: Records
) -> Iterator[tuple[PlannedCell, Environment | None, Sequence[Record]]]:
    """Yield each cell with its environment as it is known, and the records that answer it: none where it must run."""
    environments: dict[tuple[str, str], Environment | None] = {}
    for cell in planned:
        key = (cell.request.install_key, cell.request.config.name)
        if key not in environments:
            environments[key] = cache.known(cell.request)
        environment = environments[key]
        known = records.of(cell.key(environment)) if environment and not cell.options.fresh else []
        yield cell, environment, known if cell.is_settled(known) else ()


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return "a minute" if seconds > 30 else f"{max(1, round(seconds / 10)) * 10} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{round(seconds / 3600)} hours"
