"""Environments that are a commit: built into one Python, each in place of the last, or laid over a wheel's files.

    commits/<id>/environment.json, build.log, probe-<config>.log
    commits/<install key>/environment.json, environment-<digest of the imports>.json, probe-<config>.log

The first are built by a command of the user's. The result of each commit is kept, so that it need not be built again,
and only one commit is installed at a time. For the others nothing is built. Such an environment is there while a search
lasts. What is kept says what it was, so that its records are found.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.base.errors import PreventedError
from whichtorch.environments.canary import PROBE_TIMEOUT, run_probe, side_packages
from whichtorch.environments.commander import CancelledError, Commander, InstallError, log_summary
from whichtorch.environments.disk import Disk
from whichtorch.environments.installation import unbuildable
from whichtorch.environments.overlay import overlays_below, site_packages
from whichtorch.environments.patches import PACKAGES, PatchedFiles
from whichtorch.environments.provider import Stage, silent
from whichtorch.model import Build, Config, Environment, Outcome, Request, digest

if TYPE_CHECKING:
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.process.supervision import Ending

BUILD = "git"  # the name of the build that such an environment has
SKIP = 125  # exit code of a build command: this commit cannot be tested, as for `git bisect run`
PROCESSES = 10_000  # alive at once: a compiler and its drivers for each of a big machine's cores
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "WHICHTORCH_")  # what steered the Python that runs whichtorch


@dataclass(kw_only=True, eq=False)
class BuiltCommits:
    """What the commits of one checkout become."""

    home: Path
    folder: Path  # the checkout
    command: str  # for the shell
    interpreter: Path  # the Python that sees the build
    timeout: float  # seconds, of one build
    config: Config
    go_to: Callable[[str], None]  # checks a commit out, from any thread
    fresh: bool = False
    _building: threading.Lock = field(default_factory=threading.Lock)
    _present: str | None = None  # the commit that is built now
    _built: set[str] = field(default_factory=set)  # identities of what this run has built, or could not build

    def __post_init__(self) -> None:
        self.home = self.home.absolute()

    def request(self, commit: str) -> Request:
        """Return what asks for a commit."""
        build = Build(name=BUILD)
        return Request(torch=commit, python="", build=build, config=self.config, interpreter=self.interpreter)

    def known(self, request: Request) -> Environment | None:
        """Return what a commit was when it was built; None where it never was, or could not be."""
        kept = self._kept(request)
        return kept if kept is not None and kept.is_usable else None

    def is_installed(self, request: Request) -> bool:
        """Return whether nothing needs to be built: the commit is there, or is known to be unbuildable."""
        kept = self._kept(request)
        return self._present == request.torch or (kept is not None and not kept.is_usable)

    def typical_install(self) -> float:
        """Return the seconds that a build may take: builds are not measured."""
        return self.timeout

    def unreachable_index(self, request: Request) -> None:
        """Return None: no index is needed."""

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return a commit, built and probed; an unbuildable one is not built again, unless all is to be fresh."""
        logs, stage = self._kept_file(request).parent, stage or silent
        commander = Commander(home=self.home, logs=logs, timeout=self.timeout, cancelled=cancelled, stage=stage)
        with self._building:
            environment = self._kept(request)
            if environment is None or (environment.is_usable and self._present != request.torch):
                # an interrupt, or out of time: nothing is kept, the next run may have more luck
                try:
                    environment = self._made(request, commander)
                except CancelledError as error:
                    return self._environment(request, outcome=Outcome.UNBUILDABLE, reason=str(error))
                except InstallError as error:
                    return self._environment(request, outcome=Outcome.UNBUILDABLE, reason=error.reason, log=error.log)
            commander.stage(str(environment.outcome or "ready"))
            return environment

    def release(self, request: Request) -> None:
        """Do nothing: a commit stays until the next one is built."""

    # below: with the lock held

    def _made(self, request: Request, commander: Commander) -> Environment:
        """Check a commit out, build and probe it, and keep what it is."""
        commit, interpreter = request.torch, self.interpreter
        self._present = None
        self.go_to(commit)
        commander.stage("building")
        log = commander.logs / "build.log"
        builder = replace(commander, cwd=self.folder, processes=PROCESSES)
        argv = ("/bin/sh", "-c", self.command)
        ending = builder.run(argv, env=self._environ(), log=log, what="the build")
        fields: dict[str, object]
        if ending.exit_code == 0:
            self._present = commit
            result = run_probe(request, interpreter, commander)
            if result.python:
                side_packages(request.config, result.python, interpreter, Disk(self.home), commander)
            fields = {"torch": result.torch or commit, "python": result.python, "packages": result.packages}
            fields |= {"fingerprint": result.fingerprint} | result.verdict
        else:
            fields = {"outcome": Outcome.UNBUILDABLE, "reason": _reason(ending, log), "log": log}
        environment = self._environment(request, **fields)
        write_atomic(self._kept_file(request), environment.model_dump_json())
        self._built.add(environment.id)
        return environment

    def _environ(self) -> dict[str, str]:
        """Return the user's environment, with the interpreter's folder first on PATH as in an activated venv."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        binaries = self.interpreter.parent
        env["PATH"] = os.pathsep.join([str(binaries), env.get("PATH", os.defpath)])
        if (binaries.parent / "pyvenv.cfg").exists():
            env["VIRTUAL_ENV"] = str(binaries.parent)
        return env

    def _environment(self, request: Request, **fields: object) -> Environment:
        config = request.config.name
        parts = ["commit", request.torch[:10], *([] if config == "default" else [config])]
        known: dict[str, object] = {"id": self._identity(request), "label": "-".join(parts), "build": BUILD}
        known |= {"config": config, "torch": request.torch, "python": "", "interpreter": self.interpreter}
        return Environment.model_validate(known | fields)

    def _identity(self, request: Request) -> str:
        config = request.config.model_dump(mode="json", exclude={"summary"})
        return digest(["commit", request.torch, str(self.interpreter), self.command, config])

    def _kept_file(self, request: Request) -> Path:
        return self.home / "commits" / self._identity(request) / "environment.json"

    def _kept(self, request: Request) -> Environment | None:
        if self.fresh and self._identity(request) not in self._built:
            return None
        return read_json(self._kept_file(request), Environment)


def _reason(ending: Ending, log: Path) -> str:
    """Return in one line why a build failed; raises InstallError for what may not happen again."""
    if ending.exit_code == SKIP:
        return f"the build command exits {SKIP}: not to be tested"
    if ending.signal:
        raise InstallError(f"the build was ended by {ending.signal}", log)
    if ending.exit_code is None:
        return f"the build was stopped: {ending.stopped_by}"
    return f"the build failed: {log_summary(log, ending)}"


class LaidCommits:
    """Wheels, and what commits make of them until `release`. `files_of` reads a commit for a wheel in site-packages."""

    def __init__(
        self, wheels: EnvironmentCache, files_of: Callable[[Request, Path], PatchedFiles], *, fresh: bool = False
    ) -> None:
        self.home = wheels.home
        self._wheels, self._files_of, self._fresh = wheels, files_of, fresh
        self._guard = threading.Lock()  # of what is laid
        self._laid: dict[str, Environment] = {}  # by install key; also what is broken
        self._held: defaultdict[str, list[ExitStack]] = defaultdict(list)  # overlays in use, likewise

    def known(self, request: Request) -> Environment | None:
        """Return what a commit was when it was tried; None if it was not, or over another installation of its wheel."""
        wheel = self._wheels.known(request.unlaid)
        if not request.commit or wheel is None:
            return wheel
        read = None if self._fresh else read_json(self._kept_file(request), Environment)
        kept = self._laid.get(request.install_key, read)
        return kept if kept and kept.id.startswith(f"{wheel.id}+") else None

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
                kept = self.known(request)
                environment = kept if kept and not kept.is_usable else self._lay(request, wheel, kept, commander)
            except (CancelledError, PreventedError) as error:
                environment = unbuildable(request, str(error))
            except OSError as error:
                environment = unbuildable(request, f"{error.strerror}: {error.filename}")
        if not environment.is_usable:
            self._wheels.release(request.unlaid)
        stage(str(environment.outcome or "ready"))
        return environment

    def release(self, request: Request) -> None:
        """Remove what was laid for a request, and let the wheel be evicted."""
        if held := self._held[request.install_key]:
            held.pop().close()
        self._wheels.release(request.unlaid)

    def close(self) -> None:
        """Remove what is still laid."""
        for held in self._held.values():
            while held:
                held.pop().close()

    def _lay(self, request: Request, wheel: Environment, kept: Environment | None, commander: Commander) -> Environment:
        """Lay a commit's files over a wheel; probe what comes of it, unless it is what was kept."""
        assert wheel.interpreter is not None
        commander.stage("laying")
        files, note = self._files_of(request, site_packages(wheel.interpreter.parent.parent))
        with ExitStack() as held:
            environment = held.enter_context(overlays_below(self.home).laid(wheel, files))
            interpreter = environment.interpreter
            assert interpreter is not None
            told = {"label": request.label, "patch": f"commit@{request.commit[:10]}", "options": ()}
            environment = environment.model_copy(update=told | {"notes": (*wheel.notes, note)})
            is_lasting = False
            if kept is None or kept.id != environment.id:
                if any(name.partition("/")[0] in PACKAGES for name in files):  # of torch: it must still work
                    answer = run_probe(request, interpreter, commander)
                    is_lasting, found = answer.is_lasting, {"fingerprint": answer.fingerprint} | answer.verdict
                    if answer.problem:  # the overlay is gone when it is read
                        laid, wheels = (str(each.parent.parent) for each in (interpreter, wheel.interpreter))
                        found["reason"] = answer.problem.replace(laid, wheels)
                    environment = environment.model_copy(update=found)
                if environment.is_usable or is_lasting:
                    write_atomic(self._kept_file(request), environment.model_dump_json())
            if environment.is_usable:  # what is broken is not run
                self._held[request.install_key].append(held.pop_all())
        self._laid[request.install_key] = environment
        return environment

    def _kept_file(self, request: Request) -> Path:
        suffix = f"-{digest(sorted(request.imported))}" if request.imported else ""
        return self.home / "commits" / request.install_key / f"environment{suffix}.json"
