"""Find, or get, the interpreter that an environment is made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from findpython import Finder

from whichtorch.base.errors import PreventedError
from whichtorch.environments.commander import Commander, InstallError

DEFAULT_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"  # that of the running interpreter
QUERY_TIMEOUT = 10.0  # seconds for an interpreter to say what it is: a shim over a network drive is slow
DOWNLOAD_TIMEOUT = 300.0  # seconds for uv to fetch some 30 MB
_QUERY = (
    "import json, os, platform, struct, sys, sysconfig; print(json.dumps(["
    "platform.python_implementation(), platform.python_version(), struct.calcsize('P') * 8, "
    "bool(sysconfig.get_config_var('Py_GIL_DISABLED')), "
    "os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')), "
    "os.path.realpath(sys.executable)]))"
)


class InterpreterNotFoundError(PreventedError):
    """No interpreter of the asked version was found, and none could be downloaded."""


def find_interpreter(python: str, commander: Commander, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a real CPython binary of a version such as "3.11", "3.11.7" or "3.13t".

    Looks at the running interpreter, PATH, pyenv, conda, uv, asdf and rye, and prefers one that has Python.h. If
    there is none, uv downloads one into the state folder. Raises InterpreterNotFoundError with everything searched.
    """
    home = commander.home
    without_headers: Path | None = None
    for interpreter, has_headers in filter(None, (_query(path, python) for path in _candidates(python, home, environ))):
        if has_headers:
            return interpreter
        without_headers = without_headers or interpreter
    if without_headers is not None:
        return without_headers
    problem = "it reports success, but the interpreter is not there"
    try:
        replace(commander, timeout=DOWNLOAD_TIMEOUT).uv(
            *("python", "install", "--no-bin", python),
            log=commander.logs / "python.log",
            what="the download",
            variables={"UV_HTTP_RETRIES": "1"},  # three retries with pauses would keep the matrix waiting
        )
    except InstallError as error:
        problem = error.reason
    for path in _downloaded(home):
        if answer := _query(path, python):
            return answer[0]
    raise InterpreterNotFoundError(
        f"no Python {python} found; searched {', '.join(_searched(home, environ))}; "
        f"and uv cannot download one ({problem})",
        hint=f"install Python {python} and put it on PATH, or name it with --interpreter",
    )


def found_python(python: str) -> bool:
    """Return whether this machine has a CPython of a version, without a download."""
    return any(_query(path, python) for path in _candidates(python, Path(), os.environ))


def _candidates(python: str, home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield each binary that may be of that version once, the cheapest and likeliest first."""
    asked = ".".join(python.removesuffix("t").split(".")[:2])
    own = Path(getattr(sys, "_base_executable", None) or sys.executable)
    yielded: set[Path] = set()
    paths = [own] if asked == DEFAULT_PYTHON else []
    versions = (version for provider in Finder()._providers for version in provider.find_pythons())
    by_findpython = (version.executable for version in versions)  # which does not look into conda's environments
    patterns = ("bin/python3", "envs/*/bin/python3")
    conda = (path for root in _conda_roots(environ) for each in patterns for path in sorted(root.glob(each)))
    for path in (*paths, *_downloaded(home), *conda, *by_findpython):
        # a shim is a script that starts whatever pyenv thinks best; the real binaries are searched, too
        if path.parent.name == "shims" or not _may_be(path.name, asked):
            continue
        real = path.resolve()
        if real not in yielded and _may_be(real.name, asked):
            yielded.add(real)
            yield path


def _may_be(name: str, asked: str) -> bool:
    """Return whether a binary of that name can be Python `asked`: python3.9 is not 3.11, python3 may be."""
    version = name.removeprefix("python").removesuffix("t")
    return name.startswith("python") and (version in {"", "3", asked} or asked.startswith(version + "."))


def _downloaded(home: Path) -> list[Path]:
    return sorted((home / "pythons").glob("*/bin/python3"))


def _conda_roots(environ: Mapping[str, str]) -> list[Path]:
    home = Path(environ.get("HOME") or Path.home())
    named = [Path(environ["CONDA_EXE"]).parent.parent] if environ.get("CONDA_EXE") else []
    named += [Path(environ[name]) for name in ("CONDA_PREFIX", "MAMBA_ROOT_PREFIX") if environ.get(name)]
    common = [home / name for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba")]
    return [root for root in dict.fromkeys([*named, *common, Path("/opt/conda")]) if root.is_dir()]


def _query(path: Path, python: str) -> tuple[Path, bool] | None:
    """Return the real path of a 64-bit CPython of a version, and whether it has the Python.h that inductor needs."""
    try:
        answer = subprocess.run(
            [str(path), "-I", "-S", "-c", _QUERY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=QUERY_TIMEOUT,
            check=True,
        )
        implementation, version, bits, free_threaded, has_headers, real = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    fits = f"{version}.".startswith(f"{python.removesuffix('t')}.") and free_threaded == python.endswith("t")
    return (Path(real), has_headers) if implementation == "CPython" and bits == 64 and fits else None


def _searched(home: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    conda = [str(root) for root in _conda_roots(environ)] or ["conda (not installed)"]
    return (
        sys.executable,
        str(home / "pythons"),
        *dict.fromkeys(f"{folder} (PATH)" for folder in folders),
        *conda,
        *(f"{kind} (by findpython)" for kind in ("asdf", "pyenv", "rye", "uv")),
    )
