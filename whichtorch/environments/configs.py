"""Named configs, and the environment variables that a cell sees: the user's, cleaned, and the config's.

A config changes how a process starts, never what is installed, so all configs of one torch share
an installation.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from whichtorch.base.errors import UsageError
from whichtorch.base.redaction import TOKEN, is_secret
from whichtorch.base.version_parsing import minor_python
from whichtorch.inside.startup import FOLDER
from whichtorch.model import Config, Environment, Request, digest

# MKL and OpenBLAS bring pools of their own and read their own variable first
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_BUILTIN = (
    Config(name="default", summary="torch as a user gets it"),
    Config(name="single-thread", env=SINGLE_THREAD, summary="one thread for OpenMP and the BLAS"),
    Config(
        name="iomp",
        # intel-openmp is all data files: --target and --prefix both put the library in lib/
        env={"LD_PRELOAD": "{beside}/lib/libiomp5.so"},
        beside=("intel-openmp",),
        summary="Intel's OpenMP runtime instead of the wheel's libgomp",
    ),
    Config(
        name="cpp-meta",
        hooks=("cpp_meta",),
        summary="Meta kernels that torch registers from Python are removed, those of C++ stay",
    ),
    Config(
        name="dispatch-trace",
        env={"TORCH_SHOW_DISPATCH_TRACE": "1"},
        summary="every dispatch on stderr, where the build has the trace compiled in",
    ),
    Config(
        name="no-compile-threads",
        env={"TORCHINDUCTOR_COMPILE_THREADS": "1"},
        summary="inductor compiles in its own process instead of a pool of workers",
    ),
)

BUILTIN = {config.name: config for config in _BUILTIN}
# A config sets every variable that steers Python and torch: none of these is passed on from the user's shell.
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
_LOCALE = ("LANG", "LC_", "TZ")  # differ between a terminal and a nightly job
_FAMILIES = tuple(name for name in ALLOWED if name.endswith("_"))


def config_named(name: str, custom: Mapping[str, Config]) -> Config:
    """Return the config called `name`, from the matrix file or built in. Raises UsageError with the nearest name."""
    known = BUILTIN | dict(custom)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    raise UsageError(f"no config is called {name!r}", hint=f"{remedy}; your own go into [config.NAME] tables")


def cell_environ(
    request: Request, environment: Environment, home: Path, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the whole environment that a cell of this request runs with; see `cell_environ_of`."""
    assert environment.interpreter is not None
    beside = side_packages_folder(request.config, environment.python, home)
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
    env |= {"PYTHONPATH": str(FOLDER), "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    if config.hooks:
        env["WHICHTORCH_HOOKS"] = ",".join(config.hooks)
    for name, value in config.env.items():
        text = value.replace("{beside}", str(beside)) if beside is not None else value
        # a config may add to these paths; the start-up folder and the environment's programs stay first
        first = {"PYTHONPATH": str(FOLDER), "PATH": str(interpreter.parent)}.get(name)
        env[name] = os.pathsep.join([first, text]) if first else text
    return env


def recorded(environ: Mapping[str, str], config: Config) -> dict[str, str]:
    """Return the variables that are kept with a cell's records: the config's and the allowed ones."""
    names = sorted(name for name in environ if name in config.env or _is_allowed(name))
    return {name: TOKEN if is_secret(name) else environ[name] for name in names}


def variables_digest(environ: Mapping[str, str] = os.environ) -> str:
    """Return a digest of the user's variables that may change what torch does, "" where none of them is set."""
    relevant = sorted(
        (name, value) for name, value in environ.items() if _is_allowed(name) and not name.startswith(_LOCALE)
    )
    return digest(relevant) if relevant else ""


def _is_allowed(name: str) -> bool:
    return name in ALLOWED or name.startswith(_FAMILIES)


def side_packages_folder(config: Config, python: str, home: Path) -> Path | None:
    """Return the folder that a config's `beside` requirements are installed into, None where it has none."""
    if not config.beside:
        return None
    return home / "beside" / digest([sorted(config.beside), minor_python(python)])
