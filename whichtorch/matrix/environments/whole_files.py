"""Files and folders that are there whole or not at all, uv's unpacked wheels among them.

Layout of the cache of uv 0.13: archive-v0/ID is an unpacked wheel, which environments link to;
wheels-v7/…/VERSION-TAG is a symbolic link to it, with pointer files of the same stem beside it.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from packaging.utils import canonicalize_name
from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

Form = TypeVar("Form")
_POINTERS = (".http", ".rev", ".msgpack", ".whl")  # beside the link to an unpacked wheel


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file under a hidden name, then rename it, so that no reader sees a half."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}")
    partial.write_bytes(content.encode() if isinstance(content, str) else content)
    partial.replace(file)


def read_whole(file: Path, form: type[Form], age: float = math.inf) -> Form | None:
    """Return what a file holds as JSON; None where it is missing, cut short, or of another version of the tool.

    It is not believed either where it was written more than `age` seconds ago.
    """
    try:
        if time.time() - file.stat().st_mtime > age:
            return None
        return TypeAdapter(form).validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def remove_tree(path: Path) -> None:
    """Remove a folder. It is moved aside first, so that a killed removal leaves no half of it."""
    if path.exists() or path.is_symlink():
        aside = path.with_name(f".removed-{path.name}-{os.getpid()}-{time.monotonic_ns()}")
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


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
        record = next(self.path.glob("*.dist-info/RECORD"), None)
        if record is None:
            return 0
        with record.open(newline="", encoding="utf-8") as file:
            return sum(int(row[2]) for row in csv.reader(file) if len(row) > 2 and row[2].isdigit())


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
