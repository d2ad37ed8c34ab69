"""What a cell's process sees of its surroundings: the user's environment, cleaned, and the config."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from matrix.environments.inside.startup import FOLDER
from matrix.model import digest
from matrix.privacy.redaction import TOKEN, is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matrix.model import Config, Environment, Request

# A config is the whole story: nothing of these may come from the shell that the tool was started in.
_FOREIGN = (
    *("PYTHON", "VIRTUAL_ENV", "CONDA_", "TORCH", "PYTORCH", "LD_PRELOAD", "UV_", "WHICHTORCH_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_"),
    "PIP_",  # may hold an index's credentials
)
# What of the user's shell may reach torch, a library below it or the loader, and change what they do: only these
# variables are recorded. A name that ends in "_" stands for all that begin with it.
ALLOWED = (
    *("CUDA_", "HIP_", "ROCR_", "HSA_", "NVIDIA_", "ZE_", "SYCL_", "CUBLAS_", "CUDNN_", "DNNL_", "ONEDNN_"),
    *("NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "TRITON_", "XLA_", "ATEN_", "NUMEXPR_", "GOTO_NUM_THREADS"),
    *("LD_LIBRARY_PATH", "LD_BIND_NOW", "GLIBC_TUNABLES", "MALLOC_", "CC", "CXX", "LANG", "LC_", "TZ"),
)
_FAMILIES = tuple(name for name in ALLOWED if name.endswith("_"))


def cell_environ(
    request: Request, environment: Environment, home: Path, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the whole environment that a cell of this request runs with; see `cell_environ_of`."""
    assert environment.interpreter is not None
    beside = beside_folder(request.config, environment.python, home)
    return cell_environ_of(request.config, environment.interpreter, beside, environ)


def cell_environ_of(
    config: Config, interpreter: Path, beside: Path | None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the whole environment that a cell runs with under a config.

    It is the user's environment without all that steers Python, torch, OpenMP and the BLAS, plus the config's
    variables; `{beside}` in their values becomes the folder `beside`.
    """
    env = {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}
    env["PATH"] = os.pathsep.join([str(interpreter.parent), environ.get("PATH", os.defpath)])
    env["PYTHONPATH"] = str(FOLDER)
    env["PYTHONFAULTHANDLER"] = "1"
    env["PYTHONUNBUFFERED"] = "1"
    if config.hooks:
        env["WHICHTORCH_HOOKS"] = ",".join(config.hooks)
    for name, value in config.env.items():
        text = value.replace("{beside}", str(beside)) if beside is not None else value
        # a config may add to the import path; the start-up folder stays first
        env[name] = os.pathsep.join([str(FOLDER), text]) if name == "PYTHONPATH" else text
    return env


def recorded(environ: Mapping[str, str], config: Config) -> dict[str, str]:
    """Return the variables that are kept with a cell's records: the config's and the allowed ones."""
    names = sorted(name for name in environ if name in config.env or name in ALLOWED or name.startswith(_FAMILIES))
    return {name: TOKEN if is_secret(name) else environ[name] for name in names}


def beside_folder(config: Config, python: str, home: Path) -> Path | None:
    """Return the folder that a config's `beside` requirements are installed into, None where it has none."""
    if not config.beside:
        return None
    minor = ".".join(python.split(".")[:2])
    return home / "beside" / digest([sorted(config.beside), minor])
