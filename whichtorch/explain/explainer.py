"""The work of `whichtorch explain`: collect what is recorded, run the cells that tell more, and get the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.redaction import Redactor
from whichtorch.environments.expansion import EXISTING, axes_of, environment_named, expand, request_for
from whichtorch.explain.explanation import Experiment, Explanation, distance, explain, nearest_pair, observe
from whichtorch.matrix.lab import opened_lab, raise_if_impossible
from whichtorch.matrix.planning import PlannedCell
from whichtorch.matrix.site import ThisMachine
from whichtorch.model import Cell, Environment, Model, Request, Scenario, name_of_test
from whichtorch.records import store
from whichtorch.records.compare.factors import AXES
from whichtorch.records.line_index import LineIndex, Records
from whichtorch.search.delta import minimal_set
from whichtorch.search.runs_oracle import RunsOracle, drive, inquiry_of
from whichtorch.suite import selection

if TYPE_CHECKING:
    from whichtorch.environments.matrix_file import MatrixFile
    from whichtorch.environments.provider import Environments
    from whichtorch.explain.explanation import KnownResult
    from whichtorch.matrix.options import RunOptions
    from whichtorch.matrix.work import Machines
    from whichtorch.model.events import Show
    from whichtorch.records.store import CellLine


class Explanations(Model):
    """What `explain --json` writes."""

    schema_: int = Field(default=1, alias="schema_version")
    explanations: tuple[Explanation, ...]
    cells: tuple[Cell, ...] = ()  # of --measure: each with its numbers
    interrupted: bool = False  # by Ctrl-C or a signal: the same command goes on

    @property
    def is_answered(self) -> bool:
        """True where every test that fails somewhere is answered; one that never fails needs no answer."""
        needed = [answer for answer in self.explanations if answer.reference is not None or answer.answers]
        return bool(needed) and all(answer.is_answered for answer in needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    """What a user asks, and what may be done to answer it."""

    home: Path
    file: MatrixFile
    is_narrowed: bool  # options name environments, and no others count
    here: Path | None  # an interpreter
    env: str | None  # label or id of a known environment
    may_run: bool
    options: RunOptions
    machines: Machines | None = None  # None: this one


@dataclass(slots=True, kw_only=True)
class RecordedEvidence:
    """All that is recorded, kept up to date while cells run."""

    records: Records
    environments: dict[str, Environment]
    cells: LineIndex[CellLine] = field(default_factory=lambda: LineIndex(store.CELLS))
    redactor: Redactor = field(default_factory=Redactor.of_this_machine)  # a script's name may be a path

    @classmethod
    def stored(cls, home: Path, records: Records) -> RecordedEvidence:
        """Return what is stored below `home`."""
        return cls(records=records, environments=store.read_environments(home), cells=LineIndex(store.CELLS, home))

    def of(self, scenario: Scenario, variant: dict[str, str], ids: frozenset[str] | None) -> list[KnownResult]:
        """Return what is known of a test, in the environments with these ids or in all."""
        records = self.records.of_test(scenario.source_hash, variant)
        keys = {record.key for record in records}
        name = name_of_test(scenario.name, variant)
        stored = self.redactor.text(name)
        lines = self.cells.latest("environment", "name in (:name, :stored)", name=name, stored=stored).items()
        latest = {id_: line.cell for id_, line in lines if not line.records or keys.intersection(line.records)}
        known = self.environments.items()
        environments = {id_: environment for id_, environment in known if ids is None or id_ in ids}
        return observe(scenario.name, variant, records, environments, latest)


@dataclass(slots=True, kw_only=True)
class Explainer:
    """Explains tests one after another. With `run` it makes the attempts that it needs."""

    evidence: RecordedEvidence
    cache: Environments
    options: RunOptions
    request_of: Callable[[dict[str, str], Path | None], Request | None]  # from axes, or from a user's interpreter
    scope: tuple[Request, ...] = ()  # environments that count; empty for all known
    pool: tuple[Request, ...] = ()  # environments that may run
    here: Request | None = None
    here_id: str | None = None
    run: Callable[[Sequence[PlannedCell]], tuple[Sequence[Environment], Sequence[Cell]]] | None = None
    attempts: int = 0  # made so far
    _ids: dict[tuple[str, ...], str] = field(default_factory=dict)  # of environments that ran, by their requests' keys

    def answer(self, scenario: Scenario, variant: dict[str, str]) -> Explanation:
        """Return the explanation of one test."""
        if self.here is not None and self.here_id is None and (known := self.cache.known(self.here)):
            self.here_id = known.id
        experiment = None
        if self.run is not None:
            self._find_red_and_passing(scenario, variant)
            experiment = self._experiment(scenario, variant)
        here = self.here_id or (self.here.label if self.here is not None else None)
        explanation = explain(name_of_test(scenario.name, variant), self._observed(scenario, variant), here)
        problem = explanation.problem
        if experiment is not None and not experiment.confirmed:
            problem = problem or "what decided did not repeat; with --repeat 5 a cell is given more attempts"
        return explanation.model_copy(update={"experiment": experiment, "problem": problem})

    def tests_of(self, scenario: Scenario) -> list[tuple[Scenario, dict[str, str]]]:
        """Return the variants of a scenario; of a command, its tests that are red somewhere, if it has tests."""
        if scenario.command is None:
            return [(scenario, variant) for variant in selection.variants_of(scenario, self.options.chain)]
        plain: dict[str, str] = {}
        ran = [self._run_cell(request, scenario, plain) for request in (self.pool if self.run is not None else ())]
        raise_if_impossible(filter(None, ran))
        tests = self.evidence.records.tests_of(scenario, plain)
        red = [(test, plain) for test in tests if any(known.is_red for known in self._observed(test, {}))]
        return red or [(scenario, plain)]

    def _observed(self, scenario: Scenario, variant: dict[str, str]) -> list[KnownResult]:
        """Return what is known of a test in the environments that count."""
        if not self.scope:
            return self.evidence.of(scenario, variant, None)
        known = filter(None, map(self.cache.known, self.scope))
        ids = {environment.id for environment in known} | set(self._ids.values())
        return self.evidence.of(scenario, variant, frozenset(ids | ({self.here_id} if self.here_id else set())))

    def _observed_here(self, scenario: Scenario, variant: dict[str, str]) -> KnownResult | None:
        return next(iter(self.evidence.of(scenario, variant, frozenset({self.here_id or ""}))), None)

    def _run_cell(
        self, request: Request, scenario: Scenario, variant: dict[str, str], *, fresh: bool = False
    ) -> Cell | None:
        """Run one cell, or take what is recorded of it; None where the run was cut short."""
        assert self.run is not None
        options = replace(self.options, fresh=fresh)
        planned = PlannedCell(request=request, scenario=scenario, variant=variant, options=options)
        environments, cells = self.run([planned])
        for environment in environments:
            self.evidence.environments[environment.id] = environment
            self._ids[request.key] = environment.id
            if request == self.here:
                self.here_id = environment.id
        for cell in cells:
            self.evidence.cells.add(store.CellLine(place=0, records=(), cell=cell))
            self.attempts += len(cell.attempts) - cell.reused
        return cells[0] if cells else None

    def _find_red_and_passing(self, scenario: Scenario, variant: dict[str, str]) -> None:
        """Run cells, each as near as possible to the known ones, until the test has been red and has passed."""
        if self.here is not None and self._observed_here(scenario, variant) is None:
            cell = self._run_cell(self.here, scenario, variant)
            if cell is not None and cell.outcome.is_prevented:
                raise PreventedError(f"{self.here.label} is {cell.outcome}: {cell.reason}")
        untried = list(self.pool)
        while True:
            observed = self._observed(scenario, variant)
            ours = self._observed_here(scenario, variant)
            if ours is not None and not ours.is_pass:
                return
            is_separable = any(known.is_red for known in observed) and any(known.is_pass for known in observed)
            if is_separable or any(known.is_vacuous for known in observed):
                return
            request = _nearest_request(untried, scenario, variant, observed)
            if request is None or self._run_cell(request, scenario, variant) is None:
                return
            untried.remove(request)

    def _experiment(self, scenario: Scenario, variant: dict[str, str]) -> Experiment | None:
        """Change as few factors of a red environment as possible until it passes, and run the decisive pair again."""
        observed = self._observed(scenario, variant)
        ours = self._observed_here(scenario, variant)
        red = [known for known in observed if known.is_red]
        green = [
            known for known in observed if known.is_pass and (ours is None or known.environment.id == self.here_id)
        ]
        if not red or not green:
            return None
        attempts_before = self.attempts
        start, end = nearest_pair(red, green)
        differing = tuple(name for name in AXES if start.axes[name] != end.axes[name])
        if not differing or start.environment.overrides != end.environment.overrides:
            return None

        def run_with(changed: frozenset[str], *, fresh: bool = False) -> Cell | None:
            axes = start.axes | {name: end.axes[name] for name in changed}
            request = self._request_between(axes, start, end)
            return self._run_cell(request, scenario, variant, fresh=fresh) if request is not None else None

        def passes(changed: frozenset[str]) -> bool:
            axes = start.axes | {name: end.axes[name] for name in changed}
            known = [each for each in self._observed(scenario, variant) if _asked(each) == (axes, _asked(start)[1])]
            if known:
                return all(each.is_pass for each in known)
            cell = run_with(changed)
            return cell is not None and cell.outcome == end.cell.outcome

        decisive = drive(minimal_set(differing), RunsOracle(inquiry=inquiry_of(passes)))
        cells = [run_with(changed, fresh=True) for changed in (frozenset[str](), decisive)]
        return Experiment(
            red=start.environment.label,
            green=end.environment.label,
            differing=differing,
            changes=tuple((name, start.axes[name], end.axes[name]) for name in differing if name in decisive),
            confirmed=[cell and cell.outcome for cell in cells] == [start.cell.outcome, end.cell.outcome],
            attempts=self.attempts - attempts_before,
        )

    def _request_between(self, axes: dict[str, str], start: KnownResult, end: KnownResult) -> Request | None:
        """Return the request for axes between two environments; a user's own environment can change its config only."""
        for side in (start, end):
            if side.environment.build == axes["build"] == EXISTING:
                is_same = all(axes[name] == side.axes[name] for name in AXES if name != "config")
                return self.request_of(axes, side.environment.interpreter) if is_same else None
        asked = [(side.axes, axes_of(side.environment)) for side in (start, end)]
        specs = {
            name: next(spec[name] for had, spec in asked if had[name] == axes[name]) for name in ("torch", "patch")
        }
        request = self.request_of(axes | specs, None)
        request = request and request.model_copy(update={"overrides": start.environment.overrides})
        is_edited = request is not None and request.axes["patch"] != axes["patch"]  # the patch, since it was tried
        return None if is_edited else request


