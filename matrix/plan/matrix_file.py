"""Matrix file and options -> the environments asked for. All mistakes are reported at once."""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from matrix.environments import configs, interpreters
from matrix.environments.index import builds, releases
from matrix.environments.index.sources import configured_sources
from matrix.errors import PreventedError, UsageError
from matrix.model import Build, Config, Request
from matrix.suite.toml_lines import line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

DEFAULT_FILE = Path(__file__).parents[1] / "default.toml"


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))


class Axes(_Table):
    """What is multiplied."""

    torch: tuple[str, ...] = Field(min_length=1)
    python: tuple[str, ...] = ()
    build: tuple[str, ...] = Field(default=("auto",), min_length=1)
    config: tuple[str, ...] = Field(default=("default",), min_length=1)

    @field_validator("python")
    @classmethod
    def _is_minor_version(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for python in value:
            if not re.fullmatch(r"3\.\d+", python):
                raise ValueError(f"{python!r} is not a Python version such as 3.11")
        return value


class Suite(_Table):
    """Which scenarios run."""

    scenarios: tuple[str, ...] = ("*",)


class Exclude(_Table):
    """Environments to leave out: those that match all that is named."""

    torch: str = ""  # a specifier
    python: str = ""
    build: str = ""
    config: str = ""

    @field_validator("torch")
    @classmethod
    def _is_specifier(cls, value: str) -> str:
        try:
            SpecifierSet(value)
        except InvalidSpecifier:
            raise ValueError(f"{value!r} is not a specifier such as <2.3") from None
        return value

    def matches(self, request: Request) -> bool:
        """Return True where all that is named applies to `request`."""
        return (
            (not self.torch or _in_specifier(request.torch, self.torch))
            and (not self.python or self.python == request.python)
            and (not self.build or self.build == request.build.name)
            and (not self.config or self.config == request.config.name)
        )


class Include(_Table):
    """One more environment, beside the product of the axes."""

    torch: str
    python: str | None = None
    build: str = "auto"
    config: str = "default"


class BuildTable(_Table):
    """A [build.NAME] table."""

    index_url: str | None = None
    find_links: str | None = None
    backend: str | None = None
    requirements: tuple[str, ...] = ()
    nightly: bool = False


class ConfigTable(_Table):
    """A [config.NAME] table."""

    env: dict[str, str] = {}
    hooks: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    summary: str = ""


class MatrixFile(_Table):
    """A whole matrix file."""

    axes: Axes
    suite: Suite = Suite()
    requirements: tuple[str, ...] = ()
    exclude: tuple[Exclude, ...] = ()
    include: tuple[Include, ...] = ()
    build: dict[str, BuildTable] = {}
    config: dict[str, ConfigTable] = {}

    @cached_property
    def builds(self) -> dict[str, Build]:
        """Return the builds of the file's own."""
        return {name: Build(name=name, **table.model_dump()) for name, table in self.build.items()}

    @cached_property
    def configs(self) -> dict[str, Config]:
        """Return the configs of the file's own."""
        return {name: Config(name=name, **table.model_dump()) for name, table in self.config.items()}

    def with_axes(
        self,
        *,
        torch: Sequence[str] | None = None,
        python: Sequence[str] | None = None,
        build: Sequence[str] | None = None,
        config: Sequence[str] | None = None,
        keep_rows: bool = False,
    ) -> MatrixFile:
        """Return the file with other values on the given axes; None leaves an axis as it is.

        The [[include]] rows go: whoever names an axis wants just that. `keep_rows` keeps the [[exclude]] rows.
        """
        given = {"torch": torch, "python": python, "build": build, "config": config}
        values = {axis: tuple(named) for axis, named in given.items() if named is not None}
        axes = self.axes.model_copy(update=values)
        exclude = self.exclude if keep_rows else ()
        return self.model_copy(update={"axes": axes, "include": (), "exclude": exclude})


def read_matrix_file(path: Path) -> MatrixFile:
    """Read a matrix file.

    Raises UsageError that names every mistake with its place and remedy.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except FileNotFoundError:
        raise UsageError(f"no such matrix file: {path}", hint=f"start from a copy of {DEFAULT_FILE}") from None
    except OSError as error:
        raise UsageError(f"cannot read the matrix file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    return checked(table, str(path), text)


def checked(table: Mapping[str, Any], source: str, text: str = "") -> MatrixFile:
    """Return the matrix file that a table says, read from `text` at `source`.

    Raises UsageError that names every mistake with its place and remedy.
    """
    file = None
    mistakes: list[tuple[int, str]] = []
    try:
        file = MatrixFile.model_validate(table)
    except ValidationError as error:
        mistakes = [_described(text, detail) for detail in error.errors()]
    mistakes += _wrong_names(text, table)
    if mistakes or file is None:
        places = [f"{source}:{line}: {message}" if text else message for line, message in sorted(mistakes)]
        if len(places) == 1:
            raise UsageError(f"{places[0]}" if text else f"{source}: {places[0]}")
        lines = "\n".join(f"  {place}" for place in places)
        raise UsageError(f"{len(places)} mistakes in {source}:\n{lines}")
    return file


def _described(text: str, detail: ErrorDetails) -> tuple[int, str]:
    """Return the line of a mistake, and what is wrong with the remedy."""
    line = line_of(text, detail["loc"]) + 1
    place = [str(part) for part in detail["loc"]]
    message = detail["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place[-1], _keys_at(place[:-1]), n=1)
        known = ", ".join(_keys_at(place[:-1]))
        message = "unknown key; " + (f"did you mean {near[0]!r}?" if near else f"known here: {known}")
    elif detail["type"] == "missing":
        message = "is missing"
    elif detail["type"] == "tuple_type":
        message = f"must be a list, as in {place[-1]} = [{detail['input']!r}]"
    return line, f"{'.'.join(place)}: {message}"


def _keys_at(place: list[str]) -> list[str]:
    """Return the keys that the table at `place` may have."""
    tables: dict[str, type[_Table]] = {
        "axes": Axes,
        "suite": Suite,
        "exclude": Exclude,
        "include": Include,
        "build": BuildTable,
        "config": ConfigTable,
    }
    model = tables.get(place[0], MatrixFile) if place else MatrixFile
    return [field.alias or name for name, field in model.model_fields.items()]


def _wrong_names(text: str, table: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield line and message of each torch spec, build or config name that means nothing.

    Works on the raw table, so that these are reported together with mistakes of shape.
    """
    axes = table.get("axes")
    rows: list[tuple[list[str | int], dict[str, Any]]] = [(["axes"], axes)] if isinstance(axes, dict) else []
    if isinstance(table.get("include"), list):
        rows += [(["include", n], row) for n, row in enumerate(table["include"]) if isinstance(row, dict)]
    own_builds = dict.fromkeys(table.get("build") or (), Build(name=""))
    own_configs = dict.fromkeys(table.get("config") or (), Config(name=""))
    checks: dict[str, Callable[[str], object]] = {
        "torch": releases.check_spec,
        "build": lambda name: name == "auto" or builds.build_named(name, own_builds),
        "config": lambda name: configs.config_named(name, own_configs),
    }
    for place, row in rows:
        for key, check in checks.items():
            values = row.get(key, [])
            for value in [values] if isinstance(values, str) else values:
                if not isinstance(value, str):
                    continue
                try:
                    check(value)
                except UsageError as error:
                    remedy = f"; {error.hint}" if error.hint else ""
                    name = ".".join(map(str, [*place, key]))
                    yield line_of(text, [*place, key]) + 1, f"{name}: {error.message}{remedy}"


def _in_specifier(version: str, specifier: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except ValueError:
        return False  # a wheel's path


class Expansion(BaseModel):
    """The environments asked for, and what there is to say about how they were chosen."""

    model_config = ConfigDict(frozen=True)

    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()


def expand(
    file: MatrixFile,
    *,
    cache: Path,
    interpreters_given: tuple[Path, ...] = (),
    product: bool = True,
    path: Path | None = None,
) -> Expansion:
    """Return the environments that a matrix file asks for, oldest torch first, then given interpreters.

    Without `product` only the interpreters count. `path` is where the file was read, for the commands that ask
    for an environment again.

    Asks the indexes which versions exist; listings are kept below `cache`. An index that does not
    answer gives one request with a `problem` per thing asked of it. Raises UsageError for a version
    that no index lists.
    """
    expansion = _Expander(file, cache).expand(interpreters_given, product=product)
    requests = tuple(request.model_copy(update={"matrix": path}) for request in expansion.requests)
    return expansion if path is None else expansion.model_copy(update={"requests": requests})


class _Expander:
    """Multiplies the axes, asking each index once."""

    def __init__(self, file: MatrixFile, cache: Path) -> None:
        self.file = file
        self.cache = cache
        self.sources = configured_sources()
        self.notes: list[str] = []
        self.pythons = file.axes.python or (interpreters.default_python(),)

    def expand(self, interpreters_given: tuple[Path, ...], *, product: bool) -> Expansion:
        """Return the requests in order, each once."""
        file = self.file
        requests: dict[tuple[str, str], Request] = {}
        chosen: list[Request] = []
        if product:
            axes = file.axes
            chosen = self._product(axes.torch, self.pythons, axes.build, axes.config)
            for row in file.include:
                pythons = (row.python,) if row.python else self.pythons
                chosen += self._product((row.torch,), pythons, (row.build,), (row.config,))
        chosen += [request for path in interpreters_given for request in self._interpreter(path)]
        for request in chosen:
            if not any(row.matches(request) for row in file.exclude):
                requests.setdefault((request.install_key, request.config.name), request)
        return Expansion(requests=tuple(requests.values()), notes=tuple(dict.fromkeys(self.notes)))

    def _interpreter(self, path: Path) -> Iterator[Request]:
        for name in self.file.axes.config:
            config = configs.config_named(name, self.file.configs)
            yield Request(torch="", python="", build=Build(name="existing"), config=config, interpreter=path.absolute())

    def _product(
        self, specs: tuple[str, ...], pythons: tuple[str, ...], build_names: tuple[str, ...], names: tuple[str, ...]
    ) -> list[Request]:
        chosen = {name: self._build(name) for name in build_names}
        found: list[tuple[str, str, Build, str | None]] = []  # torch, python, build, problem
        for spec in specs:
            unknown: list[tuple[str, Build, releases.UnknownVersionError]] = []
            known = False
            for python in pythons:
                for build in chosen.values():
                    try:
                        versions = self._versions(spec, python, build)
                    except releases.UnknownVersionError as error:
                        unknown.append((python, build, error))
                    except PreventedError as error:
                        found.append((spec, python, build, error.message))
                        known = True
                    else:
                        known = True
                        found += [(version, python, build, None) for version in versions]
            if unknown and not known:
                raise unknown[0][2]
            found += [(spec, python, build, error.message) for python, build, error in unknown]
        found.sort(key=_age)
        explicit_python = bool(self.file.axes.python)
        return [
            Request(
                torch=torch,
                python=python,
                build=build,
                config=configs.config_named(name, self.file.configs),
                requirements=self.file.requirements,
                problem=problem,
                show_python=explicit_python,
            )
            for torch, python, build, problem in found
            for name in names
        ]

    def _build(self, name: str) -> Build:
        if name != "auto":
            return builds.build_named(name, self.file.builds)
        build, reason = builds.choose_auto(self.cache)
        self.notes.append(f"build auto is {build.name}: {reason}")
        return build

    def _versions(self, spec: str, python: str, build: Build) -> list[str]:
        if spec.endswith(".whl"):
            return [str(Path(spec).absolute())]
        listing = releases.list_releases(build, python, self.sources, self.cache)
        chosen = releases.select(spec, listing)
        self.notes += [f"torch {version} is yanked, left out: {why}" for version, why in listing.yanked_among(spec)]
        return [release.version for release in chosen]


def _age(row: tuple[str, str, Build, str | None]) -> tuple[bool, Version, str]:
    try:
        return False, Version(row[0]), row[1]
    except ValueError:
        return True, Version("0"), row[1]  # a wheel's path, a spec that could not be looked up: last
