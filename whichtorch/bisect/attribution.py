"""Which of the packages that changed together has changed the outcome: torch itself, or what came with it.

At a boundary, the new release is tried with the old versions of the others, and the old release with their new
versions. Nothing is resolved for that: the versions are installed as they are, whatever their metadata allow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted
from whichtorch.bisect.axes.packages import PackageChange, Pins, combined, differences, locked_request, pins_in, pins_of
from whichtorch.bisect.bisection import Attribution, Boundary, Cause
from whichtorch.bisect.driver import bisected
from whichtorch.bisect.ledger import Ledger
from whichtorch.bisect.search_request import Axis, AxisName
from whichtorch.failures.failure import lacking_package
from whichtorch.search.search_state import AnswerKind, Change, Find, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.bisect.workbench import Workbench
    from whichtorch.model import Environment, Request

LIBRARIES = ("cuda-", "nvidia-")  # how the names of packages begin that only a GPU uses
MIXTURES = 4  # the most that are tried at a boundary: each may need an install
ISOLATING = 2  # the most of these that are used to tell other packages apart
PASS_RUNS = 2  # how often a mixture must pass


def with_attributions(found: Bisection, axis: Axis, request: SearchRequest, bench: Workbench) -> Bisection:
    """Return the answer of a search with what each of its boundaries is attributed to."""
    if not request.attribute or found.has_tests or found.curve or found.answer is not AnswerKind.BOUNDARY:
        return found
    boundaries, runs_before, path = [], bench.runs, request.scenario.path
    script = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for boundary in found.boundaries:
        before, after = found.probe_at(boundary.from_), found.probe_at(boundary.to)
        if before is not None and after is not None and not bench.stopped:
            first, last = (axis.request(axis.values.index(probe.value)) for probe in (before, after))
            mixer = _Mixer(
                request=request,
                bench=bench,
                boundary=boundary,
                package=axis.package,
                requests=(first, last),
                pins=(_pins(first, before.environment), _pins(last, after.environment)),
                has_gpu=any(probe.environment.fingerprint.gpus for probe in (before, after)),
                is_flaky=any(0 < probe.k < probe.n for probe in (before, after)),
                message=(before if boundary.change is Change.FIX else after).message,
                named=f"{found.reference} {script}",
            )
            attribution = mixer.attribution()
            boundary = boundary.model_copy(update={"attribution": None if bench.stopped else attribution})
        boundaries.append(boundary)
    untested = f"{bench.stopped}; whether torch or another package caused the change was not tested"
    return found.model_copy(
        update={
            "boundaries": tuple(boundaries),
            "reasons": (*([untested] if bench.stopped else []), *found.reasons),
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
    pins: tuple[Pins, Pins]
    has_gpu: bool
    is_flaky: bool
    message: str  # of the failure
    named: str  # the failure's signature and the script: packages that they or the message name are tried first
    _tried: list[str] = field(default_factory=list)  # what each mixture showed, in words
    _notes: list[str] = field(default_factory=list)  # what was not tried, and why
    _shown: dict[str, bool | None] = field(default_factory=dict)  # by mixture: whether it shows what the new side does

    def attribution(self) -> Attribution:
        """Return what the change at the boundary is attributed to."""
        changes = differences(*self.pins)
        own = [change for change in changes if change.name == self.package]
        others = [change for change in changes if change not in own]
        libraries = [change for change in others if change.name.startswith(LIBRARIES)]
        small = [change for change in others if change not in libraries]
        if not self.has_gpu:
            if libraries and not small:
                unused = f"{counted(len(libraries), 'package')} that only a GPU uses changed too; there is no GPU here"
                self._notes.append(unused)
                return self._attributed(Cause.ITSELF)
            others = small
        if not others:
            return self._attributed(Cause.ITSELF)
        carried = [change for change in libraries if change not in others]
        found = self._compared([*own, *carried], others)
        if found.cause is Cause.UNKNOWN and libraries and small and others != small:
            found = self._compared([*own, *libraries], small)  # a release may not load the libraries of another one
        lacking = lacking_package(self.message, [change.name for change in changes])
        if found.cause is Cause.UNKNOWN and lacking:  # what was built for one torch may not load with another
            self._notes.append(f"no mixture tells, and what is missing is a part of {lacking}")
            left = [change for change in others if change.name == lacking]
            return self._attributed(Cause.COMPANION if left else Cause.ITSELF, left)
        return found

    def _compared(self, own: Sequence[PackageChange], others: Sequence[PackageChange]) -> Attribution:
        """Return whether the searched package or others caused the change, and which, as far as a few mixtures tell."""
        alone = self._mixture(own, others)
        if alone is not False:
            if not self._mixture(others, own):
                return self._attributed(Cause.ITSELF if alone else Cause.UNKNOWN)

            def done(part: Sequence[PackageChange], rest: Sequence[PackageChange]) -> bool | None:
                return self._mixture(part, [*own, *rest])

            left, is_shown = self._isolated(others, done)
            if not (is_shown or done(left, [change for change in others if change not in left])):
                left = others
            return self._attributed(Cause.EITHER if alone else Cause.COMPANION, left, self.boundary.from_)

        def undone(part: Sequence[PackageChange], rest: Sequence[PackageChange]) -> bool | None:
            shows_new = self._mixture([*own, *rest], part)
            return None if shows_new is None else not shows_new

        left, is_shown = self._isolated(others, undone)
        rest = [change for change in others if change not in left]
        if is_shown and rest and len(self._shown) == MIXTURES - 1:  # whether torch is needed matters most
            cause = Cause.TOGETHER if self._mixture(others, own) is False else Cause.COMPANION
            return self._attributed(cause, left, self.boundary.to)
        suffices = self._mixture(left, [*own, *rest])
        if not (suffices or is_shown or undone(left, rest)):
            left, suffices = others, self._mixture(others, own)
        elif suffices is False and rest and self._mixture(others, own):
            return self._attributed(Cause.COMPANION, others, are_all_needed=True)
        return self._attributed(Cause.TOGETHER if suffices is False else Cause.COMPANION, left, self.boundary.to)

    def _attributed(
        self, cause: Cause, left: Sequence[PackageChange] = (), release: str = "", *, are_all_needed: bool = False
    ) -> Attribution:
        """Return an attribution; of the other changes that are `left` one is the cause, or all if `are_all_needed`."""
        names = tuple(map(str, left))
        is_known = are_all_needed or len(names) == 1
        return Attribution(
            package=self.package,
            cause=cause,
            changes=names if is_known else (),
            candidates=() if is_known else names,
            release=release,
            tried=tuple(self._tried),
            notes=tuple(self._notes),
        )

    def _isolated(
        self,
        others: Sequence[PackageChange],
        is_among: Callable[[Sequence[PackageChange], Sequence[PackageChange]], bool | None],
    ) -> tuple[Sequence[PackageChange], bool]:
        """Return the other changes that may be the cause, and whether a mixture showed that it is one of them.

        Otherwise it is one of them because a mixture without them changed nothing. Packages that the failure or the
        script names are tried first.
        """
        left, is_shown = sorted(others, key=self._is_unnamed), True  # of all together it is known
        for _ in range(ISOLATING):
            if len(left) == 1:
                break
            size = len(left) // 2 if self._is_unnamed(left[0]) and len(left) > ISOLATING + 1 else 1
            part, rest = left[:size], [change for change in others if change not in left[:size]]
            shown = is_among(part, rest)
            if shown is None:
                break
            left, is_shown = (part, True) if shown else (left[size:], False)
        return left, is_shown

    def _is_unnamed(self, change: PackageChange) -> bool:
        name = re.escape(change.name).replace(r"\-", "[-_]")
        return re.search(rf"(?<![\w-]){name}(?![\w-])", f"{self.message} {self.named}", re.IGNORECASE) is None

    def _mixture(self, new: Sequence[PackageChange], old: Sequence[PackageChange]) -> bool | None:
        """Return whether the old side with the `new` changes behaves like the new side; None if that is not known.

        A mixture is made once, and not more than MIXTURES of them are made.
        """
        first, last = self.boundary.from_, self.boundary.to
        lock = combined(self.pins[0], new)
        if self.package in {change.name for change in new}:
            label = f"{self.package} {last} with {_words(old, 'good')}"
        else:
            label = f"{self.package} {first} with {_words(new, 'bad')}"
        if label not in self._shown:
            if len(self._shown) == MIXTURES:
                note = f"no more than {MIXTURES} mixtures of packages are tried"
                self._notes += [note] if note not in self._notes else []
                return None
            self._shown[label] = self._tried_mixture(label, lock)
        return self._shown[label]

    def _tried_mixture(self, label: str, lock: tuple[str, ...]) -> bool | None:
        """Install and run a mixture; return whether it shows what the new side shows."""
        first, last = self.boundary.from_, self.boundary.to
        axis = Axis(
            name=AxisName.LOCK,
            values=(first, label, last),
            requests=(self.requests[0], locked_request(lock, self.requests[0]), self.requests[1]),
        )
        goal = replace(self.request.goal, find=Find.ANY, low=0, high=None)
        if not (goal.flaky or self.is_flaky):
            goal = replace(goal, pass_runs=PASS_RUNS, confidence=0.0)
        bad = 0 if self.boundary.change is Change.FIX else 2
        request = replace(self.request, jobs=1)
        probe = bisected(Ledger(request=request, bench=self.bench, axis=axis, goal=goal, named_bad=bad)).probe_at(label)
        verdict = probe.verdict if probe else None
        shown = f"{probe.outcome}, {probe.k} of {counted(probe.n, 'run')}" if probe and probe.n else "not known"
        shown += ", in another way" if verdict is SearchVerdict.DIFFERENT else ""
        self._tried.append(f"{label}: {shown}")
        is_new_good = self.boundary.change is Change.FIX
        return {SearchVerdict.GOOD: is_new_good, SearchVerdict.BAD: not is_new_good}.get(verdict) if verdict else None


def _pins(request: Request, environment: Environment) -> dict[str, str]:
    """Return what an environment pins, without the user's own projects, which are installed in any case."""
    pins = pins_in(request.lock) if request.lock else pins_of(environment.packages)
    own = {project.name for project in request.projects}
    return {name: pin for name, pin in pins.items() if name not in own}


def _words(changes: Sequence[PackageChange], side: str) -> str:
    return ", ".join(f"{change.name} {(getattr(change, side) or 'none').removeprefix('==')}" for change in changes)
