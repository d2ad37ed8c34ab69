"""Why does it fail there and not here? Evidence in, answer out: no clock, no files, no processes.

Several answers may apply. The environment decides: the answer is the smallest rule that separates red from passing.
The version of torch decides: the answer is the last red and the first passing version. The conditions that the test
declares were not met, so that it was another test here. The test does fail here. Where the evidence is too little,
the explanation says which cells to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import combinations, product

from packaging.version import Version

from whichtorch.base.grouping import grouped
from whichtorch.base.version_parsing import parse_version
from whichtorch.failures.failure import different, references
from whichtorch.failures.verdict import passes_needed
from whichtorch.model import Cell, Environment, Model, Outcome, Record, Role, combine
from whichtorch.records.compare.factors import ABSENT, AXES, PACKAGE, Factors, History, factors_of, histories

MOST_TERMS = 3  # a rule with more would not be an explanation
EQUALS_KEPT = 40  # terms that separate equally well
_WORDS: dict[tuple[str, ...], str] = {  # by factor and value
    ("meta_mm.python", "True"): "aten::mm's Meta kernel registered from Python",
    ("meta_mm.python", "False"): "aten::mm's Meta kernel registered in C++",
}


class RuleTerm(Model):
    """One condition of a rule: a factor has one of some values, or a version lies in a range."""

    factor: str
    values: tuple[str, ...]
    low: str | None = None  # of a range of versions, ends included; None where it is open
    high: str | None = None
    is_range: bool = False

    def holds(self, factors: Mapping[str, str]) -> bool:
        """Return whether an environment meets the condition."""
        value = factors.get(self.factor, ABSENT)
        if not self.is_range:
            return value in self.values
        version = parse_version(value)
        return (
            version is not None
            and (self.low is None or version >= Version(self.low))
            and (self.high is None or version <= Version(self.high))
        )

    @property
    def is_telling(self) -> bool:
        """True for an axis, and for a field that is known to matter."""
        return self.factor in AXES or (self.factor, self.values[0]) in _WORDS

    @property
    def words(self) -> str:
        """The condition as a fragment: "config default", "torch up to 2.11.0"."""
        if known := _WORDS.get((self.factor, *self.values)):
            return known
        name = "Python" if self.factor == "python" else self.factor.removeprefix(PACKAGE)
        if not self.is_range:
            return f"{name} {' or '.join(self.values)}"
        if self.low == self.high:
            return f"{name} {self.low}"
        if self.low is None:
            return f"{name} up to {self.high}"
        return f"{name} from {self.low} on" if self.high is None else f"{name} {self.low} to {self.high}"

    @property
    def rank(self) -> tuple[int, int, str]:
        """Sort key: axes, which a user can choose, then packages and telling fields, then other fields."""
        if self.factor in AXES:
            return AXES.index(self.factor), 0, ""
        is_other = not self.is_telling and not self.factor.startswith(PACKAGE)
        return len(AXES) + is_other, len(self.values), self.factor


class Rule(Model):
    """Conditions that all red environments meet, and no passing one meets all of."""

    terms: tuple[RuleTerm, ...]
    equal: tuple[RuleTerm, ...] = ()  # terms that separate as well as the rule's only term, and that no user can choose
    rivals: tuple[tuple[RuleTerm, ...], ...] = ()  # other rules of this size that a user could act on

    @property
    def is_ambiguous(self) -> bool:
        """True where only recorded fields decide, and other recorded fields separate as well."""
        field = self.terms[0].factor.partition(".")[0]
        others = [term for term in self.equal if term.factor.partition(".")[0] != field]
        return not any(term.factor in AXES for term in self.terms) and bool(others)

    @property
    def words(self) -> str:
        """The rule as a fragment: "config default and torch up to 2.11.0"."""
        return " and ".join(term.words for term in self.terms)

    @property
    def factors(self) -> tuple[str, ...]:
        """The factors that decide."""
        return tuple(term.factor for term in self.terms)


def smallest_rule(red: Sequence[Factors], green: Sequence[Factors]) -> Rule | None:
    """Return the rule with the fewest terms, or None where there is none; of equal rules, the easiest to act on.

    Each term is the narrowest condition on its factor that all red environments meet. So a rule is a choice of
    factors that excludes every passing environment at least once.
    """
    if not red or not green:
        return None
    classes: dict[frozenset[int], list[RuleTerm]] = {}  # terms, by the passing environments that they exclude
    for factor in dict.fromkeys(name for factors in (*red, *green) for name in factors):
        term = _term_of(factor, red, green)
        if term is not None:
            excluded = frozenset(index for index, factors in enumerate(green) if not term.holds(factors))
            classes.setdefault(excluded, []).append(term)
    for terms in classes.values():
        terms.sort(key=lambda term: term.rank)
    everyone = frozenset(range(len(green)))
    for size in range(1, MOST_TERMS + 1):
        if size > 1:  # with enough fields recorded, some two of them separate anything
            classes = {excluded: terms for excluded, terms in classes.items() if terms[0].is_telling}
        choices = [choice for choice in combinations(classes, size) if frozenset[int]().union(*choice) == everyone]
        if choices:
            return _best_rule([[classes[excluded] for excluded in choice] for choice in choices])
    return None


def _term_of(factor: str, red: Sequence[Factors], green: Sequence[Factors]) -> RuleTerm | None:
    """Return the narrowest condition on a factor that all red environments meet, or None where it would mean nothing.

    The condition is a range where versions allow it. A field with as many values as environments, such as a
    commit, separates anything. So one side must have a single value, unless the factor is an axis.
    """
    inside = {factors.get(factor, ABSENT) for factors in red}
    outside = {factors.get(factor, ABSENT) for factors in green} - inside
    if not outside:
        return None
    if factor in {"torch", "python"} or factor.startswith(PACKAGE):
        term = _range(factor, inside, outside)
        if term is not None:
            return term
    if factor not in AXES and len(inside) > 1 and len(outside) > 1:
        return None
    return RuleTerm(factor=factor, values=_ordered(inside))


def _range(factor: str, inside: set[str], outside: set[str]) -> RuleTerm | None:
    """Return the range of versions that holds all of one set and none of the other, or None."""
    if any(parse_version(value) is None for value in inside | outside):
        return None
    order = sorted(inside | outside, key=Version)
    indices = [index for index, value in enumerate(order) if value in inside]
    first, last = indices[0], indices[-1]
    if last - first + 1 > len(inside):
        return None
    low = order[first] if first > 0 else None
    high = order[last] if last < len(order) - 1 else None
    return RuleTerm(factor=factor, values=_ordered(inside), low=low, high=high, is_range=True)


def _ordered(values: set[str]) -> tuple[str, ...]:
    are_versions = all(parse_version(value) is not None for value in values)
    return tuple(sorted(values, key=Version if are_versions else None))


def _best_rule(choices: list[list[list[RuleTerm]]]) -> Rule:
    """Return the best of some rules of one size, each given as the interchangeable terms at each of its positions."""
    rules = [tuple(sorted(terms, key=lambda term: term.rank)) for choice in choices for terms in _variants(choice)]
    rules.sort(key=lambda terms: (sum(term.factor not in AXES for term in terms), [term.rank for term in terms]))
    best = rules[0]
    rivals = [terms for terms in rules[1:] if all(term.factor in AXES for term in (*best, *terms))]
    taken = {term.factor for terms in (best, *rivals) for term in terms}
    equal = [term for choice in choices if len(choice) == 1 for term in choice[0] if term.factor not in taken]
    equal.sort(key=lambda term: term.rank)
    return Rule(terms=best, equal=tuple(equal[:EQUALS_KEPT]), rivals=tuple(rivals))


def _variants(choice: list[list[RuleTerm]]) -> list[list[RuleTerm]]:
    """Return a choice with the best term at each position, and with every other axis there."""
    best = [terms[0] for terms in choice]
    return [best] + [
        [*best[:position], term, *best[position + 1 :]]
        for position, terms in enumerate(choice)
        for term in terms[1:]
        if term.factor in AXES
    ]


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
    if vacuous := [known for known in observations if known.is_vacuous and (here is None or known is ours)]:
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
