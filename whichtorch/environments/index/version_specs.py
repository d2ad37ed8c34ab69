"""Which releases a --torch value means: versions, specifiers, recent:N, latest, nightlies and wheels."""

from __future__ import annotations

import re
from bisect import bisect_left
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from whichtorch.base.errors import UsageError
from whichtorch.base.version_parsing import parse_version
from whichtorch.environments.index.releases import Listing, Release, list_releases

if TYPE_CHECKING:
    from whichtorch.model import Build

EVERY_RELEASE = ">=0"  # the specifier that leaves none out
_RECENT = re.compile(r"recent:(0*[1-9]\d*)")
_NIGHTLY = re.compile(r"nightly(?::(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?)?")
_MEANT = {  # what is written elsewhere -> what is written here
    r"(?:py)?torch *==? *(\d.*)": r"\1",
    r"(\d[\d.]*)(?:\.\.|-|:| to )(\d[\d.]*)": r"'>=\1,<=\2'",
    r"(\d[\d.]*) +(\d[\d.]*)": r"\1,\2",
    r"(\d[\d.]*)\+": r"'>=\1'",
    r"all|every|\*|any": "'>=2'",
    r"stable|newest|current|release": "latest",
    r"last:?(\d+)|latest:(\d+)|recent(\d+)": r"recent:\1\2\3",
    r"main|master|dev|preview": "nightly",
}
_CLAUSE = re.compile(r"\s*(===|==|!=|~=|<=|>=|<|>)")


class UnknownVersionError(UsageError):
    """No release fits a spec."""


def split_specs(text: str) -> list[str]:
    """Split a --torch value at its commas, keeping neighboring clauses of a specifier together."""
    specs: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if specs and _CLAUSE.match(part) and _CLAUSE.match(specs[-1]):
            specs[-1] += "," + part
        else:
            specs.append(part)
    return specs


def check_spec(spec: str) -> None:
    """Raise UsageError where `select` cannot understand `spec`."""
    spec = spec.strip()
    if spec == "latest" or spec.endswith(".whl") or is_exact_version(spec):
        return
    if _RECENT.fullmatch(spec) or _NIGHTLY.fullmatch(spec):
        return
    with suppress(InvalidSpecifier):
        if _CLAUSE.match(spec) and SpecifierSet(spec):
            return
    for pattern, form in _MEANT.items():
        if match := re.fullmatch(pattern, spec):
            raise UsageError(f"{spec!r} names no torch version", hint=f"did you mean {match.expand(form)}?")
    forms = "2.11.0, '>=2.9,<2.13', recent:3, latest, nightly, nightly:2026-11-01..2026-11-20 or a wheel's path"
    raise UsageError(f"{spec!r} names no torch version", hint=f"write it as {forms}")


def find(spec: str, build: Build, python: str, cache: Path) -> tuple[dict[str, str], list[str]]:
    """Return the versions that a spec means in a build for a Python, oldest first, and notes on yanked ones.

    A version of a release candidate comes with the contents of its wheel, any other with "". A wheel stands for itself,
    by its path. Raises as `select` and `list_releases`, which keeps what it read in `cache`.
    """
    if spec.endswith(".whl"):
        return {str(Path(spec).absolute()): ""}, []
    listing = replace(list_releases(build, python, cache), candidates=build.candidates)
    chosen = select(spec, listing)
    notes = [f"torch {version} is yanked, left out: {why}" for version, why in yanked_among(spec, listing)]
    return {release.version: release.contents if build.candidates else "" for release in chosen}, notes


def select(spec: str, listing: Listing) -> list[Release]:
    """Return the releases that one spec, but a wheel's path, means, oldest first, never an empty list.

    Pre-releases count where the spec names one, where the build has nothing else (nightlies), or among release
    candidates; a yanked release only by its exact version. Raises UnknownVersionError with the nearest versions.
    """
    spec = spec.strip()
    check_spec(spec)
    if is_exact_version(spec):
        return [_exactly(Version(spec), listing)]
    final = [release for release in listing.releases if not Version(release.version).is_prerelease]
    pool = list(listing.releases) if listing.candidates else final or list(listing.releases)
    if spec == "latest":
        chosen = pool[-1:]
    elif recent := _RECENT.fullmatch(spec):
        newest = {Version(release.version).release[:2]: release for release in pool}
        chosen = list(newest.values())[-int(recent[1]) :]
    elif nightly := _NIGHTLY.fullmatch(spec):
        dated = [release for release in listing.releases if release.date]
        first, last = nightly[1], nightly[2] or nightly[1]
        chosen = [release for release in dated if first <= str(release.date) <= last] if first else dated[-1:]
    else:
        specifier = SpecifierSet(spec)
        pool = list(listing.releases) if specifier.prereleases else pool
        chosen = [release for release in pool if specifier.contains(release.version, prereleases=True)]
    if not chosen:
        raise _unknown(spec, listing)
    return chosen


def yanked_among(spec: str, listing: Listing) -> list[tuple[str, str]]:
    """Return version and reason of the yanked releases that `spec` would mean if they were not."""
    if is_exact_version(spec):
        return []
    known = {release.version for release in listing.releases}
    yanked = [release for release in listing.yanked if release.version not in known]
    if _CLAUSE.match(spec):
        specifier = SpecifierSet(spec)
        yanked = [release for release in yanked if specifier.contains(release.version, prereleases=True)]
    else:
        oldest = Version(select(spec, listing)[0].version)
        yanked = [release for release in yanked if Version(release.version) > oldest]
    return [(release.version, release.yanked or "no reason given") for release in yanked]


def _exactly(version: Version, listing: Listing) -> Release:
    """Return the release of that very version.

    Without a local part it also means the build's own +cpu or +cu128, but never one of the user's
    find-links: that would be another wheel than the one asked for.
    """
    for release in (*listing.releases, *listing.aside, *listing.yanked):
        if Version(release.version) == version:
            return release
    if version.local is None:
        for release in (*reversed(listing.releases), *reversed(listing.yanked)):
            if Version(release.version).public == version.public:
                return release
    raise _unknown(str(version), listing)


def _unknown(spec: str, listing: Listing) -> UnknownVersionError:
    """Return the error that names the nearest versions and the indexes that were read."""
    where = " and ".join(listing.sources) or "any place"
    versions = [Version(release.version) for release in listing.releases]
    if not versions:
        return UnknownVersionError(
            f"{where} has no torch that fits Python {listing.python} on this machine",
            hint="another --python or --build may have one",
        )
    if spec.startswith("nightly") and not any(release.date for release in listing.releases):
        return UnknownVersionError(f"{where} has no nightlies", hint="--build nightly-cpu has them")
    wanted = parse_version(re.sub(r"^\D*", "", spec.split(",")[0]))
    middle = bisect_left(versions, wanted) if wanted else len(versions)
    near = [str(version) for version in versions[max(0, middle - 2) : middle + 2]]
    aside = [release.version for release in listing.aside if Version(release.version).public == spec]
    also = f"; your find-links have {' and '.join(aside)}, which is a version of its own" if aside else ""
    return UnknownVersionError(
        f"no torch release is {spec} for Python {listing.python} in {where}",
        hint=f"the nearest are {', '.join(near)}{also}",
    )


def is_exact_version(spec: str) -> bool:
    """Return whether a spec is one version, such as 2.11.0 or 2.16.0.dev20261120+cpu."""
    return parse_version(spec) is not None
