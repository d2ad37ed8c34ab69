"""What is known of the commits of a history, and between which of them the change lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.ledger import UNMEASURED_GOOD, Ledger
from whichtorch.matrix.bisect.search_request import Axis, AxisName
from whichtorch.matrix.bisect.strategy.posterior import Posterior, best_batch
from whichtorch.matrix.bisect.strategy.search_state import Bracket, Change, Find, SearchVerdict
from whichtorch.matrix.bisect.strategy.view import Transition, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from whichtorch.matrix.bisect.axes.git import Checkout, Commit
    from whichtorch.matrix.bisect.search_request import SearchRequest
    from whichtorch.matrix.bisect.workbench import Workbench
    from whichtorch.matrix.model import Request


@dataclass(kw_only=True)
class Suspects:
    """All that is known of the commits between two bounds.

    What git names last are the suspects: the first commit with the change is one of them, the last one has it.
    """

    checkout: Checkout
    bounds: tuple[str, str]  # older, newer
    commits: dict[str, Commit]  # by hash, parents before children
    ledger: Ledger

    @classmethod
    def between(
        cls,
        bounds: tuple[str, str],
        change: Change,
        *,
        checkout: Checkout,
        make_request: Callable[[str], Request],
        request: SearchRequest,
        bench: Workbench,
    ) -> Suspects:
        """Return the commits between two bounds, of which nothing is known yet."""
        commits = {commit.hash: commit for commit in checkout.between(*bounds)}
        history = list(commits)
        axis = Axis(
            name=AxisName.COMMIT,
            values=tuple(history),
            requests=tuple(map(make_request, history)),
            subjects=tuple(commit.subject for commit in commits.values()),
        )
        low, high = map(history.index, bounds)
        goal = replace(request.goal, find=Find(change.value), low=low, high=high)
        bad = low if change is Change.FIX else high
        ledger = Ledger(request=request, bench=bench, axis=axis, goal=goal, named_bad=bad)
        return cls(checkout=checkout, bounds=bounds, commits=commits, ledger=ledger)

    @cached_property
    def position(self) -> dict[str, int]:
        """The positions of the commits in the history."""
        return {commit: position for position, commit in enumerate(self.commits)}

    @property
    def change(self) -> Change:
        """Which change is searched."""
        return Change(self.ledger.goal.find.value)

    def turn_round(self) -> None:
        """Search the other change from now on."""
        find = Find.REGRESSION if self.change is Change.FIX else Find.FIX
        self.ledger.goal = replace(self.ledger.goal, find=find)

    # what they showed

    @property
    def bound_labels(self) -> tuple[SearchVerdict | None, ...]:
        """The verdicts of the older and the newer bound."""
        return tuple(self.label(bound) for bound in self.bounds)

    @property
    def is_flaky(self) -> bool:
        """True if some commit passed and failed, or if the user expects that."""
        return self.ledger.goal.flaky or self.ledger.view.is_mixed

    def label(self, commit: str) -> SearchVerdict | None:
        """Return the verdict of a commit: bad if it failed even once; None if it was not tried."""
        return self.ledger.view.label(self.position[commit])

    # where the change is

    def pair(self, suspects: list[str]) -> tuple[str, str]:
        """Return the commits on the two sides of the change: a parent of the suspects, and the last suspect."""
        around = [parent for commit in suspects for parent in self.parents(commit) if parent not in suspects]
        labelled = [commit for commit in around if self.label(commit) is self.change.sides[0]]
        return (labelled or around or [self.bounds[0]])[0], suspects[-1]

    def parents(self, commit: str) -> list[str]:
        """Return the parents of a commit that are between the bounds."""
        return [parent for parent in self.commits[commit].parents if parent in self.commits]

    def confidence(self, suspects: list[str]) -> float:
        """Return the probability that the first commit with the change is a suspect."""
        view, step = self._along(suspects)
        return view.confidence(step, self._posterior(view))

    def next_batch(self, suspects: list[str]) -> tuple[str, int] | None:
        """Return the commit of the pair whose runs would tell most, and how many; None if no run would."""
        view, step = self._along(suspects)
        sides = zip((step.before, step.after), self.pair(suspects), strict=True)
        pair = {view.mirror(position, self.change): commit for position, commit in sides if view.is_open(position)}
        closed = set(range(view.search.size)) - pair.keys()
        good = bad = UNMEASURED_GOOD
        batch = best_batch(self._posterior(view), install=lambda _: 0.0, good=good, bad=bad, closed=closed)
        return (pair[batch.position], batch.runs) if batch else None

    def bracket(self, suspects: list[str]) -> Bracket:
        """Describe the change by positions."""
        before, after = self.pair(suspects)
        between: dict[SearchVerdict | None, list[int]] = {}
        for commit in suspects[:-1]:
            between.setdefault(self.label(commit), []).append(self.position[commit])
        return Bracket(
            before=self.position[before],
            after=self.position[after],
            change=self.change,
            confidence=self.confidence(suspects),
            untestable_between=tuple(between.get(SearchVerdict.UNTESTABLE, ())),
            different_between=tuple(between.get(SearchVerdict.DIFFERENT, ())),
            untried_between=tuple(between.get(None, ())),
        )

    def _posterior(self, view: View) -> Posterior:
        return view.posterior(self.change, 0, view.search.size - 1, flaky=self.is_flaky)

    def _along(self, suspects: list[str]) -> tuple[View, Transition]:
        """Return what was seen in an order of the history that makes the change a single step of it.

        After a merge, neighbours in the history need not be parent and child. In this order all commits that cannot
        have the change come first, then the suspects, then all that have it.
        """
        before, after = self.pair(suspects)
        newer = self.checkout.descendants(after, self.bounds[1]) | {after}
        neither = {before, *suspects}
        older = [commit for commit in self.commits if commit not in newer and commit not in neither]
        order = [*older, before, *suspects, *(commit for commit in self.commits if commit in newer - {after})]
        position = {commit: number for number, commit in enumerate(order)}
        search, history = self.ledger.search(), self.ledger.axis.values
        observations = tuple(replace(run, position=position[history[run.position]]) for run in search.observations)
        view = View.of(replace(search, observations=observations, names=tuple(order)))
        return view, Transition(before=position[before], after=position[after], change=self.change)
