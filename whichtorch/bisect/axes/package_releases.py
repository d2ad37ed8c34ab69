"""The releases of one package as an axis: torch and all the others stay as they are, as far as a release allows it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.version_parsing import parse_version
from whichtorch.bisect.attribution import with_attributions
from whichtorch.bisect.axes.packages import ResolvedAxis, base_request
from whichtorch.bisect.axes.values import one_torch
from whichtorch.bisect.bisection import NO_ENVIRONMENT
from whichtorch.bisect.driver import search_between
from whichtorch.bisect.search_request import AxisName, common
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.commander import InstallError, UnresolvableError
from whichtorch.environments.index.releases import list_releases
from whichtorch.environments.index.sources import configured_sources
from whichtorch.environments.resolution import locked_versions, requirement_name, requirements_of, without_substitutes
from whichtorch.model import Build
from whichtorch.search.search_state import AnswerKind

if TYPE_CHECKING:
    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model import Request
    from whichtorch.model.events import Show

TAGS_TIMEOUT = 60.0  # seconds for a repository to say which tags it has


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageReleases(ResolvedAxis):
    """Releases of a package, oldest first, each with the versions of other packages that are held."""

    pins: tuple[str, ...]  # by position: the requirement for just this release
    requirements: tuple[str, ...]  # for torch and the others
    held: tuple[str, ...]  # pins that a release gets unless it needs other ones
    is_override: bool  # each release is installed whatever other packages ask for

    def lock(self, position: int) -> tuple[str, ...]:
        """Return the pins of a release with the others."""
        return self.cache.locked(
            (*self.requirements, self.pins[position]),
            self.base.build,
            self.base.python,
            constraints=self.base.constraints,
            overrides=(*self.base.overrides, *([self.pins[position]] if self.is_override else [])),
            preferred=self.held,
        )

    def left_out(self, low: int, high: int) -> tuple[str, ...]:
        """Return why there is nothing to search beyond two releases."""
        sides = (("before", low, low - 1), ("after", high, high + 1))
        return tuple(
            f"nothing {side} {self.values[inner]} was tried: {known.problem}"
            for side, inner, outer in sides
            if 0 <= outer < len(self.values) and (known := self.known_request(outer))
        )

    def last_fitting(self, fits: int, end: int) -> int:
        """Return the last position from one that fits to an end that fits to torch and the others.

        Nothing is installed for that. A search would install several of them to find where they begin.
        """
        position = end
        while True:
            self.request(position)
            known = self.known_request(position)  # None where an index gave no answer
            if known is None or known.problem is None:
                fits = position
            else:
                end = position
            if abs(end - fits) <= 1:
                return fits
            position = (fits + end) // 2


def search(request: SearchRequest, cache: EnvironmentCache, show: Show) -> Bisection:
    """Find the release of a package that changed the outcome, with one torch.

    Raises UsageError if there is no such package, or only one release of it.
    """
    axis, own = releases_of(request, cache)
    searched, notes = axis, tuple[str, ...]()
    with workbench(request, cache, show) as bench:
        if own in axis.values and not (request.good or request.bad):
            low, high = (axis.last_fitting(axis.values.index(own), end) for end in (0, len(axis.values) - 1))
            if low < high:
                fits = slice(low, high + 1)
                searched = replace(axis, values=axis.values[fits], pins=axis.pins[fits], _resolved={})
                notes = axis.left_out(low, high)
        found = search_between(request, searched, bench)
        found = with_attributions(found, searched, request, bench)
    return _with_limits(found, axis, notes)


def releases_of(request: SearchRequest, cache: EnvironmentCache, *, least: int = 2) -> tuple[PackageReleases, str]:
    """Return the releases of the package that a request names, and the one that torch brings or would bring."""
    wanted = checked_package(request.package or "")
    name = canonicalize_name(wanted.name)
    base = base_request(request, one_torch(request, request.file))
    own_overrides = [text for text in base.overrides if requirement_name(text) == name]
    for text in own_overrides:
        wanted.specifier &= Requirement(text).specifier
    released, where = _tags(wanted) if wanted.url else _listed(wanted, base, cache)
    pins = {version: pin for version, pin in released.items() if wanted.specifier.contains(version, prereleases=True)}
    if len(pins) < least:
        only = f"only {wanted.name} {next(iter(pins))}" if pins else where
        raise UsageError(f"there is nothing to search: {only}", hint="check the name, and the limits after it")
    # what a release of torch needs of the package is given up: that is what is searched
    needed, _ = requirements_of(base)
    requirements = tuple(
        without_substitutes(each, base, cache.home, configured_sources())
        for each in needed
        if each in base.requirements or requirement_name(each) != name
    )
    names = (*requirements, wanted.name)
    try:
        held = cache.locked(names, base.build, base.python, constraints=base.constraints, overrides=base.overrides)
    except UnresolvableError as error:
        raise UsageError(f"{name} cannot be installed with torch {base.torch}: {error.reason}") from None
    except InstallError as error:
        raise PreventedError(error.reason) from None
    axis = PackageReleases(
        name=AxisName.PACKAGE,
        package=name,
        values=tuple(pins),
        pins=tuple(pins.values()),
        requirements=requirements,
        held=tuple(line for line in held if requirement_name(line) != name),
        released=tuple(released),
        is_override=bool(own_overrides),
        base=base.model_copy(update={"overrides": tuple(text for text in base.overrides if text not in own_overrides)}),
        cache=cache,
        common={"package": name, "torch": base.torch, **common(base)},
    )
    return axis, locked_versions("\n".join(held)).get(name, "")


def _with_limits(found: Bisection, axis: PackageReleases, notes: tuple[str, ...]) -> Bisection:
    """Return an answer with what the other packages exclude, and notes on it."""
    known = {value: asked for place, value in enumerate(axis.values) if (asked := axis.known_request(place))}
    excluded = [value for value, asked in known.items() if asked.problem]
    if unmade := {*excluded, *found.unjudged.get(NO_ENVIRONMENT, ())}:
        unjudged = {NO_ENVIRONMENT: tuple(value for value in axis.values if value in unmade)}
        found = found.model_copy(update={"unjudged": found.unjudged | unjudged})
    if excluded and found.answer is not AnswerKind.BOUNDARY:
        limit = f"torch {axis.base.torch} and the other requirements exclude releases of {axis.package}; "
        notes += (f"{limit}--override '{axis.package}>={axis.values[0]}' tries them all the same",)
    return found.model_copy(update={"reasons": (*notes, *found.reasons)})


def checked_package(text: str) -> Requirement:
    """Return the requirement that says which releases are searched. Raises UsageError."""
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        hint = "write it as numpy, or 'transformers>=4.40'"
        raise UsageError(f"--package {text}: not a package", hint=hint) from None
    wanted.name = canonicalize_name(wanted.name)  # as locks and overrides have it
    if wanted.name == "torch":
        raise UsageError("--package torch: the releases of torch are searched without it", hint="--torch limits them")
    return wanted


def _listed(wanted: Requirement, base: Request, cache: EnvironmentCache) -> tuple[dict[str, str], str]:
    """Return the pins of all releases in the user's indexes, else in that of the build, and that there are none."""
    folder, name = cache.home / "cache", canonicalize_name(wanted.name)
    for build in (Build(name="pypi"), base.build):
        listing = list_releases(build, base.python, folder, project=name)
        if listing.releases:
            final = [each for each in listing.releases if not Version(each.version).is_prerelease]
            pool = listing.releases if wanted.specifier.prereleases else final
            newest = ", ".join(each.version for each in listing.releases[-3:])
            none = f"no release of {wanted.name} is {wanted.specifier}; the newest are {newest}"
            return {each.version: f"{wanted.name}=={each.version}" for each in pool}, none
    return {}, f"{' and '.join(listing.sources)} has no {wanted.name} for Python {base.python}"


def _tags(wanted: Requirement) -> tuple[dict[str, str], str]:
    """Return the pins of the tags of a git repository that are versions, and that there are none."""
    url = str(wanted.url).removeprefix("git+")
    if not str(wanted.url).startswith("git+"):
        raise UsageError(f"--package {wanted}: not a repository", hint="write it as 'NAME @ git+https://…'")
    command = ("git", "ls-remote", "--tags", "--refs", url)
    try:
        listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TAGS_TIMEOUT).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
        raise PreventedError(f"the tags of {url} cannot be read: {' '.join(said)}") from None
    tags = (line.rpartition("refs/tags/")[2] for line in listed.splitlines())
    versions = {version: tag for tag in tags if (version := parse_version(tag)) and not version.is_prerelease}
    pins = {str(each): f"{wanted.name} @ git+{url}@{versions[each]}" for each in sorted(versions)}
    return pins, f"no tag of {wanted.url} is a version"
