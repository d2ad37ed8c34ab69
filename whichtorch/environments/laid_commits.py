"""Environments that are wheels with the files of other commits laid over them: nothing is built.

    commits/<install key>/environment.json, probe-<config>.log

Such an environment is there while it is in use. What is kept is what its files are, so that its records are found.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.base.errors import PreventedError
from whichtorch.environments.canary import PROBE_TIMEOUT, run_probe
from whichtorch.environments.commander import CancelledError, Commander
from whichtorch.environments.installation import unbuildable
from whichtorch.environments.overlay import overlays_below, site_packages
from whichtorch.environments.patches import PACKAGES
from whichtorch.environments.provider import Stage, silent
from whichtorch.model import Environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model import Request


class LaidFiles(NamedTuple):
    """What makes a wheel the Python of another commit."""

    files: Mapping[str, str | None]  # texts by names in site-packages; None for what is removed
    note: str  # on what stays as it is in the wheel


class LaidCommits:
    """Wheels, and what commits make of them. `files_of` reads a request's commit, given the wheel's site-packages."""

    def __init__(self, wheels: EnvironmentCache, files_of: Callable[[Request, Path], LaidFiles]) -> None:
        self.home = wheels.home
        self._wheels, self._files_of = wheels, files_of
        self._guard = threading.Lock()  # of all below
        self._held: defaultdict[str, list[ExitStack]] = defaultdict(list)  # by install key, one for each user

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
        """Return a wheel, or what a commit makes of it, probed; both are there until `release`."""
        wheel = self._wheels.acquire(request.unlaid, cancelled, stage)
        if not (request.commit and wheel.is_usable):
            return wheel
        logs = self._kept_file(request).parent
        commander = Commander(
            home=self.home, logs=logs, timeout=PROBE_TIMEOUT, cancelled=cancelled, stage=stage or silent
        )
        with ExitStack() as held:
            held.callback(self._wheels.release, request.unlaid)
            try:
                environment = self._laid(request, wheel, commander, held)
            except (CancelledError, PreventedError) as error:
                return unbuildable(request, str(error))
            except OSError as error:
                return unbuildable(request, f"{error.strerror}: {error.filename}")
            if environment.is_usable:
                with self._guard:
                    self._held[request.install_key].append(held.pop_all())
        commander.stage(str(environment.outcome or "ready"))
        return environment

    def release(self, request: Request) -> None:
        """Remove what was laid over a wheel once nobody uses it, and let the wheel be evicted."""
        with self._guard:
            users = self._held[request.install_key]
            held = users.pop() if users else None
        if held is not None:
            held.close()
        elif not request.commit:
            self._wheels.release(request)

    def _laid(self, request: Request, wheel: Environment, commander: Commander, held: ExitStack) -> Environment:
        """Lay a commit's files over a wheel; probe it if it was not usable before."""
        assert wheel.interpreter is not None
        commander.stage("laying")
        files, note = self._files_of(request, site_packages(wheel.interpreter.parent.parent))
        environment = held.enter_context(overlays_below(self.home).laid(wheel, files))
        interpreter = environment.interpreter
        assert interpreter is not None
        told = {"label": request.label, "patch": f"commit@{request.commit[:10]}", "options": ()}
        environment = environment.model_copy(update=told | {"notes": (*wheel.notes, note)})
        kept = self.known(request)
        if kept is None or kept.id != environment.id:
            if any(name.partition("/")[0] in PACKAGES for name in files):  # of torch: it must still work
                answer = run_probe(request, interpreter, commander)
                environment = environment.model_copy(update={"fingerprint": answer.fingerprint} | answer.verdict)
            if environment.is_usable:
                write_atomic(self._kept_file(request), environment.model_dump_json())
        return environment

    def _kept_file(self, request: Request) -> Path:
        return self.home / "commits" / request.install_key / "environment.json"
