"""Fetch wheels from an index into a folder. A program of its own, run by `kept_wheels`."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import requests
from filelock import FileLock, Timeout
from pypi_simple import DigestMismatchError, PyPISimple

from matrix.environments.index import pages
from matrix.environments.index.releases import best_fit
from matrix.environments.kept_wheels import ORDER, FetchOrder

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTIAL = ".part-"  # begins the name of what is not whole yet


def main() -> None:
    """Fetch what the variable orders; exit with 1 and a line where that fails."""
    order = FetchOrder(**json.loads(os.environ.pop(ORDER)))
    folder = Path(order.folder)
    folder.mkdir(parents=True, exist_ok=True)
    remove_left_over(folder)
    for project, version in order.wanted.items():
        try:
            pages.retried(lambda project=project, version=version: fetch(order, project, version))  # type: ignore[misc]
        except pages.PageError as error:
            sys.exit(f"error: {project} {version}: {error.problem}")


def fetch(order: FetchOrder, project: str, version: str) -> None:
    """Fetch the wheel of a version that fits best; one that the index does not have is left out. Raises PageError."""
    listed = pages.fetch(order.index, is_index=True, certificates=order.certificates, project=project)
    packages = {package.filename: package for package in reversed(listed)}
    filename = best_fit((package.filename for package in listed), project, version, order.python)
    if filename is None:
        return
    package, folder = packages[filename], Path(order.folder)
    with pages.session_of(order.certificates) as session, partial(folder, filename) as path:
        client = PyPISimple(order.index, session=session)
        try:
            # an index need not publish digests; the length is checked in any case
            client.download_package(package, path, verify=bool(package.digests), timeout=pages.INDEX_TIMEOUT)
        except requests.RequestException as error:
            raise pages.page_error(error) from error
        except DigestMismatchError as error:
            raise pages.PageError("its digest is not the one that the index names", may_pass=False) from error
        path.replace(folder / filename)


@contextmanager
def partial(folder: Path, filename: str) -> Iterator[Path]:
    """Give a name for a file until it is whole, locked for as long as this process lives; remove it in the end."""
    path = folder / f"{PARTIAL}{os.getpid()}-{filename}"
    with FileLock(lock_of(path)):
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
            lock_of(path).unlink(missing_ok=True)


def lock_of(path: Path) -> Path:
    """Return the file whose lock says that a process still writes a partial file."""
    return path.with_name(f"{path.name}.lock")


def remove_left_over(folder: Path) -> None:
    """Remove what fetches that were killed have left half-way."""
    for lock in folder.glob(f"{PARTIAL}*.lock"):
        with suppress(OSError, Timeout), FileLock(lock, timeout=0):  # Timeout: its process lives
            lock.with_suffix("").unlink(missing_ok=True)
            lock.unlink()
