"""One resolution per environment: a request becomes an exact lock, with what torch needs and does not declare.

The index of nightlies drops them after some weeks, while a search may need them later. So every wheel that only such
an index has, torch itself and what was built with it, is fetched once into wheels/<build> of the state folder, and
the lock names it there.

uv says nothing of an override of a package that nothing needs, and takes no notice of what others ask for: whether a
lock has the versions that replace others, and who asks for something else, is said here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from whichtorch.base.atomic_files import remove_tree
from whichtorch.base.version_parsing import parse_version, python_markers
from whichtorch.environments.commander import Commander, InstallError, UnresolvableError, log_summary
from whichtorch.environments.index.releases import best_fit, kept_folder, list_releases
from whichtorch.environments.index.sources import Sources, local_folder
from whichtorch.model import UNRESOLVABLE, Build, Request
from whichtorch.suite.project import clone_history, lay_out

NAMED = 4  # constraints that do not hold, in a note
_RESOLVING = "resolving"
_FAILED = f"{_RESOLVING} failed: "  # begins the reason of an InstallError
_NO_SOLUTION = "No solution found when resolving dependencies"  # as uv says it
_OFFLINE = "Packages were unavailable because"  # likewise, where it did not ask for all versions
_CUDA = ("cuda-", "nvidia-", "triton")  # begin the names of packages that each release of torch pins
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?\s*(?:==\s*(?P<version>[^\s;,]+)|@\s*(?P<url>\S+))")
# what uv says of a version that exists, and cannot be had on this Python or machine
_UNUSABLE = re.compile(r"Failed to (download and )?build|is incompatible|[Nn]ot [Ff]ound")


class Undeclared(NamedTuple):
    """A requirement that some releases of torch are installed with."""

    torch: str  # specifier of those releases
    requirement: str
    reason: str


_UNDECLARED = (  # of each package, the first row that applies is taken
    Undeclared("<2.3", "numpy<2", "torch before 2.3 was compiled against numpy 1 and cannot use numpy 2"),
    Undeclared("", "numpy", "torch uses numpy where it is there, warns where it is not, and does not declare it"),
    Undeclared(
        "<2.2",
        "setuptools<80",
        "torch.compile and cpp_extension before 2.2 import pkg_resources, which newer ones lack",
    ),
    # 2.2.2, 2.3.1 and 2.9.1 fail without one on Python 3.11; below 80 worked in all that were tried
    Undeclared("<2.11", "setuptools<80", "inductor before 2.11 imports setuptools, which not every wheel declares"),
)


def resolve(request: Request, interpreter: Path, commander: Commander) -> tuple[str, tuple[str, ...]]:
    """Return the exact lock of a request, by `uv pip compile`, and notes on what was added to get there.

    A plain version never becomes a local one from elsewhere. Raises InstallError with uv's explanation.
    """
    plain = partial(without_substitutes, request=request, home=commander.home, sources=commander.sources)
    if request.lock:
        return "".join(f"{plain(line)}\n" for line in request.lock), ()
    requirements, notes = requirements_of(request)
    if request.resolution:  # what torch needs and does not declare has no lowest version that works
        given = {requirements[0], *request.build.requirements, *request.requirements}
        usual = request.model_copy(update={"resolution": ""})
        held = locked_versions(_constrained_lock(requirements, usual, interpreter, commander))
        pinned = {each: f"{name}=={held[name]}" for each in requirements if (name := requirement_name(each)) in held}
        requirements = [each if each in given else pinned.get(each, each) for each in requirements]
    try:
        lock = _constrained_lock(list(map(plain, requirements)), request, interpreter, commander)
    except InstallError as error:
        names = (pin.partition(";")[0] for pin in request.constraints)
        limits = (f"{name} is a constraint" for name in names if name in error.reason)
        # a need is named where it takes part
        needs = (note for note in notes if request.added and note.partition(":")[0] in error.reason)
        reason = "; ".join([error.reason, *limits, *needs, *_overridable(request, error.reason)])
        if isinstance(error, UnresolvableError) and (request.added or request.overrides):
            reason = f"{UNRESOLVABLE}: {reason.removeprefix(_FAILED)}"
        raise InstallError(reason, error.log) from None
    check_overrides(lock, request.overrides, commander)
    log, locked = commander.logs / "resolve.log", locked_versions(lock).get("torch")
    if locked is None:
        raise InstallError("torch is not in its own lock", log)
    # a build's index may have nothing but its own +cpu: that is what was meant
    has_place = request.build.index_url is not None or request.build.find_links is not None
    meant = {locked, Version(locked).public} if has_place else {locked}
    if not any(is_same_version(request.torch, version) for version in meant):
        raise InstallError(f"asked for torch {request.torch}, but {locked} would be installed in its place", log)
    return "".join(f"{plain(line)}\n" for line in lock.splitlines()), (*notes, *_not_held(request, lock))


def check_overrides(lock: str, overrides: Sequence[str], commander: Commander) -> None:
    """Raise UnresolvableError where a lock does not have what overrides ask for."""
    names = (canonicalize_name(pin["name"]) for pin in map(_PIN.match, lock.splitlines()) if pin)
    if problem := unmet(overrides, locked_versions(lock), names):
        raise UnresolvableError(f"{UNRESOLVABLE}: {problem}", commander.logs / "resolve.log")


def _overridable(request: Request, reason: str) -> list[str]:
    """Return a hint where the metadata of a package is in the way of a requirement that was asked for."""
    limits = [text for text in request.added if Requirement(text).specifier and "there is no version" not in reason]
    named = [text for text in limits if re.search(rf"depends? on {requirement_name(text)}[^\w-]", reason)]
    return [f"to install it anyway, add --override {shlex.quote(','.join(named))}"] if named else []


def _constrained_lock(requirements: Sequence[str], request: Request, interpreter: Path, commander: Commander) -> str:
    """Return the lock under the constraints of a request, as far as its torch allows them.

    The lock file of a project pins what its own torch needs: with another torch no release of that may fit. Where not
    all constraints can hold, those on packages that torch needs become preferences. The others hold, or raise
    InstallError.
    """
    where: dict[str, Any] = {"build": request.build, "interpreter": interpreter, "commander": commander}
    where |= {"overrides": request.overrides, "resolution": request.resolution}
    compiled: Callable[..., str] = partial(compile_lock, **where)
    try:
        return compiled(requirements, constraints=request.constraints)
    except UnresolvableError:
        if not request.constraints:
            raise
    given = {*request.build.requirements, *request.requirements}
    own = locked_versions(compiled([each for each in requirements if each not in given]))
    kept = [pin for pin in request.constraints if requirement_name(pin) not in own]
    preferred = [pin for pin in request.constraints if pin not in kept]
    return compile_holding(preferred, requirements, constraints=kept, **where)


def _not_held(request: Request, lock: str) -> list[str]:
    """Return a note on the constraints that a lock does not keep."""
    versions, where = locked_versions(lock), python_markers(request.python)
    others: list[str] = []
    for pin in map(Requirement, _without(request.constraints, request.overrides)):
        version = versions.get(pin.name)
        applies = pin.url is None and (pin.marker is None or pin.marker.evaluate(where))
        if version and applies and not pin.specifier.contains(version, prereleases=True):
            others.append(f"{pin.name} {version}, not {pin.specifier}")
    others.sort(key=lambda text: text.startswith(_CUDA))  # what a script is more likely to notice comes first
    more = [f"{len(others) - NAMED} more"] if len(others) > NAMED else []
    return (
        [f"against constraints, because of torch {request.torch}: {'; '.join(others[:NAMED] + more)}"] if others else []
    )


def without_substitutes(requirement: str, request: Request, home: Path, sources: Sources) -> str:
    """Return a requirement for a request's torch without the local versions that uv would take in its place.

    2.13.0+cpu of the user's find-links is one for 2.13.0. Other requirements are returned as they are.
    """
    if requirement != f"torch=={request.torch}" or not sources.find_links:
        return requirement
    aside = list_releases(Build(name="pypi"), request.python, home / "cache", sources=sources).aside
    excluded = [each.version for each in aside if Version(each.version).public == request.torch]
    return ",".join([requirement, *(f"!={version}" for version in excluded)])


def _without(pins: Iterable[str], overrides: Iterable[str]) -> list[str]:
    """Return the pins of packages that are not overridden."""
    names = set(map(requirement_name, overrides))
    return [pin for pin in pins if requirement_name(pin) not in names]


def requirements_of(request: Request) -> tuple[list[str], tuple[str, ...]]:
    """Return the requirements that uv resolves, and a note for each version that a need holds back.

    If the build or the matrix file names a package, its row in the table of needs is ignored. If options or a script
    name it, both count: where they conflict, the environment cannot be made. An override takes the place of a row.
    """
    version, torch = request.torch, f"torch=={request.torch}"
    if request.torch.endswith(".whl"):
        path = Path(request.torch)
        version, torch = path.name.split("-")[1], f"torch @ {path.absolute().as_uri()}"
    given = [*request.build.requirements, *request.requirements]
    named = {requirement_name(requirement) for requirement in given if requirement not in request.added}
    rows = [row for row in undeclared_requirements(version) if requirement_name(row.requirement) not in named]
    pins = [row for row in rows if row.requirement != requirement_name(row.requirement)]
    overrides = {requirement_name(text): text for text in request.overrides}
    chosen = {row: overrides.get(requirement_name(row.requirement), row.requirement) for row in rows}
    return [torch, *given, *chosen.values()], tuple(f"{chosen[row]}: {row.reason}" for row in pins)


def undeclared_requirements(torch_version: str) -> list[Undeclared]:
    """Return what a torch release needs beyond what its wheel declares, at most one row per package."""
    if (version := parse_version(torch_version)) is None:
        return []
    release = Version(version.base_version)  # a nightly of 2.3 has 2.3's needs
    rows: dict[str, Undeclared] = {}
    for row in _UNDECLARED:
        if SpecifierSet(row.torch).contains(release):
            rows.setdefault(requirement_name(row.requirement), row)
    return list(rows.values())


def requirement_name(requirement: str) -> str:
    """Return the normalized name of the package that a requirement is about."""
    return canonicalize_name(Requirement(requirement).name)


def locked_versions(lock: str) -> dict[str, str]:
    """Return name and version of each package that a lock pins; a wheel's version is read off its name."""
    versions: dict[str, str] = {}
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            file = (pin["url"] or "").partition("#")[0].rpartition("/")[2]
            version = pin["version"] or (file.split("-")[1] if file.endswith(".whl") else "")
            if version:  # that of a folder or a repository is not known
                versions[canonicalize_name(pin["name"])] = version.replace("%2B", "+")
    return versions


