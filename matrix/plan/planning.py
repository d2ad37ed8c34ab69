"""Matrix file -> the environments that it asks for -> the cells to run: environments x scenarios x variants.

It is longer than 300 lines because the way from a matrix file to its planned cells is read in one go.
"""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from matrix.environments import configs
from matrix.environments.index import builds, releases, version_specs
from matrix.environments.index.sources import configured_sources
from matrix.environments.interpreters import DEFAULT_PYTHON
from matrix.errors import PreventedError, UsageError, WhichtorchError
from matrix.model import (
    Build,
    Config,
    Environment,
    Expectation,
    Limits,
    Outcome,
    Record,
    Request,
    Role,
    Scenario,
    combine,
    judging_records,
    record_key,
    variant_suffix,
)
from matrix.privacy.redaction import restored
from matrix.suite import selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.plan.matrix_file import MatrixFile

EXISTING = "existing"  # the build of an environment that whichtorch did not make


class Expansion(NamedTuple):
    """The environments asked for, and what there is to say about how they were chosen."""

    requests: tuple[Request, ...]
    notes: tuple[str, ...]


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
    for an environment again. The indexes are asked which versions exist; listings are kept below `cache`. An index
    that does not answer gives a request with a `problem` for each environment that needs it. Raises UsageError for a
    version that no index lists.
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
    return Expansion(tuple(requests.values()), tuple(dict.fromkeys(expander.notes)))


class _Choice(NamedTuple):
    """An environment without its config."""

    torch: str
    python: str
    build: Build
    problem: str | None = None

    @property
    def age(self) -> tuple[bool, Version, str]:
        """A sort key: the oldest torch first; at the end a wheel's path, or a spec that could not be looked up."""
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
        self.pythons = file.axes.python or (DEFAULT_PYTHON,)

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
        unknown: dict[_Choice, version_specs.UnknownVersionError] = {}
        for python, build in itertools.product(pythons, chosen_builds):
            try:
                choices += [_Choice(version, python, build) for version in self._versions(spec, python, build)]
            except version_specs.UnknownVersionError as error:
                unknown[_Choice(spec, python, build, error.message)] = error
            except PreventedError as error:
                choices.append(_Choice(spec, python, build, error.message))
        if unknown and not choices:
            raise next(iter(unknown.values()))
        return [*choices, *unknown]

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
        yanked = version_specs.yanked_among(spec, listing)
        self.notes += [f"torch {version} is yanked, left out: {why}" for version, why in yanked]
        return [release.version for release in chosen]


def request_for(file: MatrixFile, home: Path, axes: dict[str, str], interpreter: Path | None) -> Request | None:
    """Return the request for one environment, with a matrix file's builds and configs; None where it has no such."""
    try:
        if interpreter is not None:
            return existing(interpreter, configs.config_named(axes["config"], file.configs))
        python = () if axes["python"] == DEFAULT_PYTHON else (axes["python"],)
        torch, build, config = ((axes[axis],) for axis in ("torch", "build", "config"))
        narrowed = file.with_axes(torch=torch, python=python, build=build, config=config)
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
    return {
        "config": environment.config,
        "torch": spec if spec.endswith(".whl") else environment.torch,
        "python": ".".join(environment.python.split(".")[:2]),
        "build": environment.build,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How cells are run."""

    timeout: float | None = None  # seconds, instead of the scenarios' own
    repeat: int = 1  # attempts a cell
    jobs: int = 1  # attempts at once
    fresh: bool = False  # records of earlier runs do not count
    stall: bool = True  # stop early on evidence of a deadlock
    until: frozenset[Outcome] = frozenset()  # no attempt is made after a new one with such an outcome
    provisional: bool = False  # a slow attempt is left at that, instead of getting a longer look


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRequest:
    """What a user asks `matrix` for, read and checked."""

    file: MatrixFile
    path: Path | None = None  # of the file; None for the default one
    interpreters: tuple[Path, ...] = ()  # of existing environments
    product: bool = True  # False where only the interpreters are meant
    suite: tuple[Scenario, ...]
    options: RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A scenario and variant to be run in an environment."""

    request: Request
    scenario: Scenario
    variant: dict[str, str]
    options: RunOptions

    @property
    def name(self) -> str:
        """The scenario, and the variant in brackets."""
        return self.scenario.name + variant_suffix(self.variant)

    @property
    def limits(self) -> Limits:
        """What its attempts may use."""
        timeout = self.options.timeout or self.scenario.timeout
        return Limits(timeout=timeout, memory_mb=self.scenario.memory_mb, stall=self.options.stall)

    def key(self, environment: Environment) -> str:
        """Return the key of its records."""
        return record_key(environment.id, self.scenario.source_hash, self.variant, self.limits)

    def expectation(self, environment: Environment | None) -> Expectation | None:
        """Return what the scenario's header says of it; before there is an environment, by what was asked for."""
        named = environment or self.request
        build = environment.build if environment else self.request.build.name
        config = environment.config if environment else self.request.config.name
        return selection.expected(
            self.scenario, self.variant, torch=named.torch, python=named.python, build=build, config=config
        )

    def expects_hang(self, environment: Environment) -> bool:
        """Return whether its header says that it hangs here."""
        line = self.expectation(environment)
        return line is not None and line.outcome is Outcome.HANG

    def is_settled(self, records: Sequence[Record]) -> bool:
        """Return whether records leave nothing to run."""
        return not self.wants_attempt(records) and not self.wants_observation(records)

    def wants_attempt(self, known: Sequence[Record], new: Sequence[Record] = ()) -> bool:
        """Return True while attempts are missing: `known` were made before, `new` since the run began."""
        if any(record.attempt.outcome in self.options.until for record in new):
            return False
        return self.decided([*known, *new]) < self.options.repeat

    def decided(self, records: Sequence[Record]) -> int:
        """Return how many records judge it and need no longer look: a slow one does, unless it is `provisional`."""
        outcomes = [record.attempt.outcome for record in judging_records(records)]
        return len(outcomes) if self.options.provisional else len(outcomes) - outcomes.count(Outcome.SLOW)

    def wants_observation(self, records: Sequence[Record]) -> bool:
        """Return True for a pass whose conditions were not looked for. A hang is not run again: its stacks tell."""
        deciding = combine([record.attempt for record in records])
        if deciding is None or deciding.outcome is not Outcome.PASS:
            return False
        is_observed = any(record.attempt.role is Role.OBSERVE for record in records)
        return not is_observed and bool(self.scenario.declared(self.variant))


def plan(requests: Iterable[Request], suite: Sequence[Scenario], options: RunOptions) -> list[PlannedCell]:
    """Return every cell once, environment by environment."""
    tests = [(scenario, variant) for scenario in suite for variant in selection.variants_of(scenario)]
    distinct = {(scenario.name, variant_suffix(variant)): (scenario, variant) for scenario, variant in tests}
    return [
        PlannedCell(request=request, scenario=scenario, variant=variant, options=options)
        for request, (scenario, variant) in itertools.product(requests, distinct.values())
    ]


def plan_matrix(request: MatrixRequest, home: Path) -> tuple[list[PlannedCell], tuple[str, ...]]:
    """Return the cells that a user asks for, and notes on how their environments were chosen; raises as `expand`."""
    cache, given = home / "cache", request.interpreters
    requests, notes = expand(
        request.file, cache=cache, interpreters_given=given, product=request.product, path=request.path
    )
    return plan(requests, request.suite, request.options), notes
