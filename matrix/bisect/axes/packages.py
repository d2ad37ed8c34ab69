"""Searches over what is installed with torch: days of the index, and two lock files or environments."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from matrix.bisect.axes.days import Days
from matrix.bisect.axes.isolation import Isolator, Lock
from matrix.bisect.axes.locks import pins_in, pins_of, read_lock
from matrix.bisect.axes.releases_axis import bisector, common
from matrix.bisect.question import workbench
from matrix.bisect.strategy.evidence import AnswerKind
from matrix.environments.configs import config_named
from matrix.environments.index.version_specs import EVERY_RELEASE, is_exact_version
from matrix.errors import PreventedError, UsageError
from matrix.model import Build, Request
from matrix.plan import matrix_file
from matrix.plan.planning import EXISTING, expand

if TYPE_CHECKING:
    from datetime import date

    from matrix.bisect.axes.locks import PackageSet, Pins
    from matrix.bisect.bisection import Bisection
    from matrix.bisect.question import SearchQuestion
    from matrix.environments.provider import Environments, ResolvingEnvironments
    from matrix.events import Show

# with torch in every environment: it uses both where they are there, and declares neither everywhere
COMPANIONS = ("numpy", "setuptools")


def search_days(
    question: SearchQuestion, since: date, until: date, extra: tuple[str, ...], cache: ResolvingEnvironments, show: Show
) -> Bisection:
    """Find the day whose releases, of anything, changed the outcome; then which package's it was."""
    if until > datetime.now(UTC).date():
        raise UsageError(f"{until} is yet to come")
    if since >= until:
        raise UsageError(f"--since {since} is not before --until {until}")
    base = _any_request(question)
    requirements = _requirements(question, extra)
    days = Days(
        since=since,
        until=until,
        requirements=requirements,
        python=base.python,
        build=base.build,
        config=base.config,
        cache=cache,
    )
    with workbench(question, cache, show) as bench:
        found = bisector(question, days, bench).run()
        shared = common(base) | {"requirements": " ".join(requirements)}
        found = found.model_copy(update={"common": shared})
        boundary = found.boundaries[-1] if found.boundaries else None
        if found.answer is not AnswerKind.BOUNDARY or boundary is None or not boundary.is_exact:
            return found
        locks = [
            Lock(label=day, pins=pins_in(days.request(days.nearest(day)).lock)) for day in (boundary.from_, boundary.to)
        ]
        isolated = Isolator(
            question=question,
            bench=bench,
            resolver=cache,
            start=locks[0],
            end=locks[1],
            python=base.python,
            build=base.build,
            config=base.config,
        ).run()
    told = isolated.answer is AnswerKind.BOUNDARY
    return found.model_copy(
        update={
            "changes": isolated.changes if told else (),
            "along": isolated.along if told else (),
            "differing": isolated.differing,
            "reasons": (*found.reasons, *isolated.reasons),
            "installs": bench.installs(),
            "runs": found.runs + isolated.runs,
            "seconds": round(found.seconds + isolated.seconds, 1),
        }
    )


def search_locks(
    question: SearchQuestion, good: PackageSet, bad: PackageSet, cache: ResolvingEnvironments, show: Show
) -> Bisection:
    """Find the smallest set of package changes that turns the outcome with one lock into that with another.

    Raises UsageError with all that is wrong with both files.
    """
    base = _any_request(question)
    pythons: list[str] = []
    pins, mistakes = [], []
    for side in (good, bad):
        try:
            pins.append(_pins_of_side(side, question, cache, pythons))
        except UsageError as error:
            mistakes.append(str(error))
    if mistakes:
        raise UsageError("\n".join(mistakes))
    python = pythons[0] if pythons else base.python
    with workbench(question, cache, show) as bench:
        found = Isolator(
            question=question,
            bench=bench,
            resolver=cache,
            start=Lock(label=good.label, pins=pins[0]),
            end=Lock(label=bad.label, pins=pins[1]),
            python=python,
            build=base.build,
            config=base.config,
        ).run()
    notes = found.reasons
    if len(set(pythons)) > 1:
        notes = (f"the two have Python {' and '.join(pythons)}; their packages were compared under {python}", *notes)
    return found.model_copy(update={"common": common(base) | {"python": python}, "reasons": notes})


def _any_request(question: SearchQuestion) -> Request:
    """Return a request with the build, Python and config that a question names."""
    table = question.file.model_dump(by_alias=True)
    table["axes"] |= {"torch": ["latest"]}
    request = expand(matrix_file.checked(table, "the options"), cache=question.home / "cache").requests[0]
    if request.problem is not None:
        raise PreventedError(request.problem)
    return request


def _requirements(question: SearchQuestion, extra: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a user would give pip: torch within its specifier, the file's and their own requirements."""
    specs = question.file.axes.torch
    (spec,) = specs if len(specs) == 1 else ("",)
    if spec == EVERY_RELEASE:
        torch = "torch"
    elif is_exact_version(spec):
        torch = f"torch=={spec}"
    elif spec[:1] in set("<>=!~"):
        torch = f"torch{spec}"
    else:
        raise UsageError(f"--torch {' '.join(specs)} is no requirement", hint="write a version, or '>=2.9,<2.13'")
    given = (torch, *question.file.requirements, *extra)
    named = {canonicalize_name(Requirement(one).name) for one in given}
    return (*given, *(name for name in COMPANIONS if name not in named))


def _pins_of_side(side: PackageSet, question: SearchQuestion, cache: Environments, pythons: list[str]) -> Pins:
    if side.lock is not None:
        return read_lock(side.lock)
    assert side.python is not None
    chosen = config_named("default", question.file.configs)
    interpreter = side.python.absolute()
    request = Request(torch="", python="", build=Build(name=EXISTING), config=chosen, interpreter=interpreter)
    environment = cache.acquire(request)
    if not environment.packages:
        raise UsageError(f"{side.python}: {environment.reason}")
    pythons.append(".".join(environment.python.split(".")[:2]))
    return pins_of(environment.packages)
