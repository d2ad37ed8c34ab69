"""Keep the wheels of nightlies: their index drops them after some weeks, and a search may go on later than that.

Of a build of nightlies from an index over the network, every wheel that only this index has (torch itself, and what
was built with it) is fetched once, into wheels/<build> of the state folder, and installed from there, whatever the
index does meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from matrix.environments.commander import Commander, InstallError, condensed
from matrix.environments.index.builds import kept_folder
from matrix.environments.index.wheel_tags import fit
from matrix.environments.resolution import pins

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from matrix.model import Build

ASKED = "WHICHTORCH_FETCH"  # variable that tells `fetch` what to do: no argument shows an index's credentials
ROOT = str(Path(__file__).resolve().parents[2])  # the folder that holds the package `matrix`
PROGRAM = f"import sys; sys.path.insert(0, {ROOT!r}); from matrix.environments.index.fetch import main; main()"


def kept_wheel(folder: Path, project: str, version: str, python: str) -> Path | None:
    """Return the kept wheel of a version that fits a Python best, None where there is none."""
    fitting = []
    for path in folder.glob(f"{project.replace('-', '_')}-*.whl"):
        found = fit(path.name, project, python)
        if found is not None and found[0] == Version(version):
            fitting.append((found[1], path))
    return min(fitting)[1] if fitting else None


def keep(
    lock: str,
    build: Build,
    python: str,
    logs: Path,
    commander: Commander,
    cancelled: threading.Event | None,
    stage: Callable[[str], None],
) -> str:
    """Return a lock that installs what may vanish from kept wheels, having fetched those that are missing.

    Raises InstallError where one cannot be fetched; what another index has is left to uv.
    """
    folder = kept_folder(commander.home, build)
    if folder is None:
        return lock
    fleeting = {name: version for name, version in pins(lock).items() if _is_fleeting(version)}
    missing = {name: version for name, version in fleeting.items() if not kept_wheel(folder, name, version, python)}
    if missing:
        stage("downloading")
        _fetch(missing, build, python, folder, logs, commander, cancelled)
    wheels = {name: kept_wheel(folder, name, version, python) for name, version in fleeting.items()}
    lines = []
    for line in lock.splitlines():
        wheel = next((wheels.get(name) for name in pins(line)), None)
        lines.append(line if wheel is None else f"{next(iter(pins(line)))} @ {wheel.as_uri()}")
    return "\n".join(lines) + "\n"


def _is_fleeting(version: str) -> bool:
    """Return whether a version is a nightly's, or built with one: 3.6.0+git1234567 of triton."""
    parsed = Version(version)
    return parsed.is_devrelease or parsed.local is not None


def _fetch(
    wanted: dict[str, str],
    build: Build,
    python: str,
    folder: Path,
    logs: Path,
    commander: Commander,
    cancelled: threading.Event | None,
) -> None:
    """Run `fetch` in a process of its own: it can be ended at once, wherever it waits."""
    certificates = commander.sources.certificates
    asked = {
        "index": build.index_url,
        "wanted": wanted,
        "python": python,
        "folder": str(folder),
        "certificates": certificates,
    }
    ending = commander.run(
        (sys.executable, "-I", "-c", PROGRAM),
        env=os.environ | {ASKED: json.dumps(asked)},
        log=logs / "download.log",
        what="downloading",
        cancelled=cancelled,
    )
    if ending.exit_code != 0:
        raise InstallError(f"downloading failed: {condensed(logs / 'download.log', ending)}", logs / "download.log")
