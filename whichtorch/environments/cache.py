"""Environments on demand: made once, reused, evicted and made again with the same identity."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from whichtorch.base.atomic_files import remove_tree, write_atomic
from whichtorch.base.errors import PreventedError
from whichtorch.environments import INSTALL_TIMEOUT, resolution
from whichtorch.environments.canary import probed_installation, probed_interpreter
from whichtorch.environments.commander import CancelledError, Commander, InstallError
from whichtorch.environments.disk import MEGABYTE, UNKNOWN_SIZE_MB, Disk
from whichtorch.environments.index.releases import unreadable_index
from whichtorch.environments.index.sources import Sources, configured_sources, without_credentials
from whichtorch.environments.installation import (
    Installation,
    InstallFolder,
    config_key,
    install,
    is_unchanged,
    local_wheels,
    unbuildable,
)
from whichtorch.environments.interpreters import find_interpreter
from whichtorch.environments.overlay import make_overlay, site_packages
from whichtorch.environments.patches import apply_patch
from whichtorch.environments.provider import Stage, silent
from whichtorch.environments.resolution import blamed
from whichtorch.model import Build, Environment, Patch, Request, digest

CPU_SIZE_MB = 800.0  # torch without CUDA, whose wheel of 184 MB unpacks to 600 MB, and what comes with it
UNMEASURED_INSTALL = 25.0  # seconds: torch 2.11.0 with its CUDA libraries over a fast line takes 16 to 60


class _Use(NamedTuple):
    """What a request uses. The installation that a patch is applied to is kept, because the next patch needs it."""

    install: str  # key
    base: str  # key of the installation that its patch is applied to; the same without a patch
    config: str
    hardware: str

    @classmethod
    def of(cls, request: Request) -> _Use:
        """Return what a request uses."""
        config = config_key(request.config)
        return cls(request.install_key, request.unpatched.install_key, config, request.hardware_name)


class EnvironmentCache:
    """The environments of one state folder. Safe between threads, and between processes."""

    def __init__(
        self,
        home: Path,
        *,
        disk_budget_mb: float | None = None,
        install_timeout: float = INSTALL_TIMEOUT,
        sources: Sources | None = None,
        unknown_size_mb: float = UNKNOWN_SIZE_MB,
    ) -> None:
        self.home = home.absolute()
        self._timeout, self._sources = install_timeout, sources
        self._disk = Disk(self.home, disk_budget_mb, unknown_size_mb)
        self._guard = threading.Lock()  # of all below
        self._held: Counter[_Use] = Counter()
        self._pins: dict[str, tuple[str, tuple[str, ...]]] = {}  # by install key: given locks, with notes
        self._failed: dict[_Use, Environment] = {}
        self._interpreters: dict[str, Path] = {}  # by version, as they were found

    @cached_property
    def _commander(self) -> Commander:
        """What runs installs; the user's settings are read only when something is installed."""
        sources = self._sources or configured_sources()
        return Commander(home=self.home, logs=self.home / "cache", timeout=self._timeout, sources=sources)

    def known(self, request: Request) -> Environment | None:
        """Return what an earlier install made, without network or process; None where files have changed since."""
        return self._folder(request).known(request) if request.problem is None else None

    def is_installed(self, request: Request) -> bool:
        """Return whether using it needs no install; a patched one needs none where what it is made of is there."""
        if request.interpreter is not None or self._folder(request).complete.exists():
            return True
        return request.patch is not None and self._folder(request.unpatched).complete.exists()

    def typical_install(self) -> float:
        """Return the median of the seconds that installs took here; a guess where there was none."""
        seconds = [installation.seconds for _, installation in self._disk.installations()]
        from statistics import median  # slow to import, and only a run that installs asks for it

        return median([second for second in seconds if second is not None] or [UNMEASURED_INSTALL])

    def expected_size(self, requests: Sequence[Request]) -> int:
        """Return about how many bytes installing these takes, by earlier installs of the same or of its build."""
        sizes: dict[str, int] = {}
        largest: dict[str, int] = {}  # by build
        for folder, installation in self._disk.installations():
            size = sizes[folder.path.name] = sum(package.size for package in installation.packages)
            largest[installation.build] = max(size, largest.get(installation.build, 0))
        total = 0
        for request in {request.install_key: request for request in (each.unpatched for each in requests)}.values():
            guess = CPU_SIZE_MB if request.build.name.endswith("cpu") else UNKNOWN_SIZE_MB
            total += sizes.get(request.install_key, largest.get(request.build.name, int(guess * MEGABYTE)))
        return total

    def requirements_of(self, request: Request) -> dict[str, tuple[str, ...]]:
        """Return by package what its metadata requires, for an installation that was made, evicted or not."""
        installation = self._folder(request).installation()
        return {package.name: package.requires for package in installation.packages} if installation else {}

    def lock_of(self, request: Request) -> tuple[str, tuple[str, ...]] | None:
        """Return the pins that a request was resolved to, and notes on them; None where that is not known."""
        folder = self._folder(request.unpatched)
        installation = folder.installation()
        if installation is None or not folder.lock.exists():
            return None
        return folder.lock.read_text(encoding="utf-8"), installation.notes

    def pin(self, request: Request, text: str, notes: tuple[str, ...]) -> None:
        """Have a request, where it is not resolved yet, made from pins."""
        with self._guard:
            self._pins[request.unpatched.install_key] = text, notes

    def stock(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys of what is installed, and of what was and may be fetched from a cache."""
        keys = [file.parent.name for file in self._disk.folder.glob("*/installation.json")]
        installed = tuple(key for key in keys if InstallFolder(self._disk.folder / key).complete.exists())
        return installed, tuple(key for key in keys if key not in installed)

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return the environment, installed and probed, once there is disk and nobody else is making the same one."""
        use, logs = _Use.of(request), self._folder(request).logs
        commander = replace(self._commander, logs=logs, cancelled=cancelled, stage=stage or silent)
        try:
            if request.problem is not None:
                raise InstallError(request.problem)  # noqa: TRY301
            with self._disk.locked(use.install, cancelled):
                environment = self._failed.get(use) or self._acquire(request, use, commander)
        except CancelledError as error:
            return unbuildable(request, str(error))
        except InstallError as error:
            environment = unbuildable(request, blamed(error.reason, request.overrides), error.log)
        except PreventedError as error:
            environment = unbuildable(request, error.message)
        except OSError as error:
            environment = unbuildable(request, f"{error.strerror}: {error.filename}")
        if not environment.is_usable:
            self._failed[use] = environment  # the next cell need not try again, the next run may
        commander.stage(str(environment.outcome or "ready"))
        return environment

    def unreachable_index(self, request: Request) -> str | None:
        """Return the unreachable index this request needs, if any."""
        return unreadable_index(request.build, self._commander.sources)

    def release(self, request: Request) -> None:
        """Let an environment be evicted again; does nothing for one that was not usable."""
        use = _Use.of(request)
        with self._guard:
            if not self._held[use]:
                return
            self._held[use] -= 1
        for key in {use.install, use.base}:
            with suppress(OSError):
                InstallFolder(self._disk.folder / key).used.touch()
            self._unmark_if_idle(key)

    def locked(
        self,
        requirements: Sequence[str],
        build: Build,
        python: str,
        *,
        constraints: Sequence[str] = (),
        overrides: Sequence[str] = (),
        preferred: Sequence[str] = (),
        before: str | None = None,
    ) -> tuple[str, ...]:
        """Return the pins of `compile_holding`, which have what the overrides ask for.

        An answer is kept and given again for the same indexes and folders, unless `before` is yet to come.
        """
        sources = self._commander.sources
        places = [without_credentials(place) for place, _ in sources.places]
        question: list[object] = [list(requirements), list(constraints), build.identity, python, before]
        more = [list(texts) for texts in (overrides, preferred) if texts]
        key = digest([*question, places, sources.strategy, *more], 16)
        folder = self.home / "cache" / "locks" / key
        kept = folder / "lock.txt"
        is_settled = before is None or before <= datetime.now(UTC).isoformat()
        if not (is_settled and kept.exists()):
            commander = replace(self._commander, logs=folder)
            asked: dict[str, Any] = {"constraints": constraints, "overrides": overrides, "before": before}
            asked |= {"build": build, "interpreter": self._interpreter(python, commander), "commander": commander}
            text = resolution.compile_holding(preferred, requirements, **asked)
            resolution.check_overrides(text, overrides, commander)
            write_atomic(kept, text)
        lines = kept.read_text(encoding="utf-8").splitlines()
        return tuple(line.strip() for line in lines if line.strip() and not line.startswith(("#", "-")))

    def _interpreter(self, python: str, commander: Commander) -> Path:
        """Return the interpreter of a version, looked for once; a download ends with the request that needs it."""
        if python not in self._interpreters:
            self._interpreters[python] = find_interpreter(python, commander)
        return self._interpreters[python]

    # below: with the lock of the installation held

    def _acquire(self, request: Request, use: _Use, commander: Commander) -> Environment:
        folder = self._folder(request)
        if request.interpreter is not None:
            made = InstallFolder(request.interpreter.parent.parent.parent)
            if made.record.exists():  # one of ours, asked for by its path
                self._disk.hold(made.path)
            return probed_interpreter(request, folder, self._disk, commander)
        self._install(request, commander)
        try:
            environment = probed_installation(request, folder, self._disk, commander)
            if environment.is_usable:
                folder.used.touch()
                with self._guard:
                    self._held[use] += 1
                for key in {use.install, use.base}:
                    self._disk.mark(key)
        finally:
            self._unmark_if_idle(use.install)
        return environment

    def _unmark_if_idle(self, key: str) -> None:
        with self._guard:
            if not any(key in {use.install, use.base} for use in +self._held):
                self._disk.unmark(key)

    def _install(self, request: Request, commander: Commander) -> None:
        """Make what is not whole yet, and mark the installation as in use."""
        key, folder = request.install_key, self._folder(request)
        installation = folder.installation()
        if installation is not None and not is_unchanged(installation.watched):
            installation = None
        # of an overlay the patched files differ from what its wheels brought
        is_whole = installation is not None and (request.patch is not None or folder.is_whole(installation))
        with self._disk.locked(cancelled=commander.cancelled):
            if is_whole and folder.complete.exists() and folder.python.exists():
                self._disk.mark(key)
                return
        self._disk.clear(key, commander)
        if request.patch is None:
            self._install_lock(request, installation, commander)
        else:
            self._lay_patched(request, request.patch, commander)

    def _install_lock(self, request: Request, installation: Installation | None, commander: Commander) -> None:
        """Install what the lock of an earlier installation pins, or what is resolved now."""
        key, folder = request.install_key, self._folder(request)
        interpreter = self._interpreter(request.python, commander)
        notes = installation.notes if installation else ()
        own = resolution.candidate_wheel(request, commander)
        if installation is None or not folder.lock.exists():
            with self._guard:
                pinned = self._pins.get(key)
            if pinned is None:
                commander.stage("resolving")
            asked = request.model_copy(update={"torch": str(own)}) if own else request
            lock, notes = pinned or resolution.resolve(asked, interpreter, commander)
            # without the path: another machine may install the same
            write_atomic(folder.lock, resolution.with_torch(lock, f"torch=={request.torch}") if own else lock)
        locked = folder.lock.read_text(encoding="utf-8")
        chosen = resolution.with_kept_wheels(locked, request.build, request.python, commander)
        chosen = resolution.with_torch(chosen, f"torch @ {own.as_uri()}") if own else chosen
        wheels = local_wheels(request)
        size = sum(wheel.stat().st_size for wheel in wheels) if wheels else None
        need = self._disk.estimate(locked, request.build.name, size)
        self._disk.reserve(key, need, commander.cancelled, commander.stage)
        try:
            commander.stage("installing")
            write_atomic(folder.installed, resolution.with_projects(chosen, request, folder.projects, self.home))
            install(request, folder, interpreter, notes, wheels, commander)
            folder.complete.touch()
            self._disk.mark(key)  # what was reserved is now counted as used
        except BaseException:
            remove_tree(folder.venv)
            self._disk.unmark(key)
            with self._disk.locked():
                self._disk.discard_left_over()
            self._disk.empty_trash()
            raise
        finally:
            remove_tree(folder.projects)

    def _lay_patched(self, request: Request, patch: Patch, commander: Commander) -> None:
        """Install what the patch is for, and lay a patched overlay of it."""
        key, base = request.install_key, request.unpatched
        folder, original = self._folder(request), self._folder(base)
        with self._disk.locked(base.install_key, commander.cancelled):
            try:
                self._install(base, commander)
                commander.stage("patching")
                patched = apply_patch(patch, site_packages(original.venv))
                installation = original.installation()
                assert installation is not None
                self._disk.mark(key)  # not before: an install would wait for its own overlay to make room
                make_overlay(original.venv, folder.venv, patched.files)
                told = {"label": request.label, "notes": (*installation.notes, patched.note), "seconds": None}
                write_atomic(folder.record, installation.model_copy(update=told).model_dump_json())
                folder.complete.touch()
            except BaseException:
                self._disk.unmark(key)
                raise
            finally:
                self._unmark_if_idle(base.install_key)

    def _folder(self, request: Request) -> InstallFolder:
        return InstallFolder(self._disk.folder / request.install_key)
