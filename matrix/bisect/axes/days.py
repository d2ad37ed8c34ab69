"""Days as an axis: the same requirements, resolved as of each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING

from matrix.environments.commander import InstallError
from matrix.environments.resolution import locked_versions
from matrix.errors import UsageError
from matrix.model import Build, Config, Request

if TYPE_CHECKING:
    import threading

    from matrix.environments.provider import Resolver


@dataclass(slots=True, kw_only=True)
class Days:
    """The days from one to another, both included; what a day means is resolved when it is first asked for."""

    since: date
    until: date
    requirements: tuple[str, ...]  # as a user would give them to pip
    python: str
    build: Build
    config: Config
    cache: Resolver
    _resolved: dict[int, Request] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What is searched."""
        return "date"

    @property
    def values(self) -> tuple[str, ...]:
        """The days, "2026-11-01" and so on."""
        return tuple(
            (self.since + timedelta(days=after)).isoformat() for after in range((self.until - self.since).days + 1)
        )

    def request(self, position: int, cancelled: threading.Event | None = None) -> Request:
        """Return the request for what could be had by the end of a day (UTC).

        Two days with the same lock ask for the same environment, so that it is installed and run once.
        """
        if position not in self._resolved:
            before = f"{self.since + timedelta(days=position + 1)}T00:00:00Z"
            try:
                lock = self.cache.locked(self.requirements, self.build, self.python, before=before, cancelled=cancelled)
            except InstallError as error:
                return self._request(problem=f"as of {self.values[position]}, {error.reason}")
            self._resolved[position] = self._request(lock)
        return self._resolved[position]

    def known_request(self, position: int) -> Request | None:
        """Return the request for a day that was resolved before."""
        return self._resolved.get(position)

    def nearest(self, value: str) -> int:
        """Return the position of a day, of the nearest bound for one outside."""
        day = day_named(value)
        return min(max((day - self.since).days, 0), (self.until - self.since).days)

    def _request(self, lock: tuple[str, ...] = (), problem: str | None = None) -> Request:
        return locked_request(lock, self.python, self.build, self.config, problem=problem)


def locked_request(
    lock: tuple[str, ...], python: str, build: Build, config: Config, *, problem: str | None = None
) -> Request:
    """Return the request for exactly what a lock pins. One without torch is a problem told there."""
    torch = locked_versions("\n".join(lock)).get("torch", "")
    if not torch and problem is None:
        problem = "torch is not among the packages"
    return Request(torch=torch, python=python, build=build, config=config, lock=lock, problem=problem)


def day_named(text: str) -> date:
    """Return the day that "2026-11-01" means; raises UsageError."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no day", hint="write it as 2026-11-01") from None
