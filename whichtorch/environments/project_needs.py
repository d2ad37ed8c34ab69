"""What a project says of itself: the dependencies of its pyproject.toml, and the versions that its lock file pins."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from packaging.dependency_groups import DependencyGroupResolver
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from whichtorch.base.errors import UsageError
from whichtorch.model import Specifier  # noqa: TC001  pydantic reads it
from whichtorch.suite.toml_lines import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
