"""The commits of a history that were tried: what they showed, and between which of them the change lies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from matrix.bisect.bisection import Boundary, Probe
from matrix.bisect.driver import UNMEASURED_GOOD
from matrix.bisect.results import probe_of
from matrix.bisect.sightings import observations_of, reference_of
from matrix.bisect.strategy.evidence import Change, Find, Purpose, Search, SearchOptions, SearchVerdict
from matrix.bisect.strategy.posterior import best_batch
from matrix.bisect.strategy.view import Transition, View
from matrix.compare.factors import changed_packages

if TYPE_CHECKING:
    from matrix.bisect.axes.git import Checkout, Commit
    from matrix.bisect.sightings import Failure, Sighting
    from matrix.bisect.strategy.posterior import Posterior


@dataclass(kw_only=True)
class TriedCommits:
    """All that is known of the commits between two bounds.

    What git names last are the suspects: the first commit with the change is one of them, the last one has it.
    """

    checkout: Checkout
    bounds: tuple[str, str]  # older, newer
    change: Change
    asked: SearchOptions
    any_failure: bool = False
    sightings: dict[str, Sighting] = field(default_factory=dict)  # in the order in which they were tried
    purposes: dict[str, Purpose] = field(default_factory=dict)

    @cached_property
    def commits(self) -> dict[str, Commit]:
        """All commits by their hash, parents before children."""
        return {commit.hash: commit for commit in self.checkout.between(*self.bounds)}

    @cached_property
    def history(self) -> list[str]:
        """Their hashes."""
        return list(self.commits)

    @cached_property
    def position(self) -> dict[str, int]:
        """Their places in the history."""
        return {commit: place for place, commit in enumerate(self.history)}

    # what they showed

    @property
    def reference(self) -> Failure | None:
        """The failure that is searched."""
        ends = self.position[self.bounds[0]], self.position[self.bounds[1]]
        return reference_of(self._seen, ends, Find(self.change.value), any_failure=self.any_failure)

    @property
    def bound_labels(self) -> tuple[SearchVerdict | None, ...]:
        """What is known of the older and the newer bound."""
        return tuple(self.label(bound) for bound in self.bounds)

    @property
    def is_flaky(self) -> bool:
        """True where some commit passed and failed, or where that is to be expected."""
        return self.asked.flaky or self._view().is_mixed

    def label(self, commit: str) -> SearchVerdict | None:
        """Return what is known of a commit: bad where it failed even once; None where it was not tried."""
        place = self.position.get(commit)
        return None if place is None else self._view().label(place)

    def is_telling(self, commit: str) -> bool:
        """Return whether a commit is known to be good or bad."""
        return self.label(commit) in {SearchVerdict.GOOD, SearchVerdict.BAD}

    @property
    def probes(self) -> list[Probe]:
        """What came of each commit that was tried, in the order of the history."""
        return [
            probe_of(
                one,
                commit,
                self.label(commit),
                purpose=self.purposes.get(commit),
                title=self.commits[commit].subject,
            )
            for commit in self.history
            if (one := self.sightings.get(commit))
        ]

    # where the change is

    def pair(self, suspects: list[str]) -> tuple[str, str]:
        """Return the commits on the two sides: the last one before that is known, and the last suspect."""
        around = [one for commit in suspects for one in self.parents(commit) if one not in suspects]
        tried = [one for one in around if self.label(one) is self.change.sides[0]]
        return (tried or around or [self.bounds[0]])[0], suspects[-1]

    def parents(self, commit: str) -> list[str]:
        """Return the parents of a commit that are searched; what is older than the older bound is not."""
        return [one for one in self.commits[commit].parents if one in self.commits]

    def confidence(self, suspects: list[str]) -> float:
        """Return the probability that the first commit with the change is a suspect."""
        view, step = self._along(suspects)
        return view.confidence(step, self._posterior(view))

    def next_batch(self, suspects: list[str]) -> tuple[str, int] | None:
        """Return of which one of the pair how many more runs tell most, None where nothing would."""
        view, step = self._along(suspects)
        places = (view.mirror(place, self.change) for place in (step.before, step.after))
        pair = dict(zip(places, self.pair(suspects), strict=True))
        closed = set(range(view.search.size)) - pair.keys()
        good = bad = UNMEASURED_GOOD
        batch = best_batch(self._posterior(view), install=lambda _: 0.0, good=good, bad=bad, closed=closed)
        return (pair[batch.position], batch.runs) if batch else None

    def boundary(self, suspects: list[str]) -> Boundary:
        """Describe the change."""
        before, after = self.pair(suspects)
        between: dict[SearchVerdict | None, list[str]] = {}
        for commit in suspects[:-1]:
            between.setdefault(self.label(commit), []).append(commit)
        sides = [self.sightings[commit].environment for commit in (before, after) if commit in self.sightings]
        packages = changed_packages(*sides) if len(sides) == 2 else {}
        return Boundary.model_validate(
            {
                "from": before,
                "to": after,
                "change": self.change,
                "confidence": round(self.confidence(suspects), 4),
                "untestable_between": tuple(between.get(SearchVerdict.UNTESTABLE, ())),
                "different_between": tuple(between.get(SearchVerdict.DIFFERENT, ())),
                "untried_between": tuple(between.get(None, ())),
                "commits": self.checkout.compare_link(before, after),
                "packages": {name: pair for name, pair in packages.items() if name != "torch"},
            }
        )

    @property
    def _seen(self) -> list[Sighting]:
        return sorted(self.sightings.values(), key=lambda one: one.position)

    def _posterior(self, view: View) -> Posterior:
        return view.posterior(self.change, 0, view.search.size - 1, flaky=self.is_flaky)

    def _view(self, order: dict[str, int] | None = None) -> View:
        """Return what was seen, along the history or another order of it."""
        place = order or self.position
        observations = tuple(
            replace(one, position=place[self.history[one.position]])
            for one in observations_of(self._seen, self.reference, any_failure=self.any_failure)
        )
        return View.of(Search(size=len(place), observations=observations, options=self.asked))

    def _along(self, suspects: list[str]) -> tuple[View, Transition]:
        """Return what was seen along the history, with the suspects between what is older and what is newer.

        Where branches were merged a commit next to another one in the list need not be its parent; in this order
        all that cannot have the change comes before all that may have it, so that it is one step of the list.
        """
        before, after = self.pair(suspects)
        newer = self.checkout.descendants(after, self.bounds[1]) | {after}
        suspected = set(suspects)
        older = [one for one in self.history if one not in newer and one not in suspected and one != before]
        order = [*older, before, *suspects, *(one for one in self.history if one in newer and one != after)]
        place = {commit: number for number, commit in enumerate(order)}
        return self._view(place), Transition(before=place[before], after=place[after], change=self.change)
