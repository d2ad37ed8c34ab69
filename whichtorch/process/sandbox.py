"""The sandbox around a script from a stranger: whether it works here, and what the script sees and may write."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import PreventedError
from whichtorch.base.redaction import is_secret

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from whichtorch.process.supervision import SandboxSpec

PACKAGE = Path(__file__).resolve().parents[1]
TRIAL_TIMEOUT = 10.0  # seconds
# parts of an installation of Python, or of a virtual environment, with the programs that read stacks
PARTS = (
    "pyvenv.cfg", "bin/python*", "bin/py-spy", "bin/pystack", "lib*/python3*", "lib*/libpython*", "include",
)  # fmt: skip
PLAIN = ("PATH", "LANG", "LC_", "TZ")  # variables of the user's that a script sees; "LC_" for all that begin with it


class Sandbox(StrEnum):
    """Whether scripts run in a sandbox, and what builds it."""

    OFF = "off"
    BUBBLEWRAP = "bubblewrap"


def sandbox_spec(readable: Iterable[Path], writable: Mapping[Path, Path], hidden: Iterable[Path] = ()) -> SandboxSpec:
    """Return the spec of a sandbox; raises PreventedError where none can be built here."""
    from whichtorch.process.supervision import SandboxSpec  # here: options need the names of sandboxes only

    require_sandbox()
    return SandboxSpec(
        readable=tuple(dict.fromkeys(str(path.absolute()) for path in (*readable, *_watching()))),
        writable={str(path.absolute()): str(outside.absolute()) for path, outside in writable.items()},
        hidden=tuple(str(path.absolute()) for path in hidden),
    )


def _watching() -> Iterator[Path]:
    """Yield what a supervisor needs, which watches the script from inside: its Python, its programs and its code."""
    yield from interpreter_folders(Path(sys.executable))
    yield PACKAGE


def interpreter_folders(interpreter: Path) -> Iterator[Path]:
    """Yield what a Python needs: its environment, and the installations that its links lead to."""
    yield from _installation(path := interpreter.absolute())
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / path.readlink()))
        yield from _installation(path)
    yield from _installation(Path(os.path.realpath(path)))


def _installation(program: Path) -> Iterator[Path]:
    """Yield the folder of an environment or an installation; of a link to one, as in ~/.local/bin, its own.

    Of an installation in a folder that holds other files, too, only its parts are seen.
    """
    above = program.parent.parent
    is_whole = (above / "pyvenv.cfg").exists() or any(above.glob("lib*/python3*/os.py"))
    folder = above if is_whole else program.parent
    if not _holds_others(folder):
        yield folder
    elif not is_whole:
        yield program
    elif folder.resolve() != Path("/"):  # what is a system's below it is seen anyway
        for pattern in PARTS:
            yield from sorted(folder.glob(pattern))


def own_folder(script: Path) -> Path | None:
    """Return the folder of a script that it may read; None where others' files are in it: a home, or /tmp."""
    folder = script.absolute().parent
    return None if _holds_others(folder) else folder


def _holds_others(folder: Path) -> bool:
    """Return whether others' files are in a folder: a home, /tmp, ~/.local or /usr, or one above them."""
    home = Path.home()
    shared = (home, home / ".local", Path("/tmp"), Path("/var/tmp"), Path("/usr"))  # noqa: S108  nothing is written there
    return any(each.resolve().is_relative_to(folder.resolve()) for each in shared)


def plain_environ(environ: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
    """Return those of the user's variables that a script in a sandbox sees; `allowed` ones, too."""
    names = (*PLAIN, *allowed)
    families = tuple(name for name in names if name.endswith("_"))
    return {
        name: value
        for name, value in environ.items()
        if (name in names or name.startswith(families)) and not is_secret(name)
    }


def require_sandbox() -> None:
    """Raise PreventedError with the remedy where no sandbox can be built here."""
    if problem := why_not():
        raise PreventedError(f"no sandbox works here: {problem}", hint=remedy())


@cache
def why_not() -> str:
    """Return why no sandbox can be built here, "" where one was built just now."""
    from whichtorch.process import privileges, supervision  # here: for Linux; its tasks have sandboxes
    from whichtorch.process.marks import temporary_folder

    if (machine := os.uname().machine) not in privileges.MACHINES:
        known = " and ".join(privileges.MACHINES)
        return f"the numbers of system calls are known for {known} only, not for {machine}"
    with temporary_folder() as folder:
        stdout, stderr = str(folder / "stdout"), str(folder / "stderr")
        argv = (sys.executable, "-I", "-S", "-c", "")
        spec = supervision.SandboxSpec(readable=tuple(map(str, _watching())), writable={str(folder): str(folder)})
        task = supervision.Task(
            argv=argv, cwd="/", env={}, stdout=stdout, stderr=stderr, timeout=TRIAL_TIMEOUT, sandbox=spec
        )
        ending = supervision.start(task).wait()
    return ending.problem or ("" if ending.exit_code == 0 else f"a trial ended by {ending.stopped_by}")


def remedy() -> str:
    """Return what makes a sandbox possible on this machine, as far as the kernel tells what is in the way."""
    from whichtorch.process import privileges  # here: it is for Linux

    if os.uname().machine not in privileges.MACHINES:
        known = " or ".join(privileges.MACHINES)
        return f"use a machine with {known}, or give --sandbox off for a script that you trust"
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor restricts user namespaces, as on Ubuntu 24.04: install bubblewrap with a profile that allows "
            "them (apt-get install bubblewrap apparmor-profiles), or as root: "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        )
    for name in ("user/max_user_namespaces", "kernel/unprivileged_userns_clone"):
        if _setting(name) == "0":
            return f"as root: sysctl {name.replace('/', '.')}={1 if 'clone' in name else 15000}"
    return (
        "in a container, start it with --security-opt seccomp=unconfined --security-opt "
        "apparmor=unconfined --security-opt systempaths=unconfined; or give --sandbox off for a script that you trust"
    )


def _setting(name: str) -> str:
    """Return a setting of the kernel, "" where it has none of that name."""
    try:
        return (Path("/proc/sys") / name).read_text(encoding="ascii").strip()
    except OSError:
        return ""
