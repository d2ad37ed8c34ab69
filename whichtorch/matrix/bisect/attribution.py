"""Which of the packages that changed together has changed the outcome: torch itself, or what came with it.

At a boundary, the new release is tried with the old versions of the others, and the old release with their new
versions. Nothing is resolved for that: the versions are installed as they are, whatever their metadata allow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.axes.locks import PackageChange, combined, differences, pins_in, pins_of
from whichtorch.matrix.bisect.axes.packages import locked_request
from whichtorch.matrix.bisect.bisection import Attribution, Boundary, Cause
from whichtorch.matrix.bisect.driver import bisected
from whichtorch.matrix.bisect.ledger import Ledger
from whichtorch.matrix.bisect.search_request import Axis, AxisName
from whichtorch.matrix.bisect.strategy.search_state import AnswerKind, Change, Find, SearchVerdict
from whichtorch.matrix.grouping import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.bisect.bisection import Bisection
    from whichtorch.matrix.bisect.search_request import SearchRequest
    from whichtorch.matrix.bisect.workbench import Workbench
    from whichtorch.matrix.model import Environment, Request

LIBRARIES = ("cuda-", "nvidia-")  # begin the names of what only a GPU uses
ISOLATING = 2  # installs at most, to tell the others apart
PASS_RUNS = 2  # of a mixture that passes


def with_attributions(found: Bisection, axis: Axis, request: SearchRequest, bench: Workbench) -> Bisection:
    """Return the answer of a search with what each of its boundaries is attributed to."""
    if not request.attribute or found.has_tests or found.answer is not AnswerKind.BOUNDARY:
        return found
    boundaries, runs_before = [], bench.runs
    for boundary in found.boundaries:
        before, after = found.probe_at(boundary.from_), found.probe_at(boundary.to)
        if before is not None and after is not None and not bench.stopped:
            requests = [axis.request(axis.values.index(probe.value)) for probe in (before, after)]
            mixer = _Mixer(
                request=request,
                bench=bench,
                boundary=boundary,
                package=axis.package,
                requests=(requests[0], requests[1]),
                environments=(before.environment, after.environment),
                failure=f"{found.reference} {(before if boundary.change is Change.FIX else after).message}",
            )
            boundary = boundary.model_copy(update={"attribution": mixer.attribution()})
        boundaries.append(boundary)
    return found.model_copy(
        update={
            "boundaries": tuple(boundaries),
            "installs": bench.installs,
            "runs": found.runs + bench.runs - runs_before,
            "seconds": round(bench.seconds, 1),
            "interrupted": bench.is_interrupted,
        }
    )


@dataclass(slots=True, kw_only=True)
class _Mixer:
    """Tries mixtures of the packages on the two sides of a boundary."""

    request: SearchRequest
    bench: Workbench
    boundary: Boundary
    package: str
    requests: tuple[Request, Request]
    environments: tuple[Environment, Environment]
    failure: str  # signature and message
    _tried: list[str] = field(default_factory=list)  # what each mixture showed

    def attribution(self) -> Attribution:
        """Return what the change at the boundary is attributed to."""
        pins = [_pins(*side) for side in zip(self.requests, self.environments, strict=True)]
        changes = differences(*pins)
        own = [change for change in changes if change.name == self.package]
        others = [change for change in changes if change not in own]
        libraries = [change for change in others if change.name.startswith(LIBRARIES)]
        if not any(environment.fingerprint.gpus for environment in self.environments):
            others = [change for change in others if change not in libraries]
        if not others:
            unused = f"{counted(len(libraries), 'package')} for GPUs changed with it, but there is no GPU here"
            return self._attributed(Cause.ITSELF, reasons=(unused,) if libraries else ())
        first, last = self._mixture([*own, *libraries], others), self._mixture(others, own)
        if None in {first, last} and set(libraries) <= set(others) and len(libraries) < len(others):
            # a torch may not load the libraries of another one: they go with it
            others = [change for change in others if change not in libraries]
            first, last = self._mixture([*own, *libraries], others), self._mixture(others, own)
        cause = _cause(first, last)
        if cause in {Cause.ITSELF, Cause.UNKNOWN}:
            return self._attributed(cause)
        left, is_known = self._isolated(others, own if cause is Cause.TOGETHER else [])
        named = tuple(map(str, left))
        return self._attributed(cause, changes=named) if is_known else self._attributed(cause, candidates=named)

    def _attributed(self, cause: Cause, **more: tuple[str, ...]) -> Attribution:
        fields = {"reasons": tuple(self._tried), **more}
        return Attribution(package=self.package, cause=cause, **fields)

    def _isolated(
        self, others: Sequence[PackageChange], along: Sequence[PackageChange]
    ) -> tuple[list[PackageChange], bool]:
        """Return the fewest of the other changes that make the difference, and whether it takes each of them."""
        left = list(others)
        named = [[change] for change in left if change.name.replace("-", "_") in self.failure]
        untried = [*named, [change for change in left if [change] not in named]] if named else _halves(left)
        for _ in range(ISOLATING):
            if len(left) > 1 and untried:
                part = untried.pop(0)
                if self._mixture([*part, *along], [change for change in others if change not in part]):
                    left, untried = part, _halves(part)
        return left, len(left) == 1 or (len(left) == 2 and not untried)

    def _mixture(self, new: Sequence[PackageChange], old: Sequence[PackageChange]) -> bool | None:
        """Return whether the old side with some changes shows what the new side shows; None if that is not known."""
        first, last = self.boundary.from_, self.boundary.to
        pins = _pins(self.requests[0], self.environments[0])
        lock = combined(pins, new)
        names = {change.name for change in new}
        label = f"{self.package} {last} with {_words(old, 'good')}"
        if self.package not in names:
            label = f"{self.package} {first} with {_words(new, 'bad')}"
        axis = Axis(
            name=AxisName.LOCK,
            values=(first, label, last),
            requests=(self.requests[0], locked_request(lock, self.requests[0]), self.requests[1]),
        )
        goal = replace(self.request.goal, find=Find.ANY, low=0, high=None)
        if not goal.flaky:
            goal = replace(goal, pass_runs=PASS_RUNS, confidence=0.0)
        bad = 0 if self.boundary.change is Change.FIX else 2
        request = replace(self.request, jobs=1)
        found = bisected(Ledger(request=request, bench=self.bench, axis=axis, goal=goal, named_bad=bad))
        probe = found.probe_at(label)
        verdict = probe.verdict if probe else None
        self._tried.append(probe.in_words if probe else f"{label}: not tried")
        is_new_good = self.boundary.change is Change.FIX
        return {SearchVerdict.GOOD: is_new_good, SearchVerdict.BAD: not is_new_good}.get(verdict) if verdict else None


def _halves(changes: list[PackageChange]) -> list[list[PackageChange]]:
    middle = len(changes) // 2
    return [changes[:middle], changes[middle:]]


def _cause(first: bool | None, last: bool | None) -> Cause:
    """Return who it was.

    `first` says whether the new release shows the new outcome with the old versions of the others, `last` whether
    their new versions show it with the old release.
    """
    if first and last:
        return Cause.EITHER
    if first:
        return Cause.ITSELF
    if last:
        return Cause.COMPANION
    return Cause.UNKNOWN if None in {first, last} else Cause.TOGETHER


def _pins(request: Request, environment: Environment) -> dict[str, str]:
    """Return what an environment pins, without the user's own projects, which are installed in any case."""
    pins = pins_in(request.lock) if request.lock else pins_of(environment.packages)
    own = {project.name for project in request.projects}
    return {name: pin for name, pin in pins.items() if name not in own}


def _words(changes: Sequence[PackageChange], side: str) -> str:
    pins = (f"{change.name} {(getattr(change, side) or 'none').removeprefix('==')}" for change in changes)
    return ", ".join(pins)
