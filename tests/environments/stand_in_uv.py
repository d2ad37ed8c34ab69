"""Installs without uv's processes, for tests of what is decided around an install: 0.8 CPU seconds less for each."""

import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from whichtorch.environments.commander import CancelledError, Commander
from whichtorch.model import Build


class StandInUv:
    """Does for one folder of wheels what `Commander.uv` does. Everything that a test asks of it can be had."""

    def __init__(self, wheels: Path, venv: Path) -> None:
        self.wheels, self.venv = wheels, venv  # the second is one that uv has made

    def __call__(
        self,
        commander: Commander,
        *arguments: str,
        log: Path,
        what: str,
        build: Build | None = None,
        variables: Mapping[str, str] = {},
    ) -> None:
        if commander.cancelled is not None and commander.cancelled.is_set():
            raise CancelledError
        match arguments:
            case ["venv", folder, *_]:
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(self.venv, folder, symlinks=True)
            case ["pip", "compile", source, "--output-file", target, *_]:
                Path(target).write_text(self._lock(Path(source).read_text().splitlines()))
            case ["pip", "sync", pins, "--python", python, *_]:
                (site,) = Path(python).parent.parent.glob("lib/python*/site-packages")
                for pin in map(Requirement, Path(pins).read_text().splitlines()):
                    self._link(self._wheel(pin), commander.home / "cache" / "uv" / "archive-v0", site)
            case _:
                raise AssertionError(arguments)

    def _lock(self, requirements: list[str]) -> str:
        """Return a lock of the newest wheels that requirements allow, with what these require."""
        pins: dict[str, str] = {}
        asked = [*map(Requirement, requirements)]
        for requirement in asked:
            wheel = self._wheel(requirement)
            name, version, *_ = parse_wheel_filename(wheel.name)
            if name not in pins:
                pins[name] = str(requirement) if requirement.url else f"{name}=={version}"
                with zipfile.ZipFile(wheel) as file:
                    (path,) = (each for each in file.namelist() if each.endswith(".dist-info/METADATA"))
                    asked += Metadata.from_email(file.read(path)).requires_dist or []
        return "".join(f"{pins[name]}\n" for name in sorted(pins))

    def _wheel(self, requirement: Requirement) -> Path:
        if requirement.url:
            return Path(unquote(urlparse(requirement.url).path))
        wheels = {parse_wheel_filename(path.name)[1]: path for path in self.wheels.glob(f"{requirement.name}-*.whl")}
        return wheels[max(requirement.specifier.filter(wheels))]

    def _link(self, wheel: Path, archives: Path, site: Path) -> None:
        """Unpack a wheel once, and link its files; RECORD is a copy, as with uv."""
        status = wheel.stat()
        archive = archives / f"{wheel.stem}-{status.st_mtime_ns}-{status.st_size}"
        if not archive.exists():
            with zipfile.ZipFile(wheel) as file:
                file.extractall(archive)
        shutil.copytree(
            archive,
            site,
            copy_function=lambda source, target: (
                shutil.copy(source, target) if source.endswith("RECORD") else os.link(source, target)
            ),
            dirs_exist_ok=True,
        )
