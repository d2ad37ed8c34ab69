"""The wheels that a search of commits lays Python over: what another commit makes of each.

Which files a build generates, moves or leaves out is written down nowhere, so the files are compared. A file that is
the same in a wheel and in its own commit follows the searched commit; all others stay as they are in the wheel. A
wheel that was not built from its tag has files of another commit, too. The history has their contents, as it has not
those of generated files: they follow the searched commit as well.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.grouping import counted
from whichtorch.base.version_parsing import parse_version
from whichtorch.bisect.axes import package_releases
from whichtorch.bisect.axes.packages import base_request
from whichtorch.environments.index.releases import EVERY_RELEASE, find
from whichtorch.environments.patches import PatchedFiles, listed, sort_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from whichtorch.bisect.axes.git import Checkout
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model import Request

_VERSION = re.compile(r"\d.*")
ALIKE = 0.9  # of the files that both have, at least: else the checkout is that of something else
_FILE = ("100644", "100755")  # modes in git: no link, no submodule


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelTree:
    """The files of a wheel that are those of a commit, by their paths in the checkout."""

    checkout: Checkout
    commit: str
    prefixes: Mapping[str, str]  # by package or module of the wheel: the folder that it is in, such as "src/"
    anchors: Mapping[str, str]  # likewise: the file of it that a folder is known by
    moved: set[tuple[str, str]]  # packages or modules that other commits have in other folders, and these
    own: frozenset[str]
    astray: Mapping[str, str]  # those of `own` that come from another commit: the blobs that its own has
    generated: tuple[str, ...]  # Python files that its commit does not have, or not so: they stay
    left_out: frozenset[str]  # files of the packages that the commit has and the wheel has not

    @classmethod
    def read(cls, checkout: Checkout, commit: str, site: Path, distribution: str) -> WheelTree:
        """Compare an installed wheel with its commit. Raises PreventedError for a checkout of something else."""
        blobs = _tree(checkout, commit)
        names = _listed_files(site, distribution)
        anchors = _anchors(names)
        prefixes = {top: prefix for top, first in anchors.items() if (prefix := _prefix(first, blobs)) is not None}
        paths = {name: prefixes[top] + name for name in names if (top := name.partition("/")[0]) in prefixes}
        shared = {name: path for name, path in paths.items() if path in blobs}
        given = "".join(f"{site / name}\n" for name in shared)
        hashes = checkout.read("hash-object", "--no-filters", "--stdin-paths", given=given).split() if given else []
        made = dict(zip(shared.values(), hashes, strict=True))
        own = frozenset(path for path, blob in made.items() if blobs[path] == blob)
        if len(own) < ALIKE * max(1, len(shared)):
            alike = f"{len(own)} of {counted(len(shared), 'file')} are alike"
            what = alike if shared else "it has none of its files"
            raise PreventedError(
                f"{checkout.folder} is no checkout of the installed {distribution}: at {commit[:10]} {what}",
                hint="--package says what it is a checkout of; without it, that is torch",
            )
        others = [path for path in made if path not in own]
        known = checkout.has([made[path] for path in others])
        astray = {path: blobs[path] for path, is_known in zip(others, known, strict=True) if is_known}
        own |= astray.keys()
        return cls(
            checkout=checkout,
            commit=commit,
            prefixes=prefixes,
            anchors={top: anchors[top] for top in prefixes},
            moved=set(),
            own=own,
            astray=astray,
            generated=tuple(name for name in paths if name.endswith(".py") and paths[name] not in own),
            left_out=frozenset(_inside(blobs, prefixes)).difference(paths.values()),
        )

    def name(self, path: str) -> str | None:
        """Return what a file of any commit is called in the wheel; None for what the wheel would not have.

        A new file is there where the files beside it are, or those of the next folder above.
        """
        if place := self.place(path):
            path = self.prefixes[place.partition("/")[0]] + place
        if path in self.own:
            return self.place(path)
        if path in self.left_out or self.place(path) in self.generated:
            return None
        return self.place(path) if self._is_carried(PurePosixPath(path)) else None

    def changed(self, commit: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the files that a commit has in another way, by their names in the wheel, and what else differs.

        Their blobs are "" for what is gone.
        """
        self.follow(commit)
        told = self.checkout.read("diff-tree", "-r", "--raw", "--no-renames", "--no-abbrev", "-z", self.commit, commit)
        parts = told.split("\0")
        carried = {name: blob for path, blob in self.astray.items() if (name := self.place(path))}
        others = []
        changes = zip(parts[::2], parts[1::2], strict=False)
        for head, path in sorted(changes, key=lambda each: not each[0].endswith("D")):  # what has moved is gone first
            _, mode, _, blob, _ = head.split()
            name = self.name(path)
            if name is not None and (mode in _FILE or not int(mode, 8)):
                carried[name] = blob if int(mode, 8) else ""
            else:
                others.append(path)
        return carried, tuple(others)

    def follow(self, commit: str) -> None:
        """Take in the folders that packages have moved to, or from, at another commit."""
        blobs = _tree(self.checkout, commit)
        for top, first in self.anchors.items():
            if self.prefixes[top] + first not in blobs and (prefix := _prefix(first, blobs)) is not None:
                self.moved.add((top, prefix))

    def files(self, commit: str) -> PatchedFiles:
        """Return what a commit makes of the wheel."""
        carried, others = self.changed(commit)
        texts = iter(self.checkout.texts([blob for blob in carried.values() if blob]))
        files = {name: next(texts) if blob else None for name, blob in carried.items()}
        native = native_among(others)
        note = f"{counted(len(files), 'file')} of {commit[:10]}, over the wheel of {self.commit[:10]}"
        note += f"; as in the wheel: {listed(self.generated)}" if self.generated else ""
        note += (
            f"; files of that wheel that come from another commit than its tag: {listed(list(self.astray))}"
            if self.astray
            else ""
        )
        note += f"; native files that differ: {listed(native)}" if native else ""
        return PatchedFiles(files, note)

    def place(self, path: str) -> str | None:
        """Return where a file would be in site-packages; None for one outside the packages."""
        for package, prefix in (*self.prefixes.items(), *self.moved):
            if path.startswith(f"{prefix}{package}/") or path == f"{prefix}{package}":
                return path.removeprefix(prefix)
        return None

    def _is_carried(self, new: PurePosixPath) -> bool:
        """Return whether the wheel has such files as are beside a new one."""
        for folder in map(str, new.parents):
            for files in (self.own, self.left_out) if self.place(f"{folder}/") is not None else ():
                if any(path.startswith(f"{folder}/") and path.endswith(new.suffix) for path in files):
                    return files is self.own
        return False


