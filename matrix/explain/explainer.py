"""The work of `whichtorch explain`: gather what is recorded, run the cells that tell more, ask for the answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from matrix.compare.factors import AXES
from matrix.errors import PreventedError, UsageError
from matrix.explain.deltas import minimal_set
from matrix.explain.explanation import Experiment, Explanation, Observation, distance, explain, nearest_pair, observe
from matrix.model import Cell, Environment, Model, Request, variant_suffix
from matrix.plan import matrix_file
from matrix.plan.naming import EXISTING, axes_of, environment_named, request_for
from matrix.plan.planning import PlannedCell, RunOptions
from matrix.privacy.redaction import Redactor
from matrix.records import store
from matrix.run.pipeline import recorded_run
from matrix.suite import selection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matrix.environments.provider import Environments
    from matrix.events import Show
    from matrix.model import Scenario
    from matrix.plan.matrix_file import MatrixFile
    from matrix.records.store import Records


class Explanations(Model):
    """What `explain --json` writes."""

    schema_version: int = 1
    explanations: tuple[Explanation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainQuestion:
    """What a user asks, and what may be done to answer it."""

    home: Path
    file: MatrixFile
    is_narrowed: bool  # options name environments: no others count
    here: Path | None  # a Python
    env: str | None  # label or id of a known environment
    may_run: bool
    options: RunOptions


@dataclass(slots=True, kw_only=True)
class Evidence:
    """All that is recorded, and what is run meanwhile."""

    records: Records
    environments: dict[str, Environment]
    cells: dict[tuple[str, str], tuple[Cell, tuple[str, ...]]]  # by stored name and environment: the latest, its keys
    redactor: Redactor = field(default_factory=Redactor.of_this_machine)  # the name of a script may be a path

    @classmethod
    def stored(cls, home: Path, records: Records) -> Evidence:
        """Return what is stored below `home`."""
        cells = {(one.cell.name, one.cell.environment): (one.cell, one.records) for one in store.read_cells(home)}
        return cls(records=records, environments=store.read_environments(home), cells=cells)

    def of(self, scenario: Scenario, variant: dict[str, str], ids: frozenset[str] | None) -> list[Observation]:
        """Return what is known of a test, in the environments with these ids or in all."""
        records = self.records.of_test(scenario.source_hash, variant)
        keys = {record.key for record in records}
        name = self.redactor.text(scenario.name + variant_suffix(variant))
        latest = {
            environment: cell
            for (cell_name, environment), (cell, rests_on) in self.cells.items()
            if cell_name == name and (not rests_on or keys & set(rests_on))
        }
        environments = {id_: one for id_, one in self.environments.items() if ids is None or id_ in ids}
        return observe(scenario.name, variant, records, environments, latest)


@dataclass(slots=True, kw_only=True)
class Explainer:
    """Explains tests one after another; with `run` it makes the attempts that it needs."""

    evidence: Evidence
    cache: Environments
    options: RunOptions
    request_of: Callable[[dict[str, str], Path | None], Request | None]  # of some axes, or of a user's interpreter
    scope: tuple[Request, ...] = ()  # environments asked about; none: all known
    pool: tuple[Request, ...] = ()  # environments that may be tried
    here: Request | None = None
    here_id: str | None = None
    run: Callable[[Sequence[PlannedCell]], tuple[Sequence[Environment], Sequence[Cell]]] | None = None
    attempts: int = 0  # made so far
    _ids: dict[tuple[str, str], str] = field(default_factory=dict)  # of requests that ran, by their keys

    def answer(self, scenario: Scenario, variant: dict[str, str]) -> Explanation:
        """Return the explanation of one test."""
        name = scenario.name + variant_suffix(variant)
        if self.here is not None and self.here_id is None and (known := self.cache.known(self.here)):
            self.here_id = known.id
        experiment = None
        if self.run is not None:
            self._seek(scenario, variant)
            experiment = self._narrow(scenario, variant)
        here = self.here_id or (self.here.label if self.here is not None else None)
        explanation = explain(name, self._observed(scenario, variant), here)
        problem = explanation.problem
        if experiment is not None and not experiment.confirmed:
            problem = problem or "what decided did not repeat; with --repeat 5 a cell is given more attempts"
        return explanation.model_copy(update={"experiment": experiment, "problem": problem})

    def _observed(self, scenario: Scenario, variant: dict[str, str]) -> list[Observation]:
        ids = None
        if self.scope:
            known = [self.cache.known(request) for request in self.scope]
            chosen = {one.id for one in known if one is not None} | set(self._ids.values())
            ids = frozenset(chosen | ({self.here_id} if self.here_id else set()))
        return self.evidence.of(scenario, variant, ids)

    def _try(
        self, request: Request, scenario: Scenario, variant: dict[str, str], *, fresh: bool = False
    ) -> Cell | None:
        """Run one cell, or take what is known of it; None where the run was cut short."""
        assert self.run is not None
        options = replace(self.options, fresh=fresh)
        planned = PlannedCell(request=request, scenario=scenario, variant=variant, options=options)
        environments, cells = self.run([planned])
        for environment in environments:
            self.evidence.environments[environment.id] = environment
            self._ids[request.install_key, request.config.name] = environment.id
            if request == self.here:
                self.here_id = environment.id
        for cell in cells:
            self.evidence.cells[self.evidence.redactor.text(cell.name), cell.environment] = (cell, ())
            self.attempts += len(cell.attempts) - cell.reused
        return cells[0] if cells else None

    # a red and a passing environment to start from

    def _seek(self, scenario: Scenario, variant: dict[str, str]) -> None:
        """Run cells, each as near as can be to what is known, until the test was seen red and passing."""
        assert self.run is not None
        tried: set[int] = set()
        if self.here is not None and self._ours(scenario, variant) is None:
            cell = self._try(self.here, scenario, variant)
            if cell is not None and cell.outcome.is_prevented:
                raise PreventedError(f"{self.here.label} is {cell.outcome}: {cell.reason}")
        while True:
            seen = self._observed(scenario, variant)
            ours = self._ours(scenario, variant)
            if ours is not None and not ours.is_pass:
                return
            has_red, has_pass = any(one.is_red for one in seen), any(one.is_pass for one in seen)
            if (has_red and has_pass) or any(one.is_vacuous for one in seen):
                return
            place = self._next(scenario, variant, seen, tried)
            if place is None or self._try(self.pool[place], scenario, variant) is None:
                return
            tried.add(place)

    def _next(
        self, scenario: Scenario, variant: dict[str, str], seen: Sequence[Observation], tried: set[int]
    ) -> int | None:
        """Return which of the pool to try: the nearest to what was seen; at first one that is expected to be red."""
        known = {_axes_of(one) for one in seen}
        left = [
            place
            for place, request in enumerate(self.pool)
            if place not in tried and tuple(_request_axes(request).values()) not in known
        ]

        def worth(place: int) -> tuple[object, ...]:
            request = self.pool[place]
            axes = _request_axes(request)
            if seen:
                return min(distance(one.factors, one.factors | axes) for one in seen)
            line = selection.expected(scenario, variant, **axes)
            return (line is None or not line.outcome.is_red, place)

        return min(left, key=worth, default=None)

    def _ours(self, scenario: Scenario, variant: dict[str, str]) -> Observation | None:
        seen = self.evidence.of(scenario, variant, None)
        return next((one for one in seen if one.environment.id == self.here_id), None)

    # from the red one to the passing one

    def _narrow(self, scenario: Scenario, variant: dict[str, str]) -> Experiment | None:
        """Change as few factors as possible until it passes, and run the decisive pair again."""
        seen = self._observed(scenario, variant)
        ours = self._ours(scenario, variant)
        red = [one for one in seen if one.is_red]
        green = [one for one in seen if one.is_pass and (ours is None or one.environment.id == self.here_id)]
        if not red or not green:
            return None
        before = self.attempts
        start, end = nearest_pair(red, green)
        differing = tuple(name for name in AXES if start.factors[name] != end.factors[name])
        if not differing:
            return None

        def request_with(changed: frozenset[str]) -> Request | None:
            axes = {name: (end if name in changed else start).factors[name] for name in AXES}
            return self._request_of(axes, start, end)

        def passes(changed: frozenset[str]) -> bool:
            axes = tuple((end if name in changed else start).factors[name] for name in AXES)
            known = [one for one in self._observed(scenario, variant) if _axes_of(one) == axes]
            if known:
                return all(one.is_pass for one in known)
            request = request_with(changed)
            cell = self._try(request, scenario, variant) if request is not None else None
            return cell is not None and cell.outcome == end.cell.outcome

        decisive = minimal_set(differing, passes)
        outcomes = []
        for changed in (frozenset[str](), decisive):
            request = request_with(changed)
            cell = self._try(request, scenario, variant, fresh=True) if request is not None else None
            outcomes.append(cell and cell.outcome)
        return Experiment(
            red=start.environment.label,
            green=end.environment.label,
            differing=differing,
            changes=tuple((name, start.factors[name], end.factors[name]) for name in differing if name in decisive),
            confirmed=outcomes == [start.cell.outcome, end.cell.outcome],
            attempts=self.attempts - before,
        )

    def _request_of(self, axes: dict[str, str], start: Observation, end: Observation) -> Request | None:
        """Return the request for some axes; an environment of the user's only as it is, or with another config."""
        for one in (start, end):
            if one.environment.build == axes["build"] == EXISTING:
                is_it = all(axes[name] == one.factors[name] for name in AXES if name != "config")
                return self.request_of(axes, one.environment.interpreter) if is_it else None
        specs = {one.environment.torch: axes_of(one.environment)["torch"] for one in (start, end)}
        return self.request_of(axes | {"torch": specs[axes["torch"]]}, None)


