"""A matrix file: what is multiplied, what runs, and the builds, configs and patches that it defines.

Where no --matrix is given, that of the user's own repository counts: whichtorch.toml, or [tool.whichtorch] in
pyproject.toml, in the nearest folder from the current one upwards. All mistakes are reported at once. It is longer than
other modules because each table stands beside its checks.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

from packaging.requirements import Requirement
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from whichtorch.base.errors import UsageError
from whichtorch.base.grouping import grouped
from whichtorch.base.version_parsing import in_specifier, minor_python
from whichtorch.environments import configs, patches
from whichtorch.environments.index import releases, sources
from whichtorch.environments.script_needs import Needs, needs_of, override_of
from whichtorch.model import NO_PATCH, TABLE_NAME, Build, Config, Hardware, Patch, Request, Scenario, Specifier
from whichtorch.suite import selection
from whichtorch.suite.toml_lines import line_of, parsed

if TYPE_CHECKING:
    from pydantic import ValidationInfo
    from pydantic_core import ErrorDetails

    from whichtorch.environments.additions import Additions

_OWN, _PROJECT = "whichtorch.toml", "pyproject.toml"
_HEADER = re.compile(r"^[ \t]*\[+\s*tool\s*\.\s*[\"']?whichtorch\b.*", re.MULTILINE)


def own_file() -> Path | None:
    """Return the path of the user's own matrix file, from the current folder; None where there is none.

    Raises UsageError for a folder with two.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        own, project = folder / _OWN, folder / _PROJECT
        line = _line_in(project)
        if own.is_file() and line:
            message = f"{project}:{line}: [tool.whichtorch] and {own} are both matrix files"
            raise UsageError(message, hint="keep one of the two")
        if own.is_file() or line:
            return Path(os.path.relpath(own if own.is_file() else project))
    return None


def table_in(path: Path) -> tuple[dict[str, Any], str]:
    """Return what a matrix file says, and its text; of a pyproject.toml its [tool.whichtorch], with all lines kept.

    Raises what reading and parsing raise, and UsageError for a pyproject.toml without that table.
    """
    text = path.read_text(encoding="utf-8")
    table = parsed(text)
    if path.name != _PROJECT:
        return table, text
    try:
        own = table["tool"]["whichtorch"]
    except KeyError:
        raise UsageError(f"{path} has no [tool.whichtorch]", hint="give another file with --matrix") from None
    header = _HEADER.search(text)
    start = header.start() if header else 0
    return own, "\n" * text.count("\n", 0, start) + text[start:]


def _line_in(project: Path) -> int | None:
    """Return the line of [tool.whichtorch] in a pyproject.toml; None where it has none, or there is no such file."""
    try:
        header = _HEADER.search(text := project.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return text.count("\n", 0, header.start()) + 1 if header else None


_NO_KEY = "[NEEDS]"  # stands for a field that no key of the file sets
DEFAULT_FILE = Path(__file__).parents[1] / "matrix" / "default.toml"


class _OwnTables(NamedTuple):
    """What the file defines that names are checked against, beside the built-in ones."""

    builds: Mapping[str, Build]
    configs: Mapping[str, Config]
    patches: Mapping[str, Patch]
    hardware: Iterable[str]  # names
    folder: Path  # that the file is in


def _named(check: Callable[[Any, _OwnTables], object]) -> AfterValidator:
    """Return a validator of names and paths: what `check` raises is one of the mistakes of the file."""

    def validate(name: Any, info: ValidationInfo[_OwnTables]) -> Any:
        try:
            check(name, info.context)
        except UsageError as error:
            raise ValueError(f"{error.message}; {error.hint}".rstrip("; ")) from None
        return name

    return AfterValidator(validate)


def patch_named(spec: str, custom: Mapping[str, Patch]) -> Patch | None:
    """Return the patch that the file calls so, or that is in a file; None for none. Raises as `read_patch`."""
    if spec == NO_PATCH:
        return None
    return custom[spec] if spec in custom else patches.read_patch(Path(spec))


def _python_version(value: str) -> str:
    if not re.fullmatch(r"3\.\d+t?", value):
        near = re.match(r"(?:[Pp]ython ?)?(3\.\d+(?:\.\d+)?t?)(?![\w/])", value)
        meant = f"; did you mean {minor_python(near[1])}?" if near else ""
        remedy = "; --interpreter takes the path of one" if "/" in value else meant
        raise ValueError(f"{value!r} is not a Python version such as 3.11 or 3.13t{remedy}")
    return value


_TorchSpec = Annotated[str, _named(lambda spec, _own: releases.check_spec(spec))]
_BuildName = Annotated[str, _named(lambda name, own: name == "auto" or sources.build_named(name, own.builds))]
_ConfigName = Annotated[str, _named(lambda name, own: configs.config_named(name, own.configs))]
_PatchName = Annotated[str, _named(lambda name, own: patch_named(name, own.patches))]


def _kind_named(name: str, own: _OwnTables) -> None:
    if name not in own.hardware:
        hint = f"known are {', '.join(own.hardware)}" if own.hardware else "define it in a [hardware.NAME] table"
        raise UsageError(f"no hardware is called {name!r}", hint=hint)


_HardwareName = Annotated[str, _named(_kind_named)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))


