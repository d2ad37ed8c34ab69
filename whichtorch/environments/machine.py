"""A machine as it describes itself, and whether it is of a kind of hardware."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from whichtorch.base.errors import PreventedError
from whichtorch.base.version_parsing import in_specifier
from whichtorch.inside import probe
from whichtorch.model import Hardware, Model, Request
from whichtorch.process.executor import usable_cores

SMI_TIMEOUT = 20.0  # seconds: without the persistence daemon the driver is loaded first


class Machine(Model):
    """What a machine says of itself."""

    host: str
    arch: str  # "x86_64"
    cores: int = 0  # that programs may use; 0: not known
    cpu: str = ""  # model
    gpus: tuple[str, ...] = ()  # models, as the driver names them
    driver: str = ""  # version of the GPUs' driver, "" where there is none

    def lack(self, hardware: Hardware) -> str:
        """Return what this machine has instead of what a kind of hardware asks for, "" where it is of that kind."""
        if hardware.gpu and not any(fnmatchcase(gpu, hardware.gpu) for gpu in self.gpus):
            return f"its GPUs are {', '.join(sorted(set(self.gpus)))}" if self.gpus else "it has no GPU"
        for name in ("arch", "cpu", "host"):
            pattern, value = getattr(hardware, name), getattr(self, name)
            if pattern and not fnmatchcase(value, pattern):
                return f"its {name} is {value or 'not known'}"
        if hardware.driver and not in_specifier(self.driver, hardware.driver, as_final=False):
            return f"its driver is {self.driver or 'not known'}"
        return ""


def check_hardware(requests: Iterable[Request]) -> None:
    """Raise PreventedError where this machine is not of a kind of hardware that is asked for."""
    for request in requests:
        if request.hardware is not None and (lack := this_machine().lack(request.hardware)):
            hint = "name a cluster that has such a machine with --executor"
            raise PreventedError(f"this machine is not of the hardware {request.hardware_name}: {lack}", hint=hint)


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """Return what the machine that this runs on says of itself."""
    gpus = _gpus_and_drivers()
    return Machine(
        host=platform.node(),
        arch=platform.machine(),
        cores=usable_cores(),
        cpu=str(probe.cpu()["model"]),
        gpus=tuple(name for name, _ in gpus),
        driver=gpus[0][1] if gpus else "",
    )


def _gpus_and_drivers() -> list[tuple[str, str]]:
    """Return model and driver of each NVIDIA GPU; none where there is no driver that answers."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.strip().partition(", ") for line in answer.stdout.splitlines() if line.strip())
    return [(name, driver) for name, _, driver in rows]
