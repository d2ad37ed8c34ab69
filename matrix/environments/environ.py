"""What a cell's process sees of its surroundings: the user's environment, cleaned, and the config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.model import digest
from matrix.privacy.redaction import TOKEN, is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.model import Config

STARTUP = Path(__file__).parent / "inside" / "startup"  # on PYTHONPATH of every cell; runs the config's hooks
# A config is the whole story: nothing of these may come from the shell that the tool was started in.
_FOREIGN = (
    "PYTHON",
    "VIRTUAL_ENV",
    "CONDA_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "TORCH",
    "PYTORCH",
    "LD_PRELOAD",
    "UV_",
    "WHICHTORCH_",
    "PIP_",  # may hold an index's credentials
)
# Of the user's shell what may reach torch, a library below it or the loader, and change what they do; whatever else is
# there is nobody's business. A name that ends in "_" stands for all that begin with it.
ALLOWED = (
    "CUDA_",
    "HIP_",
    "ROCR_",
    "HSA_",
    "NVIDIA_",
    "ZE_",
    "SYCL_",
    "NCCL_",
    "RCCL_",
    "GLOO_",
    "UCX_",
    "FI_",
    "CUBLAS_",
    "CUDNN_",
    "DNNL_",
    "ONEDNN_",
    "TRITON_",
    "XLA_",
    "ATEN_",
    "NUMEXPR_",
    "GOTO_NUM_THREADS",
    "LD_LIBRARY_PATH",
    "LD_BIND_NOW",
    "GLIBC_TUNABLES",
    "MALLOC_",
    "CC",
    "CXX",
    "LANG",
    "LC_",
    "TZ",
)
_FAMILIES = tuple(name for name in ALLOWED if name.endswith("_"))


def cell_environ_of(
    config: Config, interpreter: Path, beside: Path | None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the whole environment that a cell runs with.

    The user's, less all that steers Python, torch, OpenMP and the BLAS, plus what the config says;
    `{beside}` in its values becomes the folder `beside`.
    """
    env = {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}
    env["PATH"] = os.pathsep.join([str(interpreter.parent), environ.get("PATH", os.defpath)])
    env["PYTHONPATH"] = str(STARTUP)
    env["PYTHONFAULTHANDLER"] = "1"
    env["PYTHONUNBUFFERED"] = "1"
    if config.hooks:
        env["WHICHTORCH_HOOKS"] = ",".join(config.hooks)
    for name, value in config.env.items():
        text = value.replace("{beside}", str(beside)) if beside is not None else value
        # a config may add to the import path; the start-up folder stays first
        env[name] = os.pathsep.join([str(STARTUP), text]) if name == "PYTHONPATH" else text
    return env


def recorded(environ: Mapping[str, str], config: Config) -> dict[str, str]:
    """Return the variables of a cell's environment that are kept with its records: the config's, and those allowed."""
    names = sorted(name for name in environ if name in config.env or name in ALLOWED or name.startswith(_FAMILIES))
    return {name: TOKEN if is_secret(name) else environ[name] for name in names}


def beside_folder(config: Config, python: str, home: Path) -> Path | None:
    """Return the folder that a config's `beside` requirements are installed into, None where it has none."""
    if not config.beside:
        return None
    minor = ".".join(python.split(".")[:2])
    return home / "beside" / digest([sorted(config.beside), minor])
