"""The releases or nightlies of torch as an axis: one build, Python and config."""

from __future__ import annotations

import sys
from bisect import bisect_left
from dataclasses import replace
from importlib.metadata import distributions
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.version_parsing import parse_version
from whichtorch.bisect.attribution import with_attributions
from whichtorch.bisect.driver import search_between
from whichtorch.bisect.search_request import Axis, AxisName, common
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.expansion import expand
from whichtorch.environments.index.version_specs import EVERY_RELEASE, find, is_exact_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.provider import Environments
    from whichtorch.model import Request
    from whichtorch.model.events import Show


class Releases(Axis):
    """Versions of torch, oldest first."""

    @classmethod
    def of(cls, requests: Sequence[Request], own: str | None = None) -> Releases:
        """Return the axis of some requests; `own` is the version that the user works with."""
        versions = tuple(request.torch for request in requests)
        first = worth_first(versions, own)
        shared = common(requests[0])
        return cls(name=AxisName.VERSION, values=versions, requests=tuple(requests), first=first, common=shared)

    def nearest(self, value: str) -> int:
        """Return the position of a version; of one that does not exist, that of the next newer one."""
        return nearest_version(value, self.values)


def nearest_version(value: str, versions: Sequence[str]) -> int:
    """Return the place of a version; of one that does not exist, that of the next newer one. Raises UsageError."""
    try:
        wanted = Version(value)
    except InvalidVersion:
        raise UsageError(f"{value!r} is no version", hint=f"write it as {versions[0]}") from None
    # 2.9.0+cpu is the next one after 2.9.0
    return min(bisect_left(versions, wanted, key=Version), len(versions) - 1)


def worth_first(values: Sequence[str], own: str | None = None) -> tuple[int, ...]:
    """Return the positions to try first: the user's own version, then those, newest first, that a point release fixed.

    A point release exists because something was wrong with the release before it.
    """
    versions = {place: Version(value) for place, value in enumerate(values) if is_exact_version(value)}
    points = {(version.major, version.minor, version.micro - 1) for version in versions.values()}
    mine = [place for place, version in versions.items() if own and version.public == Version(own).public]
    fixed = [place for place, version in reversed(versions.items()) if version.release in points]
    return tuple(dict.fromkeys((*mine, *fixed)))


def own_torch() -> str | None:
    """Return the version of torch in this interpreter, else in the environment that the shell has activated."""
    roots = [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    folders = [str(folder) for root in roots for folder in root.glob("lib/python*/site-packages")]
    return next((found.version for found in distributions(name="torch", path=[*sys.path, *folders])), None)


def search(request: SearchRequest, cache: Environments, show: Show) -> Bisection:
    """Search the versions that the request's matrix file names.

    Raises UsageError or PreventedError where there is nothing to search; KeyboardInterrupt passes through.
    """
    expansion = expand(request.file, cache=request.home / "cache")
    usable = [each for each in expansion.requests if each.problem is None]
    if len(usable) < 2 and (problems := [each.problem for each in expansion.requests if each.problem]):
        raise PreventedError(problems[0])
    if len(usable) < 2:
        named = f"only {usable[0].torch}" if usable else "nothing"
        raise UsageError(f"there is {named} to search", hint="name a wider range with --torch, such as '>=2.6'")
    first, is_listed = usable[0], all(parse_version(each.torch) for each in usable)  # not so a wheel of the user's
    released = find(EVERY_RELEASE, first.build, first.python, request.home / "cache")[0] if is_listed else {}
    with workbench(request, cache, show) as bench:
        axis = replace(Releases.of(usable, own_torch()), released=tuple(released))
        bisection = with_attributions(search_between(request, axis, bench), axis, request, bench)
    # the notes say what was yanked
    return bisection.model_copy(update={"reasons": (*expansion.notes, *bisection.reasons)})
