"""Native sources of scenarios: built once per installation, outside the attempts' time, and kept.

    native/<key>/<module>.so, build.log

The key holds what the module depends on: the installation and the sources, but neither config nor variant.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch import inside
from whichtorch.base.redaction import Redactor
from whichtorch.environments.commander import log_summary
from whichtorch.environments.configs import cell_environ_of
from whichtorch.inside.build_native import NO_COMPILER
from whichtorch.model import Config, Environment, StoppedBy, digest
from whichtorch.process.marks import mark_for
from whichtorch.process.sandbox import interpreter_folders, own_folder, sandbox_spec
from whichtorch.process.supervision import Task
from whichtorch.suite.headers import native_source

if TYPE_CHECKING:
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.process.executor import Executor

BUILDER = inside.path("build_native.py")
BUILD_TIMEOUT = 600.0  # seconds: a source with all of torch's headers takes 30 s, ten at once much longer
BUILD_MEMORY_MB = 8000  # what a compiler may need for torch's headers, several times over
VARIABLE = "WHICHTORCH_NATIVE"  # tells a script where its module is


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeModule:
    """A module, or why there is none; neither for a scenario without native sources."""

    path: Path | None = None
    problem: str = ""  # one line, with remedy and log: never evidence about torch


@dataclass
class NativeModules:
    """The modules of one state folder. Safe between threads, and between processes."""

    home: Path
    executor: Executor
    stage: Callable[[str, str], None]
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _failed: dict[str, NativeModule] = field(default_factory=dict)  # not tried again in this run

    def get(
        self, planned: PlannedCell, environment: Environment, cancelled: threading.Event | None = None
    ) -> NativeModule | None:
        """Return the module of a cell's scenario, building it where it is not there; None where interrupted."""
        script, sources = planned.scenario.path, _sources(planned)
        names = ", ".join(planned.scenario.native)
        if planned.scenario.sandboxed and own_folder(script) is None:
            why = "nothing beside it is seen in a sandbox; move both into a folder of their own"
            return NativeModule(problem=f"{names} lies in {script.parent}, with other files: {why}")
        try:  # they may be others than when the header was read
            contents = [native_source(script, name) for name in planned.scenario.native]
        except ValueError as error:
            return NativeModule(problem=f"{names} could not be built: {error}")
        key = digest([_installation(environment), [hashlib.sha256(content).hexdigest() for content in contents]])
        module = self.home / "native" / key / f"{sources[0].stem}.so"
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if module.exists():
                return NativeModule(path=module)
            if key not in self._failed:
                built = self._build(planned, environment, module, cancelled)
                if built is None or built.path is not None:
                    return built
                self._failed[key] = built
            return self._failed[key]

    # below: with the lock of the module held

    def _build(
        self, planned: PlannedCell, environment: Environment, module: Path, cancelled: threading.Event | None
    ) -> NativeModule | None:
        """Build a module; another process that builds the same one at the same time only wastes its time."""
        interpreter = environment.interpreter
        assert interpreter is not None
        module.parent.mkdir(parents=True, exist_ok=True)
        log = module.with_name("build.log")
        # the linker gets a name of its own, so that a half-written module is never loaded
        partial = module.parent / f"partial-{os.getpid()}" / module.name
        partial.parent.mkdir(exist_ok=True)
        sources, spec = _sources(planned), None
        if planned.scenario.sandboxed:  # a stranger's sources may include any file
            readable = [*interpreter_folders(interpreter), BUILDER, *sources]
            spec = sandbox_spec(readable, {module.parent: module.parent})
        task = Task(
            argv=(str(interpreter), str(BUILDER), str(partial), *map(str, sources)),
            cwd=str(partial.parent),
            env=cell_environ_of(Config(name="default"), interpreter, None, planned.own_environ),
            stdout=str(log),
            stderr=str(log),
            timeout=BUILD_TIMEOUT,
            memory_mb=BUILD_MEMORY_MB,
            mark=mark_for(self.home, module.parent.name),
            sandbox=spec,
        )
        names = ", ".join(planned.scenario.native)
        self.stage(environment.label, f"building {names}")
        try:
            ending = self.executor.run(task, cancelled)
            if ending is None or ending.stopped_by == StoppedBy.INTERRUPT:
                return None
            if ending.exit_code == 0 and partial.exists():
                partial.replace(module)
                return NativeModule(path=module)
        finally:
            Redactor.of_this_machine().file(log)
            shutil.rmtree(partial.parent, ignore_errors=True)
            self.stage(environment.label, "ready")
        if ending.exit_code == NO_COMPILER:
            why = "there is no C++ compiler; install g++, or name one in CXX"
        elif ending.stopped_by != StoppedBy.EXIT:
            why = f"stopped by {ending.stopped_by} after {ending.seconds:.0f} s"
        else:
            why = ending.problem or _first_error(log) or log_summary(log, ending)
        return NativeModule(problem=f"{names} could not be built: {why}; log {log}")


def _sources(planned: PlannedCell) -> list[Path]:
    return [planned.scenario.path.parent / name for name in planned.scenario.native]


def _first_error(log: Path) -> str | None:
    """Return the first error of a compiler's output: those after it often follow from it."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return next((line.strip() for line in lines if "error: " in line), None)


def _installation(environment: Environment) -> list[object]:
    """Return what tells one installation from another, whatever the config."""
    commit = environment.fingerprint.git_version
    return [str(environment.interpreter), environment.python, environment.build, environment.packages, commit]
