"""Which releases of torch, or of another project, exist for a build, a Python and this machine.

A --torch value means some of them: it names versions, specifiers, recent:N, latest, nightlies and wheels.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging import tags
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import TypeAdapter

from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.version_parsing import parse_version
from whichtorch.environments.index.sources import (
    FIRST_INDEX,
    PROJECT,
    Sources,
    configured_sources,
    local_folder,
    without_credentials,
)
from whichtorch.model import Build, digest

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

LISTING_AGE = 600  # seconds a listing is believed: a rerun costs no network, a new nightly shows up soon
SCHEMA = 2  # of kept listings
SOURCE_RANK = 1 << 16  # a wheel is always better

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


class IndexUnreachableError(PreventedError):
    """An index does not answer, or not with a list of packages."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(
            f"the index {without_credentials(url)} cannot be read: {problem}",
            hint="check the network, or name another index in uv's or pip's settings",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version of a project with the wheel of it that fits best, or with its source."""

    version: str
    filename: str
    url: str  # without credentials; the absolute path of a local wheel
    source: str  # the index or folder, without credentials
    yanked: str | None = None  # the reason; "" where none was given
    size: int | None = None  # bytes; many indexes do not say
    sha256: str = ""  # as the index names it; many do not

    @property
    def contents(self) -> str:
        """What tells the wheel from others of its name."""
        return self.sha256[:16] or digest([self.url, self.size], 16)

    @property
    def date(self) -> str | None:
        """The day of a nightly, "2026-11-20", from its version."""
        digits = str(Version(self.version).dev or "")
        return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}" if len(digits) == 8 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The releases that fit, oldest first."""

    releases: tuple[Release, ...]
    yanked: tuple[Release, ...] = ()
    aside: tuple[Release, ...] = ()  # 2.13.0+cpu in the user's find-links: only when asked for by that name
    python: str = ""
    candidates: bool = False  # pre-releases count as releases do
    sources: tuple[str, ...] = ()  # the indexes, pages and folders that were read, without credentials


class LinkedWheel(NamedTuple):
    """A wheel in a folder, or one that a page links to."""

    filename: str
    url: str
    yanked: str | None = None  # the reason; "" where none was given
    size: int | None = None  # bytes
    requires_python: str | None = None
    sha256: str = ""

    @classmethod
    def of(cls, package: DistributionPackage) -> LinkedWheel:
        """Return what a page says of a wheel."""
        yanked = (package.yanked_reason or "") if package.is_yanked else None
        sha256 = package.digests.get("sha256", "")
        return cls(package.filename, package.url, yanked, package.size, package.requires_python, sha256)

    def allows(self, python: str) -> bool:
        """Return whether it is for a Python such as "3.11", as far as its page says."""
        try:
            return SpecifierSet(self.requires_python or "").contains(f"{python.rstrip('t')}.99")
        except InvalidSpecifier:
            return True

    def release(self, version: Version, source: str) -> Release:
        """Return the wheel as that of a release."""
        folder = local_folder(self.url)
        fields = self._replace(url=str(folder) if folder is not None else without_credentials(self.url))._asdict()
        del fields["requires_python"]
        return Release(version=str(version), source=without_credentials(source), **fields)


_Row = tuple[str, bool, LinkedWheel]  # index or page, whether it is the user's find-links, wheel


def list_releases(
    build: Build, python: str, cache: Path | None, *, sources: Sources | None = None, project: str = PROJECT
) -> Listing:
    """Return the releases of torch, in a build, that fit this platform and a Python such as "3.11" or "3.13t".

    Those of another `project` are looked for in the same places. One without any wheel counts if its source is there.

    `sources` are by default the user's. A listing is kept for ten minutes in `cache`, the folder of that name in the
    state folder, but not one of release candidates; wheels that are kept beside it count as available. Raises
    IndexUnreachableError for an index that does not answer in three tries.
    """
    all_sources = sources or configured_sources()
    sources = all_sources.of(build)
    shown = [(without_credentials(url), is_index) for url, is_index in sources.places]
    machine = next(iter(tags.platform_tags()), "")  # machines that share a home folder may differ
    others = [project] if project != PROJECT else []
    key = digest([SCHEMA, python, machine, sources is all_sources, sources.strategy, shown, *others], 16)
    # a folder is read in no time, and may have changed a second ago
    is_remote = any(local_folder(url) is None for url, _ in sources.places)
    file = cache / "listings" / f"{key}.json" if cache is not None and is_remote and not build.candidates else None
    kept_wheels = kept_folder(cache.parent, build) if cache is not None and not others else None
    if file is not None and (kept := read_json(file, Listing, LISTING_AGE)) is not None:
        return _with_wheels_of(kept_wheels, kept)
    rows: list[_Row] = []
    for url, is_index in sources.places:
        if not (is_index and rows and sources.strategy == FIRST_INDEX):
            is_users_link = not is_index and sources is all_sources
            found = _linked_wheels(url, sources, project, is_index=is_index)
            rows += [(url, is_users_link, wheel) for wheel in found if wheel.allows(python)]
    listing = _sorted_listing(rows, project, python, tuple(url for url, _ in shown))
    if file is not None:
        write_atomic(file, TypeAdapter(Listing).dump_json(listing))
    return _with_wheels_of(kept_wheels, listing)


def kept_folder(home: Path, build: Build) -> Path | None:
    """Return where wheels of a build are kept; None for one whose wheels do not vanish, or lie in a folder."""
    if not build.nightly or build.index_url is None or local_folder(build.index_url) is not None:
        return None
    return home / "wheels" / re.sub(r"[^\w.+-]", "_", build.name)


