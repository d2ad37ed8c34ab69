"""Keep the wheels of nightlies: their index drops them after some weeks, while a search may need them later.

For a build of nightlies from a network index, every wheel that only this index has (torch itself, and what was built
with it) is fetched once into wheels/<build> of the state folder, and installed from there.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock, Timeout
from packaging.version import Version

from matrix.environments.commander import Commander, InstallError, condensed
from matrix.environments.index.builds import kept_folder
from matrix.environments.index.releases import best_fit
from matrix.environments.resolution import index_pins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.model import Build

ORDER = "WHICHTORCH_FETCH"  # variable that holds a FetchOrder as JSON: no argument shows an index's credentials
ROOT = str(Path(__file__).resolve().parents[2])  # the folder that holds the package `matrix`
PROGRAM = f"import sys; sys.path.insert(0, {ROOT!r}); from matrix.environments.kept_wheels import main; main()"
PARTIAL = ".part-"  # begins the name of what is not whole yet


class FetchOrder(NamedTuple):
    """What the program `main` is to fetch."""

    index_url: str
    wanted: dict[str, str]  # versions by project
    python: str
    folder: str  # to put the wheels into
    certificates: str | None


def kept_wheel(folder: Path, project: str, version: str, python: str) -> Path | None:
    """Return the kept wheel of a version that fits a Python best, None where there is none."""
    filenames = sorted(path.name for path in folder.glob(f"{project.replace('-', '_')}-*.whl"))
    best = best_fit(filenames, project, version, python)
    return folder / best if best else None


def keep(lock: str, build: Build, python: str, commander: Commander) -> str:
    """Return a lock that installs what may vanish from kept wheels, having fetched those that are missing.

    Raises InstallError where a wheel cannot be fetched; what another index has is left to uv.
    """
    folder = kept_folder(commander.settings.home, build)
    if folder is None:
        return lock
    fleeting = {name: version for name, version in index_pins(lock).items() if _is_fleeting(version)}
    missing = {name: version for name, version in fleeting.items() if not kept_wheel(folder, name, version, python)}
    if missing:
        assert build.index_url is not None
        certificates = commander.settings.sources.certificates
        _fetch(FetchOrder(build.index_url, missing, python, str(folder), certificates), commander)
    wheels = {name: kept_wheel(folder, name, version, python) for name, version in fleeting.items()}
    lines = []
    for line in lock.splitlines():
        name = next(iter(index_pins(line)), "")
        lines.append(f"{name} @ {wheel.as_uri()}" if (wheel := wheels.get(name)) else line)
    return "\n".join(lines) + "\n"


def _is_fleeting(version: str) -> bool:
    """Return whether a version is a nightly's, or built with one: 3.6.0+git1234567 of triton."""
    parsed = Version(version)
    return parsed.is_devrelease or parsed.local is not None


def _fetch(order: FetchOrder, commander: Commander) -> None:
    """Run `main` in a process of its own: it can be ended at once, wherever it waits."""
    commander.stage("downloading")
    log = commander.logs / "download.log"
    env = os.environ | {ORDER: json.dumps(order._asdict())}
    ending = commander.run((sys.executable, "-I", "-c", PROGRAM), env=env, log=log, what="downloading")
    if ending.exit_code != 0:
        raise InstallError(f"downloading failed: {condensed(log, ending)}", log)


def main() -> None:
    """Fetch what the variable orders; exit with 1 and a line where that fails."""
    from matrix.environments.index import pages  # here: it imports requests

    order = FetchOrder(**json.loads(os.environ.pop(ORDER)))
    folder = Path(order.folder)
    folder.mkdir(parents=True, exist_ok=True)
    remove_left_over(folder)
    for project, version in order.wanted.items():
        try:
            pages.retried(functools.partial(_fetch_wheel, order, project, version))
        except pages.PageError as error:
            sys.exit(f"error: {project} {version}: {error.problem}")


def _fetch_wheel(order: FetchOrder, project: str, version: str) -> None:
    """Fetch the best wheel of a version, if the index has one. Raises PageError."""
    from matrix.environments.index import pages

    listed = pages.fetch(order.index_url, is_index=True, certificates=order.certificates, project=project)
    filename = best_fit((package.filename for package in listed), project, version, order.python)
    if filename is not None:
        package = next(package for package in listed if package.filename == filename)
        with partial(Path(order.folder), filename) as path:
            pages.download(package, path, order.index_url, order.certificates)
            path.replace(path.with_name(filename))


@contextmanager
def partial(folder: Path, filename: str) -> Iterator[Path]:
    """Give a name for a file until it is whole, locked while this process lives; remove what is left in the end."""
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
