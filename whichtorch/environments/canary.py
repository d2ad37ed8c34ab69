"""Run the probe inside an environment, and make an Environment of what it found."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from whichtorch.base.atomic_files import read_json, remove_tree, write_atomic
from whichtorch.environments.commander import Commander, InstallError
from whichtorch.environments.configs import cell_environ_of, side_packages_folder
from whichtorch.environments.installation import (
    PROBE,
    PROBE_DIGEST,
    InstallFolder,
    Package,
    ProbedEnvironment,
    Stamp,
    environment_id,
    environment_of,
    installed_packages,
    stamps_of,
)
from whichtorch.model import Config, Environment, Fingerprint, Outcome, Request, digest

if TYPE_CHECKING:
    from whichtorch.environments.disk import Disk

PROBE_TIMEOUT = 300.0  # seconds: `import torch` from a cold disk takes up to a minute
_PASSING = re.compile(r"MemoryError|OSError|KeyboardInterrupt")  # what a machine's state may raise


class ProbeAnswer(BaseModel):
    """What the probe has written. Where `problem` is set, the canary failed and much of the rest may be missing."""

    step: str = ""  # the last one that began
    problem: str | None = None
    is_lasting: bool = False  # the problem is an exception that is expected to come again
    torch: str = ""
    python: str = ""
    packages: dict[str, str] = {}
    fingerprint: Fingerprint = Fingerprint()
    watched: tuple[Path, ...] = ()  # files that say whether an environment of the user's has changed
    log: Path | None = None

    @property
    def verdict(self) -> dict[str, Any]:
        """The fields of an Environment that say that it is broken; none where the canary passed."""
        return {"outcome": Outcome.BROKEN, "reason": self.problem, "log": self.log} if self.problem else {}


def run_probe(request: Request, interpreter: Path, commander: Commander) -> ProbeAnswer:
    """Probe an environment under the request's config. A canary that fails or hangs is no error but a finding."""
    commander.stage("probing")
    config, logs = request.config, commander.logs
    beside = side_packages_folder(config, request.python or "existing", commander.home)
    env = cell_environ_of(config, interpreter, beside)
    safe = re.sub(r"[^\w-]", "_", config.name)
    log, answer_file = logs / f"probe-{safe}.log", logs / f"probe-{safe}.json"
    logs.mkdir(parents=True, exist_ok=True)
    answer_file.unlink(missing_ok=True)
    # a copy of its own: neither the tool's folder nor its bytecode is part of the environment
    script = logs / "probe.py"
    shutil.copyfile(PROBE, script)
    argv = (str(interpreter), str(script), str(answer_file), *request.imported)
    try:
        ending = commander.run(argv, env=env, log=log, what="the canary", timeout=PROBE_TIMEOUT)
        died = f"it died with {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"
        how = "" if ending.exit_code == 0 and not ending.signal else died
    except InstallError as error:
        how = error.reason
    answer = read_json(answer_file, ProbeAnswer)
    if answer is None:
        return ProbeAnswer(problem=f"the canary did not start: {how or 'no answer'}", log=log)
    answer.torch, answer.log = answer.packages.get("torch", answer.torch), log
    answer.is_lasting = bool(answer.problem) and not _PASSING.match(answer.problem or "")
    if answer.problem or answer.step != "done" or how:
        answer.problem = f"the canary fails at {answer.step!r}: {answer.problem or how or 'it ended early'}"
    return answer


def probed_installation(request: Request, folder: InstallFolder, disk: Disk, commander: Commander) -> Environment:
    """Return an installation as a config makes it, probed once per config."""
    installation = folder.installation()
    assert installation is not None
    python, packages = installation.python, installation.packages
    versions = {package.name: package.version for package in packages}
    beside = side_packages(request.config, python, folder.python, disk, commander)
    identity = environment_id(request, python, packages, beside)
    probed = folder.probed(request.config)
    # A newer probe asks more: what is installed is probed again, while an evicted environment stays as it is known.
    if probed is not None and probed.environment["id"] == identity and probed.asked == PROBE_DIGEST:
        return environment_of(request, probed.environment | {"interpreter": folder.python})
    fields = {"id": identity, "torch": versions["torch"], "python": python, "interpreter": folder.python}
    fields |= {"packages": versions, "notes": installation.notes}
    return _kept_if_usable(request, fields, run_probe(request, folder.python, commander), folder, installation.watched)


def probed_interpreter(request: Request, folder: InstallFolder, disk: Disk, commander: Commander) -> Environment:
    """Return an environment of the user's as it is. It is probed again when its files have changed."""
    if (known := folder.known(request)) is not None:
        return known
    interpreter = request.interpreter
    assert interpreter is not None
    if not os.access(interpreter, os.X_OK) or interpreter.is_dir():
        raise InstallError(f"there is no interpreter {interpreter}")
    result = run_probe(request, interpreter, commander)
    python = result.python
    stamps = stamps_of(result.watched)
    # two builds of one commit are two environments, and so is one that was built again
    built = digest([result.fingerprint.git_version, *(stamp for stamp in stamps if not Path(stamp[0]).is_dir())])
    packages = [
        Package(name=name, version=version, size=0, inode=0, digest=built if name == "torch" else "")
        for name, version in result.packages.items()
    ]
    beside = side_packages(request.config, python, interpreter, disk, commander) if python else []
    identity = environment_id(request, python, packages, beside)
    fields = {"id": identity, "torch": result.torch, "python": python, "interpreter": interpreter}
    fields |= {"packages": result.packages}
    return _kept_if_usable(request, fields, result, folder, stamps)


def _kept_if_usable(
    request: Request, fields: dict[str, Any], result: ProbeAnswer, folder: InstallFolder, watched: tuple[Stamp, ...]
) -> Environment:
    """Keep a usable environment and return it; a broken one is returned only, and probed again by the next run."""
    if result.problem is not None:
        return environment_of(request, fields | result.verdict)
    environment = environment_of(request, fields | {"fingerprint": result.fingerprint})
    kept = environment.model_dump(mode="json", exclude={"label", "patch", "options"})
    probed = ProbedEnvironment(environment=kept, watched=watched, asked=PROBE_DIGEST)
    write_atomic(folder.probed_file(request.config), probed.model_dump_json())
    return environment


def side_packages(config: Config, python: str, interpreter: Path, disk: Disk, commander: Commander) -> list[Package]:
    """Return a config's side packages, installing them into their own folder if they are not there."""
    folder = side_packages_folder(config, python, commander.home)
    if folder is None:
        return []
    complete = folder / "complete"
    with disk.locked(f"beside-{folder.name}", commander.cancelled):
        if not complete.exists():
            remove_tree(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            mark = f"beside_{folder.name}"
            disk.mark(mark, reserved=1)  # what uv unpacks for it is not left over
            try:
                commander.uv(
                    *("pip", "install", "--prefix", str(folder), "--python", str(interpreter), "--quiet"),
                    *config.beside,
                    log=commander.logs / "beside.log",
                    what=f"installing {' '.join(config.beside)} beside it",
                )
                complete.touch()
            finally:
                disk.unmark(mark)
    return installed_packages(folder)
