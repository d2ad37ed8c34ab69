"""Find which factors decide: a rule that separates red environments from passing ones, or the changes it takes."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from packaging.version import Version

from whichtorch.base.version_parsing import parse_version
from whichtorch.model import Model
from whichtorch.records.compare.factors import ABSENT, AXES, PACKAGE, Factors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
