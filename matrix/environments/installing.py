"""Make an environment from its lock, and a config's side packages, with uv."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.environments.commander import Commander, InstallError
from matrix.environments.environ import beside_folder
from matrix.environments.installation import InstallFolder, Package, installed_packages
from matrix.environments.resolution import is_same_version, locked_versions
from matrix.environments.uv_cache import forget
from matrix.environments.whole_files import remove_tree

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.environments.disk import Disk
    from matrix.model import Build, Config, Request


def create(folder: InstallFolder, interpreter: Path, build: Build, commander: Commander) -> None:
    """Create the folder's venv with exactly what `installed.txt` pins. Raises InstallError.

    Bytecode is not compiled here: 5,500 files cost 5.6 s on two cores, while the probe's import writes
    what every cell needs (import torch 1.9 s before, 0.9 s after) for 0.1 s.
    """
    commander.uv(
        *("venv", str(folder.venv), "--python", str(interpreter), "--no-project", "--clear", "--quiet"),
        log=commander.logs / "venv.log",
        what="creating the environment",
    )
    try:
        _sync(folder, build, commander)
    except InstallError as error:
        # another process has evicted a wheel that uv was about to link
        if "archive-v" not in error.reason:
            raise
        forget(commander.settings.uv_cache)
        _sync(folder, build, commander)


def _sync(folder: InstallFolder, build: Build, commander: Commander) -> None:
    backend = ("--torch-backend", build.backend) if build.backend else ()
    commander.uv(
        *("pip", "sync", str(folder.installed), "--python", str(folder.python), "--quiet"),
        *backend,
        log=commander.logs / "install.log",
        what="installing",
        build=build,
    )


def check_installed(request: Request, packages: list[Package], lock: str, log: Path) -> None:
    """Raise InstallError where what is there is not what was asked for: never a silent substitute."""
    versions, locked = {package.name: package.version for package in packages}, locked_versions(lock)
    torch = versions.get("torch")
    if torch is None:
        raise InstallError("torch is not there after the install", log)
    if not is_same_version(request.torch, torch) and not is_same_version(locked["torch"], torch):
        raise InstallError(f"asked for torch {request.torch}, but {torch} was installed", log)
    for name, version in locked.items():
        if name in versions and not is_same_version(version, versions[name]):
            raise InstallError(f"{name} {version} was locked, but {versions[name]} installed", log)


def side_packages(config: Config, python: str, interpreter: Path, disk: Disk, commander: Commander) -> list[Package]:
    """Return a config's side packages, installing them into their own folder if they are not there."""
    folder = beside_folder(config, python, commander.settings.home)
    if folder is None:
        return []
    complete = folder / "complete"
    with disk.locked(f"beside-{folder.name}", commander.cancelled):
        if not complete.exists():
            remove_tree(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            mark = f"beside_{folder.name}"
            disk.marks.add(mark, reserved=1)  # what uv unpacks for it is not left over
            try:
                commander.uv(
                    *("pip", "install", "--prefix", str(folder), "--python", str(interpreter), "--quiet"),
                    *config.beside,
                    log=commander.logs / "beside.log",
                    what=f"installing {' '.join(config.beside)} beside it",
                )
                complete.touch()
            finally:
                disk.marks.remove(mark)
    return installed_packages(folder)
