"""Named configs: the environment variables and start-up hooks that a cell is run with.

A config changes how a process starts, never what is installed, so all configs of one torch share
an installation.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.model import Config

if TYPE_CHECKING:
    from collections.abc import Mapping

_KNOWN = (
    Config(name="default", summary="torch as a user gets it"),
    Config(
        name="single-thread",
        # MKL and OpenBLAS bring pools of their own and read their own variable first
        env={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        summary="one thread for OpenMP and the BLAS",
    ),
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

BUILTIN: dict[str, Config] = {config.name: config for config in _KNOWN}


def config_named(name: str, custom: Mapping[str, Config]) -> Config:
    """Return the config called `name`, from the matrix file or built in. Raises UsageError with the nearest name."""
    known = BUILTIN | dict(custom)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    raise UsageError(f"no config is called {name!r}", hint=f"{remedy}; your own go into [config.NAME] tables")
