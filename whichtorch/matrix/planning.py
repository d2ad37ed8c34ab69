"""Cells: environments x scenarios x variants, and what is to be run of each."""

from __future__ import annotations

import math
import os
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, overload

from whichtorch.base.errors import UsageError
from whichtorch.base.grouping import counted, grouped
from whichtorch.base.version_parsing import parse_version
from whichtorch.environments.configs import ALLOWED, cell_environ
from whichtorch.environments.expansion import expand
from whichtorch.matrix.options import RunOptions as RunOptions  # noqa: TC001  part of a plan
from whichtorch.model import (
    Environment,
    Expectation,
    Limits,
    Outcome,
    Request,
    Result,
    Scenario,
    name_of_test,
    record_key,
)
from whichtorch.process.sandbox import Sandbox, plain_environ, require_sandbox
from whichtorch.records.stored_runs import all_runs
from whichtorch.suite import selection
from whichtorch.suite.chain import WRITTEN_BY, Chain
from whichtorch.suite.companions import hiding_torch

if TYPE_CHECKING:
    from whichtorch.matrix.options import MatrixRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A scenario and variant to be run in an environment."""

    request: Request
    scenario: Scenario
    variant: dict[str, str]
    options: RunOptions
    written_by: Request | None = None  # of a chain whose first run is made elsewhere in the matrix: where

    def __post_init__(self) -> None:
        """Make the test another one in a sandbox, so that no record of one counts for the other.

        Raises PreventedError where no sandbox works, UsageError where a script would import a torch beside it.
        """
        is_own = not self.scenario.in_suite
        if is_own and self.request.interpreter is None and (hiding := hiding_torch(self.scenario)):
            what = f"{hiding} would be imported instead of the torch of each environment"
            remedy = "run the command from" if self.scenario.command else "move the script to"
            raise UsageError(what, hint=f"{remedy} another folder")
        if self.options.sandbox is not Sandbox.OFF:
            require_sandbox()
            object.__setattr__(self, "scenario", self.scenario.in_sandbox())

    @property
    def chain(self) -> Chain | None:
        """How its attempts are a chain of runs, None where each is a single run."""
        return Chain.of(self.variant)

    @property
    def runs(self) -> int:
        """How many runs each of its attempts has."""
        return chain.runs if (chain := self.chain) else 1

    @property
    def writer(self) -> Request | None:
        """The environment of a chain's first run; None if it is the same as that of the other runs.

        Raises UsageError if the variant names it by a label that this plan does not have.
        """
        title = self.variant.get(WRITTEN_BY, "")
        if self.written_by is not None or not title:
            return self.written_by
        if parse_version(title) is None:
            hint = f"give the --torch and --build that the matrix had, and --cache from={title}"
            raise UsageError(f"{WRITTEN_BY}={title}: this matrix has no environment of that name", hint=hint)
        return self.request.model_copy(update={"torch": title})

    @property
    def name(self) -> str:
        """The scenario, and the variant in brackets."""
        return name_of_test(self.scenario.name, self.variant)

    @property
    def limits(self) -> Limits:
        """What its attempts may use."""
        timeout = self.options.timeout or self.scenario.timeout
        memory = math.ceil(self.options.memory or self.scenario.memory_mb)
        return Limits(timeout=timeout, memory_mb=memory, stall=self.options.stall)

    @property
    def looks_longer(self) -> bool:
        """Whether what its timeout stops may be looked at once more, for longer: nobody chose that timeout."""
        return self.options.timeout is None and not self.scenario.has_timeout

    def key(self, environment: Environment) -> str:
        """Return the key of its records."""
        return record_key(environment.id, self.scenario.source_hash, self.variant, self.limits, self.options.variables)

    def of_test(self, id_: str) -> PlannedCell:
        """Return the cell of one test of a command."""
        return replace(self, scenario=self.scenario.of_test(id_))

    @property
    def own_environ(self) -> Mapping[str, str]:
        """Those of the user's variables that it may see; its config keeps further ones away."""
        return plain_environ(os.environ, ALLOWED) if self.scenario.sandboxed else os.environ

    def environ(self, environment: Environment, home: Path) -> dict[str, str]:
        """Return the variables that its attempts run with."""
        cell = cell_environ(self.request, environment, home, self.own_environ)
        return cell | selection.variant_environ(self.variant)

    def configured(self, env: Mapping[str, str], hooks: Sequence[str] = ()) -> PlannedCell:
        """Return the cell with further variables and start-up hooks."""
        config = self.request.config
        changed = config.model_copy(update={"hooks": (*config.hooks, *hooks), "env": {**config.env, **env}})
        return replace(self, request=self.request.model_copy(update={"config": changed}))

    def expectation(self, environment: Environment | None) -> Expectation | None:
        """Return what the scenario's header says of it; before there is an environment, by what was asked for."""
        axes = environment.axes | {"python": environment.python} if environment else self.request.axes
        return selection.expected(self.scenario, self.variant, axes)

    def expects_hang(self, environment: Environment) -> bool:
        """Return whether its header says that it hangs here."""
        line = self.expectation(environment)
        return line is not None and line.outcome is Outcome.HANG

    @property
    def forks(self) -> bool:
        """Whether attempts of it may be forked at all."""
        return (
            not (self.options.cold or self.scenario.sandboxed) and self.scenario.command is None and self.chain is None
        )