def index_pins(lock: str) -> dict[str, str]:
    """Return name and version of each package that a lock takes from an index, not from a URL."""
    matches = (_PIN.match(line) for line in lock.splitlines())
    return {canonicalize_name(pin["name"]): pin["version"] for pin in matches if pin and pin["version"]}


def is_same_version(wanted: str, version: str) -> bool:
    """Return whether `version` is the wanted one, a number or a wheel's path, local part included."""
    if wanted.endswith(".whl"):
        wanted = Path(wanted).name.split("-")[1]
    return (parse_version(wanted) or wanted) == (parse_version(version) or version)


def compile_lock(
    requirements: Sequence[str],
    build: Build,
    interpreter: Path,
    commander: Commander,
    *,
    constraints: Sequence[str] = (),
    overrides: Sequence[str] = (),
    preferred: Sequence[str] = (),
    resolution: str = "",
    before: str | None = None,
) -> str:
    """Return what `uv pip compile` makes of requirements: an exact lock, one package a line.

    `constraints` say which version a package has if it is needed, `overrides` which version it has whatever others ask
    for, `preferred` which version it has if uv can take it: see `compile_holding`;
    `resolution` is uv's word for which of the versions that fit it has;
    with `before`, a time such as "2026-11-02T00:00:00Z", the index is seen as it was then. Raises
    UnresolvableError with uv's explanation if no versions fit together, InstallError for all else.
    """
    folder = commander.logs
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / "requirements.in", folder / "resolved.txt"
    source.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    target.write_text("\n".join(preferred) + "\n", encoding="utf-8")  # uv prefers the versions that it names
    options = ["--torch-backend", build.backend] if build.backend else []
    for kind, texts in (("constraint", _without(constraints, overrides)), ("override", overrides)):
        if texts:
            limits = folder / f"{kind}s.txt"
            limits.write_text("\n".join(texts) + "\n", encoding="utf-8")
            options += [f"--{kind}", str(limits)]
    options += ["--resolution", resolution] if resolution else []
    if before is not None:
        options += ["--exclude-newer", before]
    log = folder / "resolve.log"
    try:
        commander.uv(
            *("pip", "compile", str(source), "--output-file", str(target), "--python", str(interpreter)),
            *("--no-header", "--no-annotate", "--quiet"),
            *options,
            log=log,
            what=_RESOLVING,
            build=build,
        )
    except InstallError as error:
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        if _NO_SOLUTION in said and _OFFLINE not in said:
            raise UnresolvableError(error.reason, error.log) from None
        raise
    return target.read_text(encoding="utf-8")


