"""Matrix file -> the environments that it asks for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from matrix.environments import configs, interpreters
from matrix.environments.index import builds, releases, version_specs
from matrix.environments.index.sources import configured_sources
from matrix.errors import PreventedError
from matrix.model import Build, Config, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.plan.matrix_file import MatrixFile

EXISTING = "existing"  # the build of an environment that whichtorch did not make


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """The environments asked for, and what there is to say about how they were chosen."""

    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()


def existing(interpreter: Path, config: Config, file: Path | None = None) -> Request:
    """Return the request for the environment of a user's own Python, with a config of a matrix file."""
    build = Build(name=EXISTING)
    return Request(torch="", python="", build=build, config=config, interpreter=interpreter.absolute(), matrix=file)


def expand(
    file: MatrixFile,
    *,
    cache: Path,
    interpreters_given: Sequence[Path] = (),
    product: bool = True,
    path: Path | None = None,
) -> Expansion:
    """Return the environments that a matrix file asks for, each once: oldest torch first, then given interpreters.

    Without `product` only the interpreters count. `path` is where the file was read, for the commands that ask
    for an environment again.

    The indexes are asked which versions exist; listings are kept below `cache`. An index that does not answer
    gives a request with a `problem` for each environment that needs it. Raises UsageError for a version that no
    index lists.
    """
    expander = _Expander(file, cache, path)
    chosen: list[Request] = []
    if product:
        axes = file.axes
        chosen += expander.product(axes.torch, expander.pythons, axes.build, axes.config)
        for row in file.include:
            pythons = (row.python,) if row.python else expander.pythons
            chosen += expander.product((row.torch,), pythons, (row.build,), (row.config,))
    for interpreter, name in itertools.product(interpreters_given, file.axes.config):
        chosen.append(existing(interpreter, configs.config_named(name, file.configs), path))
    requests: dict[tuple[str, str], Request] = {}
    for request in chosen:
        if not any(row.matches(request) for row in file.exclude):
            requests.setdefault((request.install_key, request.config.name), request)
    return Expansion(requests=tuple(requests.values()), notes=tuple(dict.fromkeys(expander.notes)))


class _Choice(NamedTuple):
    """An environment without its config."""

    torch: str
    python: str
    build: Build
    problem: str | None = None

    @property
    def age(self) -> tuple[bool, Version, str]:
        """A sort key: the oldest torch first; last a wheel's path, or a spec that could not be looked up."""
        try:
            return False, Version(self.torch), self.python
        except ValueError:
            return True, Version("0"), self.python


class _Expander:
    """Multiplies axes, and notes what there is to say about it."""

    def __init__(self, file: MatrixFile, cache: Path, path: Path | None) -> None:
        self.file, self.cache, self.path = file, cache, path
        self.sources = configured_sources()
        self.notes: list[str] = []
        self.pythons = file.axes.python or (interpreters.default_python(),)

    def product(
        self, specs: Iterable[str], pythons: Sequence[str], build_names: Iterable[str], config_names: Sequence[str]
    ) -> list[Request]:
        """Return torch x Python x build x config, oldest torch first."""
        chosen_builds = [self._build(name) for name in build_names]
        choices = [choice for spec in specs for choice in self._choices(spec, pythons, chosen_builds)]
        return [
            Request(
                torch=choice.torch,
                python=choice.python,
                build=choice.build,
                config=configs.config_named(name, self.file.configs),
                requirements=self.file.requirements,
                problem=choice.problem,
                show_python=bool(self.file.axes.python),
                matrix=self.path,
            )
            for choice in sorted(choices, key=lambda choice: choice.age)
            for name in config_names
        ]

    def _choices(self, spec: str, pythons: Iterable[str], chosen_builds: Sequence[Build]) -> list[_Choice]:
        """Return what a spec means for each Python and build; raises UnknownVersionError where none of them has it."""
        choices: list[_Choice] = []
        unknown: list[_Choice] = []
        first_error: version_specs.UnknownVersionError | None = None
        for python, build in itertools.product(pythons, chosen_builds):
            try:
                choices += [_Choice(version, python, build) for version in self._versions(spec, python, build)]
            except version_specs.UnknownVersionError as error:
                first_error = first_error or error
                unknown.append(_Choice(spec, python, build, error.message))
            except PreventedError as error:
                choices.append(_Choice(spec, python, build, error.message))
        if first_error is not None and not choices:
            raise first_error
        return choices + unknown

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
        chosen = version_specs.select(spec, listing)
        self.notes += [
            f"torch {version} is yanked, left out: {why}" for version, why in version_specs.yanked_among(spec, listing)
        ]
        return [release.version for release in chosen]
