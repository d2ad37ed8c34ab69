"""Packages and days as axes, over made-up environments: what is tried, and what the answer is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import cast

import pytest

from tests.bisect.driving import FAILED, asked
from tests.fakes import PASSED, FakeCache, shows_nothing
from tests.wheels import build_wheel
from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes import days, packages
from whichtorch.bisect.bisection import Bisection
from whichtorch.bisect.search_request import AxisName, PackageSet, SearchRequest
from whichtorch.environments.cache import EnvironmentCache
from whichtorch.model import Build, Environment, Request
from whichtorch.process.supervision import Ending
from whichtorch.search.search_state import AnswerKind

GOOD = ("filelock==3.0", "idna==3.6", "numpy==2.2.6", "torch==9.1.0")
BAD = ("filelock==4.0", "idna==3.7", "numpy==2.3.0", "torch==9.1.0")
CULPRIT = "numpy==2.3.0"
RELEASED = {"2026-03-11": "filelock==4.0", "2026-03-13": CULPRIT, "2026-03-14": "idna==3.7"}


@dataclass
class LockedCache(FakeCache):
    """Environments of locks; a requirement means what the index of a day has."""

    requests: dict[str, Request] = field(default_factory=dict)  # by label
    resolved: list[str] = field(default_factory=list)  # ends of days

    def environment(self, request: Request) -> Environment:
        self.requests[request.label] = request
        return super().environment(request).model_copy(update={"id": request.label})

    def locked(
        self,
        requirements: Sequence[str],
        build: Build,
        python: str,
        *,
        constraints: Sequence[str] = (),
        overrides: Sequence[str] = (),
        before: str | None = None,
    ) -> tuple[str, ...]:
        if before is None:
            return tuple(requirements)
        self.resolved.append(before)
        new = [pin for day, pin in RELEASED.items() if day < before[:10]]
        names = {pin.partition("=")[0]: pin for pin in (*GOOD, *new)}
        return tuple(names.values())

    def requirements_of(self, request: Request) -> dict[str, tuple[str, ...]]:
        return {}


@pytest.fixture
def cache(tmp_path: Path) -> LockedCache:
    build_wheel(tmp_path / "wheels", "9.1.0")
    return LockedCache(tmp_path)


def culprit_fails(cache: LockedCache, axis: AxisName, **fields: object) -> SearchRequest:
    """Return the request for a search of a script that fails wherever the culprit is among the packages."""

    def end(label: str) -> Ending:
        return FAILED if CULPRIT in cache.requests[label].lock else PASSED

    return asked(cache, "9.1.0", end, axis=axis, **fields)


def compared(cache: LockedCache, good: str, bad: str) -> Bisection:
    sides = []
    for name, text in {"good.txt": good, "bad.txt": bad}.items():
        (cache.home / name).write_text(text)
        sides.append(PackageSet(path=cache.home / name, is_lock=True))
    request = culprit_fails(cache, AxisName.LOCK, sides=(sides[0], sides[1]))
    return packages.search(request, cast("EnvironmentCache", cache), shows_nothing)


def test_of_the_packages_that_differ_the_one_that_matters_is_found(cache: LockedCache) -> None:
    """It is confirmed alone, and the others are counted."""
    bisection = compared(cache, "\n".join(GOOD), "\n".join(BAD))
    assert (bisection.answer, bisection.changes) == (AnswerKind.BOUNDARY, ("numpy 2.2.6 -> 2.3.0",))
    assert (bisection.differing, bisection.along) == (3, ())
    assert bisection.boundaries[-1].to.endswith("good.txt with numpy 2.2.6 -> 2.3.0")


def test_mistakes_of_both_locks_are_told_together(cache: LockedCache) -> None:
    """Nothing is run."""
    with pytest.raises(UsageError, match=r"(?s)good\.txt:1: 'numpy>=2'.*bad\.txt:1: 'scipy'"):
        compared(cache, "numpy>=2", "scipy")
    assert not cache.acquired


def test_the_day_and_its_package_are_found(cache: LockedCache) -> None:
    """Days are resolved as the search needs them; of what came that day, the package is told."""
    days_asked = (date(2026, 3, 1), date(2026, 3, 31))
    request = culprit_fails(cache, AxisName.DATE, days=days_asked)
    bisection = days.search(request, cast("EnvironmentCache", cache), shows_nothing)
    boundary = bisection.boundaries[-1]
    assert (boundary.from_, boundary.to) == ("2026-03-12", "2026-03-13")
    assert bisection.changes == ("numpy 2.2.6 -> 2.3.0",)
    assert len(cache.resolved) < 31 / 2


@pytest.mark.parametrize(
    ("span", "words"),
    [((date(2026, 3, 2), date(2026, 3, 2)), "is not before"), ((date(2026, 3, 2), date(9999, 1, 1)), "yet to come")],
)
def test_a_span_without_days_is_refused(cache: LockedCache, span: tuple[date, date], words: str) -> None:
    """The reason names the day."""
    with pytest.raises(UsageError, match=words):
        days.search(culprit_fails(cache, AxisName.DATE, days=span), cast("EnvironmentCache", cache), shows_nothing)
