"""What is known of the commits of a history, and between which of them the change lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.ledger import Ledger
from whichtorch.matrix.bisect.search_request import Axis, AxisName
from whichtorch.matrix.bisect.strategy.posterior import Posterior
from whichtorch.matrix.bisect.strategy.search_state import Bracket, Change, Costs, Find, SearchState, SearchVerdict

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
        requests = tuple(map(make_request, history))
        axis = Axis(
            name=AxisName.COMMIT,
            values=tuple(history),
            requests=requests,
            subjects=tuple(commit.subject for commit in commits.values()),
            common={"checkout": str(checkout.folder), "config": requests[0].config.name},
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
        return self.ledger.search().is_flaky

    def label(self, commit: str) -> SearchVerdict | None:
        """Return the verdict of a commit: bad if it failed even once; None if it was not tried."""
        return self.ledger.search().label(self.position[commit])

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
        return self.bracket(suspects)[0].confidence

    def next_batch(self, suspects: list[str]) -> tuple[str, int] | None:
        """Return the commit of the pair whose runs would tell most, and how many; None if no run would."""
        search = self._along(suspects)
        pair = map(search.names.index, self.pair(suspects))
        batch = self._posterior(search).best_batch(Costs(), filter(search.is_open, pair))
        return batch and (search.names[batch[0]], batch[1])

    def bracket(self, suspects: list[str]) -> tuple[Bracket, tuple[str, ...]]:
        """Describe the change by positions in an order of the commits, and return that order."""
        search = self._along(suspects)
        before, after = map(search.names.index, self.pair(suspects))
        return search.bracket(self._posterior(search), before, after), search.names

    def _posterior(self, search: SearchState) -> Posterior:
        return Posterior.of(search, self.change, 0, search.size - 1, flaky=search.is_flaky)

    def _along(self, suspects: list[str]) -> SearchState:
        """Return what was seen in an order of the history that makes the change a single step of it.

        After a merge, neighbors in the history need not be parent and child. In this order all commits that cannot
        have the change come first, then the suspects, then all that have it.
        """
        before, after = self.pair(suspects)
        newer = self.checkout.descendants(after, self.bounds[1]) | {after}
        neither = {before, *suspects}
        older = [commit for commit in self.commits if commit not in newer and commit not in neither]
        order = [*older, before, *suspects, *(commit for commit in self.commits if commit in newer - {after})]
        search, history = self.ledger.search(), self.ledger.axis.values
        observations = tuple(replace(run, position=order.index(history[run.position])) for run in search.observations)
        return replace(search, observations=observations, names=tuple(order))
