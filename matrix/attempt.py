"""One attempt: a planned cell and a limit -> a record."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scenarios
from matrix.diagnosis.conditions import OBSERVED
from matrix.diagnosis.verdict import judge
from matrix.environments.cache import cell_environ
from matrix.model import Attempt, Environment, Record, Role, StoppedBy
from matrix.native import VARIABLE as NATIVE_VARIABLE
from matrix.process.supervise import Task, find_py_spy, mark_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.executors.local import LocalExecutor
    from matrix.plan import PlannedCell

_OBSERVATION = "observed.json"  # in an observing attempt's folder
STDERR_READ = 64 * 2**10  # bytes of the end of stderr in which a traceback is looked for


def run_attempt(
    planned: PlannedCell,
    environment: Environment,
    *,
    limit: float,
    is_rerun: bool,
    executor: LocalExecutor,
    home: Path,
    folder: Path,
    role: Role = Role.JUDGE,
    native: Path | None = None,
) -> Record | None:
    """Run a script once, with what it writes in `folder`; None where it was interrupted.

    An observing attempt has the start-up hook `observe` note what it dispatches. `native` is the module
    built from the scenario's native sources. A rerun is the longer look at what was slow.
    """
    started = datetime.now(UTC)
    task = _task(planned, environment, limit, home, folder)
    task.env.update({NATIVE_VARIABLE: str(native)} if native else {})
    if role is Role.OBSERVE:
        task.env.update(_observing(task.env, folder))
    try:
        ending = executor.run(task)
    finally:
        shutil.rmtree(folder / "tmp", ignore_errors=True)
    if ending is None or ending.stopped_by == StoppedBy.INTERRUPT:
        return None
    verdict = judge(ending, _end_of(Path(task.stderr)), planned.limits.memory_mb, is_rerun=is_rerun)
    return Record(
        key=planned.key(environment),
        environment=environment.id,
        scenario=planned.scenario.name,
        source_hash=planned.scenario.source_hash,
        variant=planned.variant,
        limits=planned.limits,
        attempt=Attempt(
            role=role,
            outcome=verdict.outcome,
            seconds=round(ending.seconds, 3),
            stopped_by=StoppedBy(ending.stopped_by),
            exit_code=ending.exit_code,
            signal=ending.signal,
            peak_rss_mb=round(ending.peak_rss_mb, 1),
            survivors=ending.survivors,
            stdout=str(Path(task.stdout).relative_to(home)),
            stderr=str(Path(task.stderr).relative_to(home)),
            limit=limit,
            cpu_seconds=round(ending.cpu_seconds, 2),
            started=started.isoformat(timespec="seconds"),
            stdout_bytes=ending.stdout_bytes,
            stderr_bytes=ending.stderr_bytes,
            note=verdict.note,
            evidence=ending.evidence | ({OBSERVED: _observation(folder)} if role is Role.OBSERVE else {}),
        ),
        signature=verdict.signature,
    )


def _task(planned: PlannedCell, environment: Environment, limit: float, home: Path, folder: Path) -> Task:
    scratch = folder / "tmp"
    scratch.mkdir()
    environ = cell_environ(planned.request, environment, home) | scenarios.variant_environ(planned.variant)
    # every attempt compiles anew, and leaves nothing behind for the next
    environ |= {
        "TMPDIR": str(scratch),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
    }
    return Task(
        argv=(str(environment.interpreter), str(planned.scenario.path)),
        cwd=str(scratch if planned.scenario.in_suite else Path.cwd()),
        env=environ,
        stdout=str(folder / "stdout.txt"),
        stderr=str(folder / "stderr.txt"),
        timeout=limit,
        memory_mb=planned.limits.memory_mb,
        stall=planned.limits.stall and sys.platform == "linux",
        sample=True,
        py_spy=find_py_spy(),
        mark=mark_for(home, folder.name),
    )


def _observing(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables that make a task an observed one; the config's hooks stay the first."""
    hooks = [name for name in environ.get("WHICHTORCH_HOOKS", "").split(",") if name]
    return {"WHICHTORCH_HOOKS": ",".join([*hooks, "observe"]), "WHICHTORCH_OBSERVE": str(folder / _OBSERVATION)}


def _observation(folder: Path) -> Any:
    """Return what the observer wrote, None where it wrote nothing that can be read."""
    try:
        found = json.loads((folder / _OBSERVATION).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _end_of(path: Path) -> str:
    """Return the end of a text file, whatever bytes it holds."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - STDERR_READ))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