def _asked(known: KnownResult) -> tuple[dict[str, str], tuple[str, ...]]:
    return known.axes, known.environment.overrides


def _nearest_request(
    requests: Sequence[Request], scenario: Scenario, variant: dict[str, str], observed: Sequence[KnownResult]
) -> Request | None:
    """Return the request nearest to what was observed; without observations, one that is expected to be red."""
    known = list(map(_asked, observed))

    def cost(request: Request) -> tuple[int, ...]:
        axes = request.axes
        if observed:
            return min(distance(observation.factors, observation.factors | axes) for observation in observed)
        expectation = selection.expected(scenario, variant, axes)
        return (expectation is None or not expectation.outcome.is_red,)

    untried = (request for request in requests if (request.axes, request.overrides) not in known)
    return min(untried, key=cost, default=None)


def answers(request: ExplainRequest, suite: Sequence[Scenario], cache: Environments, show: Show) -> Explanations:
    """Return an explanation for each variant of some scenarios.

    Raises UsageError where `here` or `env` names no environment.
    """
    home, file = request.home, request.file
    records = Records(home)
    evidence = RecordedEvidence.stored(home, records)
    here, here_id = None, None
    if request.here is not None and request.env is not None:
        raise UsageError("--here and --environment name one environment each", hint="give one of them")
    if request.here is not None:
        if not request.here.is_file():
            raise UsageError(f"there is no interpreter {request.here}", hint="--here takes the path of a Python")
        config = {"config": file.axes.config[0] if request.is_narrowed else "default"}
        here = request_for(file, home, config, request.here)
    if request.env is not None:
        here_id = environment_named(request.env, evidence.environments).id
    pool = expand(file, cache=home / "cache").requests if request.is_narrowed or request.may_run else ()
    explainer = Explainer(
        evidence=evidence,
        cache=cache,
        options=request.options,
        request_of=lambda axes, interpreter: request_for(file, home, axes, interpreter),
        scope=pool if request.is_narrowed else (),
        pool=pool,
        here=here,
        here_id=here_id,
    )
    if not request.may_run:
        known = [test for scenario in suite for test in explainer.tests_of(scenario)]
        return Explanations(explanations=tuple(explainer.answer(*test) for test in known))
    machines = request.machines or ThisMachine(environments=cache)
    explainer.cache = machines.environments
    with opened_lab(machines, records, show) as lab:
        explainer.run = lab
        explained: list[Explanation] = []
        tests: list[tuple[Scenario, dict[str, str]]] = []
        try:
            tests += [test for scenario in suite for test in explainer.tests_of(scenario)]
            explained.extend(explainer.answer(*test) for test in tests)
        except KeyboardInterrupt:
            explainer.run = None  # what is recorded by now has an answer, too
            explained += [explainer.answer(*test) for test in tests[len(explained) :]]
            lab.store.run = lab.store.run.model_copy(update={"interrupted": True})
        return Explanations(explanations=tuple(explained), interrupted=lab.store.run.interrupted)