def _request_axes(request: Request) -> dict[str, str]:
    return {
        "config": request.config.name,
        "torch": request.torch,
        "python": request.python,
        "build": request.build.name,
    }


def _axes_of(one: Observation) -> tuple[str, ...]:
    return tuple(one.factors[name] for name in AXES)


def answers(
    question: ExplainQuestion,
    suite: Sequence[Scenario],
    cache: Environments,
    show: Show,
) -> tuple[Explanation, ...]:
    """Return an explanation for each variant of some scenarios.

    Raises UsageError where `here` or `env` names no environment.
    """
    home, file = question.home, question.file
    records = store.read_records(home)
    evidence = Evidence.stored(home, records)
    here, here_id = None, None
    if question.here is not None and question.env is not None:
        raise UsageError("--here and --env name one environment each", hint="give one of them")
    if question.here is not None:
        if not question.here.is_file():
            raise UsageError(f"there is no interpreter {question.here}", hint="--here takes the path of a Python")
        plain = {"config": file.axes.config[0] if question.is_narrowed else "default"}
        here = request_for(file, home, plain, question.here)
    if question.env is not None:
        here_id = environment_named(question.env, evidence.environments).id
    pool: tuple[Request, ...] = ()
    if question.is_narrowed or question.may_run:
        pool = matrix_file.expand(file, cache=home / "cache").requests
    explainer = Explainer(
        evidence=evidence,
        cache=cache,
        options=question.options,
        request_of=lambda axes, interpreter: request_for(file, home, axes, interpreter),
        scope=pool if question.is_narrowed else (),
        pool=pool,
        here=here,
        here_id=here_id,
    )
    tests = [(scenario, variant) for scenario in suite for variant in selection.variants_of(scenario)]
    if not question.may_run:
        return tuple(explainer.answer(*test) for test in tests)
    with recorded_run(cache, records, show) as lab:
        explainer.run = lab
        return tuple(explainer.answer(*test) for test in tests)


def is_answered(explanations: Sequence[Explanation]) -> bool:
    """Return whether all that fails somewhere is answered; of a variant that never fails nothing is asked."""
    asked = [one for one in explanations if one.reference is not None or one.answers]
    return bool(asked) and all(one.is_answered for one in asked)