def compile_holding(
    held: Sequence[str], requirements: Sequence[str], *, constraints: Sequence[str] = (), **options: Any
) -> str:
    """Return what `compile_lock` makes of requirements with as many of some pins as can hold together.

    uv's own preferences are not enough: it takes a preferred version from the first index that has it. If none of the
    wheels there fit this Python, that version counts as one that cannot be had, whatever the other indexes have.
    """
    compiled: Callable[..., str] = partial(compile_lock, requirements, **options)
    if not held:
        return compiled(constraints=constraints)
    with suppress(UnresolvableError):
        return compiled(constraints=[*constraints, *held])
    try:
        lock = compiled(constraints=constraints, preferred=held)
    except UnresolvableError:
        lock = compiled(constraints=constraints)
    kept = [pin for pin in held if pin in lock.splitlines()]
    for pin in held:
        if pin not in kept and requirement_name(pin) in locked_versions(lock):
            with suppress(UnresolvableError):
                lock = compiled(constraints=[*constraints, *kept, pin])
                kept.append(pin)
    return lock


def with_projects(lock: str, request: Request, folder: Path, home: Path) -> str:
    """Return a lock that also installs the user's own projects, from fresh copies in a folder."""
    names = {project.name for project in request.projects}
    remove_tree(folder)  # what a killed install has left
    lines = [line for line in lock.splitlines() if names.isdisjoint(locked_versions(line))]
    for project in request.projects:
        copy = folder / project.name
        if project.repository:
            clone_history(project.repository, copy)
        lay_out(home, project.digest, copy)
        lines.append(f"{project.name} @ {(copy / project.subfolder).resolve().as_uri()}")
    return "\n".join(lines) + "\n"


