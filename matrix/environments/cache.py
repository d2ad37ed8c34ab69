"""Environments on demand: made once, reused, evicted and made again with the same identity."""

from __future__ import annotations

import functools
import json
import os
import statistics
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.environments.canary import Findings, inspect
from matrix.environments.commander import CancelledError, Commander, InstallError, Start
from matrix.environments.disk import MEGABYTE, UNKNOWN_SIZE_MB, Disk, remove_tree
from matrix.environments.environ import beside_folder, cell_environ_of
from matrix.environments.index.releases import unreadable_index
from matrix.environments.index.sources import Sources, configured_sources, local_folder
from matrix.environments.installation import (
    Package,
    check_installed,
    create,
    install_beside,
    installed_packages,
    python_of,
    python_version_of,
)
from matrix.environments.interpreters import find_interpreter
from matrix.environments.kept_wheels import keep
from matrix.environments.provider import silent
from matrix.environments.resolution import compile_lock, resolve
from matrix.errors import PreventedError
from matrix.model import Config, Environment, Outcome, Request, digest
from matrix.process import supervision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from matrix.environments.provider import Stage
    from matrix.model import Build

QUESTIONS = digest((Path(__file__).parent / "inside" / "probe.py").read_text(encoding="utf-8"))  # what a probe asks
UNMEASURED_INSTALL = 25.0  # seconds: torch 2.11.0 with its CUDA libraries over a fast line takes 16 to 60
CPU_SIZE_MB = 800.0  # torch without CUDA, whose wheel of 184 MB unpacks to 600 MB, and what comes with it
INSTALL_TIMEOUT = 900.0  # seconds for one step of an install: 3 GB over a slow line


