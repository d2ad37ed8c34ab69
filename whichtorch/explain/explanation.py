"""Why does it fail there and not here? Evidence in, answer out: no clock, no files, no processes.

Several answers may apply. The environment decides: the answer is the smallest rule that separates red from passing.
The version of torch decides: the answer is the last red and the first passing version. The conditions that the test
declares were not met, so that it was another test here. The test does fail here. Where the evidence is too little,
the explanation says which cells to run.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from whichtorch.base.grouping import grouped
from whichtorch.explain.rules import Rule, smallest_rule
from whichtorch.failures.failure import different, references
from whichtorch.failures.verdict import passes_needed
from whichtorch.model import Cell, Environment, Model, Outcome, Record, Role, combine
from whichtorch.records.compare.factors import AXES, Factors, History, factors_of, histories

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MISS = 0.01  # accepted chance of calling an environment good that is not


class ExplanationKind(StrEnum):
    """What an answer says."""

    HERE = "here"  # the test does fail here
    ENVIRONMENT = "environment"
    VERSION = "version"
    CONDITIONS = "conditions"


class KnownResult(Model):
    """What is known of the test in one environment."""

    environment: Environment
    cell: Cell
    is_different: bool = False  # red, but another failure than the one to be explained

    @property
    def is_red(self) -> bool:
        """True where the failure to be explained occurred at least once."""
        return self.cell.is_red and not self.is_different

    @property
    def is_pass(self) -> bool:
        """True where the test always passed, and its conditions are not in doubt."""
        return self.cell.outcome is Outcome.PASS and not self.cell.is_doubted

    @property
    def is_vacuous(self) -> bool:
        """True where the test ended well and its conditions were not met."""
        return self.cell.outcome is Outcome.VACUOUS

    @cached_property
    def factors(self) -> Factors:
        """What is recorded of the environment, for rules."""
        return factors_of(self.environment)

    @property
    def axes(self) -> dict[str, str]:
        """The axes that ask for the environment."""
        return {name: self.factors[name] for name in AXES}


class Unmet(Model):
    """What happened instead of the conditions that a test declares."""

    reason: str
    environments: tuple[str, ...]  # labels


class Answer(Model):
    """One answer, with its evidence."""

    kind: ExplanationKind
    rule: Rule | None = None  # of kind ENVIRONMENT or VERSION
    red: int = 0  # environments that meet the rule, all of them red
    green: int = 0  # environments that do not, all of them passing
    histories: tuple[History, ...] = ()  # of kind VERSION; of kind ENVIRONMENT, the versions in which the rule holds
    unmet: tuple[Unmet, ...] = ()  # of kind CONDITIONS


class Missing(Model):
    """A cell to run: the axes of its environment, and why it helps."""

    axes: dict[str, str]
    why: str


class Experiment(Model):
    """The result of changing factors of a red environment, step by step, towards a passing one."""

    red: str  # labels
    green: str
    differing: tuple[str, ...]  # factors in which the two differ
    changes: tuple[tuple[str, str, str], ...]  # those that make it pass: factor, value in red, value in green
    confirmed: bool  # run once more, it was red before the changes and passed after them
    attempts: int  # number made for it


class Explanation(Model):
    """What `explain` says about one test."""

    test: str
    reference: Outcome | None  # the outcome to be explained
    signature: str | None
    answers: tuple[Answer, ...]
    observations: tuple[KnownResult, ...]
    here: str | None = None  # id of the environment asked about
    missing: tuple[Missing, ...] = ()
    problem: str | None = None  # why there is no answer, or only a part of one
    experiment: Experiment | None = None

    @property
    def is_answered(self) -> bool:
        """True where an experiment confirms the answer, or the records leave no problem."""
        is_confirmed = self.experiment is not None and self.experiment.confirmed
        return is_confirmed or (bool(self.answers) and self.problem is None)


def observe(
    test: str,
    variant: dict[str, str],
    records: Iterable[Record],
    environments: Mapping[str, Environment],
    cells: Mapping[str, Cell],
) -> list[KnownResult]:
    """Return what the records of one test say, one observation per usable environment, in their order.

    `cells` holds, by environment, the latest cell that rests on these records. A vacuous one overrides the pass
    of its attempts.
    """
    # an observing attempt is never evidence of how the test ends
    judging = (record for record in records if record.attempt.role is Role.JUDGE)
    by_environment = grouped(judging, lambda record: record.environment)
    observed = []
    for id_, environment in environments.items():
        known = by_environment.get(id_, [])
        attempt = combine([record.attempt for record in known])
        if attempt is None or not environment.is_usable:
            continue
        outcome, reason = attempt.outcome, attempt.note or None
        latest = cells.get(id_)
        if outcome is Outcome.PASS and latest is not None and latest.is_doubted:
            outcome, reason = latest.outcome, latest.reason
        cell = Cell(
            environment=id_,
            scenario=test,
            variant=variant,
            outcome=outcome,
            signature=next(record.signature for record in known if record.attempt is attempt),
            expected=True,
            seconds=attempt.seconds,
            attempts=tuple(record.attempt for record in known),
            conditions=latest.conditions if latest is not None and latest.outcome is outcome else (),
            reason=reason,
            command=latest.command if latest is not None else (),
        )
        observed.append((environment, cell))
    others = {environment for _, environment in different(cell for _, cell in observed)}
    return [
        KnownResult(environment=environment, cell=cell, is_different=environment.id in others)
        for environment, cell in observed
    ]


def explain(test: str, observations: Sequence[KnownResult], here: str | None = None) -> Explanation:
    """Return the answers that observations of one test give, about the environment with the id `here` if given.

    Without any red environment there is nothing to explain but unmet conditions.
    """
    reference = references(observation.cell for observation in observations).get(test)
    red = [observation for observation in observations if observation.is_red]
    green = [observation for observation in observations if observation.is_pass]
    ours = next((observation for observation in observations if observation.environment.id == here), None)
    answers = [Answer(kind=ExplanationKind.HERE)] if ours is not None and ours.is_red else []
    missing: list[Missing] = []
    problem: str | None = None
    vacuous = [known for known in observations if known.is_vacuous and (here is None or known is ours)]
    if vacuous:
        answers.append(Answer(kind=ExplanationKind.CONDITIONS, unmet=_unmet(vacuous)))
    rule = smallest_rule([observation.factors for observation in red], [observation.factors for observation in green])
    timelines = histories([(observation.environment, observation.is_red) for observation in (*red, *green)])
    if rule is not None:
        answers += _by_rule(rule, len(red), len(green), timelines)
        missing = _cells_between(rule, red, green)
        problem = "the records cannot tell which of these decides" if missing or rule.is_ambiguous else None
        problem = problem or _doubt(red, green)
    elif any(history.changes or (history.is_never_fixed and not green) for history in timelines):
        answers.append(Answer(kind=ExplanationKind.VERSION, histories=timelines))
    if ours is None and here is not None:
        problem = "the test has not run here"
    elif not answers or (rule is None and red and green):
        problem, missing = _no_answer(red, green)
    return Explanation(
        test=test,
        reference=reference.outcome if reference else None,
        signature=reference.signature if reference else None,
        answers=tuple(answers),
        observations=tuple(observations),
        here=here,
        missing=tuple(missing),
        problem=problem,
    )


def _doubt(red: Sequence[KnownResult], green: Sequence[KnownResult]) -> str | None:
    """Return why the passes mean little where the failure is flaky, so that one pass may be luck."""
    failures, attempts = map(sum, zip(*(observation.cell.agreement for observation in red), strict=True))
    if failures in {0, attempts}:
        return None
    needed = passes_needed(failures, attempts, MISS)
    fewest = min(observation.cell.agreement[1] for observation in green)
    if fewest >= needed:
        return None
    rate = f"it {red[0].cell.outcome.row.verb} in {failures} of {attempts} attempts where it does"
    return f"{rate}, so {needed} passes are needed to call one good, not {fewest}: give --repeat {needed}"


def _unmet(vacuous: Sequence[KnownResult]) -> tuple[Unmet, ...]:
    """Return what happened instead and where, the most common first."""
    reasons = grouped(vacuous, lambda known: known.cell.reason or "what it declares was not observed")
    return tuple(
        Unmet(reason=reason, environments=tuple(dict.fromkeys(known.environment.label for known in alike)))
        for reason, alike in sorted(reasons.items(), key=lambda item: -len(item[1]))
    )


def _by_rule(rule: Rule, red: int, green: int, timelines: tuple[History, ...]) -> list[Answer]:
    """Return the answers that a rule gives: a version where it is about torch alone, else an environment."""
    changing = tuple(history for history in timelines if history.changes)
    answers = []
    if rule.factors != ("torch",):
        answers.append(Answer(kind=ExplanationKind.ENVIRONMENT, rule=rule, red=red, green=green, histories=timelines))
    if changing or rule.factors == ("torch",):
        answers.append(Answer(kind=ExplanationKind.VERSION, rule=rule, red=red, green=green, histories=changing))
    return answers


def _cells_between(rule: Rule, red: Sequence[KnownResult], green: Sequence[KnownResult]) -> list[Missing]:
    """Return, for each rival of a rule, a cell that passes if the rule decides and is red if the rival decides."""
    cells = []
    start, end = nearest_pair(red, green)
    for rival in rule.rivals:
        changed = [term.factor for term in rule.terms if term not in rival]
        kept = [term.factor for term in rival if term not in rule.terms]
        if all(end.factors[name] != start.factors[name] for name in changed):
            axes = start.axes | {name: end.factors[name] for name in changed}
            what, whether = " and ".join(changed), " and ".join(kept)
            why = f"passes if it is {what}, {red[0].cell.outcome.row.verb} if it is {whether}"
            cells.append(Missing(axes=axes, why=why))
    return cells


def _no_answer(red: Sequence[KnownResult], green: Sequence[KnownResult]) -> tuple[str, list[Missing]]:
    """Return why there is no answer, and cells that would help."""
    if not red:
        passing = f"passes in all {len(green)} environments known" if green else "is not known to have run anywhere"
        return f"no failure to explain: it {passing}", []
    if not green:
        axes = red[0].axes | {"torch": "recent:3"}
        return f"it never passed in the {len(red)} environments known", [Missing(axes=axes, why="is it fixed?")]
    start, end = nearest_pair(red, green)
    if start.factors == end.factors:
        return "it fails and passes in environments that differ in nothing recorded", []
    differing = [name for name in AXES if start.factors[name] != end.factors[name]]
    cells = [Missing(axes=start.axes | {name: end.factors[name]}, why=f"does {name} decide?") for name in differing]
    problem = "no rule of up to three factors tells the failing environments from the passing ones"
    return problem, cells if len(cells) > 1 else []


def nearest_pair(red: Sequence[KnownResult], green: Sequence[KnownResult]) -> tuple[KnownResult, KnownResult]:
    """Return a red and a passing environment that differ in the fewest axes, then in the fewest factors."""
    return min(product(red, green), key=lambda pair: distance(pair[0].factors, pair[1].factors))


def distance(first: Factors, second: Factors) -> tuple[int, int, int]:
    """Return in how many axes and factors two environments differ; an axis that is easy to change is nearer."""
    axes = [index for index, name in enumerate(AXES) if first[name] != second[name]]
    return len(axes), sum(axes), sum(first.get(name) != second.get(name) for name in first.keys() | second.keys())
