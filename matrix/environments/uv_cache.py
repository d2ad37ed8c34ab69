"""What lies in uv's cache: wheels unpacked once, and linked from there into environments.

Layout of uv 0.13: archive-v0/ID is an unpacked wheel; wheels-v7/…/VERSION-TAG is a symbolic link to it,
with pointer files of the same stem beside it.
"""

from __future__ import annotations

import csv
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_POINTERS = (".http", ".rev", ".msgpack", ".whl")  # beside the link to an unpacked wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedWheel:
    """A wheel unpacked in the cache."""

    path: Path
    name: str
    version: str
    inode: int  # of its METADATA
    links: int  # to it: one here, and one in each environment that has it
    changed: float  # seconds since the epoch

    @property
    def size(self) -> int:
        """Bytes, as its RECORD says."""
        record = next(self.path.glob("*.dist-info/RECORD"), None)
        if record is None:
            return 0
        with record.open(newline="", encoding="utf-8") as file:
            return sum(int(row[2]) for row in csv.reader(file) if len(row) > 2 and row[2].isdigit())


def unpacked(cache: Path) -> Iterator[UnpackedWheel]:
    """Yield the unpacked wheels."""
    for metadata in cache.glob("archive-v*/*/*.dist-info/METADATA"):
        with suppress(OSError):  # another process has just removed it
            name, _, version = metadata.parent.name.removesuffix(".dist-info").rpartition("-")
            status = metadata.stat()
            yield UnpackedWheel(
                path=metadata.parent.parent,
                name=canonicalize_name(name),
                version=version,
                inode=status.st_ino,
                links=status.st_nlink,
                changed=metadata.parent.parent.stat().st_mtime,
            )


def forget(cache: Path, gone: Container[str] = ()) -> None:
    """Make uv forget the unpacked wheels with the ids in `gone`, and those that are missing.

    uv notices that a wheel from a network index has gone, but not one from a folder: "failed to read directory"
    (measured with 0.13.8).
    """
    for kind in ("wheels-v*", "sdists-v*"):
        for root in cache.glob(kind):
            for parent, folders, files in os.walk(root):
                folder = Path(parent)
                for name in (*folders, *files):  # a link that leads nowhere counts as a file
                    link = folder / name
                    if link.is_symlink() and (link.readlink().name in gone or not link.exists()):
                        for suffix in ("", *_POINTERS):
                            (folder / f"{name}{suffix}").unlink(missing_ok=True)
                folders[:] = [name for name in folders if name != "src"]  # sources of what uv has built


def partial_downloads(cache: Path) -> list[Path]:
    """Return what uv was unpacking when it was killed, or is unpacking now."""
    return list(cache.glob(".tmp*"))
