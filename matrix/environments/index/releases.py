"""Which torch releases exist for a build, a Python and this machine; and which of them a spec means."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from bisect import bisect_left
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from matrix.environments.index import wheel_tags
from matrix.environments.index.builds import kept_folder
from matrix.environments.index.sources import FIRST_INDEX, Sources, local_folder, without_credentials
from matrix.errors import PreventedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pypi_simple import DistributionPackage

    from matrix.model import Build

PROJECT = "torch"
EVERY_RELEASE = ">=0"  # the specifier that leaves none out
LISTING_AGE = 600  # seconds a listing is believed: a rerun costs no network, a new nightly shows up soon
INDEX_TIMEOUT = 20.0  # seconds without a byte before an index counts as not answering
PAUSES = (1.0, 2.0)  # seconds before the second and third try of an index
SCHEMA = 1  # of kept listings
_RECENT = re.compile(r"recent:(\d+)")
_NIGHTLY = re.compile(r"nightly(?::(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?)?")
_CLAUSE = re.compile(r"\s*(===|==|!=|~=|<=|>=|<|>)")


class IndexUnreachableError(PreventedError):
    """An index does not answer, or not with a list of packages."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(
            f"the index {place} cannot be read: {problem}",
            hint="check the network, or name another index in uv's or pip's settings",
        )
        self.place = place


class UnknownVersionError(UsageError):
    """A spec means no release that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version of torch with the wheel of it that fits best."""

    version: str
    filename: str
    url: str  # without credentials; the absolute path of a local wheel
    source: str  # the index or folder, without credentials
    yanked: str | None = None  # the reason; "" where none was given
    uploaded: str | None = None  # ISO 8601; many indexes do not say
    size: int | None = None  # bytes; many indexes do not say

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
    places: tuple[str, ...] = ()  # where was looked, without credentials

    def yanked_among(self, spec: str) -> list[tuple[str, str]]:
        """Return version and reason of the yanked releases that `spec` would mean but for that."""
        if is_exact_version(spec) or spec.endswith(".whl"):
            return []
        known = {release.version for release in self.releases}
        yanked = [release for release in self.yanked if release.version not in known]
        if _CLAUSE.match(spec):
            yanked = [release for release in yanked if _contains(SpecifierSet(spec), release)]
        else:
            oldest = Version(select(spec, self)[0].version)
            yanked = [release for release in yanked if Version(release.version) > oldest]
        return [(release.version, release.yanked or "no reason given") for release in yanked]


def split_specs(text: str) -> list[str]:
    """Split a --torch value at its commas, keeping neighbouring clauses of a specifier together."""
    specs: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if specs and _CLAUSE.match(part) and _CLAUSE.match(specs[-1]):
            specs[-1] += "," + part
        else:
            specs.append(part)
    return specs


def check_spec(spec: str) -> None:
    """Raise UsageError where `spec` is nothing that `select` understands."""
    spec = spec.strip()
    if spec == "latest" or spec.endswith(".whl") or _NIGHTLY.fullmatch(spec) or is_exact_version(spec):
        return
    if (recent := _RECENT.fullmatch(spec)) and int(recent[1]) > 0:
        return
    try:
        if _CLAUSE.match(spec) and SpecifierSet(spec):
            return
    except InvalidSpecifier:
        pass
    forms = "2.11.0, '>=2.9,<2.13', recent:3, latest, nightly, nightly:2026-11-01..2026-11-20 or a wheel's path"
    raise UsageError(f"{spec!r} names no torch version", hint=f"write it as {forms}")


def select(spec: str, listing: Listing) -> list[Release]:
    """Return the releases that one spec means, oldest first, never an empty list.

    Pre-releases count where the spec names one or where the build has nothing else (nightlies); yanked
    ones where asked for exactly. Raises UnknownVersionError with the nearest versions.
    """
    spec = spec.strip()
    check_spec(spec)
    if spec.endswith(".whl"):
        return [_wheel_at(Path(spec), listing)]
    if is_exact_version(spec):
        return [_exactly(Version(spec), listing)]
    final = [release for release in listing.releases if not Version(release.version).is_prerelease]
    pool = final or list(listing.releases)
    if spec == "latest":
        chosen = pool[-1:]
    elif recent := _RECENT.fullmatch(spec):
        newest = {Version(release.version).release[:2]: release for release in pool}
        chosen = list(newest.values())[-int(recent[1]) :]
    elif nightly := _NIGHTLY.fullmatch(spec):
        chosen = [release for release in listing.releases if release.date]
        if nightly[1]:
            first, last = nightly[1], nightly[2] or nightly[1]
            chosen = [release for release in chosen if first <= (release.date or "") <= last]
        else:
            chosen = chosen[-1:]
    else:
        specifier = SpecifierSet(spec)
        pool = list(listing.releases) if specifier.prereleases else pool
        chosen = [release for release in pool if _contains(specifier, release)]
    if not chosen:
        raise _unknown(spec, listing)
    return chosen


