"""Synthetic histories, and a driver that runs a search over one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from random import Random

from whichtorch.search.decision import decide
from whichtorch.search.search_state import (
    Costs,
    NextProbe,
    ProbeRun,
    SearchAnswer,
    SearchOptions,
    SearchState,
    SearchVerdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Versions of which some are bad, some cannot be tested, and the bad ones fail at a rate."""

    size: int
    bad: Collection[int]
    untestable: Collection[int] = ()
    different: Collection[int] = ()
    rate: float = 1.0  # of failures in a bad version
    false_rate: float = 0.0  # in a good one

    @classmethod
    def regression(cls, size: int, culprit: int, untestable: Collection[int] = (), rate: float = 1.0) -> History:
        """Make a history that is bad from the culprit on."""
        return cls(size=size, bad=range(culprit, size), untestable=untestable, rate=rate)

    def run(self, position: int, random: Random) -> SearchVerdict:
        """Run a version once."""
        if position in self.untestable:
            return SearchVerdict.UNTESTABLE
        if position in self.different:
            return SearchVerdict.DIFFERENT
        rate = self.rate if position in self.bad else self.false_rate
        return SearchVerdict.BAD if random.random() < rate else SearchVerdict.GOOD


@dataclass(slots=True, kw_only=True)
class Trace:
    """What a search did."""

    answer: SearchAnswer
    search: SearchState
    probes: list[NextProbe] = field(default_factory=list)

    @property
    def positions(self) -> int:
        """How many different positions were tried."""
        return len({probe.position for probe in self.probes})

    @property
    def runs(self) -> int:
        """How many runs were made."""
        return len(self.search.observations)

    @property
    def culprit(self) -> int | None:
        """The position blamed, in a regression."""
        return self.answer.boundaries[0].after if self.answer.kind == "boundary" else None

    def seconds(self, costs: Costs) -> float:
        """Return what it all cost."""
        verdicts = [run.verdict for run in self.search.observations]
        runs = verdicts.count(SearchVerdict.GOOD) * costs.good + verdicts.count(SearchVerdict.BAD) * costs.bad
        return runs + sum(costs.install_at(position) for position in {probe.position for probe in self.probes})


def follow(
    history: History, options: SearchOptions | None = None, *, costs: Costs | None = None, random: Random | None = None
) -> Trace:
    """Do what the search asks, over a history, until it answers."""
    random = random or Random(0)
    observations: list[ProbeRun] = []
    costs = costs or Costs()
    install = list(costs.install)
    probes: list[NextProbe] = []
    while True:
        search = SearchState(
            size=history.size,
            observations=tuple(observations),
            options=options or SearchOptions(),
            costs=replace(costs, install=tuple(install)),
        )
        step = decide(search)
        if isinstance(step, SearchAnswer):
            return Trace(answer=step, search=search, probes=probes)
        probes.append(step)
        assert len(probes) < 2000, "the search does not end"
        for _ in range(step.runs):
            verdict = history.run(step.position, random)
            observations.append(ProbeRun(position=step.position, verdict=verdict))
            if verdict in {step.until, SearchVerdict.UNTESTABLE}:
                break
        if install:
            install[step.position] = 0.0
