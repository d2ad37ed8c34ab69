"""Why does it fail there and not here? Evidence in, answer out: no clock, no files, no processes.

Three answers, as many as apply: it is the environment, with the smallest rule that tells red from passing; it
is the version of torch, with the last red and the first passing one; or it is not the same test here, because
the conditions it declares were not met. Or it does fail here; or there is too little evidence, and what to run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from matrix.compare.factors import AXES, Factors, factors_of
from matrix.compare.histories import History, histories
from matrix.diagnosis.sameness import different, references
from matrix.diagnosis.verdict import combine, passes_needed
from matrix.explain.rules import Rule, smallest_rule
from matrix.model import Cell, Environment, Model, Outcome, Record, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MISS = 0.01  # chance of calling an environment good that is not, which is taken


class ExplanationKind(StrEnum):
    """Which answer."""

    HERE = "here"  # it does fail here
    ENVIRONMENT = "environment"
    VERSION = "version"
    CONDITIONS = "conditions"


class Observation(Model):
    """What is known of the test in one environment."""

    environment: Environment
    cell: Cell
    is_different: bool = False  # red, but another failure than the one to be explained

    @property
    def is_red(self) -> bool:
        """True where the failure to be explained was seen, if only once."""
        return self.cell.outcome.is_red and not self.is_different

    @property
    def is_pass(self) -> bool:
        """True where it always passed, and nobody doubts that it did what it declares."""
        return self.cell.outcome is Outcome.PASS and not self.cell.is_doubted

    @property
    def is_vacuous(self) -> bool:
        """True where it ended well without what it declares."""
        return self.cell.outcome is Outcome.VACUOUS

    @property
    def factors(self) -> Factors:
        """What rules are made of."""
        return factors_of(self.environment)


class Unmet(Model):
    """What happened instead of what a test declares, and where: labels of environments."""

    reason: str
    environments: tuple[str, ...]


class Answer(Model):
    """One answer, with its evidence."""

    kind: ExplanationKind
    rule: Rule | None = None  # environment
    red: int = 0  # environments that meet the rule, all of them red
    green: int = 0  # environments that do not, all of them passing
    histories: tuple[History, ...] = ()  # version; and of an environment's, which versions it holds in
    unmet: tuple[Unmet, ...] = ()  # conditions


class Missing(Model):
    """A cell that would tell more: the axes of its environment, and what it would decide."""

    axes: dict[str, str]
    why: str


class Experiment(Model):
    """What changing factors one by one has shown, from a red environment towards a passing one."""

    red: str  # labels
    green: str
    differing: tuple[str, ...]  # factors in which the two differ
    changes: tuple[tuple[str, str, str], ...]  # those that it takes: factor, value in red, value in green
    confirmed: bool  # red before the changes and passing after them, run once more
    attempts: int  # made for it


class Explanation(Model):
    """What `explain` says of one test."""

    test: str
    reference: Outcome | None  # the outcome to be explained
    signature: str | None
    answers: tuple[Answer, ...]
    observations: tuple[Observation, ...]
    here: str | None = None  # id of the environment asked about
    missing: tuple[Missing, ...] = ()
    problem: str | None = None  # why there is no answer, or not the whole of it
    experiment: Experiment | None = None

    @property
    def is_answered(self) -> bool:
        """True where nothing is left open."""
        shown = self.experiment is not None and self.experiment.confirmed
        return shown or (bool(self.answers) and self.problem is None)


def observe(
    test: str,
    variant: dict[str, str],
    records: Iterable[Record],
    environments: Mapping[str, Environment],
    cells: Mapping[str, Cell],
) -> list[Observation]:
    """Return what records of one test say, one observation per usable environment, in the order of `environments`.

    `cells` holds by environment the latest cell that rests on these records: one that is vacuous takes the
    pass of its attempts back.
    """
    attempts: dict[str, list[Record]] = {}
    for record in records:
        if record.attempt.role is not Role.JUDGE:
            continue  # an observing attempt is never evidence of how the test ends
        attempts.setdefault(record.environment, []).append(record)
    found = []
    for id_, environment in environments.items():
        mine = attempts.get(id_, [])
        speaker = combine([record.attempt for record in mine])
        if speaker is None or not environment.is_usable:
            continue
        outcome, reason = speaker.outcome, speaker.note or None
        latest = cells.get(id_)
        if outcome is Outcome.PASS and latest is not None and latest.is_doubted:
            outcome, reason = latest.outcome, latest.reason
        cell = Cell(
            environment=id_,
            scenario=test,
            variant=variant,
            outcome=outcome,
            signature=next(record.signature for record in mine if record.attempt is speaker),
            expected=True,
            seconds=speaker.seconds,
            attempts=tuple(record.attempt for record in mine if record.attempt.outcome is not Outcome.SLOW),
            conditions=latest.conditions if latest is not None and latest.outcome is outcome else (),
            reason=reason,
        )
        found.append(Observation(environment=environment, cell=cell))
    others = {environment for _, environment in different(one.cell for one in found)}
    return [one.model_copy(update={"is_different": one.environment.id in others}) for one in found]


def explain(test: str, observations: Sequence[Observation], here: str | None = None) -> Explanation:
    """Return the answers that observations of one test give, about the environment with the id `here` if given.

    Without any red environment there is nothing to explain but conditions that were not met.
    """
    reference = references(one.cell for one in observations).get(test)
    red = [one for one in observations if one.is_red]
    green = [one for one in observations if one.is_pass]
    ours = next((one for one in observations if one.environment.id == here), None)
    answers: list[Answer] = []
    missing: list[Missing] = []
    problem: str | None = None
    if ours is not None and ours.is_red:
        answers.append(Answer(kind=ExplanationKind.HERE))
    vacuous = [one for one in observations if one.is_vacuous and (here is None or one is ours)]
    if vacuous:
        answers.append(Answer(kind=ExplanationKind.CONDITIONS, unmet=_unmet(vacuous)))
    rule = smallest_rule([one.factors for one in red], [one.factors for one in green])
    timelines = histories([(one.environment, one.is_red) for one in (*red, *green)])
    if rule is not None:
        answers += _by_rule(rule, len(red), len(green), timelines)
        missing = _cells_between(rule, red, green)
        problem = "the records cannot tell which of these decides" if missing or rule.is_ambiguous else None
        problem = problem or _doubt(red, green)
    elif any(history.changes for history in timelines) or _all_red(timelines, green):
        answers.append(Answer(kind=ExplanationKind.VERSION, histories=timelines))
    if ours is None and here is not None:
        problem = "the test has not run here"
    elif not answers or (rule is None and red and green):
        problem, missing = _nothing(red, green)
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


def _doubt(red: Sequence[Observation], green: Sequence[Observation]) -> str | None:
    """Return why passes mean little: where a failure comes and goes, one pass is luck."""
    attempts = [attempt for one in red for attempt in one.cell.attempts]
    seen = sum(attempt.outcome.is_red for attempt in attempts)
    if seen in {0, len(attempts)}:
        return None
    needed = passes_needed(seen, len(attempts), MISS)
    fewest = min(len(one.cell.attempts) for one in green)
    if fewest >= needed:
        return None
    rate = f"it {_verb(red)} in {seen} of {len(attempts)} attempts where it does"
    return f"{rate}, so {needed} passes are needed to call one good, not {fewest}: give --repeat {needed}"


def _unmet(vacuous: Sequence[Observation]) -> tuple[Unmet, ...]:
    """Return what happened instead, the most common first, with where."""
    places: dict[str, list[str]] = {}
    for one in vacuous:
        places.setdefault(one.cell.reason or "what it declares was not observed", []).append(one.environment.label)
    common = sorted(places.items(), key=lambda pair: -len(pair[1]))
    return tuple(Unmet(reason=reason, environments=tuple(dict.fromkeys(labels))) for reason, labels in common)


def _by_rule(rule: Rule, red: int, green: int, timelines: tuple[History, ...]) -> list[Answer]:
    """Return the answers that a rule stands for: torch alone is a version, the rest an environment."""
    changing = tuple(history for history in timelines if history.changes)
    answers = []
    if rule.factors != ("torch",):
        answers.append(Answer(kind=ExplanationKind.ENVIRONMENT, rule=rule, red=red, green=green, histories=timelines))
    if changing or rule.factors == ("torch",):
        answers.append(Answer(kind=ExplanationKind.VERSION, rule=rule, red=red, green=green, histories=changing))
    return answers


def _all_red(timelines: tuple[History, ...], green: Sequence[Observation]) -> bool:
    return not green and any(history.is_never_fixed for history in timelines)


def _cells_between(rule: Rule, red: Sequence[Observation], green: Sequence[Observation]) -> list[Missing]:
    """Return a cell for each rival of a rule, that fails where the one decides and passes where the other does."""
    found = []
    one, other = nearest_pair(red, green)
    for rival in rule.rivals:
        changed = [term for term in rule.terms if term not in rival]
        kept = [term for term in rival if term not in rule.terms]
        axes = _axes(one) | {term.factor: other.factors[term.factor] for term in changed}
        if all(other.factors[term.factor] != one.factors[term.factor] for term in changed):
            what = " and ".join(term.factor for term in changed)
            whether = " and ".join(term.factor for term in kept)
            found.append(Missing(axes=axes, why=f"passes if it is {what}, {_verb(red)} if it is {whether}"))
    return found


def _nothing(red: Sequence[Observation], green: Sequence[Observation]) -> tuple[str, list[Missing]]:
    """Return why there is no answer, and cells that would help."""
    if not red:
        passing = f"passes in all {len(green)} environments known" if green else "is not known to have run anywhere"
        return f"no failure to explain: it {passing}", []
    if not green:
        axes = _axes(red[0]) | {"torch": "recent:3"}
        return f"it never passed in the {len(red)} environments known", [Missing(axes=axes, why="is it fixed?")]
    one, other = nearest_pair(red, green)
    differing = [name for name in AXES if one.factors[name] != other.factors[name]]
    if not differing and one.factors == other.factors:
        return "it fails and passes in environments that differ in nothing recorded", []
    cells = [
        Missing(axes=_axes(one) | {name: other.factors[name]}, why=f"does {name} decide?")
        for name in (differing if len(differing) > 1 else [])
    ]
    return "no rule of up to three factors tells the failing environments from the passing ones", cells


def nearest_pair(red: Sequence[Observation], green: Sequence[Observation]) -> tuple[Observation, Observation]:
    """Return a red and a passing environment that differ in the fewest axes, then in the fewest factors."""
    pairs = ((one, other) for one in red for other in green)
    return min(pairs, key=lambda pair: distance(pair[0].factors, pair[1].factors))


def distance(one: Factors, other: Factors) -> tuple[int, int, int]:
    """Return in how many axes and factors two environments differ; an axis that is easy to change is nearer."""
    axes = [place for place, name in enumerate(AXES) if one[name] != other[name]]
    return len(axes), sum(axes), sum(one.get(name) != other.get(name) for name in one.keys() | other.keys())


def _axes(one: Observation) -> dict[str, str]:
    return {name: one.factors[name] for name in AXES}


def _verb(red: Sequence[Observation]) -> str:
    return verb(red[0].cell.outcome)


def verb(outcome: Outcome | None) -> str:
    """Return what a test does that comes to an outcome: "hangs"."""
    words = {Outcome.HANG: "hangs", Outcome.CRASH: "crashes", Outcome.OOM: "runs out of memory"}
    return words.get(outcome, "fails") if outcome is not None else "fails"