def native_among(paths: Iterable[str]) -> list[str]:
    """Return the files that a build compiles; `setup.py` alone changes with each release."""
    return [path for path in paths if sort_of(path) == "compiled" and path != "setup.py"]


def _tree(checkout: Checkout, commit: str) -> dict[str, str]:
    """Return the blobs of a commit's files, by path."""
    rows = (line.split("\t", 1) for line in filter(None, checkout.read("ls-tree", "-r", "-z", commit).split("\0")))
    return {path: head.split()[2] for head, path in rows if head.startswith(_FILE)}


def _inside(paths: Iterable[str], prefixes: Mapping[str, str]) -> list[str]:
    folders = tuple(f"{prefix}{package}/" for package, prefix in prefixes.items())
    return [path for path in paths if path.startswith(folders)]


def _anchors(names: Iterable[str]) -> dict[str, str]:
    """Return a file of each package or module of a wheel: its outermost `__init__.py`, else its outermost module."""
    ordered = sorted(names, key=lambda name: (name.endswith("/__init__.py"), -name.count("/"), name))
    return {name.partition("/")[0]: name for name in ordered if name.endswith(".py")}


def _prefix(first: str, paths: Iterable[str]) -> str | None:
    """Return the folder that a package with this file is in; the outermost one where several have such a file."""
    found = [path.removesuffix(first) for path in paths if path == first or path.endswith(f"/{first}")]
    return min(found, key=len, default=None)


def _listed_files(site: Path, distribution: str) -> list[str]:
    """Return the files that an installed wheel has brought. Raises PreventedError where it is not there."""
    for record in site.glob("*.dist-info/RECORD"):
        if canonicalize_name(record.parent.name.partition("-")[0]) == canonicalize_name(distribution):
            with record.open(encoding="utf-8", newline="") as file:
                names = [row[0] for row in csv.reader(file) if row]
            return [name for name in names if not name.startswith(("..", "/")) and not name.endswith(".pyc")]
    raise PreventedError(f"{site} has no installed wheel of {distribution}")


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

    def is_astray(self, wheel: Request) -> bool:
        """Return whether an installed release is known to have files of another commit than its tag."""
        tree = self._trees.get(wheel.install_key)
        return bool(tree and tree.astray)

    def files(self, request: Request, site: Path) -> PatchedFiles:
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