def kept_wheel(folder: Path, project: str, version: str, python: str) -> Path | None:
    """Return the kept wheel of a version that fits a Python best, None where there is none."""
    filenames = sorted(path.name for path in folder.glob(f"{project.replace('-', '_')}-*.whl"))
    best = best_fit(filenames, project, version, python)
    return folder / best if best else None


def with_kept_wheels(lock: str, build: Build, python: str, commander: Commander) -> str:
    """Return a lock that installs what may vanish from kept wheels; fetch missing ones. Raises InstallError."""
    folder = kept_folder(commander.home, build)
    if folder is None:
        return lock
    # nightlies, and what was built with one: 3.6.0+git1234567 of triton
    fleeting = {name: pin for name, pin in index_pins(lock).items() if Version(pin).is_devrelease or Version(pin).local}
    missing = {name: version for name, version in fleeting.items() if not kept_wheel(folder, name, version, python)}
    if missing:
        _fetch(missing, build, python, folder, commander)
    wheels = {name: kept_wheel(folder, name, version, python) for name, version in fleeting.items()}
    for used in filter(None, wheels.values()):
        _note_use(used)
    named = ((line, next(iter(index_pins(line)), "")) for line in lock.splitlines())
    lines = (f"{name} @ {wheel.as_uri()}" if (wheel := wheels.get(name)) else line for line, name in named)
    return "\n".join(lines) + "\n"


def candidate_wheel(request: Request, commander: Commander) -> Path | None:
    """Return the very wheel of a release candidate that was chosen, kept or fetched now; None for any other request.

    Raises InstallError, also where the index has another wheel of that name by now.
    """
    url = request.build.index_url
    if not request.wheel or url is None or local_folder(url) is not None:
        return None
    folder = commander.home / "wheels" / f"{request.build.name}-{request.wheel}"
    asked = folder, "torch", request.torch, request.python
    if (wheel := kept_wheel(*asked)) is None:
        _fetch({"torch": request.torch}, request.build, request.python, folder, commander, contents=request.wheel)
        wheel = kept_wheel(*asked)
        assert wheel is not None
    _note_use(wheel)
    return wheel


