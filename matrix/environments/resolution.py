"""One resolution per environment: a request becomes an exact lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from matrix.environments.commander import CancelledError, Commander, InstallError
from matrix.environments.needs import needs_of, requirement_name

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from matrix.model import Build, Request

SUBSTITUTES = 5  # local versions of one release that are refused before giving up
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?\s*(?:==\s*(?P<version>[^\s;,]+)|@\s*(?P<url>\S+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """An exact lock, and what was added to get there."""

    lock: str
    notes: tuple[str, ...] = ()


def resolve(
    request: Request, interpreter: Path, folder: Path, commander: Commander, cancelled: threading.Event | None
) -> Resolution:
    """Resolve a request with `uv pip compile`; its logs go into `folder`.

    A plain version is never served by a local one from elsewhere: where uv prefers 2.13.0+cpu of the
    user's find-links for torch==2.13.0, that one is excluded and the question put again. Raises
    InstallError with uv's explanation.
    """
    if request.lock:
        return Resolution(lock="\n".join(request.lock) + "\n")
    requirements, notes = requirements_of(request)
    refused: list[str] = []
    first: str | None = None
    while True:
        try:
            asked = [*requirements, *(f"torch{one}" for one in refused)]
            lock = compile_lock(asked, request.build, interpreter, folder, commander, cancelled)
        except CancelledError:
            raise
        except InstallError:
            # the build's index has nothing but its own +cpu: that is what was meant
            if first is not None and _has_own_place(request):
                return Resolution(lock=first, notes=notes)
            if first is not None:
                raise substitute(request.torch, locked_versions(first)["torch"], folder) from None
            raise
        first = first or lock
        locked = locked_versions(lock).get("torch")
        if locked is None:
            raise InstallError("torch is not in its own lock", folder / "resolve.log")
        if is_same_version(request.torch, locked):
            return Resolution(lock=_refusing(lock, refused), notes=notes)
        if Version(locked).public != Version(request.torch).public or len(refused) == SUBSTITUTES:
            raise substitute(request.torch, locked, folder)
        refused.append(f"!={locked}")


def _refusing(lock: str, refused: list[str]) -> str:
    """Return a lock whose torch is never a refused one: `uv pip sync` would prefer those again."""
    lines = []
    for line in lock.splitlines():
        pin = _PIN.match(line)
        is_torch = pin is not None and pin["name"] == "torch"
        lines.append(",".join([line, *refused]) if is_torch else line)
    return "\n".join(lines) + "\n"


def requirements_of(request: Request) -> tuple[list[str], tuple[str, ...]]:
    """Return what is asked of uv, and a note for each version that a need holds back.

    A package that the build or the matrix file names is theirs to say; the table of needs is silent then.
    """
    if request.torch.endswith(".whl"):
        path = Path(request.torch)
        version = path.name.split("-")[1]
        torch = f"torch @ {path.absolute().as_uri()}"
    else:
        version = request.torch
        torch = f"torch=={request.torch}"
    given = [*request.build.requirements, *request.requirements]
    named = {requirement_name(requirement) for requirement in given}
    needs = [need for need in needs_of(version, request.python) if requirement_name(need.requirement) not in named]
    pins = [need for need in needs if need.requirement != requirement_name(need.requirement)]
    notes = tuple(f"{need.requirement}: {need.reason}" for need in pins)
    return [torch, *given, *(need.requirement for need in needs)], notes


def locked_versions(lock: str) -> dict[str, str]:
    """Return name and version of each package that a lock pins; a wheel's version is read off its name."""
    found: dict[str, str] = {}
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            version = pin["version"] or pin["url"].rpartition("/")[2].split("-")[1]
            found[canonicalize_name(pin["name"])] = version.replace("%2B", "+")
    return found


def pins(lock: str) -> dict[str, str]:
    """Return name and version of each package that a lock takes from an index, not from a named place."""
    found = (_PIN.match(line) for line in lock.splitlines())
    return {canonicalize_name(pin["name"]): pin["version"] for pin in found if pin and pin["version"]}


def is_same_version(asked: str, found: str) -> bool:
    """Return whether `found` is the version asked for, local part included."""
    if asked.endswith(".whl"):
        asked = Path(asked).name.split("-")[1]
    try:
        return Version(asked) == Version(found)
    except InvalidVersion:
        return asked == found


def substitute(asked: str, found: str, folder: Path) -> InstallError:
    """Return the error that says: another version than the one asked for."""
    reason = f"asked for torch {asked}, but {found} would be installed in its place"
    return InstallError(reason, folder / "resolve.log")


def _has_own_place(request: Request) -> bool:
    return request.build.index_url is not None or request.build.find_links is not None


def compile_lock(
    requirements: Sequence[str],
    build: Build,
    interpreter: Path,
    folder: Path,
    commander: Commander,
    cancelled: threading.Event | None,
    *,
    constraints: Sequence[str] = (),
    before: str | None = None,
) -> str:
    """Return what `uv pip compile` makes of requirements: an exact lock, one package a line.

    `constraints` say which version a package has if it is needed; with `before`, a time such as
    "2026-11-02T00:00:00Z", the index is seen as it was then. Raises InstallError with uv's explanation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked, locked = folder / "requirements.in", folder / "resolved.txt"
    asked.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    locked.unlink(missing_ok=True)  # uv would prefer the versions that it names
    options = ["--torch-backend", build.backend] if build.backend else []
    if constraints:
        limits = folder / "constraints.txt"
        limits.write_text("\n".join(constraints) + "\n", encoding="utf-8")
        options += ["--constraint", str(limits)]
    if before is not None:
        options += ["--exclude-newer", before]
    commander.uv(
        *("pip", "compile", str(asked), "--output-file", str(locked), "--python", str(interpreter)),
        *("--no-header", "--no-annotate", "--quiet"),
        *options,
        log=folder / "resolve.log",
        what="resolving",
        cancelled=cancelled,
        build=build,
    )
    return locked.read_text(encoding="utf-8")