def _with_wheels_of(folder: Path | None, listing: Listing) -> Listing:
    """Return a listing with the kept wheels of versions that the index has dropped."""
    if folder is None:
        return listing
    releases = {Version(release.version): release for release in listing.releases}
    listed = releases.keys() | {Version(release.version) for release in listing.yanked}
    for path in sorted(folder.glob(f"{PROJECT}-*.whl")):
        fit = wheel_fit(path.name, PROJECT, listing.python)
        if fit is not None and fit[0] not in listed:
            release = Release(version=str(fit[0]), filename=path.name, url=str(path), source=str(folder))
            releases[fit[0]] = replace(release, size=path.stat().st_size)
    return replace(listing, releases=tuple(releases[version] for version in sorted(releases)))


def unreadable_index(build: Build, sources: Sources) -> str | None:
    """Return which index or page of a build cannot be read now, and why; None where all can. Each is asked once."""
    from whichtorch.environments.index import pages  # here: it imports requests

    for url, is_index in dict.fromkeys((*sources.of(build).places, *sources.places)):
        if local_folder(url) is None:
            try:
                pages.fetch(url, is_index=is_index, certificates=sources.certificates)
            except pages.PageError as error:
                return IndexUnreachableError(url, error.problem).message
    return None


def _sorted_listing(rows: Sequence[_Row], project: str, python: str, read_from: tuple[str, ...]) -> Listing:
    """Return what fits, sorted by version, with the best wheel of each that this machine can use."""
    kinds: dict[str, dict[Version, tuple[int, Release]]] = {"releases": {}, "yanked": {}, "aside": {}}
    # torch is never built; nor is what has wheels, if none that fits: that would take long, or fail
    sources = {} if project == PROJECT else _versions_without_wheel([wheel.filename for _, _, wheel in rows], project)
    for source, is_users_link, wheel in rows:
        fit = wheel_fit(wheel.filename, project, python) or sources.get(wheel.filename)
        if fit is None:
            continue
        version, rank = fit
        release = wheel.release(version, source)
        is_aside = is_users_link and version.local is not None
        best = kinds["aside" if is_aside else "releases" if wheel.yanked is None else "yanked"]
        if version not in best or rank < best[version][0]:
            best[version] = (rank, release)
    releases, yanked, aside = (tuple(best[version][1] for version in sorted(best)) for best in kinds.values())
    return Listing(releases=releases, yanked=yanked, aside=aside, python=python, sources=read_from)


def _versions_without_wheel(filenames: Iterable[str], project: str) -> dict[str, tuple[Version, int]]:
    """Return version and rank of each source of a project, by its file, if its version has no wheel at all."""
    wheels = set[Version]()
    sources: dict[str, tuple[Version, int]] = {}
    for filename in filenames:
        with suppress(InvalidWheelFilename, InvalidVersion):
            wheels.add(parse_wheel_filename(filename)[1])
        with suppress(InvalidSdistFilename, InvalidVersion):
            name, version = parse_sdist_filename(filename)
            if name == project:
                sources[filename] = version, SOURCE_RANK
    return {filename: fit for filename, fit in sources.items() if fit[0] not in wheels}


def _linked_wheels(url: str, sources: Sources, project: str, *, is_index: bool) -> list[LinkedWheel]:
    """Return what an index, or a page or folder of links, holds of a project; three tries over a network."""
    place = local_folder(url)
    if place is None:
        return [LinkedWheel.of(package) for package in _fetched(url, sources, project, is_index=is_index)]
    folder, page = (place / project, place / project / "index.html") if is_index else (place, place)
    if page.is_file():
        from whichtorch.environments.index import pages  # here: it imports an HTML parser, which takes long

        return [LinkedWheel.of(package) for package in pages.read_file(page)]
    wheels = sorted(folder.glob(f"{project.replace('-', '_')}-*.whl"))
    return [LinkedWheel(wheel.name, wheel.absolute().as_uri(), size=wheel.stat().st_size) for wheel in wheels]


def _fetched(url: str, sources: Sources, project: str, *, is_index: bool) -> list[DistributionPackage]:
    from whichtorch.environments.index import pages  # here: it imports requests

    try:
        return pages.retried(
            lambda: pages.fetch(url, is_index=is_index, certificates=sources.certificates, project=project)
        )
    except pages.PageError as error:
        raise IndexUnreachableError(url, error.problem) from error


@lru_cache(maxsize=16)
def _ranks(python: str) -> dict[tags.Tag, int]:
    """Return the wheel tags that fit, best first: those of the asked Python, not of the running one."""
    major, minor = (int(part) for part in python.rstrip("t").split(".")[:2])
    abi = f"cp{major}{minor}" + ("t" if python.endswith("t") else "m" if (major, minor) < (3, 8) else "")
    platforms = list(tags.platform_tags())
    fitting = [
        *tags.cpython_tags((major, minor), abis=[abi], platforms=platforms),
        *tags.compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(fitting)))}


def wheel_fit(filename: str, project: str, python: str) -> tuple[Version, int] | None:
    """Return version and rank of a wheel of a project, the lower the better; None for one that does not fit."""
    try:
        name, version, _, wheel_tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):  # an sdist, or not a wheel at all
        return None
    ranks = _ranks(python)
    best = min((ranks[tag] for tag in wheel_tags if tag in ranks), default=None)
    return None if name != project or best is None else (version, best)


def best_fit(filenames: Iterable[str], project: str, version: str, python: str) -> str | None:
    """Return the wheel of a version that fits a Python best, the first of equals; None where none fits."""
    fits = ((filename, wheel_fit(filename, project, python)) for filename in filenames)
    ranks = {filename: fit[1] for filename, fit in fits if fit is not None and fit[0] == Version(version)}
    return min(ranks, key=lambda filename: ranks[filename], default=None)


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
