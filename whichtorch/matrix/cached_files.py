"""The compiler caches that the runs of a chain share: which there are, who has written them, and which a run has read.

Reads are seen from the access times of the files, so this works with any torch: before a run these times are set far
back, and the kernel updates them when a file is read.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.base.atomic_files import is_regular
from whichtorch.model import Environment, Outcome, Record, Request

if TYPE_CHECKING:
    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.planning import PlannedCell


LONG_AGO = 2 * 86_400 * 10**9  # nanoseconds: a disk mounted with relatime notes reads of what is not read for a day
UNSEEN = "it is not known whether a cache was read: this disk does not record when files are read"
_LOCKS = "locks"
_LINKS = "links"
BEFORE = "before"  # name of the copy of the shared folder as it was before the last run


class CacheRow(NamedTuple):
    """A cache: what people call it, and the variable that switches it off."""

    name: str
    switch: str = ""


CACHES = {  # by folder, in the order in which they are looked up: after a hit in one, the next ones are not read
    "inductor/aotautograd": CacheRow("AOTAutograd's cache", "TORCHINDUCTOR_AUTOGRAD_CACHE=0"),
    "inductor/fxgraph": CacheRow("Inductor's FX graph cache", "TORCHINDUCTOR_FX_GRAPH_CACHE=0"),
    "inductor": CacheRow("Inductor's code cache"),
    "inductor/dynamo": CacheRow("Dynamo's saved profile", "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO=0"),
    "triton": CacheRow("Triton's cache", "TRITON_ALWAYS_COMPILE=1"),
    "extensions": CacheRow("the folder of built extensions"),
}


@dataclass(slots=True)
class CachedReads:
    """The files that were cached before a run, held by hard links, which stay if the run replaces the files."""

    links: list[tuple[str, Path, int]] = field(default_factory=list)  # name of the cache, link, and when it was read
    problem: str = ""  # why it is not known which are read

    @property
    def cached(self) -> Counter[str]:
        """How many files there were, by the name of their cache."""
        return Counter(name for name, _, _ in self.links)

    def read(self) -> Counter[str]:
        """Return how many of them were read, by the name of their cache."""
        return Counter(name for name, link, before in self.links if link.stat().st_atime_ns > before)


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """What the runs of a chain share: a folder for temporary files, with the caches in it. It has copies beside it.

    It keeps its place, because compiled code names files in it.
    """

    place: Path  # of all

    @property
    def shared(self) -> Path:
        """The folder itself."""
        return self.place / "shared"

    @property
    def names(self) -> tuple[str, ...]:
        """What its caches are called, the outermost first."""
        return tuple(row.name for row in CACHES.values())

    def make(self) -> None:
        """Make it, empty."""
        self.shared.mkdir(parents=True)

    def keep(self, copy: str) -> None:
        """Copy it."""
        shutil.rmtree(self.place / copy, ignore_errors=True)
        copy_folder(self.shared, self.place / copy)

    def restore(self, copy: str, emptied: Collection[str] = ()) -> None:
        """Restore the folder from a copy, and empty the named caches."""
        shutil.rmtree(self.shared, ignore_errors=True)
        copy_folder(self.place / copy, self.shared)
        for name, path in self._files():
            if name in emptied:
                path.unlink()

    def clear(self) -> None:
        """Remove all but the copies that are for other chains."""
        for name in (self.shared.name, BEFORE, _LINKS):
            shutil.rmtree(self.place / name, ignore_errors=True)

    def without_headers(self, copy: str) -> None:
        """Remove from a copy the headers that are compiled ahead: 100 MB, and of no use to another release."""
        for folder in (self.place / copy).glob("torchinductor_*/precompiled_headers"):
            shutil.rmtree(folder, ignore_errors=True)

    def watch(self) -> CachedReads:
        """Return what tells, after a run, which of the cached files it has read."""
        links = self.place / _LINKS
        shutil.rmtree(links, ignore_errors=True)
        links.mkdir()
        reads = CachedReads()
        try:
            for number, (name, path) in enumerate(self._files()):
                link = links / str(number)
                os.link(path, link)
                reads.links.append((name, link, _unread(link)))
            probe = links / "probe"
            probe.write_bytes(b"x")
            before = _unread(probe)
            probe.read_bytes()
            reads.problem = "" if probe.stat().st_atime_ns > before else UNSEEN
        except OSError as error:  # a disk without links, or a file of somebody else
            reads.problem = f"{UNSEEN} ({error.strerror})"
        return reads

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Yield the files of the caches, with the name of the cache; no locks, and nothing that is empty."""
        for path in sorted(self.shared.rglob("*")):
            with suppress(OSError):
                parts = path.relative_to(self.shared).parts
                is_lock = _LOCKS in parts or path.suffix == ".lock"
                name = self._cache_of(PurePath(*parts))
                if name and not is_lock and is_regular(path) and path.is_file() and path.stat().st_size:
                    yield name, path

    def _cache_of(self, path: PurePath) -> str:
        """Return the name of the cache that a file belongs to, "" for none."""
        rows = (CACHES.get(str(folder)) for folder in path.parents)  # the nearest first
        return next((row.name for row in rows if row), "")


