"""What tests need besides torch: options, files and headers of scripts -> what is asked of an environment.

The matrix decides which torch an environment has, so a requirement on torch is left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.dependency_groups import DependencyGroupResolver
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from whichtorch.base.errors import UsageError
from whichtorch.environments.index.sources import local_folder
from whichtorch.environments.interpreters import DEFAULT_PYTHON, found_python
from whichtorch.model import Scenario, Specifier, digest
from whichtorch.suite.toml_lines import parsed

if TYPE_CHECKING:
    from whichtorch.environments.additions import Additions


_NEXT = re.compile(r",(?=\s*[A-Za-z0-9][\w.-]*\s*(?:\[[^]]*\]\s*)?(?:[=!~<>]=|[<>@]))")  # before a further override
_LOCAL = re.compile(r"(?P<path>(?:~|\.{1,2})?/.*?|\.{1,2}|\S+\.(?:whl|tar\.gz|zip))(?P<extras>\[[^]]*\])?")
_OPTION = re.compile(r"(?P<name>--[\w-]+|-\w)[ =]*(?P<value>.*)")
_GENERATED = re.compile(r"\.|__pycache__$|build$|dist$|.*\.egg-info$")  # parts of paths of generated files
TRUSTED = ("numpy", "torchvision", "torchaudio")  # packages that a script in a sandbox may ask for
_TIED = {"torchvision", "torchaudio"}  # a release of these requires one release of torch
_MINORS = range(8, 20)  # of the Pythons that have, or will have, wheels of torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What options and a script need in an environment, in addition to what a matrix file asks for."""

    requirements: tuple[str, ...] = ()  # each with its package's normalized name, sorted
    constraints: tuple[str, ...] = ()  # which versions packages have if they are needed
    overrides: tuple[str, ...] = ()  # versions that replace what others ask for; several of a package are alternatives
    resolution: str = ""  # uv's word for which versions packages get; "": the highest
    installs: tuple[str, ...] = ()  # projects that are installed without their dependencies, each by its folder
    variables: tuple[tuple[str, str], ...] = ()  # for what is run
    options: tuple[str, ...] = ()  # of the command line, that ask for the packages that are not in the script
    variable_options: tuple[str, ...] = ()  # of the command line, that ask for the variables
    python: str = ""  # the Pythons that the project and the script allow, ">=3.12"
    whose: str = ""  # who asks for this Python: the name of the script, or the project
    notes: tuple[str, ...] = ()  # on what was left out

    def with_script(self, scenario: Scenario) -> Needs:
        """Return these needs and those of a script, whose header was checked when it was read.

        Raises UsageError for a package that only a script in a sandbox asks for: installing it runs its code outside.
        """
        own = [Requirement(text) for text in scenario.requirements]
        trusted = {canonicalize_name(Requirement(text).name) for text in self.requirements} | {"torch", *TRUSTED}
        strange = [str(each) for each in own if each.url or canonicalize_name(each.name) not in trusted]
        if scenario.sandboxed and strange:
            hint = f"if you trust them, name them yourself: --with {shlex.quote(strange[0])}"
            raise UsageError(f"{scenario.name} asks for {', '.join(strange)}, installed outside its sandbox", hint=hint)
        return replace(
            self,
            requirements=_distinct([*map(Requirement, self.requirements), *own]),
            python=",".join(filter(None, [self.python, scenario.requires_python])),
            whose=" and ".join(filter(None, [self.whose, scenario.requires_python and scenario.name])),
            notes=(*self.notes, *(_left_out(scenario.name, each) for each in own if _is_torch(each))),
        )

    def allows(self, python: str) -> bool:
        """Return whether project and script allow a Python; "3.11" may be any 3.11."""
        minor = python.removesuffix("t")
        specifier = SpecifierSet(self.python)
        return any(specifier.contains(f"{minor}.{micro}", prereleases=True) for micro in range(40))

    def nearest_python(self) -> str:
        """Return the allowed Python on this machine that is nearest to ours. Raises UsageError if there is none."""
        own = int(DEFAULT_PYTHON.partition(".")[2])
        fitting = (f"3.{minor}" for minor in sorted(_MINORS, key=lambda minor: abs(minor - own)))
        if found := next((python for python in fitting if self.allows(python) and found_python(python)), None):
            return found
        hint = "install one, or name it with --python, which also downloads it"
        raise UsageError(f"{self.whose} requires Python {self.python}, and there is none on this machine", hint=hint)