class EnvironmentCache:
    """The environments of one state folder. Safe between threads, and between processes."""

    def __init__(
        self,
        home: Path,
        *,
        disk_budget_mb: float | None = None,
        install_timeout: float = INSTALL_TIMEOUT,
        sources: Sources | None = None,
        start: Start = supervision.start,
        unknown_size_mb: float = UNKNOWN_SIZE_MB,
        find: Callable[[str, Path], Path] = find_interpreter,
    ) -> None:
        self.home = home.absolute()
        self._disk = Disk(self.home, disk_budget_mb, unknown_size_mb)
        self._commander = Commander(
            home=self.home, start=start, sources=sources or configured_sources(), timeout=install_timeout
        )
        self._find = find
        self._guard = threading.Lock()  # of all below
        self._locks: dict[str, threading.Lock] = {}
        self._held: Counter[tuple[str, str]] = Counter()
        self._failed: dict[tuple[str, str], Environment] = {}
        self._interpreters: dict[str, Path] = {}
        self._stages: dict[str, Stage] = {}  # of requests that are being acquired, by label

    def known(self, request: Request) -> Environment | None:
        """Return what an earlier install of a request was, evicted or not: no network, no process.

        None where it was never usable, or where its wheel or interpreter has changed since.
        """
        if request.problem is not None:
            return None
        kept = _read(self._kept_file(request))
        # an environment of the user's must still be there; ours can be made again
        is_users = request.interpreter is not None
        if kept is None or not _is_unchanged(kept["watched"], gone_is_changed=is_users):
            return None
        return _environment(request, kept["environment"])

    def is_installed(self, request: Request) -> bool:
        """Return whether using it needs no install."""
        return request.interpreter is not None or self._disk.is_complete(request.install_key)

    def typical_install(self) -> float:
        """Return the seconds that an install takes here, by those that were made; a guess where none was."""
        kept = (_read(file) for file in self._disk.folder.glob("*/installation.json"))
        seconds = [float(one["seconds"]) for one in kept if one and "seconds" in one]
        return statistics.median(seconds) if seconds else UNMEASURED_INSTALL

    def expected_size(self, requests: Sequence[Request]) -> int:
        """Return about how many bytes installing these takes, by earlier installs of the same or of its build."""
        sizes: dict[str, int] = {}
        largest: dict[str, int] = {}  # by build
        for key, installation in self._disk.installations().items():
            sizes[key] = sum(int(package["size"]) for package in installation["packages"])
            largest[installation["build"]] = max(sizes[key], largest.get(installation["build"], 0))
        total = 0
        for request in requests:
            guess = CPU_SIZE_MB if request.build.name.endswith("cpu") else UNKNOWN_SIZE_MB
            by_build = largest.get(request.build.name, int(guess * MEGABYTE))
            total += sizes.get(request.install_key, by_build)
        return total

    def requirements_of(self, request: Request) -> dict[str, list[str]]:
        """Return by package what its metadata requires, for an installation that was made, evicted or not."""
        kept = _read(self._disk.folder / request.install_key / "installation.json")
        return dict(kept.get("requires", {})) if kept else {}

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return the environment, installed, probed and kept from eviction until `release`.

        Waits for disk, and for another thread or process that is making the same one. What goes wrong
        with an install is told by an unusable Environment, never raised.
        """
        failure = (request.install_key, _config_key(request.config))
        self._stages[request.label] = stage or silent
        try:
            if request.problem is not None:
                raise InstallError(request.problem)  # noqa: TRY301
            self.home.mkdir(parents=True, exist_ok=True)
            with self._lock_of(request.install_key):
                environment = self._failed.get(failure) or self._acquire(request, cancelled)
        except CancelledError as error:
            return _unusable(request, Outcome.UNBUILDABLE, error)
        except InstallError as error:
            environment = _unusable(request, Outcome.UNBUILDABLE, error)
        except (OSError, PreventedError) as error:
            reason = error.message if isinstance(error, PreventedError) else f"{error.strerror}: {error.filename}"
            environment = _unusable(request, Outcome.UNBUILDABLE, InstallError(reason))
        if environment.is_usable:
            self._stage(request, "ready")
        else:
            self._failed[failure] = environment  # the next cell need not try again, the next run may
            self._stage(request, str(environment.outcome))
        return environment

    def in_the_way(self, request: Request) -> str | None:
        """Return which index cannot be read that a request needs: why an install failed says nothing of its version."""
        return unreadable_index(request.build, self._commander.sources)

    def release(self, request: Request) -> None:
        """Let an environment be evicted again; does nothing for one that was not usable."""
        key, config = request.install_key, _config_key(request.config)
        with self._guard:
            if not self._held[key, config]:
                return
            self._held[key, config] -= 1
            with suppress(OSError):
                (self._disk.folder / key / "used").touch()
            if not any(count for (held, _), count in self._held.items() if held == key):
                self._disk.unmark(key)

    def locked(
        self,
        requirements: Sequence[str],
        build: Build,
        python: str,
        *,
        constraints: Sequence[str] = (),
        before: str | None = None,
        cancelled: threading.Event | None = None,
    ) -> tuple[str, ...]:
        """Return the exact pins that requirements mean, installing nothing; see `resolve.compile_lock`.

        What was resolved once is kept: give pins, or a time; one that is yet to come is resolved anew. Raises
        InstallError.
        """
        asked = digest([list(requirements), list(constraints), build.model_dump(mode="json"), python, before], 16)
        folder = self.home / "cache" / "locks" / asked
        kept = folder / "lock.txt"
        is_settled = before is None or before <= datetime.now(UTC).isoformat()
        if not (is_settled and kept.exists()):
            interpreter = self._interpreter(python)
            text = compile_lock(
                requirements,
                build,
                interpreter,
                folder,
                self._commander,
                cancelled,
                constraints=constraints,
                before=before,
            )
            _write(kept, text)
        lines = kept.read_text(encoding="utf-8").splitlines()
        return tuple(line.strip() for line in lines if line.strip() and not line.startswith(("#", "-")))

    # below: with the lock of the installation held

    def _acquire(self, request: Request, cancelled: threading.Event | None) -> Environment:
        key = request.install_key
        with self._disk.locked(key, cancelled):
            if request.interpreter is not None:
                return self._existing(request, cancelled)
            self._install(request, cancelled)
            try:
                environment = self._probed(request, cancelled)
            except BaseException:
                self._unmark_if_idle(key)
                raise
            if environment.is_usable:
                (self._disk.folder / key / "used").touch()
                with self._guard:
                    self._held[key, _config_key(request.config)] += 1
            else:
                self._unmark_if_idle(key)
            return environment

    def _unmark_if_idle(self, key: str) -> None:
        with self._guard:
            if not any(count for (held, _), count in self._held.items() if held == key):
                self._disk.unmark(key)

    def _install(self, request: Request, cancelled: threading.Event | None) -> None:
        """Make sure that the installation is there, whole, and marked as in use."""
        key, folder = request.install_key, self._disk.folder / request.install_key
        venv, lock, logs = folder / "venv", folder / "lock.txt", folder / "logs"
        kept = _read(folder / "installation.json")
        if kept is not None and not _is_unchanged(kept["watched"]):
            self._disk.discard(key)
            lock.unlink(missing_ok=True)
            kept = None
        with self._disk.locked(cancelled=cancelled):
            if kept is not None and self._disk.is_complete(key) and python_of(venv).exists():
                self._disk.mark(key)
                return
            (folder / "complete").unlink(missing_ok=True)
        remove_tree(venv)  # half-made: the tool was killed, or it was evicted half-way
        interpreter = self._interpreter(request.python)
        notes: tuple[str, ...] = tuple(kept["notes"]) if kept else ()
        if not lock.exists() or kept is None:
            self._stage(request, "resolving")
            resolution = resolve(request, interpreter, logs, self._commander, cancelled)
            notes = resolution.notes
            _write(lock, resolution.lock)
        pinned = lock.read_text(encoding="utf-8")
        stage = functools.partial(self._stage, request)
        installed = folder / "installed.txt"  # the lock, with the kept wheels by their paths
        _write(installed, keep(pinned, request.build, request.python, logs, self._commander, cancelled, stage))
        wheels = _local_wheels(request)
        size = sum(wheel.stat().st_size for wheel in wheels) if wheels else None
        need = self._disk.estimate(pinned, request.build.name, size)
        self._disk.reserve(key, need, cancelled, stage)
        started = time.monotonic()
        try:
            stage("installing")
            create(venv, installed, interpreter, request.build, logs, self._commander, cancelled)
            packages = installed_packages(venv)
            check_installed(request, packages, pinned, logs)
            installation = {
                "label": request.label,
                "build": request.build.name,
                "python": python_version_of(venv),
                "packages": [package.kept for package in packages],
                "notes": notes,
                "watched": _stamps(wheels),
                "requires": {package.name: package.requires for package in packages if package.requires},
                "seconds": round(time.monotonic() - started, 1),
            }
            _write(folder / "installation.json", json.dumps(installation))
            (folder / "complete").touch()
            self._disk.mark(key)  # what was reserved is now counted as used
        except BaseException:
            remove_tree(venv)
            self._disk.unmark(key)
            self._disk.clear_left_over()
            raise

    def _probed(self, request: Request, cancelled: threading.Event | None) -> Environment:
        """Return the installation as a config makes it, probed once per config."""
        folder = self._disk.folder / request.install_key
        installation = _read(folder / "installation.json")
        assert installation is not None
        packages = [Package(**package) for package in installation["packages"]]
        beside = self._beside(request, installation["python"], python_of(folder / "venv"), cancelled)
        identity = environment_id(request, installation["python"], packages, beside)
        kept = _read(self._kept_file(request))
        # A newer probe asks more, so what is installed is probed again; what is not is good enough as it is known.
        if kept is not None and kept["environment"]["id"] == identity and kept.get("asked") == QUESTIONS:
            return _environment(request, kept["environment"])
        findings = self._inspect(request, python_of(folder / "venv"), cancelled)
        fields = {
            "id": identity,
            "torch": next(package.version for package in packages if package.name == "torch"),
            "python": installation["python"],
            "interpreter": python_of(folder / "venv"),
            "packages": {package.name: package.version for package in packages},
            "notes": tuple(installation["notes"]),
        }
        return self._settled(request, fields, findings, installation["watched"])

    def _existing(self, request: Request, cancelled: threading.Event | None) -> Environment:
        """Return an environment of the user's, as it is; probed anew where its files have changed."""
        if (known := self.known(request)) is not None:
            return known
        assert request.interpreter is not None
        if not os.access(request.interpreter, os.X_OK) or request.interpreter.is_dir():
            raise InstallError(f"there is no interpreter {request.interpreter}")
        findings = self._inspect(request, request.interpreter, cancelled)
        git_version = str(findings.fingerprint.git_version)
        packages = [
            Package(name=name, version=version, size=0, inode=0, digest=git_version if name == "torch" else "")
            for name, version in findings.packages.items()
        ]
        beside = self._beside(request, findings.python, request.interpreter, cancelled) if findings.python else []
        fields = {
            "id": environment_id(request, findings.python, packages, beside),
            "torch": findings.torch,
            "python": findings.python,
            "interpreter": request.interpreter,
            "packages": findings.packages,
        }
        return self._settled(request, fields, findings, _stamps(map(Path, findings.watched)))

    def _settled(
        self, request: Request, fields: dict[str, Any], findings: Findings, watched: list[list[Any]]
    ) -> Environment:
        """Keep what a usable environment is; a broken one is told, and probed again by the next run."""
        if findings.problem is not None:
            broken = {"outcome": Outcome.BROKEN, "reason": findings.problem, "log": findings.log}
            return _environment(request, fields | broken)
        environment = _environment(request, fields | {"fingerprint": findings.fingerprint})
        kept = environment.model_dump(mode="json", exclude={"label", "options"})
        _write(self._kept_file(request), json.dumps({"environment": kept, "watched": watched, "asked": QUESTIONS}))
        return environment

    def _inspect(self, request: Request, interpreter: Path, cancelled: threading.Event | None) -> Findings:
        self._stage(request, "probing")
        config, home = request.config, self.home
        python = request.python or "existing"
        beside = beside_folder(config, python, home)
        env = cell_environ_of(config, interpreter, beside)
        logs = self._disk.folder / request.install_key / "logs"
        return inspect(interpreter, env, logs, config.name, self._commander, cancelled)

    def _beside(
        self, request: Request, python: str, interpreter: Path, cancelled: threading.Event | None
    ) -> list[Package]:
        """Return the config's side packages, installing them if they are not there."""
        folder = beside_folder(request.config, python, self.home)
        if folder is None:
            return []
        with self._disk.locked(f"beside-{folder.name}", cancelled):
            if not (folder / "complete").exists():
                remove_tree(folder)
                folder.parent.mkdir(parents=True, exist_ok=True)
                logs = self._disk.folder / request.install_key / "logs"
                requirements, mark = request.config.beside, f"beside_{folder.name}"
                self._disk.mark(mark, reserved=1)  # what uv unpacks for it is not left over
                try:
                    install_beside(folder, requirements, interpreter, logs, self._commander, cancelled)
                    (folder / "complete").touch()
                finally:
                    self._disk.unmark(mark)
        return installed_packages(folder)

    def _interpreter(self, python: str) -> Path:
        with self._guard:
            if python not in self._interpreters:
                self._interpreters[python] = self._find(python, self.home)
            return self._interpreters[python]

    def _lock_of(self, key: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())

    def _kept_file(self, request: Request) -> Path:
        return self._disk.folder / request.install_key / "configs" / f"{_config_key(request.config)}.json"

    def _stage(self, request: Request, stage: str) -> None:
        self._stages.get(request.label, silent)(stage)