def with_torch(lock: str, requirement: str) -> str:
    """Return a lock with another line for torch."""
    return "\n".join(requirement if "torch" in locked_versions(line) else line for line in lock.splitlines()) + "\n"


def _fetch(
    wanted: dict[str, str], build: Build, python: str, folder: Path, commander: Commander, *, contents: str = ""
) -> None:
    """Fetch wheels of a build into a folder, by project and version. Raises InstallError."""
    from whichtorch.environments.index import fetching  # here: it imports requests

    assert build.index_url is not None
    certificates = commander.sources.certificates
    fetch = fetching.FetchRequest(build.index_url, wanted, python, str(folder), certificates, contents)
    commander.stage("downloading")
    log = commander.logs / "download.log"
    env = os.environ | {fetching.REQUEST: json.dumps(fetch._asdict())}
    # in a process of its own, which can be ended at once, wherever it waits
    ending = commander.run((sys.executable, "-I", "-c", fetching.PROGRAM), env=env, log=log, what="downloading")
    if ending.exit_code != 0:
        raise InstallError(f"downloading failed: {log_summary(log, ending)}", log)


def _note_use(wheel: Path) -> None:
    """Keep a wheel from `runs prune --wheels`, which removes what was not used for long."""
    os.utime(wheel, (time.time(), wheel.stat().st_mtime))  # uv knows a wheel by its mtime


def unmet(overrides: Iterable[str], locked: Mapping[str, str], names: Iterable[str]) -> str:
    """Return which overrides a lock does not have, "" if it has all, by its versions and the names of all packages."""
    names, problems = set(names), list[str]()
    for override in map(Requirement, overrides):
        version = locked.get(override.name)
        if override.name not in names:
            problems.append(f"nothing here needs {override.name}: add it with --with {override.name}")
        elif version and not override.specifier.contains(version, prereleases=True):
            problems.append(f"{override.name} {version} would be installed instead of {override.specifier}")
    return "; ".join(problems)


def blamed(reason: str, overrides: Iterable[str]) -> str:
    """Return why an environment cannot be made, with the overrides that the reason names."""
    named = [
        text for text in overrides if re.search(rf"(?<![\w-]){re.escape(Requirement(text).name)}(?![\w-])", reason)
    ]
    if not named:
        return reason
    is_mistake = _UNUSABLE.search(reason) and not reason.startswith(UNRESOLVABLE)
    reason = f"{UNRESOLVABLE}: {reason}" if is_mistake else reason
    return "; ".join([reason, *(f"{text} is an override" for text in named)])


def disagreements(
    request: Request, versions: Mapping[str, str], requires: Iterable[tuple[str, Sequence[str]]]
) -> Iterator[str]:
    """Yield for each override who asks for another version than was installed.

    `versions` has what was installed, `requires` what each package asks for, the package with its version.
    """
    asked = [(whose, text) for whose, texts in requires for text in texts]
    asked += [("a requirement", text) for text in (*request.build.requirements, *request.requirements)]
    asked += [("a constraint", text) for text in request.constraints]
    for override in map(Requirement, request.overrides):
        version = versions[override.name]
        others = [
            f"{whose} asks for {text}"
            for whose, each in asked
            if (text := _refusal(each, override.name, version, request.python))
        ]
        if others:
            yield f"{override.name} {version}, by --override: {'; '.join(dict.fromkeys(others))}"


def _refusal(text: str, name: str, version: str, python: str) -> str:
    """Return what a requirement asks for if it is about this package, counts here, and refuses the version; else ""."""
    with suppress(InvalidRequirement):  # of an old package
        asked = Requirement(text)
        where = python_markers(python) | {"extra": ""}
        counts = canonicalize_name(asked.name) == name and (asked.marker is None or asked.marker.evaluate(where))
        if counts and not asked.specifier.contains(version, prereleases=True):
            return f"{name}{asked.specifier}"
    return ""