def needs_of(added: Additions) -> Needs:
    """Return what options ask for. Raises UsageError with all mistakes."""
    reader = _Reader()
    for text in added.requirements:
        reader.read(text, "--with", Path())
    for file in added.files:
        reader.read_file(file, file)
    if added.project is not None:
        reader.read_project(added.project, added.groups)
    elif added.groups:
        reader.mistakes.append("--group names groups of a project: add --project")
    for file in added.constraints:
        reader.read_constraints(file, file)
    overrides: list[str] = []
    for text in (part.strip() for given in added.overrides for part in _NEXT.split(given)):
        try:
            overrides.append(override_of(text, Path()))
        except UsageError as error:
            reader.mistakes.append(f"--override {text}: {error.message}")
    projects = _Reader()
    for folder in added.installs:
        projects.read(str(folder.absolute()), "--install", Path())
        reader.mistakes += [f"--install: {folder} is no folder; --with takes a wheel"] if folder.is_file() else []
    reader.mistakes += projects.mistakes
    if reader.mistakes:
        raise UsageError("\n".join(dict.fromkeys(reader.mistakes)))
    return Needs(
        requirements=_distinct(reader.found),
        constraints=_distinct(reader.constraints),
        overrides=tuple(overrides),
        resolution=added.resolution,
        installs=tuple(map(str, projects.found)),
        variables=tuple(added.variables.items()),
        options=replace(added, overrides=()).package_options,  # each environment names its own overrides
        variable_options=added.variable_options,
        python=reader.python,
        whose="the project" if reader.python else "",
        notes=tuple(reader.notes),
    )


def override_of(text: str, folder: Path) -> str:
    """Return an override with its package's normalized name; a path begins at a folder.

    Raises UsageError for what says no version of a package.
    """
    reader = _Reader()
    reader.read(text, "", folder)
    if reader.mistakes:
        raise UsageError(reader.mistakes[0].removeprefix(": "))
    (found,) = reader.found
    path = local_folder(found.url) if found.url else None
    if _is_torch(found):
        raise UsageError("torch is chosen by --torch and --build")
    if path is not None and not path.exists():
        raise UsageError(f"there is no {path}")
    if found.marker is not None:
        raise UsageError("an override has no marker; choose environments with --python and --build")
    if not (found.url or found.specifier):
        raise UsageError(f"it names no version; write {found.name}==VERSION")
    found.name = canonicalize_name(found.name)
    return str(found)


def contents_of(requirements: Iterable[str]) -> str:
    """Return a digest that changes with the local folders and wheels that requirements name; "" if there are none."""
    urls = filter(None, (Requirement(text).url for text in requirements))
    stamps = [
        (str(file.relative_to(path)), file.stat().st_size, file.stat().st_mtime_ns)
        for path in filter(None, map(local_folder, urls))
        for file in sorted([path] if path.is_file() else path.rglob("*"))
        if file.is_file() and not any(map(_GENERATED.match, file.relative_to(path).parts))
    ]
    return digest(stamps, 16) if stamps else ""


