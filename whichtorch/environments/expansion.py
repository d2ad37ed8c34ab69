"""From a matrix file to the environments that it asks for; from a known environment back to what asks for it."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from whichtorch.base.errors import PreventedError, UsageError, WhichtorchError
from whichtorch.base.option import OUTPUTS
from whichtorch.base.redaction import restored
from whichtorch.environments import configs
from whichtorch.environments.index import releases, sources
from whichtorch.environments.interpreters import DEFAULT_PYTHON
from whichtorch.environments.matrix_file import patch_named
from whichtorch.environments.script_needs import contents_of
from whichtorch.model import ANY_HARDWARE, NO_PATCH, Build, Config, Environment, LocalProject, Patch, Request
from whichtorch.model.environment import folder_of
from whichtorch.suite.project import Project

if TYPE_CHECKING:
    from whichtorch.environments.matrix_file import Axes, MatrixFile

EXISTING = "existing"  # the build of an environment that whichtorch did not make


class Expansion(NamedTuple):
    """The environments asked for, and what there is to say about how they were chosen."""

    requests: tuple[Request, ...]
    notes: tuple[str, ...]
    build_notes: tuple[str, ...]  # which build `auto` is on this machine, and why


def config_of(file: MatrixFile, name: str) -> Config:
    """Return the config with a name, and with the variables that options give to what is run."""
    config = configs.config_named(name, file.config)
    return config.model_copy(update={"env": config.env | dict(file.needs.variables)})


def existing(interpreter: Path, config: Config, file: MatrixFile | None = None, folder: str = "") -> Request:
    """Return the request for the environment of a user's own Python, with a config of a matrix file.

    `folder` is what tells it from other such environments, "" for the name of its folder.
    """
    return Request(
        torch="",
        python="",
        build=Build(name=EXISTING),
        config=config,
        interpreter=interpreter.absolute(),
        folder=folder,
        matrix=file.path if file else None,
        added_options=file.needs.variable_options if file else (),
    )


def _folder_names(interpreters: Sequence[Path]) -> dict[Path, str]:
    """Return what tells environments apart: the end of each one's path, as short as that allows."""
    parts = {each: folder_of(each.absolute()).parts[1:] for each in interpreters}
    names: dict[Path, str] = {}
    for depth in range(1, max(map(len, parts.values()), default=0) + 1):
        names = {each: "-".join(own[-depth:]) for each, own in parts.items()}
        if len({*names.values()}) == len({*parts.values()}):
            break
    return names


def expand(
    file: MatrixFile, *, cache: Path, interpreters_given: Sequence[Path] = (), product: bool = True
) -> Expansion:
    """Return the environments that a matrix file asks for, each once: oldest torch first, then given interpreters.

    Without `product` only the interpreters count. The indexes are asked which versions exist; listings are kept below
    `cache`. An index that does not answer gives a request with a `problem` for each environment that needs it. Raises
    UsageError for a version that no index lists.
    """
    expander = _Expander(file, cache)
    chosen: list[Request] = []
    if product:
        rows = [{axis: (value,) for axis, value in row if value} for row in file.include]
        for row in [{}, *rows]:
            chosen += expander.product(file.axes.model_copy(update=row))
    if interpreters_given and file.axes.patch != (NO_PATCH,):
        hint = "name a release with --torch, or apply the patch there yourself"
        raise UsageError("a patch is tried on what whichtorch installs, not on what --interpreter names", hint=hint)
    folders = _folder_names(interpreters_given)
    for interpreter, name in itertools.product(interpreters_given, file.axes.config):
        chosen.append(existing(interpreter, config_of(file, name), file, folders[interpreter]))
    words = (*file.needs.options, *(["--override"] if file.needs.overrides else []))
    if interpreters_given and words:
        named = " and ".join(dict.fromkeys(word for word in words if word.startswith("--")))
        hint = "install it there yourself, or name a release with --torch"
        raise UsageError(f"{named}: for what whichtorch installs, not for --interpreter", hint=hint)
    if not chosen:
        raise UsageError("; ".join(expander.notes), hint="name another one with --python")
    requests: dict[tuple[str, ...], Request] = {}
    for request in chosen:
        if not any(row.matches(request) for row in file.exclude):
            requests.setdefault(request.key, request)
    notes, build_notes = (tuple(dict.fromkeys(each)) for each in (expander.notes, expander.build_notes))
    return Expansion(tuple(requests.values()), notes, build_notes)


@cache
def _kept_project(text: str, home: Path) -> LocalProject:
    """Keep the files of a project that a requirement names, and return the project. A run sees it as it is now."""
    requirement = Requirement(text)
    folder = sources.local_folder(requirement.url or "")
    assert folder is not None
    project = Project.around(folder, OUTPUTS)
    project.keep(home)
    return LocalProject(
        name=canonicalize_name(requirement.name),
        digest=project.digest,
        subfolder=project.subfolder,
        repository=str(project.root) if (project.root / ".git").exists() else "",
    )


class _Choice(NamedTuple):
    """An environment without its config."""

    torch: str
    python: str
    build: Build
    problem: str | None = None
    wheel: str = ""  # contents, where they may change

    @property
    def age(self) -> tuple[bool, Version, str]:
        """A sort key: the oldest torch first; at the end a wheel's path, or a spec that could not be looked up."""
        try:
            return False, Version(self.torch), self.python
        except ValueError:
            return True, Version("0"), self.python


