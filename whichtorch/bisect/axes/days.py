"""Days as an axis: the same requirements, resolved as of each day; then the package whose release mattered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.packages import Isolator, Lock, ResolvedAxis, base_request, pins_in
from whichtorch.bisect.driver import search_between
from whichtorch.bisect.search_request import AxisName, SearchRequest, common, day_named
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.commander import InstallError
from whichtorch.environments.index.releases import EVERY_RELEASE, is_exact_version
from whichtorch.search.search_state import AnswerKind

if TYPE_CHECKING:
    from whichtorch.bisect.bisection import Bisection
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model.events import Show

# installed with torch: it uses both if they are there, and not every release declares them
COMPANIONS = ("numpy", "setuptools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Days(ResolvedAxis):
    """Days in a row; a day means what the index had at its end (UTC)."""

    requirements: tuple[str, ...]  # as a user would give them to pip

    def lock(self, position: int) -> tuple[str, ...]:
        """Return the pins of a day."""
        before = f"{date.fromisoformat(self.values[position]) + timedelta(days=1)}T00:00:00Z"
        try:
            limits = {"constraints": self.base.constraints, "overrides": self.base.overrides}
            return self.cache.locked(self.requirements, self.base.build, self.base.python, **limits, before=before)
        except InstallError as error:
            raise type(error)(f"as of {self.values[position]}, {error.reason}", error.log) from None

    def nearest(self, value: str) -> int:
        """Return the position of a day; of the first or last one for a day outside."""
        days = (day_named(value) - date.fromisoformat(self.values[0])).days
        return min(max(days, 0), len(self.values) - 1)


def search(request: SearchRequest, cache: EnvironmentCache, show: Show) -> Bisection:
    """Find the day whose releases changed the outcome, then the package among them."""
    assert request.days is not None
    since, until = request.days
    if until > datetime.now(UTC).date():
        raise UsageError(f"{until} is yet to come")
    if since >= until:
        raise UsageError(f"--since {since} is not before --until {until}")
    base = base_request(request)
    requirements = _requirements(request)
    values = tuple((since + timedelta(days=after)).isoformat() for after in range((until - since).days + 1))
    shared = common(base) | {"requirements": " ".join(requirements)}
    axis = Days(name=AxisName.DATE, values=values, requirements=requirements, base=base, cache=cache, common=shared)
    with workbench(request, cache, show) as bench:
        days = search_between(request, axis, bench)
        boundary = days.boundaries[-1] if days.boundaries and days.answer is AnswerKind.BOUNDARY else None
        if boundary is None or not boundary.is_exact or days.has_tests or bench.stopped:
            return days
        before, after = (
            Lock(label=day, pins=pins_in(axis.request(axis.nearest(day)).lock)) for day in (boundary.from_, boundary.to)
        )
        isolator = Isolator(request=request, bench=bench, cache=cache, start=before, end=after, base=base)
        try:
            packages = isolator.run()
        except KeyboardInterrupt as interrupt:  # the day is known
            reasons = (bench.stop(interrupt), *days.reasons)
            return days.model_copy(update={"interrupted": bench.is_interrupted, "reasons": reasons})
    found = {"changes", "along"} if packages.answer is AnswerKind.BOUNDARY else set()
    update = packages.model_dump(include={"differing", "interrupted", "installs", "seconds", *found})
    update |= {"reasons": (*days.reasons, *packages.reasons), "runs": days.runs + packages.runs}
    return days.model_copy(update=update)


def _requirements(request: SearchRequest) -> tuple[str, ...]:
    """Return what a user would give pip: torch within its specifier, the file's and their own requirements."""
    specs = request.file.axes.torch
    (spec,) = specs if len(specs) == 1 else ("",)
    if spec == EVERY_RELEASE:
        torch = "torch"
    elif is_exact_version(spec):
        torch = f"torch=={spec}"
    elif spec[:1] in set("<>=!~"):
        torch = f"torch{spec}"
    else:
        raise UsageError(f"--torch {' '.join(specs)} is no requirement", hint="write a version, or '>=2.9,<2.13'")
    requirements = (torch, *request.file.requirements, *request.file.needs.requirements)
    names = {canonicalize_name(Requirement(requirement).name) for requirement in requirements}
    return (*requirements, *(name for name in COMPANIONS if name not in names))
