"""Fetch wheels from an index into a folder. A program of its own, run by `wheels`."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import requests
from packaging.version import Version
from pypi_simple import DigestMismatchError, PyPISimple

from matrix.environments.index import pages
from matrix.environments.index.releases import INDEX_TIMEOUT, PAUSES
from matrix.environments.index.wheel_tags import fit
from matrix.environments.kept_wheels import ASKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pypi_simple import DistributionPackage

PARTIAL = ".part-"  # begins the name of what is not whole yet


def main() -> None:
    """Fetch what the variable asks for; exit with 1 and a line where that fails."""
    asked = json.loads(os.environ.pop(ASKED))
    folder = Path(asked["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    remove_left_over(folder)
    for project, version in asked["wanted"].items():
        try:
            again(lambda project=project, version=version: fetch(asked, project, version, folder))  # type: ignore[misc]
        except pages.PageError as error:
            sys.exit(f"error: {project} {version}: {error.problem}")


def again(attempt: Callable[[], None], pause: Callable[[float], None] = time.sleep) -> None:
    """Try something up to three times, as long as another try may help. Raises PageError."""
    for seconds in (*PAUSES, None):
        try:
            attempt()
        except pages.PageError as error:
            if seconds is None or not error.may_pass:
                raise
            pause(seconds)
        else:
            return


def fetch(asked: dict[str, str], project: str, version: str, folder: Path) -> None:
    """Fetch the wheel of a version that fits best; one that the index does not have is left out. Raises PageError."""
    found = pages.fetch(
        asked["index"], is_index=True, timeout=INDEX_TIMEOUT, certificates=asked["certificates"], project=project
    )
    package = best_of(found, project, version, asked["python"])
    if package is None:
        return
    with requests.Session() as session, partial(folder, package.filename) as path:
        if asked["certificates"] and Path(asked["certificates"]).exists():
            session.verify = asked["certificates"]
        client = PyPISimple(asked["index"], session=session)
        try:
            # an index need not publish digests; the length is checked in any case
            client.download_package(package, path, verify=bool(package.digests), timeout=INDEX_TIMEOUT)
        except requests.RequestException as error:
            raise pages.page_error(error) from error
        except DigestMismatchError as error:
            raise pages.PageError("its digest is not the one that the index names", may_pass=False) from error
        path.replace(folder / package.filename)


def best_of(packages: list[DistributionPackage], project: str, version: str, python: str) -> DistributionPackage | None:
    """Return the wheel of a version that fits a Python best, None where there is none."""
    fitting = [(fit(package.filename, project, python), package) for package in packages]
    same = [(found[1], package) for found, package in fitting if found is not None and found[0] == Version(version)]
    return min(same, key=lambda pair: pair[0])[1] if same else None


@contextmanager
def partial(folder: Path, filename: str) -> Iterator[Path]:
    """Give a name for a file until it is whole, locked for as long as this process lives; remove it in the end."""
    path = folder / f"{PARTIAL}{os.getpid()}-{filename}"
    with lock_of(path).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
            lock_of(path).unlink(missing_ok=True)


def lock_of(path: Path) -> Path:
    """Return the file whose lock says that somebody still writes a partial one."""
    return path.with_name(f"{path.name}.lock")


def remove_left_over(folder: Path) -> None:
    """Remove what fetches that were killed have left half-way."""
    for lock in folder.glob(f"{PARTIAL}*.lock"):
        with suppress(OSError), lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where its process lives
            lock.with_suffix("").unlink(missing_ok=True)
            lock.unlink()