def list_releases(
    build: Build,
    python: str,
    sources: Sources,
    cache: Path | None,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Listing:
    """Return the torch releases of a build that fit this platform and a Python such as "3.11" or "3.13t".

    A listing is kept for ten minutes in `cache`, the folder of that name in the state folder; wheels that are kept
    beside it count as available. Raises IndexUnreachableError for an index
    that does not answer in three tries.
    """
    own = build.index_url is not None or build.find_links is not None
    indexes: tuple[str, ...]
    links: tuple[str, ...]
    if own:
        indexes = (build.index_url,) if build.index_url else ()
        links = (build.find_links,) if build.find_links else ()
        strategy = ""
    else:
        indexes, links, strategy = sources.index_urls, sources.find_links, sources.strategy
    key = [
        SCHEMA,
        python,
        wheel_tags.machine(),
        own,
        strategy,
        [without_credentials(url) for url in (*indexes, "", *links)],
    ]
    # a folder is read in no time, and may have changed a second ago
    remote = any(local_folder(place) is None for place in (*indexes, *links))
    file = cache / "listings" / f"{_digest(key)}.json" if cache is not None and remote else None
    folder = kept_folder(cache.parent, build) if cache is not None else None
    if file is not None and (kept := _kept(file)) is not None:
        return _with_wheels_of(folder, kept)
    found: list[tuple[str, DistributionPackage]] = []
    for place in indexes:
        packages = _packages(place, sources, is_index=True, pause=pause)
        found += [(place, package) for package in packages]
        if packages and strategy == FIRST_INDEX:
            break
    in_links = [
        (place, package) for place in links for package in _packages(place, sources, is_index=False, pause=pause)
    ]
    listing = _listing(found, in_links, python, own=own, places=(*indexes, *links))
    if file is not None:
        _keep(file, listing)
    return _with_wheels_of(folder, listing)


def _with_wheels_of(folder: Path | None, listing: Listing) -> Listing:
    """Return a listing with the kept wheels of what the index has no more; what it has comes from there."""
    if folder is None:
        return listing
    listed = {Version(release.version): release for release in (*listing.releases, *listing.yanked)}
    found: dict[Version, Release] = {}
    for path in sorted(folder.glob(f"{PROJECT}-*.whl")):
        fit = wheel_tags.fit(path.name, PROJECT, listing.python)
        if fit is not None and fit[0] not in listed:
            release = Release(version=str(fit[0]), filename=path.name, url=str(path), source=str(folder))
            found[fit[0]] = replace(release, size=path.stat().st_size)
    known = {Version(release.version): release for release in listing.releases} | found
    return replace(listing, releases=tuple(known[version] for version in sorted(known)))


def unreadable_index(build: Build, sources: Sources) -> str | None:
    """Return which of the indexes and pages of a build cannot be read now, and why; None where all can.

    Each is asked once, for torch: one that knows no torch can be read.
    """
    from matrix.environments.index import pages

    own = ((build.index_url, True), (build.find_links, False))
    shared = [*((url, True) for url in sources.index_urls), *((link, False) for link in sources.find_links)]
    for place, is_index in (*own, *shared):
        if place is None or local_folder(place) is not None:
            continue
        try:
            pages.fetch(place, is_index=is_index, timeout=INDEX_TIMEOUT, certificates=sources.certificates)
        except pages.PageError as error:
            return IndexUnreachableError(without_credentials(place), error.problem).message
    return None


def _listing(
    in_indexes: Iterable[tuple[str, DistributionPackage]],
    in_links: Iterable[tuple[str, DistributionPackage]],
    python: str,
    *,
    own: bool,
    places: Sequence[str],
) -> Listing:
    """Sort what was found by version, keeping the best wheel of each that this machine can use."""
    best: dict[str, dict[Version, tuple[int, Release]]] = {"releases": {}, "yanked": {}, "aside": {}}
    for is_link, (place, package) in _labelled(in_indexes, in_links):
        fitting_wheel = wheel_tags.fit(package.filename, PROJECT, python)
        if fitting_wheel is None:
            continue
        version, fit = fitting_wheel
        release = Release(
            version=str(version),
            filename=package.filename,
            url=_shown_url(package.url),
            source=without_credentials(place),
            yanked=(package.yanked_reason or "") if package.is_yanked else None,
            uploaded=package.upload_time.isoformat() if package.upload_time else None,
            size=package.size,
        )
        aside = is_link and not own and version.local is not None
        kind = best["aside" if aside else "yanked" if package.is_yanked else "releases"]
        if version not in kind or fit < kind[version][0]:
            kind[version] = (fit, release)
    ordered = {kind: tuple(known[v][1] for v in sorted(known)) for kind, known in best.items()}
    return Listing(**ordered, python=python, places=tuple(map(without_credentials, places)))


def _labelled(
    in_indexes: Iterable[tuple[str, DistributionPackage]], in_links: Iterable[tuple[str, DistributionPackage]]
) -> Iterator[tuple[bool, tuple[str, DistributionPackage]]]:
    yield from ((False, pair) for pair in in_indexes)
    yield from ((True, pair) for pair in in_links)


def _packages(
    place: str, sources: Sources, *, is_index: bool, pause: Callable[[float], None]
) -> list[DistributionPackage]:
    """Return what an index or a page or folder of links holds of torch, trying three times over a network."""
    from matrix.environments.index import pages

    folder = local_folder(place)
    if folder is not None:
        return pages.read_folder(folder, is_index=is_index)
    for seconds in (*PAUSES, None):
        try:
            return pages.fetch(place, is_index=is_index, timeout=INDEX_TIMEOUT, certificates=sources.certificates)
        except pages.PageError as error:
            if seconds is None or not error.may_pass:
                raise IndexUnreachableError(without_credentials(place), error.problem) from error
            pause(seconds)
    raise AssertionError("the last try returns or raises")


def _wheel_at(path: Path, listing: Listing) -> Release:
    path = path.expanduser().absolute()
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise UsageError(f"{path} is not named as a wheel is", hint=str(error)) from None
    if name != PROJECT:
        raise UsageError(f"{path} is a wheel of {name}, not of torch")
    if not path.is_file():
        raise UnknownVersionError(f"there is no wheel {path}")
    if listing.python and not any(tag in wheel_tags.ranks(listing.python) for tag in tags):
        raise UnknownVersionError(
            f"the wheel {path.name} does not fit Python {listing.python} on this machine",
            hint="name a Python it was built for with --python",
        )
    size = path.stat().st_size
    return Release(version=str(version), filename=path.name, url=str(path), source=str(path.parent), size=size)


def _exactly(version: Version, listing: Listing) -> Release:
    """Return the release of that very version.

    Without a local part it also means the build's own +cpu or +cu128, but never one of the user's
    find-links: that would be another wheel than the one asked for.
    """
    for known in (listing.releases, listing.aside, listing.yanked):
        for release in known:
            if Version(release.version) == version:
                return release
    if version.local is None:
        for known in (listing.releases, listing.yanked):
            for release in reversed(known):
                if Version(release.version).public == version.public:
                    return release
    raise _unknown(str(version), listing)


def _unknown(spec: str, listing: Listing) -> UnknownVersionError:
    """Return the error that names the nearest versions and where was looked."""
    where = " and ".join(listing.places) or "any place"
    versions = [Version(release.version) for release in listing.releases]
    if not versions:
        return UnknownVersionError(
            f"{where} has no torch that fits Python {listing.python} on this machine",
            hint="another --python or --build may have one",
        )
    if spec.startswith("nightly") and not any(release.date for release in listing.releases):
        return UnknownVersionError(f"{where} has no nightlies", hint="--build nightly-cpu has them")
    try:
        middle = bisect_left(versions, Version(re.sub(r"^\D*", "", spec.split(",")[0])))
    except InvalidVersion:
        middle = len(versions)
    near = [str(version) for version in versions[max(0, middle - 2) : middle + 2]]
    aside = [release.version for release in listing.aside if Version(release.version).public == spec]
    also = f"; your find-links have {' and '.join(aside)}, which is a version of its own" if aside else ""
    return UnknownVersionError(
        f"no torch release is {spec} for Python {listing.python} in {where}",
        hint=f"the nearest are {', '.join(near)}{also}",
    )


def _contains(specifier: SpecifierSet, release: Release) -> bool:
    return specifier.contains(Version(release.version), prereleases=True)


def is_exact_version(spec: str) -> bool:
    """Return whether a spec is one version, such as 2.11.0 or 2.16.0.dev20261120+cpu."""
    try:
        Version(spec)
    except InvalidVersion:
        return False
    return True


def _shown_url(url: str) -> str:
    folder = local_folder(url)
    return str(folder) if folder is not None else without_credentials(url)


def _kept(file: Path) -> Listing | None:
    try:
        if time.time() - file.stat().st_mtime > LISTING_AGE:
            return None
        fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for kind in ("releases", "yanked", "aside"):
            fields[kind] = tuple(Release(**release) for release in fields[kind])
        return Listing(**fields | {"places": tuple(fields["places"])})
    except (OSError, ValueError, TypeError, KeyError):  # gone, cut short, or of another version of the tool
        return None


def _keep(file: Path, listing: Listing) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(asdict(listing)), encoding="utf-8")
    partial.replace(file)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