class _Expander:
    """Multiplies axes, and notes what there is to say about it."""

    def __init__(self, file: MatrixFile, cache: Path) -> None:
        self.file, self.cache = file, cache
        self.notes: list[str] = []
        self.build_notes: list[str] = []

    def product(self, axes: Axes) -> list[Request]:
        """Return torch x Python x build x config x patch x hardware, oldest torch first."""
        needs, pythons = self.file.needs, self._pythons(axes.python)
        installed = list(itertools.product(pythons, map(self._build, axes.build)))
        is_python_shown = bool(self.file.axes.python) or not (axes.python or DEFAULT_PYTHON in pythons)
        overriding = [(each, contents_of([*needs.requirements, *each])) for each in self.file.override_choices]
        chosen_patches = self._patches(axes.patch)
        choices = [choice for spec in axes.torch for choice in self._choices(spec, installed)]
        return [
            Request(
                torch=choice.torch,
                python=choice.python,
                build=choice.build,
                config=config_of(self.file, name),
                patch=patch,
                hardware=kind,
                requirements=(*self.file.requirements, *needs.requirements),
                added=needs.requirements,
                constraints=needs.constraints,
                overrides=overrides,
                resolution=needs.resolution,
                projects=tuple(_kept_project(text, self.cache.parent) for text in needs.installs),
                added_options=(*needs.options, *needs.variable_options),
                contents=contents,
                wheel=choice.wheel,
                problem=choice.problem,
                show_python=is_python_shown,
                matrix=self.file.path,
            )
            for choice in sorted(choices, key=lambda choice: choice.age)
            for overrides, contents in overriding
            for name in axes.config
            for patch in chosen_patches
            for kind in [self.file.hardware.get(name) for name in axes.hardware or ("",)]
        ]

    def _pythons(self, named: Sequence[str]) -> list[str]:
        """Return the Pythons, named or default, that are allowed; note each that is left out or replaced."""
        needs = self.file.needs
        pythons = [python for python in named or (DEFAULT_PYTHON,) if needs.allows(python)]
        reason = f"{needs.whose} requires {needs.python}"
        self.notes += [f"Python {python} is left out: {reason}" for python in named if python not in pythons]
        if not (named or pythons):
            pythons = [needs.nearest_python()]
            self.notes.append(f"Python {pythons[0]} is used: {reason}")
        return pythons

    def _patches(self, specs: Sequence[str]) -> list[Patch | None]:
        """Return what the values of the axis mean; raises UsageError for two patches of one name."""
        chosen = [patch_named(spec, self.file.patches) for spec in specs]
        texts: dict[str, str] = {}
        for patch in filter(None, chosen):
            if texts.setdefault(patch.name, patch.text) != patch.text:
                raise UsageError(f"two patches are called {patch.name!r}", hint="give one of the files another name")
        return chosen

    def _choices(self, spec: str, installed: Sequence[tuple[str, Build]]) -> list[_Choice]:
        """Return what a spec means for each Python and build; raises UnknownVersionError where none of them has it."""
        choices: list[_Choice] = []
        unknown: dict[_Choice, releases.UnknownVersionError] = {}
        for python, build in installed:
            try:
                versions, notes = releases.find(spec, build, python, self.cache)
                choices += [_Choice(version, python, build, wheel=wheel) for version, wheel in versions.items()]
                self.notes += notes
            except releases.UnknownVersionError as error:
                unknown[_Choice(spec, python, build, error.message)] = error
            except PreventedError as error:
                choices.append(_Choice(spec, python, build, error.message))
        if unknown and not choices:
            raise next(iter(unknown.values()))
        return [*choices, *unknown]

    def _build(self, name: str) -> Build:
        if name != "auto":
            return sources.build_named(name, self.file.build)
        build, reason = sources.choose_auto(self.cache)
        self.build_notes += [f"build auto is {build.name}: {reason}"] if reason else []
        return build


def request_for(file: MatrixFile, home: Path, axes: dict[str, str], interpreter: Path | None) -> Request | None:
    """Return the request for one environment, with a matrix file's builds and configs; None where it has no such."""
    try:
        if interpreter is not None:
            return existing(interpreter, config_of(file, axes["config"]), file)
        narrowed = file.with_axes(
            torch=(axes["torch"],),
            python=() if axes["python"] == DEFAULT_PYTHON else (axes["python"],),
            build=(axes["build"],),
            config=(axes["config"],),
            patch=(axes["patch"],),
            hardware=() if axes.get("hardware", ANY_HARDWARE) == ANY_HARDWARE else (axes["hardware"],),
        )
        return next(iter(expand(narrowed, cache=home / "cache").requests), None)
    except WhichtorchError:
        return None


def environment_named(name: str, environments: Mapping[str, Environment]) -> Environment:
    """Return the known environment with this label or id, the latest of several; raises UsageError with the labels."""
    usable = [environment for environment in environments.values() if environment.is_usable]
    for environment in reversed(usable):
        if environment.label == name or (len(name) > 3 and environment.id.startswith(name)):
            return environment
    labels = list(dict.fromkeys(environment.label for environment in usable))
    near = difflib.get_close_matches(name, labels, n=3, cutoff=0.5)
    known = f"known are {', '.join(near or labels[-5:])}"
    hint = known if labels else "run `whichtorch matrix` first, or name a Python by its path"
    raise UsageError(f"no known environment has the label or id {name!r}", hint=hint)


def axes_of(environment: Environment) -> dict[str, str]:
    """Return what asks for an environment again; a wheel by its path, since other wheels may have its version."""
    options = dict(zip(environment.options, environment.options[1:], strict=False))
    spec = str(restored(Path(options.get("--torch", environment.torch))))
    patch = str(restored(Path(options.get("--patch", NO_PATCH))))
    return environment.axes | {"patch": patch} | ({"torch": spec} if spec.endswith(".whl") else {})
