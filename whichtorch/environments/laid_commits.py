"""Environments that are wheels with the files of other commits laid over them: nothing is built.

    commits/<install key>/environment.json, probe-<config>.log

Such an environment is there while a search lasts. What is kept says what it was, so that its records are found.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.base.errors import PreventedError
from whichtorch.environments.canary import PROBE_TIMEOUT, run_probe
from whichtorch.environments.commander import CancelledError, Commander
from whichtorch.environments.installation import unbuildable
from whichtorch.environments.overlay import overlays_below, site_packages
from whichtorch.environments.patches import PACKAGES, PatchedFiles
from whichtorch.environments.provider import Stage, silent
from whichtorch.model import Environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model import Request


class LaidCommits:
    """Wheels, and what commits make of them, until `close`. `files_of` reads a commit for a wheel in site-packages."""

    def __init__(self, wheels: EnvironmentCache, files_of: Callable[[Request, Path], PatchedFiles]) -> None:
        self.home = wheels.home
        self._wheels, self._files_of = wheels, files_of
        self._guard = threading.Lock()  # of what is laid
        self._laid: dict[str, Environment] = {}  # by install key
        self._held = ExitStack()

    def known(self, request: Request) -> Environment | None:
        """Return what a commit was when it was tried; None where it never was, or could not be used."""
        if not request.commit:
            return self._wheels.known(request)
        return None if self._wheels.known(request.unlaid) is None else read_json(self._kept_file(request), Environment)

    def is_installed(self, request: Request) -> bool:
        """Return whether its wheel is there."""
        return self._wheels.is_installed(request.unlaid)

    def typical_install(self) -> float:
        """Return the seconds that the install of a wheel takes here."""
        return self._wheels.typical_install()

    def unreachable_index(self, request: Request) -> str | None:
        """Return the unreachable index that its wheel needs, if any."""
        return self._wheels.unreachable_index(request.unlaid)

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return a wheel, or what a commit makes of it, probed."""
        wheel = self._wheels.acquire(request.unlaid, cancelled, stage)
        if not (request.commit and wheel.is_usable):
            return wheel
        logs, stage = self._kept_file(request).parent, stage or silent
        commander = Commander(home=self.home, logs=logs, timeout=PROBE_TIMEOUT, cancelled=cancelled, stage=stage)
        with self._guard:
            try:
                environment = self._laid.get(request.install_key) or self._lay(request, wheel, commander)
            except (CancelledError, PreventedError) as error:
                environment = unbuildable(request, str(error))
            except OSError as error:
                environment = unbuildable(request, f"{error.strerror}: {error.filename}")
        if not environment.is_usable:
            self._wheels.release(request.unlaid)
        stage(str(environment.outcome or "ready"))
        return environment

    def release(self, request: Request) -> None:
        """Let the wheel be evicted; what is laid over it stays, since the next run of it is likely."""
        self._wheels.release(request.unlaid)

    def close(self) -> None:
        """Remove what is laid."""
        self._held.close()

    def _lay(self, request: Request, wheel: Environment, commander: Commander) -> Environment:
        """Lay a commit's files over a wheel; probe it if it was not usable before."""
        assert wheel.interpreter is not None
        commander.stage("laying")
        files, note = self._files_of(request, site_packages(wheel.interpreter.parent.parent))
        environment = self._held.enter_context(overlays_below(self.home).laid(wheel, files))
        interpreter, kept = environment.interpreter, self.known(request)
        assert interpreter is not None
        told = {"label": request.label, "patch": f"commit@{request.commit[:10]}", "options": ()}
        environment = environment.model_copy(update=told | {"notes": (*wheel.notes, note)})
        if kept is None or kept.id != environment.id:
            if any(name.partition("/")[0] in PACKAGES for name in files):  # of torch: it must still work
                answer = run_probe(request, interpreter, commander)
                environment = environment.model_copy(update={"fingerprint": answer.fingerprint} | answer.verdict)
            if environment.is_usable:
                write_atomic(self._kept_file(request), environment.model_dump_json())
        self._laid[request.install_key] = environment
        return environment

    def _kept_file(self, request: Request) -> Path:
        return self.home / "commits" / request.install_key / "environment.json"