class Axes(_Table):
    """What is multiplied."""

    torch: tuple[_TorchSpec, ...] = Field(default=("recent:3",), min_length=1)
    python: tuple[Annotated[str, AfterValidator(_python_version)], ...] = ()
    build: tuple[_BuildName, ...] = Field(default=("auto",), min_length=1)
    config: tuple[_ConfigName, ...] = Field(default=("default",), min_length=1)
    patch: tuple[_PatchName, ...] = Field(default=(NO_PATCH,), min_length=1)
    hardware: tuple[_HardwareName, ...] = ()


class Suite(_Table):
    """What runs: scripts of the user's own, by globs, and bundled scenarios: all of them where nothing is named."""

    scenarios: tuple[str, ...] | None = None
    scripts: tuple[Annotated[str, _named(lambda glob, own: selection.script_paths(glob, own.folder))], ...] = ()


class RunTable(_Table):
    """How cells are run, where neither an option nor a script's header says it."""

    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)  # seconds


class Exclude(_Table):
    """Environments to leave out: those that match every value named here."""

    torch: Specifier = ""
    python: str = ""
    build: str = ""
    config: str = ""
    patch: str = ""
    hardware: str = ""

    def matches(self, request: Request) -> bool:
        """Return whether every value named here applies to `request`."""
        patch = NO_PATCH if request.patch is None else request.patch.name
        asked = request.axes | {"patch": patch, "hardware": request.hardware_name}
        others_apply = all(value in {"", asked[axis]} for axis, value in self if axis != "torch")
        return others_apply and in_specifier(request.torch, self.torch, as_final=False)


class Include(_Table):
    """One more environment, beside the product of the axes."""

    torch: _TorchSpec
    python: str | None = None
    build: _BuildName = "auto"
    config: _ConfigName = "default"
    patch: _PatchName = NO_PATCH
    hardware: Annotated[str, _named(lambda name, own: not name or _kind_named(name, own))] = ""


@AfterValidator
def _beside_file(file: Path, info: ValidationInfo[_OwnTables]) -> Path:
    return info.context.folder / file  # a path in a matrix file is relative to the file's folder


class PatchTable(_Table):
    """A [patch.NAME] table."""

    file: Annotated[Path, _beside_file, _named(lambda file, _own: patches.read_patch(file))]


@BeforeValidator
def _with_names(tables: Any) -> Any:
    """Give each table its name, which is no key of it in the file."""
    if not isinstance(tables, dict):
        return tables
    return {name: table | {TABLE_NAME: name} if isinstance(table, dict) else table for name, table in tables.items()}


@AfterValidator
def _override(text: str, info: ValidationInfo[_OwnTables]) -> str:
    try:
        return override_of(text, info.context.folder)
    except UsageError as error:
        raise ValueError(f"{text}: {error.message}") from None


class MatrixFile(_Table):
    """A whole matrix file."""

    axes: Axes = Axes()
    suite: Suite = Suite()
    run: RunTable = RunTable()
    state: Annotated[Path, _beside_file] | None = None  # the state folder, in the file of the user's own repository
    requirements: tuple[str, ...] = ()
    overrides: tuple[Annotated[str, _override], ...] = ()
    exclude: tuple[Exclude, ...] = ()
    include: tuple[Include, ...] = ()
    build: Annotated[dict[str, Build], _with_names] = {}
    config: Annotated[dict[str, Config], _with_names] = {}
    patch: dict[str, PatchTable] = {}
    hardware: Annotated[dict[str, Hardware], _with_names] = {}
    needs: Needs = Field(default=Needs(), validation_alias=_NO_KEY)  # of options and a script, which no file says
    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """Where it was read; None for the default file."""
        return self._path

    @property
    def override_choices(self) -> list[tuple[str, ...]]:
        """Each combination of one override of each package, as options name them, or else the file."""
        own, asked = (
            grouped(texts, lambda each: Requirement(each).name) for texts in (self.overrides, self.needs.overrides)
        )
        chosen = own | asked
        return list(itertools.product(*(dict.fromkeys(chosen[name]) for name in sorted(chosen))))

    @property
    def scripts(self) -> list[Scenario]:
        """The user's own scripts of the suite, by path; each has its path in the file's folder as its name."""
        folder = (self._path or Path()).resolve().parent
        paths = sorted({path for glob in self.suite.scripts for path in selection.script_paths(glob, folder)})
        return [self.timed(selection.suite_script(path, folder)) for path in paths]

    @property
    def scenarios(self) -> list[Scenario]:
        """What runs where no test is named: bundled scenarios, then the user's own scripts."""
        globs = self.suite.scenarios
        globs = (() if self.suite.scripts else ("*",)) if globs is None else globs
        return [*(selection.select(selection.suite(), globs) if globs else ()), *self.scripts]

    def script(self, text: str, arguments: Sequence[str] | None = None) -> Scenario:
        """Return the user's script that "repro.py" or "repro.py[op=mm]" names, here or in the file's folder.

        With `arguments` it is another test.
        """
        folder = self._path and self._path.resolve().parent
        return selection.with_arguments(self.timed(selection.script(text, folder)), arguments or ())

    def timed(self, scenario: Scenario) -> Scenario:
        """Return a script or a command with the file's timeout if it has none of its own."""
        if self.run.timeout is None or scenario.has_timeout:
            return scenario
        return scenario.model_copy(update={"timeout": self.run.timeout, "has_timeout": True})

    @cached_property
    def patches(self) -> dict[str, Patch]:
        """The patches that the file names."""
        return {name: patches.read_patch(table.file, name, option=name) for name, table in self.patch.items()}

    def for_script(self, scenario: Scenario) -> MatrixFile:
        """Return the file with a script's needs added."""
        return self.model_copy(update={"needs": self.needs.with_script(scenario)})

    def with_additions(self, added: Additions) -> MatrixFile:
        """Return the file with what options add to its environments."""
        return self.model_copy(update={"needs": needs_of(added)})

    def with_axes(self, *, keep_rows: bool = False, **given: Sequence[str] | None) -> MatrixFile:
        """Return the file with other values on the given axes, by their names; None leaves an axis as it is.

        The [[include]] rows go: whoever names an axis wants just that. `keep_rows` keeps the [[exclude]] rows.
        Raises UsageError for values that mean nothing.
        """
        if all(named is None for named in given.values()):
            return self
        values = dict(self.axes) | {axis: named for axis, named in given.items() if named is not None}
        try:
            own = _OwnTables(self.build, self.config, self.patches, self.hardware, Path())
            axes = Axes.model_validate(values, context=own)
        except ValidationError as error:
            raise _mistakes(error, "the options", within=("axes",)) from None
        return self.model_copy(update={"axes": axes, "include": (), "exclude": self.exclude if keep_rows else ()})


