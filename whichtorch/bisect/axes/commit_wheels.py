"""The wheels that a search of commits lays Python over: each with the commit that it was built from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from whichtorch.base.errors import UsageError
from whichtorch.base.version_parsing import parse_version
from whichtorch.bisect.axes import package_releases
from whichtorch.bisect.axes.commit_tree import WheelTree, native_among
from whichtorch.bisect.axes.packages import base_request
from whichtorch.environments.index.version_specs import EVERY_RELEASE, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from whichtorch.bisect.axes.git import Checkout
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.environments.laid_commits import LaidFiles
    from whichtorch.model import Request

_VERSION = re.compile(r"\d.*")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A release whose commit the checkout has."""

    version: str
    commit: str
    request: Request = field(compare=False)


@dataclass(kw_only=True)
class Wheels:
    """The releases of what is searched, as far as the checkout has their tags."""

    checkout: Checkout
    package: str
    tagged: Mapping[str, str]  # commits by version
    request_of: Callable[[str], Request]
    _chosen: dict[str, str] = field(default_factory=dict)  # commits by install key
    _trees: dict[str, WheelTree] = field(default_factory=dict)  # likewise

    @classmethod
    def of(cls, request: SearchRequest, checkout: Checkout, cache: EnvironmentCache) -> Wheels:
        """Return the releases of torch, or of the package that a request names. Raises UsageError for none."""
        if request.package:
            axis, _ = package_releases.releases_of(request, cache, least=1)
            axis = replace(axis, is_override=True)
            package, released = axis.package, dict(zip(axis.values, range(len(axis.values)), strict=True))

            def request_of(version: str) -> Request:
                return axis.request(released[version])

        else:
            base = base_request(request)
            package = "torch"
            released = dict.fromkeys(find(EVERY_RELEASE, base.build, base.python, request.home / "cache")[0], 0)

            def request_of(version: str) -> Request:
                return base_request(request, version)

        tags = _tags(checkout)
        tagged = {each: commit for each in released if (commit := tags.get(Version(Version(each).public)))}
        if not tagged:
            hint = "`git fetch --tags` brings the tags; --package says what else than torch it is a checkout of"
            raise UsageError(f"{checkout.folder} has no tag of a release of {package} that has a wheel", hint=hint)
        return cls(checkout=checkout, package=package, tagged=tagged, request_of=request_of)

    def nearest(self, commit: str) -> Wheel:
        """Return the release whose tree differs least from a commit's: in native files, else in all."""
        exact = [version for version, tagged in self.tagged.items() if tagged == commit]
        version = min(exact or self.tagged, key=lambda each: self.distance(self.tagged[each], commit))
        request = self.request_of(version)
        self._chosen[request.install_key] = self.tagged[version]
        return Wheel(version, self.tagged[version], request)

    def distance(self, commit: str, other: str) -> tuple[int, int]:
        """Return in how many native files two commits differ, and in how many of all."""
        if commit == other:
            return 0, 0
        changed = self.checkout.changes([commit, other])[1]
        return len(native_among(changed)), len(changed)

    def tree(self, wheel: Request, site: Path) -> WheelTree:
        """Return what the files of an installed release are in the checkout."""
        key = wheel.install_key
        if key not in self._trees:
            self._trees[key] = WheelTree.read(self.checkout, self._chosen[key], site, self.package)
        return self._trees[key]

    def files(self, request: Request, site: Path) -> LaidFiles:
        """Return what a request's commit makes of its wheel."""
        return self.tree(request.unlaid, site).files(request.commit)


def _tags(checkout: Checkout) -> dict[Version, str]:
    """Return the commits of the tags that are versions, such as v2.11.0 and sympy-1.13.3."""
    told = checkout.git("for-each-ref", "--format=%(objectname) %(*objectname) %(refname:short)", "refs/tags")
    found: dict[Version, str] = {}
    for line in told.splitlines():
        commits, _, tag = line.rpartition(" ")
        match = _VERSION.search(tag)
        if match and (version := parse_version(match[0])):
            found[version] = commits.split()[-1]
    return found