def cell_environ(
    request: Request, environment: Environment, home: Path, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the whole environment that a cell of this request runs with; see `environ.cell_environ_of`."""
    assert environment.interpreter is not None
    beside = beside_folder(request.config, environment.python, home)
    return cell_environ_of(request.config, environment.interpreter, beside, environ)


def environment_id(request: Request, python: str, packages: Iterable[Package], beside: Iterable[Package]) -> str:
    """Return the identity of an environment: what was really installed, the build, the Python and the config.

    Of torch the contents count, not the version alone: a wheel built again is another one.
    """
    packages = list(packages)
    config = request.config.model_dump(mode="json", exclude={"summary"})
    return digest(
        {
            "packages": {package.name: package.version for package in packages},
            "torch": [package.digest for package in packages if package.name == "torch"],
            "beside": {package.name: package.version for package in beside},
            "build": request.build.name,
            "python": python,
            "config": config,
        }
    )


def _environment(request: Request, fields: dict[str, Any]) -> Environment:
    """Return an Environment with the names that this request gives it."""
    return Environment(
        **fields
        | {
            "label": request.label,
            "build": request.build.name,
            "config": request.config.name,
            "options": request.options,
        }
    )


def _unusable(request: Request, outcome: Outcome, error: InstallError) -> Environment:
    identity = digest(["not installed", request.install_key, _config_key(request.config)])
    version = request.torch
    fields = {"id": identity, "torch": version, "python": request.python, "interpreter": request.interpreter}
    return _environment(request, fields | {"outcome": outcome, "reason": error.reason, "log": error.log})


def _config_key(config: Config) -> str:
    return digest(config.model_dump(mode="json", exclude={"summary"}))


def _local_wheels(request: Request) -> list[Path]:
    """Return the wheels on this machine that a request may be served from."""
    if request.torch.endswith(".whl"):
        return [Path(request.torch)]
    folder = local_folder(request.build.find_links) if request.build.find_links else None
    return sorted(folder.glob(f"torch-{request.torch}-*.whl")) if folder is not None else []


def _stamps(paths: Iterable[Path]) -> list[list[Any]]:
    """Return size and time of change of files, to be compared by `_is_unchanged`."""
    found: list[list[Any]] = []
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            size = 0 if path.is_dir() else status.st_size
            found.append([str(path), size, status.st_mtime_ns])
    return found


def _is_unchanged(stamps: list[list[Any]], *, gone_is_changed: bool = False) -> bool:
    """Return whether files are as they were. A wheel that is gone was still what was installed."""
    for path, size, changed in stamps:
        try:
            status = os.stat(path)  # noqa: PTH116  a thousand of these stand before a rerun
        except OSError:
            if gone_is_changed:
                return False
            continue
        if status.st_mtime_ns != changed or (size and status.st_size != size):
            return False
    return True


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)
