"""What is searched: values in order, and the environment that each of them means."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from packaging.version import InvalidVersion, Version

from matrix.errors import PreventedError, UsageError

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from matrix.model import Request


class Axis(Protocol):
    """An ordered range of environments, oldest first."""

    @property
    def name(self) -> str:
        """What is searched: "version" or "date"."""

    @property
    def values(self) -> tuple[str, ...]:
        """What people call its positions."""

    def request(self, position: int, cancelled: threading.Event | None = None) -> Request:
        """Return what asks for the environment at a position; may ask an index, and tells its refusal as a problem."""

    def known_request(self, position: int) -> Request | None:
        """Return the same where nothing has to be asked for it."""

    def nearest(self, value: str) -> int:
        """Return the position of a value, or of the nearest one that exists; raises UsageError for no value."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Releases or nightlies of torch, from one build, for one Python and config."""

    requests: Sequence[Request]

    @property
    def name(self) -> str:
        """What is searched."""
        return "version"

    @property
    def values(self) -> tuple[str, ...]:
        """The versions."""
        return tuple(request.torch for request in self.requests)

    def request(self, position: int, cancelled: threading.Event | None = None) -> Request:  # noqa: ARG002
        """Return the request for a version."""
        return self.requests[position]

    def known_request(self, position: int) -> Request:
        """Return the request for a version."""
        return self.requests[position]

    def nearest(self, value: str) -> int:
        """Return the position of a version; of one that does not exist, that of the next newer one."""
        try:
            wanted = Version(value)
        except InvalidVersion:
            raise UsageError(f"{value!r} is no version", hint=f"write it as {self.values[0]}") from None
        versions = [Version(one) for one in self.values]
        for position, version in enumerate(versions):
            if version == wanted or version.public == value:
                return position
        return min(bisect_left(versions, wanted), len(versions) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRow:
    """Environments in a row, with a name for each."""

    name: str
    values: tuple[str, ...]
    requests: tuple[Request, ...]

    def request(self, position: int, cancelled: threading.Event | None = None) -> Request:  # noqa: ARG002
        """Return the request at a position."""
        return self.requests[position]

    def known_request(self, position: int) -> Request:
        """Return the same."""
        return self.requests[position]

    def nearest(self, value: str) -> int:
        """Return the position of a value."""
        if value not in self.values:
            raise UsageError(f"{value!r} is none of {', '.join(self.values)}")
        return self.values.index(value)


def check_range(axis: Axis, requests: tuple[Request, ...] = ()) -> None:
    """Raise where there is nothing to search between."""
    problems = [request.problem for request in requests if request.problem]
    if len(axis.values) - len(problems) >= 2:
        return
    if problems:
        raise PreventedError(str(problems[0]))
    named = f"only {axis.values[0]}" if axis.values else "nothing"
    raise UsageError(f"there is {named} to search", hint="name a wider range with --torch, such as '>=2.6'")
