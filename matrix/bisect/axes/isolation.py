"""Which of the differences between two locks it takes: delta debugging over packages, on real environments."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from matrix.bisect.axes.axis import EnvironmentRow
from matrix.bisect.axes.days import locked_request
from matrix.bisect.axes.locks import PackageChange, combined, differences, together
from matrix.bisect.driver import Bisector
from matrix.bisect.strategy.evidence import AnswerKind, Find
from matrix.environments.commander import InstallError
from matrix.explain.rules import minimal_set

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.requirements import Requirement

    from matrix.bisect.axes.locks import Pins
    from matrix.bisect.bisection import Bisection, Probe
    from matrix.bisect.question import SearchQuestion, Workbench
    from matrix.bisect.strategy import evidence
    from matrix.environments.provider import Resolver
    from matrix.model import Build, Config, Request

ONCE = {"confirm_runs": 1, "confidence": 0.0}  # enough for a step of the search: its end is confirmed


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """One side of a comparison."""

    label: str
    pins: Pins


@dataclass(slots=True, kw_only=True)
class Isolator:
    """Turns the outcome at one lock into that at another with as few package changes as it takes. Call `run` once."""

    question: SearchQuestion
    bench: Workbench
    resolver: Resolver
    start: Lock
    end: Lock
    python: str
    build: Build
    config: Config
    _began: float = field(default_factory=time.monotonic)
    _turned: dict[frozenset[str], bool] = field(default_factory=dict)
    _probes: dict[str, Probe] = field(default_factory=dict)
    _runs: int = 0
    _notes: list[str] = field(default_factory=list)

    def run(self) -> Bisection:
        """Check both locks, find the changes that it takes, confirm them."""
        changes = differences(self.start.pins, self.end.pins)
        first, last = self._request(()), self._request(changes)
        ends = self._compared([(self.start.label, first), (self.end.label, last)])
        if ends.answer is not AnswerKind.BOUNDARY:
            alike = () if changes else ("the two locks pin the same: the difference is not in the packages",)
            return self._told(ends, changes, (), (), alike)
        needs = self._needs(changes, first, last, ends.probes[0].environment.python)
        taken, lead = self._smallest(changes, needs, first, last)
        chosen = [one for one in changes if one.name in taken]
        leading = [one for one in chosen if one.name in lead]
        label = f"{self.start.label} with {', '.join(map(str, leading))}"
        final = self._compared([(self.start.label, first), (label, self._request(chosen))])
        along = [one for one in chosen if one not in leading]
        return self._told(final, changes, leading, along, tuple(self._notes))

    def _told(
        self,
        found: Bisection,
        changes: Sequence[PackageChange],
        leading: Sequence[PackageChange],
        along: Sequence[PackageChange],
        reasons: tuple[str, ...],
    ) -> Bisection:
        """Return a comparison as the answer to the whole question."""
        return found.model_copy(
            update={
                "values": tuple(self._probes),
                "order": tuple(self._probes),
                "probes": tuple(self._probes.values()),
                "changes": tuple(map(str, leading)),
                "along": tuple(map(str, along)),
                "differing": len(changes),
                "reasons": (*reasons, *found.reasons),
                "runs": self._runs,
                "installs": self.bench.installs(),
                "seconds": round(time.monotonic() - self._began, 1),
            }
        )

    def _compared(self, row: list[tuple[str, Request]], **asked: object) -> Bisection:
        """Search a row of environments for the change, as any axis is searched."""
        question, bench = self.question, self.bench
        budget = question.budget
        if budget.seconds is not None:
            budget = replace(budget, seconds=max(0.0, budget.seconds - (time.monotonic() - self._began)))
        options: evidence.SearchOptions = replace(question.asked, find=Find.ANY, low=0, high=None)
        found = Bisector(
            axis=EnvironmentRow(
                name="lock", values=tuple(label for label, _ in row), requests=tuple(one for _, one in row)
            ),
            scenario=question.scenario,
            variant=question.variant,
            options=question.options,
            asked=replace(options, **asked),  # type: ignore[arg-type]
            cache=bench.cache,
            records=bench.records,
            prober=bench.prober,
            emit=bench.emit,
            any_failure=question.any_failure,
            budget=budget,
            installs=bench.installs,
        ).run()
        self._runs += found.runs
        for probe in found.probes:
            before = self._probes.get(probe.value)
            self._probes[probe.value] = probe.model_copy(update={"reused": before.reused}) if before else probe
        return found

    # what can be had

    def _request(self, changed: Sequence[PackageChange]) -> Request:
        """Return the request for the first lock with some changes; its problem says where they do not go together."""
        lock = combined(self.start.pins, changed)
        others = {**self.start.pins, **self.end.pins}
        for one in (*self.start.pins, *(one.name for one in changed)):
            others.pop(one, None)
        limits = tuple(f"{name}{pin}" for name, pin in others.items() if pin.startswith("=="))
        problem = None
        try:
            lock = self.resolver.locked(lock, self.build, self.python, constraints=limits)
        except InstallError as error:
            problem = error.reason
        return locked_request(lock, self.python, self.build, self.config, problem=problem)

    def _needs(
        self, changes: Sequence[PackageChange], first: Request, last: Request, version: str
    ) -> dict[str, frozenset[str]]:
        """Return what each change cannot be had without, by what the packages of both sides require."""
        markers = {"python_full_version": version, "python_version": self.python, "extra": ""}

        def is_active(requirement: Requirement) -> bool:
            return requirement.marker is None or requirement.marker.evaluate(markers)

        required = self.resolver.requirements_of
        return together(changes, required(first), required(last), is_active)

    # which it takes

    def _smallest(
        self, changes: Sequence[PackageChange], needs: dict[str, frozenset[str]], first: Request, last: Request
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names of all changes that it takes, and of those that take the others along."""

        def turns(subset: frozenset[str]) -> bool:
            taken = frozenset[str]().union(*(needs[name] for name in subset))
            if taken not in self._turned:
                self._turned[taken] = self._turns([one for one in changes if one.name in taken], first, last)
            return self._turned[taken]

        self._turned[frozenset(needs)] = True
        found = minimal_set([one.name for one in changes], turns)
        taken = frozenset[str]().union(*(needs[name] for name in found))
        by_itself = sorted((name for name in taken if needs[name] == taken), key=lambda name: (name != "torch", name))
        return taken, frozenset(by_itself[:1]) or found

    def _turns(self, changed: Sequence[PackageChange], first: Request, last: Request) -> bool:
        """Return whether some changes alone turn the outcome; what cannot be told counts as no."""
        label = f"{self.start.label} with {', '.join(map(str, changed))}"
        request = self._request(changed)
        if request.problem is not None:
            self._notes.append(f"{label}: {request.problem}")
            return False
        row = [(self.start.label, first), (label, request), (self.end.label, last)]
        is_flaky = self.question.asked.flaky or any(0 < probe.k < probe.n for probe in self._probes.values())
        found = self._compared(row) if is_flaky else self._compared(row, **ONCE)
        if found.answer is AnswerKind.INCONCLUSIVE:
            self._notes += [note for note in found.reasons if note not in self._notes]
        return any(boundary.to == label for boundary in found.boundaries)