def _unread(path: Path) -> int:
    """Set the access time of a file far back, and return it."""
    modified = path.stat().st_mtime_ns
    os.utime(path, ns=(modified - LONG_AGO, modified))
    return path.stat().st_atime_ns


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder; raises OSError in one line, although each file may have failed."""
    try:
        shutil.copytree(source, target, symlinks=True, ignore=_irregular)
    except shutil.Error as error:
        _, place, why = error.args[0][0]
        raise OSError(f"{why.partition(': ')[0]}: {place}") from error


def _irregular(folder: str, names: list[str]) -> list[str]:
    """Return which entries of a folder are sockets, pipes and such, that cannot be copied."""
    return [name for name in names if not (is_regular(path := Path(folder, name)) or path.is_symlink())]


_WRITTEN = "written"  # the copy of what the runs share as the first one has left it


@dataclass(slots=True)
class FirstRun:
    """The first run of chains, and what it has left for others."""

    place: SharedFolder
    lock: threading.Lock = field(default_factory=threading.Lock)  # held by the one chain that uses the place
    record: Record | None = None

    def first_run(self, make: Callable[[], Record | None]) -> Record | None:
        """Return the record of the first run, and restore its caches; make the run now if there is no usable record."""
        if self.record is not None and self.record.attempt.outcome not in {Outcome.SLOW, Outcome.ERROR}:
            self.place.restore(_WRITTEN)
            return self.record
        self.place.make()
        self.record = make()
        self.place.keep(_WRITTEN)
        self.place.without_headers(_WRITTEN)
        return self.record


@dataclass(slots=True)
class WrittenCaches:
    """First runs that chains in other environments go on from. Each is made once, and its caches are kept."""

    environments: Environments
    stage: Callable[[str, str], None]  # told the label of an environment, and what is done to it
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _made: dict[tuple[object, ...], FirstRun] = field(default_factory=dict)

    @contextmanager
    def lent(self, writer: Request, planned: PlannedCell, own: SharedFolder) -> Iterator[FirstRun]:
        """Lend the first run of a cell to one chain at a time. It lies beside the `own` folder of the first one."""
        key = writer.key, planned.scenario.source_hash, planned.name
        with self._guard:
            beside = replace(own, place=own.place.with_suffix(".written"))
            written = self._made.setdefault(key, FirstRun(beside))
        with written.lock:
            try:
                yield written
            finally:
                written.place.clear()

    @contextmanager
    def environment(self, request: Request, cancelled: threading.Event | None) -> Iterator[Environment]:
        """Lend the environment of a first run."""
        environment = self.environments.acquire(request, cancelled, partial(self.stage, request.label))
        try:
            yield environment
        finally:
            if environment.is_usable:
                self.environments.release(request)

    def remove(self) -> None:
        """Remove all that was kept."""
        for written in self._made.values():
            shutil.rmtree(written.place.place, ignore_errors=True)
