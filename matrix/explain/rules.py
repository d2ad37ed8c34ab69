"""Find the smallest rule that separates the environments where a test is red from those where it passes."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from matrix.compare.factors import AXES, Factors, Term, rank, term_of
from matrix.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_TERMS = 3  # a rule of more says that nobody knows
EQUALS_KEPT = 40  # of what separates equally well


class Rule(Model):
    """Conditions that all red environments meet, and no passing one meets all of."""

    terms: tuple[Term, ...]
    equal: tuple[Term, ...] = ()  # what separates as well as the rule's only term, and cannot be chosen by itself
    rivals: tuple[tuple[Term, ...], ...] = ()  # other rules of this size that a user could act on

    @property
    def is_ambiguous(self) -> bool:
        """True where what decides is only seen, and other things seen separate as well."""
        field = self.terms[0].factor.partition(".")[0]
        others = [term for term in self.equal if term.factor.partition(".")[0] != field]
        return not any(term.factor in AXES for term in self.terms) and bool(others)

    def holds(self, factors: Mapping[str, str]) -> bool:
        """Return whether an environment meets all conditions."""
        return all(term.holds(factors) for term in self.terms)

    @property
    def words(self) -> str:
        """The rule as a fragment: "config default and torch up to 2.11.0"."""
        return " and ".join(term.words for term in self.terms)

    @property
    def factors(self) -> tuple[str, ...]:
        """The factors that decide."""
        return tuple(term.factor for term in self.terms)


def smallest_rule(red: Sequence[Factors], green: Sequence[Factors]) -> Rule | None:
    """Return the rule with the fewest terms, of equals the one that is easiest to act on; None where there is none.

    Each term is the narrowest condition on its factor that all red environments meet, so a rule is a choice
    of factors that excludes every passing environment at least once.
    """
    if not red or not green:
        return None
    classes: dict[frozenset[int], list[Term]] = {}  # terms by which passing environments they exclude
    for factor in dict.fromkeys(name for one in (*red, *green) for name in one):
        term = term_of(factor, red, green)
        if term is not None:
            excluded = frozenset(place for place, one in enumerate(green) if not term.holds(one))
            classes.setdefault(excluded, []).append(term)
    for terms in classes.values():
        terms.sort(key=rank)
    everyone = frozenset(range(len(green)))
    for size in range(1, MOST_TERMS + 1):
        if size > 1:  # with enough fields recorded, some two of them separate anything
            classes = {excluded: terms for excluded, terms in classes.items() if terms[0].is_telling}
        chosen = [choice for choice in combinations(classes, size) if frozenset[int]().union(*choice) == everyone]
        if chosen:
            return _rule([[classes[excluded] for excluded in choice] for choice in chosen])
    return None


def _rule(choices: list[list[list[Term]]]) -> Rule:
    """Return the best of some rules of one size, each given as the terms that its places may hold."""
    rules = [_of_choice(terms) for choice in choices for terms in _variants(choice)]
    rules.sort(key=lambda terms: (sum(term.factor not in AXES for term in terms), [rank(term) for term in terms]))
    best = rules[0]
    rivals = [terms for terms in rules[1:] if all(term.factor in AXES for term in (*best, *terms))]
    taken = {term.factor for terms in (best, *rivals) for term in terms}
    seen = [term for choice in choices if len(choice) == 1 for term in choice[0] if term.factor not in taken]
    return Rule(terms=best, equal=tuple(sorted(seen, key=rank)[:EQUALS_KEPT]), rivals=tuple(rivals))


def _variants(choice: list[list[Term]]) -> list[list[Term]]:
    """Return a choice with the best term of each place, and with every other axis there."""
    best = [terms[0] for terms in choice]
    found = [best]
    for place, terms in enumerate(choice):
        found += [[*best[:place], term, *best[place + 1 :]] for term in terms[1:] if term.factor in AXES]
    return found


def _of_choice(terms: list[Term]) -> tuple[Term, ...]:
    return tuple(sorted(terms, key=rank))