def requirement_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a requirements file that say something, numbered, joined where continued, without hashes."""
    text = re.sub(r"(^|[^\S\n])#.*", "", text, flags=re.MULTILINE)  # a comment ends its line, whatever it ends with
    for match in re.finditer(r"(?:.*\\\n)+.*|.+", text):
        line = re.sub(r"\\(\n|$)", " ", match[0]).split(" --hash")[0].strip()
        if line:
            yield text.count("\n", 0, match.start()) + 1, line


class _Reader:
    """Collects requirements, and mistakes and notes about them."""

    def __init__(self) -> None:
        self.found: list[Requirement] = []
        self.mistakes: list[str] = []
        self.notes: list[str] = []
        self.constraints: list[Requirement] = []
        self.python = ""
        self._files: set[Path] = set()

    def read_file(self, file: Path, place: object) -> None:
        """Read a requirements file, and those that it includes, each once."""
        if file.resolve() in self._files:
            return
        self._files.add(file.resolve())
        if file.suffix in {".lock", ".toml"} or file.is_dir():
            self.mistakes.append(
                f"{place}: {file} is not a requirements file; --constraint takes a lock file, --project a project"
            )
            return
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            self.mistakes.append(f"{place}: cannot read the requirements file {file}: {why}")
            return
        for number, line in requirement_lines(text):
            self._read_line(line, f"{file}:{number}", file.parent)

    def read_project(self, text: str, groups: Sequence[str]) -> None:
        """Read the pyproject.toml of a folder that "DIR" or "DIR[EXTRA,EXTRA]" names."""
        path, _, extras = text.removesuffix("]").partition("[")
        folder = Path(path or ".").expanduser()
        try:
            extra_names = list(filter(None, map(str.strip, extras.split(","))))
            texts, self.python, notes = project_needs(folder, extra_names, groups)
        except UsageError as error:
            self.mistakes.append(f"--project {text}: {error.message}")
            return
        self.notes += notes
        for requirement in texts:
            self.read(requirement, str(folder / "pyproject.toml"), folder)

    def read_constraints(self, file: Path, place: object) -> None:
        """Read the versions that a lock file pins, or a file of constraints as pip takes it."""
        inner = _Reader()
        try:
            if file.suffix in {".lock", ".toml"}:
                pins, inner.notes = lock_pins(file, parsed(file.read_text(encoding="utf-8")))
                for pin in pins:
                    inner.read(pin, str(file), file.parent)
            else:
                inner.read_file(file, place)
        except UsageError as error:
            inner.mistakes.append(f"{place}: {error.message}")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            inner.mistakes.append(f"{place}: cannot read the lock file {file}: {why}")
        for each in (*inner.found, *inner.constraints):
            each.extras = set()  # a constraint does not install anything
            is_tied = canonicalize_name(each.name) in _TIED
            inner.notes += [f"{file}: {each} is left out: each release of it is for one torch"] if is_tied else []
            self.constraints += [] if is_tied else [each]
        self.mistakes += inner.mistakes
        self.notes += inner.notes

    def _read_line(self, line: str, place: str, folder: Path) -> None:
        option = _OPTION.fullmatch(line)
        name, value = (option["name"], option["value"]) if option else ("", line)
        if name in {"-r", "--requirement"}:
            self.read_file(folder / value, place)
        elif name in {"-c", "--constraint"}:
            self.read_constraints(folder / value, place)
        elif name in {"", "-e", "--editable"}:
            self.read(value, place, folder)
        else:
            self.notes.append(f"{place}: {name} is left out: the build and your uv or pip settings name the indexes")

    def read(self, text: str, place: str, folder: Path) -> None:
        """Read a requirement, or the path of a project or a wheel, which begins at a folder."""
        try:
            local = _LOCAL.fullmatch(text.strip())
            requirement = _local(folder / Path(local["path"]).expanduser(), local["extras"]) if local else None
            requirement = requirement or Requirement(text)
        except InvalidRequirement as error:
            self.mistakes.append(f"{place}: {text!r} is not a requirement: {str(error).splitlines()[0]}")
        except UsageError as error:
            self.mistakes.append(f"{place}: {error.message}")
        else:
            if _is_torch(requirement) and place == "--with":
                self.mistakes.append(f"--with {text}: torch is chosen by --torch and --build")
            elif _is_torch(requirement):
                self.notes.append(_left_out(place, requirement))
            self.found.append(requirement)


def _local(path: Path, extras: str | None) -> Requirement:
    """Return the requirement for a wheel, an archive or a project's folder; raises UsageError where it is none."""
    if path.is_dir():
        try:
            name = parsed((path / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
        except (OSError, KeyError, TypeError, ValueError):
            raise UsageError(f"{path} has no pyproject.toml that names a project; give a wheel of it") from None
    elif path.is_file():
        name = re.split(r"-\d", path.name)[0]
    else:
        raise UsageError(f"there is no {path}")
    return Requirement(f"{name}{extras or ''} @ {path.resolve().as_uri()}")


def _distinct(requirements: Iterable[Requirement]) -> tuple[str, ...]:
    """Return the requirements except torch, each once, with normalized names."""
    for requirement in requirements:
        requirement.name = canonicalize_name(requirement.name)
    return tuple(sorted({str(each) for each in requirements if not _is_torch(each)}))


def _is_torch(requirement: Requirement) -> bool:
    return canonicalize_name(requirement.name) == "torch"


def _left_out(place: str, requirement: Requirement) -> str:
    return f"{place}: {requirement} is left out: the matrix decides which torch is installed"


_INSTEAD = "write what it needs into a file and name that with -r"
# keys of uv.lock, pylock.toml, poetry.lock and pdm.lock that say that a package comes from no index
_ELSEWHERE = {"archive", "directory", "editable", "file", "git", "path", "url", "vcs", "virtual"}


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", "-"))


class _ProjectTable(_Table):
    """What counts of [project]."""

    name: str = ""
    requires_python: Specifier = ""
    dependencies: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] = {}
    dynamic: tuple[str, ...] = ()


class _Pyproject(_Table):
    """What counts of a pyproject.toml."""

    project: _ProjectTable | None = None
    dependency_groups: dict[str, tuple[str | dict[str, str], ...]] = {}
    sources: dict[str, Any] = Field(default={}, validation_alias=AliasPath("tool", "uv", "sources"))
    dynamic_files: str | tuple[str, ...] = Field(  # that setuptools reads the dependencies from: one, or a list
        default=(), validation_alias=AliasPath("tool", "setuptools", "dynamic", "dependencies", "file")
    )

    def instead(self, folder: Path) -> str:
        """Return what to give instead of dynamic dependencies: the files that they are read from, if it names any."""
        files = [self.dynamic_files] if isinstance(self.dynamic_files, str) else self.dynamic_files
        return " ".join(["give", *(f"-r {folder / file}" for file in files)]) if files else _INSTEAD


def project_needs(folder: Path, extras: Sequence[str], groups: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Return what the pyproject.toml in a folder requires, its requires-python, and notes on what was left out.

    The requirements of extras and groups are included. Raises UsageError where it does not say what it requires.
    """
    file = folder / "pyproject.toml"
    try:
        found = _Pyproject.model_validate(parsed(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {file}: {why}; {_INSTEAD}") from None
    if found.project is None and not groups:
        raise UsageError(f"{file} has no [project] table; {_INSTEAD}")
    project = found.project or _ProjectTable()
    wanted = {"dependencies", "optional-dependencies"} if extras else {"dependencies"}
    if dynamic := sorted(wanted.intersection(project.dynamic)):
        raise UsageError(f"{file}: only a build knows its dynamic {' and '.join(dynamic)}; {found.instead(folder)}")
    own = canonicalize_name(project.name)
    of_extras = {canonicalize_name(name): texts for name, texts in project.optional_dependencies.items()}
    seen = set(map(canonicalize_name, extras))
    waiting = [*project.dependencies]
    try:
        resolver = DependencyGroupResolver(found.dependency_groups)
        for group in groups:
            _named(canonicalize_name(group), resolver.dependency_groups, "dependency group", file)
            waiting += map(str, resolver.resolve(group))
    except ExceptionGroup as errors:
        raise UsageError(f"{file}: {errors.exceptions[0]}") from None
    waiting += [text for extra in sorted(seen) for text in _named(extra, of_extras, "extra", file)]
    texts: dict[str, None] = {}
    for text in waiting:  # it grows
        requirement = _parsed(text)
        if requirement is None or canonicalize_name(requirement.name) != own:
            texts[text] = None
            continue
        for extra in sorted(set(map(canonicalize_name, requirement.extras)) - seen):
            waiting += _named(extra, of_extras, "extra", file)
            seen.add(extra)
    sources = {canonicalize_name(name): source for name, source in found.sources.items()}
    notes: list[str] = []
    return [_from_source(text, sources, folder, notes) for text in texts], project.requires_python, notes


def _named(name: NormalizedName, known: Mapping[Any, Any], kind: str, file: Path) -> Any:
    if name in known:
        return known[name]
    raise UsageError(f"{file} has no {kind} {name!r}; it has {', '.join(known) or 'none'}")


def _parsed(text: str) -> Requirement | None:
    with suppress(InvalidRequirement):  # whoever reads the text tells what is wrong with it
        return Requirement(text)
    return None


def _from_source(text: str, sources: Mapping[NormalizedName, Any], folder: Path, notes: list[str]) -> str:
    """Return a requirement with the place that [tool.uv.sources] names for it; note a place that cannot be used."""
    requirement = _parsed(text)
    if requirement is None or (source := sources.get(name := canonicalize_name(requirement.name))) is None:
        return text
    match source:
        case {"path": str(path)}:
            url = (folder / path).resolve().as_uri()
        case {"git": str(git)}:
            at = next((f"@{source[key]}" for key in ("rev", "tag", "branch") if key in source), "")
            url = f"git+{git}{at}" + (f"#subdirectory={source['subdirectory']}" if "subdirectory" in source else "")
        case {"url": str(url)}:
            pass
        case _:
            if name != "torch":
                notes.append(f"{folder / 'pyproject.toml'}: where [tool.uv.sources] has {name} from is left out")
            return text
    requirement.url, requirement.specifier = url, SpecifierSet()
    return str(requirement)


def lock_pins(file: Path, table: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return what a lock file pins, each as "name==version", and notes on what was left out.

    The file is a uv.lock, pylock.toml, poetry.lock or pdm.lock. Raises UsageError where it is none.
    """
    entries = table.get("package", table.get("packages"))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and "name" in entry for entry in entries):
        raise UsageError(f"{file} is no lock file that lists packages; give a uv.lock, a pylock.toml or a file of pins")
    names = [canonicalize_name(entry["name"]) for entry in entries]
    pins, notes = [], []
    for name, entry in zip(names, entries, strict=True):
        source = entry.get("source", {})
        place = _ELSEWHERE & ({source["type"]} if "type" in source else {*source, *entry})
        if place - {"directory", "editable", "virtual"}:
            notes.append(f"{file}: {name} is left out: it comes from no index")
        if place or "version" not in entry:
            continue
        # a package has several entries where its version depends on the platform or the Python
        markers = entry.get("resolution-markers", []) if names.count(name) > 1 else []
        markers = [f"({marker})" for marker in markers] or list(filter(None, [entry.get("marker")]))
        pins.append(f"{name}=={entry['version']}" + (f" ; {' or '.join(markers)}" if markers else ""))
    return pins, notes