def read_matrix_file(path: Path) -> MatrixFile:
    """Read a matrix file. Raises UsageError that names every mistake with its line and remedy."""
    try:
        table, text = table_in(path)
    except FileNotFoundError:
        raise UsageError(f"no such matrix file: {path}", hint=f"start from a copy of {DEFAULT_FILE}") from None
    except OSError as error:
        raise UsageError(f"cannot read the matrix file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    file = checked(table, str(path), text)
    file._path = None if path == DEFAULT_FILE else path
    return file


def checked(table: Mapping[str, Any], source: str, text: str = "") -> MatrixFile:
    """Return the matrix file that a table says, read from `text` at `source`. Raises as `read_matrix_file`."""
    own = _OwnTables(
        builds=dict.fromkeys(table.get("build") or (), Build(name="")),
        configs=dict.fromkeys(table.get("config") or (), Config(name="")),
        patches=dict.fromkeys(table.get("patch") or (), Patch(name="", text="")),
        hardware=tuple(table.get("hardware") or ()),
        folder=Path(source).parent,
    )
    try:
        return MatrixFile.model_validate(table, context=own, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _mistakes(error, source, text) from None


def _mistakes(error: ValidationError, source: str, text: str = "", within: tuple[str, ...] = ()) -> UsageError:
    """Return the error that names every mistake; with a `text` also its line, `within` which table all of them are."""
    # a list whose only element is wrong is also too short, after validation
    details = [detail for detail in error.errors() if detail["type"] != "too_short" or not detail["input"]]
    described = sorted(_described(detail, text, within) for detail in details)
    messages = [f"{source}:{line}: {message}" if text else message for line, message in described]
    if len(messages) == 1:
        return UsageError(messages[0] if text or within else f"{source}: {messages[0]}")
    return UsageError("\n  ".join([f"{len(messages)} mistakes in {source}:", *messages]))


def _described(detail: ErrorDetails, text: str, within: tuple[str, ...]) -> tuple[int, str]:
    """Return the line of a mistake, and what is wrong with the remedy."""
    keys = (*within, *detail["loc"])
    if detail["type"] == "value_error" and isinstance(keys[-1], int):
        keys = keys[:-1]  # the message quotes the element
    message = detail["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if detail["type"] == "extra_forbidden":
        known = _keys_beside(keys)
        near = difflib.get_close_matches(str(keys[-1]), known, n=1)
        message = "unknown key; " + (f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}")
    elif detail["type"] == "missing":
        message = "is missing"
    elif detail["type"] == "tuple_type":
        message = f"must be a list, as in {keys[-1]} = [{detail['input']!r}]"
    name = f"--{keys[1]}" if within else ".".join(map(str, keys))
    return line_of(text, keys) + 1, f"{name}: {message}"


def _keys_beside(keys: tuple[str | int, ...]) -> list[str]:
    """Return the keys that may stand beside a key, in the same table."""
    model: type[BaseModel] = MatrixFile
    if len(keys) > 1:
        table = MatrixFile.model_fields[str(keys[0])].annotation
        model = next(kind for kind in (*get_args(table), table) if isclass(kind) and issubclass(kind, BaseModel))
    aliases = (str(field.validation_alias) for field in model.model_fields.values())
    return [alias for alias in aliases if alias not in {TABLE_NAME, _NO_KEY}]