Tests = tuple[tuple[Scenario, dict[str, str]], ...]  # scenarios and variants


@dataclass(frozen=True)
class Plan(Sequence[PlannedCell]):
    """Every cell once, environment by environment. A cell is made when it is asked for: there may be millions."""

    requests: tuple[Request, ...]
    tests: tuple[Tests, ...]  # of each request
    options: RunOptions
    # of first runs that are made elsewhere, by the key of the environment of the others and the name of their own
    writers: Mapping[tuple[tuple[str, ...], str], Request] = field(default_factory=dict)

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """How many cells there are up to the last one of each request."""
        return tuple(accumulate(map(len, self.tests)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def has_writers(self) -> bool:
        """Whether the first run of some cell is made in another environment."""
        return any(WRITTEN_BY in variant for own in self.tests for _, variant in own)

    def only(self, names: Mapping[str, Collection[str]]) -> Plan:
        """Return the plan of the tests with these names, by their environments; of a command, its tests count, too."""

        def narrowed(request: Request, own: Tests) -> Iterator[tuple[Scenario, dict[str, str]]]:
            named = names.get(request.label, ())
            for scenario, variant in own:
                if name_of_test(scenario.name, variant) in named:
                    yield scenario, variant
                elif named and scenario.command:
                    yield scenario.model_copy(update={"only": tuple(named)}), variant

        return replace(self, tests=tuple(map(tuple, map(narrowed, self.requests, self.tests))))

    @overload
    def __getitem__(self, position: int) -> PlannedCell: ...
    @overload
    def __getitem__(self, position: slice) -> list[PlannedCell]: ...
    def __getitem__(self, position: int | slice) -> PlannedCell | list[PlannedCell]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        position = range(len(self))[position]
        place = bisect_right(self._ends, position)
        scenario, variant = self.tests[place][position - self._ends[place]]  # from the end
        return PlannedCell(
            request=self.requests[place],
            scenario=scenario,
            variant=variant,
            options=self.options,
            written_by=self.writers.get((self.requests[place].key, variant.get(WRITTEN_BY, ""))),
        )


@dataclass(frozen=True, slots=True)
class PlannedShare(Mapping[int, PlannedCell]):
    """Some cells of a plan, by their positions in it."""

    planned: Sequence[PlannedCell]
    positions: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[int]:
        return iter(self.positions)

    def __getitem__(self, position: int) -> PlannedCell:
        return self.planned[position]


def plan(requests: Iterable[Request], suite: Sequence[Scenario], options: RunOptions) -> Plan:
    """Return every cell once, environment by environment."""
    return _joined([(tuple(requests), suite)], options)


def _joined(
    parts: Iterable[tuple[Sequence[Request], Sequence[Scenario]]], options: RunOptions, written: str = ""
) -> Plan:
    """Return the cells of several plans; an environment that more than one of them asks for has the tests of all.

    If `written` is given, the environment of that name writes the caches of each test in the others.
    """
    asked: dict[tuple[str, ...], Request] = {}
    tests: dict[tuple[str, ...], Tests] = {}
    writers: dict[tuple[tuple[str, ...], str], Request] = {}
    for requests, suite in parts:
        pairs = [
            (scenario, variant) for scenario in suite for variant in selection.variants_of(scenario, options.chain)
        ]
        distinct = {name_of_test(scenario.name, variant): (scenario, variant) for scenario, variant in pairs}
        own = tuple(distinct.values())
        named = _by_name(requests) if written or any(WRITTEN_BY in variant for _, variant in own) else {}
        chosen = _writers_called(written, named) if written else ()
        for request in requests:
            others = {name: writer for name, writer in named.items() if writer.key != request.key}
            itself = named.keys() - others.keys()
            here = own
            if written:
                names = [name for name in chosen if name in others]
                here = tuple((test, variant | {WRITTEN_BY: name}) for name in names for test, variant in own)
            elif itself:
                here = tuple(each for each in own if each[1].get(WRITTEN_BY) not in itself)
            asked.setdefault(request.key, request)
            tests[request.key] = (*tests[request.key], *here) if request.key in tests else here
            writers |= {(request.key, name): writer for name, writer in others.items()}
    return Plan(tuple(asked.values()), tuple(tests.values()), options, writers)


def _by_name(requests: Sequence[Request]) -> dict[str, Request]:
    """Return environments by their labels, and by their releases too, if no more tells them apart."""
    others = {tuple(value for axis, value in request.axes.items() if axis != "torch") for request in requests}
    by_release = {request.torch: request for request in requests}
    is_release = len(others) == 1 and len(by_release) == len(requests) and all(map(parse_version, by_release))
    return {request.label: request for request in requests} | (by_release if is_release else {})


def _writers_called(asked: str, named: Mapping[str, Request]) -> list[str]:
    """Return the names of the environments that write caches, the release of each rather than its label.

    Raises UsageError where none of the `named` is what is asked for.
    """
    names = {writer.key: name for name, writer in named.items()}  # the last name of each is its release, if it has one
    called = [name for name in names.values() if asked in {name, named[name].torch, named[name].label}]
    if not called:
        known = ", ".join(names.values())
        raise UsageError(f"--cache from={asked}: no environment of the matrix is {asked}", hint=f"they are {known}")
    return called


def plan_matrix(request: MatrixRequest) -> tuple[Plan, tuple[str, ...]]:
    """Return the cells that a user asks for, and notes on how their environments were chosen; raises as `expand`.

    Scripts that need different packages, or a different Python, get separate environments.
    """
    file, named = request.file, grouped(request.tests, selection.is_script)
    globs, scripts = named.get(False, ()), named.get(True, ())
    words, suite = request.script_arguments, list[Scenario]()
    if words is not None and globs and not scripts:
        hint = "only your own script can have arguments; a command is given alone"
        raise UsageError(f"{' and '.join(globs)} before --", hint=hint)
    if globs:
        suite = selection.select([*selection.suite(), *file.scripts], globs, request.tests)
    if scripts:
        suite += [file.script(script, words) for script in scripts]
    elif words is not None:
        suite = [file.timed(request.command.scenario(words, request.home))]
    suite = suite if globs or scripts or words is not None else file.scenarios
    if request.options.sandbox is not Sandbox.OFF:
        suite = [scenario.in_sandbox() for scenario in suite]
    parts: list[tuple[Sequence[Request], Sequence[Scenario]]] = []
    build_notes, notes = [*request.found_note], list[str]()
    cache, given, product = request.home / "cache", request.interpreters, request.product
    for scenarios in grouped(suite, lambda each: (each.requirements, each.requires_python)).values() or [[]]:
        asked = file.for_script(scenarios[0]) if scenarios else file
        expansion = expand(asked, cache=cache, interpreters_given=given, product=product)
        parts.append((expansion.requests, scenarios))
        build_notes += expansion.build_notes
        notes += [*asked.needs.notes, *expansion.notes]
    planned = _joined(parts, request.chained, request.written or "")
    if request.written and planned.requests and not planned:
        names = ", ".join(each.label for each in planned.requests)
        hint = "name another release or interpreter, too"
        raise UsageError(f"--cache from={request.written}: the matrix has no environment but {names}", hint=hint)
    if request.share:
        pairs = request.share.of(list(zip(planned.requests, planned.tests, strict=True)))
        notes.append(f"share {request.share}: {len(pairs)} of {len(planned.requests)} environments")
        planned = replace(planned, requests=tuple(each for each, _ in pairs), tests=tuple(own for _, own in pairs))
    if request.last_failed:
        planned, note = _failed_last(planned, request.home)
        notes.append(note)
    return planned, tuple(dict.fromkeys([*build_notes, *notes]))


def _failed_last(planned: Plan, home: Path) -> tuple[Plan, str]:
    """Return the plan that runs again what failed unexpectedly in the last run of a matrix, and a note.

    Of a command it is the last run of that command. Where nothing failed, it is the whole plan.
    """
    words = next((test.command.words for own in planned.tests for test, _ in own if test.command), None)
    results = (head.read().result for head in reversed(all_runs(home)) if head.run.kind == "matrix")
    last = next((each for each in results if words is None or words in _commands_of(each)), None)
    if last is None:
        return planned, "--last-failed: there is no earlier run, so all cells are run"
    labels = {environment.id: environment.label for environment in last.environments}
    red = [cell for cell in last.cells if cell.has_failed]
    by_label = grouped(red, lambda cell: labels[cell.environment]).items()
    chosen = planned.only({label: [cell.name for cell in cells] for label, cells in by_label})
    if not chosen:
        return planned, f"--last-failed: none of these cells failed in {last.run.id}, so that all are run"
    count = sum(len(test.only or "1") for own in chosen.tests for test, _ in own)
    total = counted(len(last.cells if words else planned), "cell")
    again = replace(chosen, options=replace(chosen.options, fresh=True))
    return again, f"--last-failed: {count} of {total}, as of {last.run.id}"


def _commands_of(result: Result) -> list[tuple[str, ...]]:
    return [scenario.command.words for scenario in result.scenarios if scenario.command]
