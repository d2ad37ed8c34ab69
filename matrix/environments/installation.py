"""Make an environment from its lock, and say what is really there."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from matrix.environments.commander import CancelledError, Commander, InstallError
from matrix.environments.resolution import is_same_version, locked_versions
from matrix.environments.uv_cache import forget

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from matrix.model import Build, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A distribution found in an environment."""

    name: str
    version: str
    size: int  # bytes, as its RECORD says
    inode: int  # of a file shared with uv's cache and with other environments: the same package there
    digest: str  # of the contents that RECORD names: two wheels of one version may differ
    requires: tuple[str, ...] = ()  # as its metadata says, markers and all

    @property
    def kept(self) -> dict[str, str | int]:
        """What makes it up again, but for what it requires."""
        return {name: value for name, value in asdict(self).items() if name != "requires"}


def create(
    venv: Path,
    lock: Path,
    interpreter: Path,
    build: Build,
    logs: Path,
    commander: Commander,
    cancelled: threading.Event | None,
) -> None:
    """Create `venv` with exactly what `lock` pins. Raises InstallError.

    Bytecode is not compiled here: 5,500 files cost 5.6 s on two cores, while the probe's import writes
    what every cell needs (import torch 1.9 s before, 0.9 s after) for 0.1 s.
    """
    commander.uv(
        *("venv", str(venv), "--python", str(interpreter), "--no-project", "--clear", "--quiet"),
        log=logs / "venv.log",
        what="creating the environment",
        cancelled=cancelled,
    )
    try:
        _sync(venv, lock, build, logs, commander, cancelled)
    except CancelledError:
        raise
    except InstallError as error:
        # another process has evicted a wheel that uv was about to link
        if "archive-v" not in error.reason:
            raise
        forget(commander.home / "cache" / "uv")
        _sync(venv, lock, build, logs, commander, cancelled)


def _sync(
    venv: Path,
    lock: Path,
    build: Build,
    logs: Path,
    commander: Commander,
    cancelled: threading.Event | None,
) -> None:
    backend = ("--torch-backend", build.backend) if build.backend else ()
    commander.uv(
        *("pip", "sync", str(lock), "--python", str(python_of(venv)), "--quiet"),
        *backend,
        log=logs / "install.log",
        what="installing",
        cancelled=cancelled,
        build=build,
    )


def install_beside(
    folder: Path,
    requirements: tuple[str, ...],
    interpreter: Path,
    logs: Path,
    commander: Commander,
    cancelled: threading.Event | None,
) -> None:
    """Install a config's side requirements into a folder of their own, outside any environment."""
    commander.uv(
        *("pip", "install", "--prefix", str(folder), "--python", str(interpreter), "--quiet"),
        *requirements,
        log=logs / "beside.log",
        what=f"installing {' '.join(requirements)} beside it",
        cancelled=cancelled,
    )


def check_installed(request: Request, packages: list[Package], lock: str, logs: Path) -> None:
    """Raise InstallError where what is there is not what was asked for: never a silent substitute."""
    there = {package.name: package.version for package in packages}
    found = there.get("torch")
    if found is None:
        raise InstallError("torch is not there after the install", logs / "install.log")
    if not is_same_version(request.torch, found) and not is_same_version(locked_versions(lock)["torch"], found):
        raise InstallError(f"asked for torch {request.torch}, but {found} was installed", logs / "install.log")
    for name, version in locked_versions(lock).items():
        if name in there and not is_same_version(version, there[name]):
            raise InstallError(f"{name} {version} was locked, but {there[name]} installed", logs / "install.log")


def python_of(venv: Path) -> Path:
    """Return the interpreter of an environment."""
    return venv / "bin" / "python"


def python_version_of(venv: Path) -> str:
    """Return the full version that an environment's pyvenv.cfg names, without starting it."""
    for line in (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() in {"version_info", "version"}:
            return ".".join(value.strip().split(".")[:3])
    return ""


def site_packages(prefix: Path) -> list[str]:
    """Return the folders below a prefix that packages are installed into."""
    return [str(path) for path in sorted(prefix.glob("lib*/python*/site-packages")) if not path.parent.is_symlink()]


def installed_packages(prefix: Path) -> list[Package]:
    """Return what is really there, read without starting the interpreter, sorted by name."""
    folders = list(dict.fromkeys(str(Path(folder).resolve()) for folder in site_packages(prefix)))
    found = [_package(distribution) for distribution in metadata.distributions(path=folders)]
    return sorted(found, key=lambda package: package.name)


def _package(distribution: metadata.Distribution) -> Package:
    rows = sorted(_contents(distribution.read_text("RECORD") or ""))
    size = sum(int(row[2]) for row in rows if row[2].isdigit())
    contents = hashlib.sha256("\n".join(f"{path} {digest}" for path, digest, _ in rows).encode()).hexdigest()
    # METADATA is a hard link into uv's cache; RECORD, which uv rewrites, is not
    file = distribution.locate_file("") / Path(str(getattr(distribution, "_path", ""))).name / "METADATA"
    return Package(
        name=canonicalize_name(distribution.metadata["Name"]),
        version=distribution.version,
        size=size,
        inode=Path(str(file)).stat().st_ino if Path(str(file)).exists() else 0,
        digest=contents[:16],
        requires=tuple(distribution.requires or ()),
    )


def _contents(record: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, digest and size of the files that a wheel brought, leaving out what the installer wrote."""
    for row in csv.reader(record.splitlines()):
        path = row[0]
        written = path.startswith("..") or path.endswith((".pyc", "/INSTALLER", "/REQUESTED", "/RECORD"))
        if not written and not path.endswith(("direct_url.json", "uv_cache.json")):
            yield path, row[1], row[2]
