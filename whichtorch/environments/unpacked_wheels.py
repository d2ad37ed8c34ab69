"""uv's unpacked wheels, which environments link to.

Layout of the cache of uv 0.13: archive-v0/ID is an unpacked wheel, wheels-v7/…/VERSION-TAG is a symbolic link to it,
with pointer files of the same stem beside it.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name

_POINTERS = (".http", ".rev", ".msgpack", ".whl")  # beside the link to an unpacked wheel


class UnpackedWheel(NamedTuple):
    """A wheel unpacked in uv's cache."""

    path: Path
    name: str
    version: str
    inode: int  # of its METADATA
    links: int  # to it: one here, and one in each environment that has it
    changed: float  # seconds since the epoch

    @property
    def size(self) -> int:
        """Bytes, as its RECORD says."""
        records = self.path.glob("*.dist-info/RECORD")
        return sum(size for record in records for _, _, size in contents(record.read_text(encoding="utf-8")))


def contents(record: str) -> Iterator[tuple[str, str, int]]:
    """Yield path, digest and size of the files that a wheel brought, leaving out what the installer wrote."""
    for row in csv.reader(record.splitlines()):
        path, digest, size = (*row, "", "", "")[:3]
        written = path.startswith("..") or path.endswith((".pyc", "/INSTALLER", "/REQUESTED", "/RECORD"))
        if path and not written and not path.endswith(("direct_url.json", "uv_cache.json")):
            yield path, digest, int(size) if size.isdigit() else 0


def brought(record: Path) -> Iterator[tuple[str, os.stat_result | None, bool]]:
    """Yield each file that a wheel brought: where it is, what it is now, and whether it is there with its size."""
    for path, _, size in contents(record.read_text(encoding="utf-8", errors="replace")):
        file = f"{record.parent.parent}/{path}"
        try:
            found = os.stat(file)  # noqa: PTH116  torch has ten thousand
        except OSError:
            yield file, None, False
        else:
            yield file, found, size in {0, found.st_size}


def damage(site: Path) -> Counter[str]:
    """Return how many files are missing or of another size, by the name and version of the wheel that brought them."""
    count: Counter[str] = Counter()
    for record in site.glob("*.dist-info/RECORD"):
        if damaged := sum(not is_whole for _, _, is_whole in brought(record)):
            count[record.parent.name.removesuffix(".dist-info")] = damaged
    return count


def unpacked(cache: Path) -> Iterator[UnpackedWheel]:
    """Yield the unpacked wheels of uv's cache."""
    for metadata in cache.glob("archive-v*/*/*.dist-info/METADATA"):
        with suppress(OSError):  # another process has just removed it
            name, _, version = metadata.parent.name.removesuffix(".dist-info").rpartition("-")
            path, status = metadata.parent.parent, metadata.stat()
            changed = path.stat().st_mtime
            yield UnpackedWheel(path, canonicalize_name(name), version, status.st_ino, status.st_nlink, changed)


def forget(cache: Path, gone: Container[str] = ()) -> None:
    """Make uv forget the unpacked wheels with the ids in `gone`, and those that are missing.

    uv notices that a wheel from a network index has gone, but not one from a folder: "failed to read directory"
    (measured with 0.13.8).
    """
    for root in (*cache.glob("wheels-v*"), *cache.glob("sdists-v*")):
        for parent, folders, files in os.walk(root):
            for link in (Path(parent, name) for name in (*folders, *files)):  # a broken link counts as a file
                if link.is_symlink() and (link.readlink().name in gone or not link.exists()):
                    for suffix in ("", *_POINTERS):
                        link.with_name(f"{link.name}{suffix}").unlink(missing_ok=True)
            folders[:] = [name for name in folders if name != "src"]  # sources of what uv has built
