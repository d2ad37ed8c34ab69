"""Environments that are one Python with another commit built into it each time, by a command of the user's.

    commits/<id>/environment.json, build.log, probe-<config>.log

What came of a commit is kept, so that it need not be built again to know it. Only one of them is there at a time.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from pydantic import ValidationError

from matrix.environments.cache import INSTALL_TIMEOUT, EnvironmentCache
from matrix.environments.canary import inspect
from matrix.environments.commander import InstallError, condensed
from matrix.environments.environ import beside_folder, cell_environ_of
from matrix.environments.provider import silent
from matrix.model import Build, Config, Environment, Outcome, Request, digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.environments.provider import Stage
    from matrix.process.supervision import Ending

BUILD = "git"  # the name of the build that such an environment has
SKIP = 125  # exit code of a build command: this commit cannot be tested, as for `git bisect run`
PROCESSES = 10_000  # alive at once: a compiler and its drivers for each of a big machine's cores
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "WHICHTORCH_")  # what steered the Python that runs whichtorch


class BuiltCommits(EnvironmentCache):
    """What the commits of one checkout become. `go_to` checks one out, from whatever thread asks for it."""

    def __init__(
        self,
        home: Path,
        *,
        folder: Path,
        command: str,
        interpreter: Path,
        config: Config,
        go_to: Callable[[str], None],
        timeout: float = INSTALL_TIMEOUT,
        fresh: bool = False,
    ) -> None:
        super().__init__(home, install_timeout=timeout)
        self._folder, self._command, self._python, self.config = folder, command, interpreter, config
        self._go_to, self._fresh = go_to, fresh
        self._building = threading.Lock()
        self._present: str | None = None  # the commit that is built now
        self._tried: set[str] = set()  # in this run

    def request(self, commit: str) -> Request:
        """Return what asks for a commit."""
        build = Build(name=BUILD)
        return Request(torch=commit, python="", build=build, config=self.config, interpreter=self._python)

    def known(self, request: Request) -> Environment | None:
        """Return what a commit was when it was built, None where it never was or could not be."""
        kept = self._kept(request)
        return kept if kept is not None and kept.is_usable else None

    def is_installed(self, request: Request) -> bool:
        """Return whether nothing needs to be built: it is there, or it is known that it cannot be."""
        kept = self._kept(request)
        return self._present == request.torch or (kept is not None and not kept.is_usable)

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return a commit, built and probed; what could not be is not tried again, unless all is to be fresh."""
        with self._building:
            self._stages[_label(request)] = stage or silent
            environment = self._kept(request)
            is_ready = environment is not None and self._present == request.torch
            if not is_ready and (environment is None or environment.is_usable):
                try:
                    environment = self._built(request, cancelled)
                except InstallError as error:  # an interrupt, or out of time: the next run may have more luck
                    return self._environment(request, outcome=Outcome.UNBUILDABLE, reason=error.reason, log=error.log)
            assert environment is not None
            self._tell(request, "ready" if environment.is_usable else str(environment.outcome))
            return environment

    def release(self, request: Request) -> None:
        """Do nothing: it stays until the next one is built."""

    # below: with the lock held

    def _built(self, request: Request, cancelled: threading.Event | None) -> Environment:
        """Check a commit out, build and probe it, and keep what it is."""
        commit, folder = request.torch, self._kept_folder(request)
        folder.mkdir(parents=True, exist_ok=True)
        self._present = None
        self._go_to(commit)
        self._tell(request, "building")
        log = folder / "build.log"
        ending = self._commander.run(
            ("/bin/sh", "-c", self._command),
            env=self._environ(),
            log=log,
            what="the build",
            cancelled=cancelled,
            cwd=self._folder,
            processes=PROCESSES,
        )
        if ending.exit_code != 0:
            reason = _reason(ending, log)
            return self._keep(request, self._environment(request, outcome=Outcome.UNBUILDABLE, reason=reason, log=log))
        self._present = commit
        self._tell(request, "probing")
        config, python = request.config, self._python
        env = cell_environ_of(config, python, beside_folder(config, "existing", self.home))
        found = inspect(python, env, folder, config.name, self._commander, cancelled)
        if found.python:
            self._beside(request, found.python, python, cancelled)
        fields: dict[str, object] = {"torch": found.torch or commit, "python": found.python, "packages": found.packages}
        fields |= {"fingerprint": found.fingerprint}
        if found.problem is not None:
            fields |= {"outcome": Outcome.BROKEN, "reason": found.problem, "log": found.log}
        return self._keep(request, self._environment(request, **fields))

    def _tell(self, request: Request, stage: str) -> None:
        self._stages.get(_label(request), silent)(stage)

    def _environ(self) -> dict[str, str]:
        """Return the user's environment with the interpreter's folder first on PATH, as in an activated venv."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        binaries = self._python.parent
        env["PATH"] = os.pathsep.join([str(binaries), env.get("PATH", os.defpath)])
        if (binaries.parent / "pyvenv.cfg").exists():
            env["VIRTUAL_ENV"] = str(binaries.parent)
        return env

    def _environment(self, request: Request, **fields: object) -> Environment:
        given: dict[str, object] = {"torch": request.torch, "python": ""}
        return Environment.model_validate(
            given
            | {
                "id": self._identity(request),
                "label": _label(request),
                "build": BUILD,
                "config": request.config.name,
                "interpreter": self._python,
            }
            | fields
        )

    def _identity(self, request: Request) -> str:
        config = request.config.model_dump(mode="json", exclude={"summary"})
        return digest(["commit", request.torch, str(self._python), self._command, config])

    def _kept_folder(self, request: Request) -> Path:
        return self.home / "commits" / self._identity(request)

    def _kept(self, request: Request) -> Environment | None:
        identity = self._identity(request)
        if self._fresh and identity not in self._tried:
            return None
        try:
            text = (self._kept_folder(request) / "environment.json").read_text(encoding="utf-8")
            return Environment.model_validate_json(text)
        except (OSError, ValidationError):
            return None

    def _keep(self, request: Request, environment: Environment) -> Environment:
        file = self._kept_folder(request) / "environment.json"
        partial = file.with_suffix(".partial")
        partial.write_text(environment.model_dump_json(), encoding="utf-8")
        partial.replace(file)
        self._tried.add(environment.id)
        return environment


def _label(request: Request) -> str:
    parts = ["commit", request.torch[:10]]
    return "-".join(parts if request.config.name == "default" else [*parts, request.config.name])


def _reason(ending: Ending, log: Path) -> str:
    """Return in one line why a build failed; raises InstallError for what may not happen again."""
    if ending.exit_code == SKIP:
        return f"the build command exits {SKIP}: not to be tested"
    if ending.signal:
        raise InstallError(f"the build was ended by {ending.signal}", log)
    if ending.exit_code is None:
        return f"the build was stopped: {ending.stopped_by}"
    return f"the build failed: {condensed(log, ending)}"
