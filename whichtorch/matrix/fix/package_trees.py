"""Two environments -> the Python files of torch that differ between them, read whole."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.environments.overlay import read_source
from whichtorch.matrix.errors import PreventedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PACKAGES = ("torch", "torchgen", "functorch")  # that a wheel of torch installs


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTree:
    """The Python files that an installed wheel of torch brought, by their paths in its site-packages."""

    root: Path  # site-packages
    digests: Mapping[str, str]  # path -> the content's digest, as RECORD has it

    def text(self, path: str) -> str | None:
        """Return a file's exact text, line ends and all; None for a file that is not the wheel's."""
        return read_source(self.root / path) if path in self.digests else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePair:
    """A file that differs: its text in the bad and in the good release."""

    path: str
    bad: str | None  # None where it is not there
    good: str | None


def package_tree(root: Path) -> PackageTree:
    """Read what the wheel of torch in `root` lists. Raises PreventedError where it lists nothing."""
    records = sorted(root.glob("torch-*.dist-info/RECORD"))
    if not records:
        raise PreventedError(f"{root} has no RECORD of an installed wheel of torch")
    rows = csv.reader(io.StringIO(records[0].read_text(encoding="utf-8"), newline=""))
    listed = {row[0]: row[1] for row in rows if len(row) > 1 and _is_ours(row[0])}
    return PackageTree(root=root, digests={path: value or _digest(root / path) for path, value in listed.items()})


def differing(bad: PackageTree, good: PackageTree) -> dict[str, FilePair]:
    """Return the files that differ, by path, in the order of their paths."""
    paths = sorted(bad.digests.keys() | good.digests.keys())
    return {
        path: FilePair(path=path, bad=bad.text(path), good=good.text(path))
        for path in paths
        if bad.digests.get(path) != good.digests.get(path)
    }


def _is_ours(path: str) -> bool:
    return path.endswith(".py") and path.partition("/")[0] in PACKAGES


def _digest(file: Path) -> str:
    """Return a file's digest in RECORD's form, for what is listed without one."""
    value = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
    return "sha256=" + value.decode().rstrip("=")
