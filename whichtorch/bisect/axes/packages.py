"""The packages of two environments as an axis: which of their differences matter, by delta debugging.

Where lock files stand for the environments, they say what the two differ in, and which of the differences can be had
alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from whichtorch.base.errors import PreventedError, TimeOverError, UsageError
from whichtorch.base.grouping import reached
from whichtorch.base.version_parsing import python_markers
from whichtorch.bisect.driver import bisected
from whichtorch.bisect.ledger import Ledger
from whichtorch.bisect.search_request import Axis, AxisName, common
from whichtorch.bisect.workbench import Workbench, workbench
from whichtorch.environments.commander import CancelledError, InstallError, UnresolvableError
from whichtorch.environments.configs import config_named
from whichtorch.environments.expansion import existing, expand
from whichtorch.environments.resolution import locked_versions, requirement_name
from whichtorch.environments.script_needs import requirement_lines
from whichtorch.model import Request
from whichtorch.search.delta import minimal_set
from whichtorch.search.runs_oracle import RunsOracle, drive, inquiry_of
from whichtorch.search.search_state import AnswerKind, Find, SearchOptions, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from whichtorch.bisect.bisection import Bisection, Probe
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.environments.provider import Environments, ResolvedEnvironments
    from whichtorch.model.events import Show

Pins = Mapping[str, str]  # name -> "==2.3.0" or "@ https://…/x.whl"


INSTALLERS = frozenset({"pip", "uv", "whichtorch"})  # say nothing about a script


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """A package that two locks have in different versions, or that one of them lacks."""

    name: str
    good: str | None  # as a pin: "==2.2.6"
    bad: str | None

    def __str__(self) -> str:
        good, bad = ("none" if pin is None else pin.removeprefix("==") for pin in (self.good, self.bad))
        return f"{self.name} {good} -> {bad}"


def read_lock(path: Path) -> dict[str, str]:
    """Return the pins of a file in pip freeze or requirements format, by normalized name.

    Lines whose marker does not hold here are left out; options and hashes are ignored. Raises UsageError that names
    every line that pins nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the lock file {path}: {error.strerror}") from None
    pins: dict[str, str] = {}
    mistakes: list[str] = []
    for number, line in requirement_lines(text):
        if line.startswith("-") and not line.startswith(("-e", "--editable")):
            continue  # an index or a hash
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            mistakes.append(f"{path}:{number}: {line!r} is no requirement that another environment could be given")
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        pin = _pin_of(requirement)
        if pin is None:
            mistakes.append(f"{path}:{number}: {line!r} pins no version; write {requirement.name}==VERSION")
        else:
            pins[canonicalize_name(requirement.name)] = pin
    if not pins and not mistakes:
        mistakes.append(f"{path}: there is no package in it")
    if mistakes:
        raise UsageError("\n".join(mistakes), hint="`pip freeze` and `uv pip freeze` write such files")
    return pins


def _pin_of(requirement: Requirement) -> str | None:
    if requirement.url:
        return f"@ {requirement.url}"
    specifiers = [each for each in requirement.specifier if each.operator != "!="]  # excluded substitutes
    is_exact = len(specifiers) == 1 and specifiers[0].operator in {"==", "==="} and "*" not in specifiers[0].version
    return f"=={specifiers[0].version}" if is_exact else None


def pins_in(lock: Iterable[str]) -> dict[str, str]:
    """Return the pins of exact lines, "name==version" or "name @ url", by normalized name."""
    pins = ((canonicalize_name(requirement.name), _pin_of(requirement)) for requirement in map(Requirement, lock))
    return {name: pin for name, pin in pins if pin is not None}


def pins_of(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the pins of what an environment holds, by name and version."""
    return {canonicalize_name(name): f"=={version}" for name, version in packages.items()}


def differences(good: Pins, bad: Pins) -> tuple[PackageChange, ...]:
    """Return what two locks differ in, without installers; torch comes last, because changing it takes longest."""
    names = sorted((good.keys() | bad.keys()) - INSTALLERS, key=lambda name: (name == "torch", name))
    changes = (PackageChange(name=name, good=good.get(name), bad=bad.get(name)) for name in names)
    return tuple(change for change in changes if change.good != change.bad)


def combined(good: Pins, changed: Iterable[PackageChange]) -> tuple[str, ...]:
    """Return the lines of the good lock with some differences taken from the bad one."""
    pins: dict[str, str | None] = {name: pin for name, pin in good.items() if name not in INSTALLERS}
    pins |= {change.name: change.bad for change in changed}
    kept = [(name, pin) for name in sorted(pins) if (pin := pins[name]) is not None]
    return tuple(f"{name} {pin}" if pin.startswith("@") else f"{name}{pin}" for name, pin in kept)


def together(
    changes: Iterable[PackageChange],
    good_requires: Mapping[str, Iterable[str]],
    bad_requires: Mapping[str, Iterable[str]],
    is_active: Callable[[Requirement], bool],
) -> dict[str, frozenset[str]]:
    """Return for each difference the others that it cannot be had without, by names, itself included.

    `good_requires` and `bad_requires` say by package what its metadata requires. If a package in its bad version
    refuses the good version of another, its change needs the other's change. If a package in its good version
    refuses the bad version of another, the other's change needs its change.
    """
    by_name = {change.name: change for change in changes}
    needs: dict[str, set[str]] = {name: {name} for name in by_name}
    for name, change in by_name.items():
        if change.bad is not None:
            for requirement in filter(is_active, map(Requirement, bad_requires.get(name, ()))):
                other = by_name.get(canonicalize_name(requirement.name))
                if other is not None and not _accepts(requirement, other.good):
                    needs[name].add(other.name)
        if change.good is not None:
            for requirement in filter(is_active, map(Requirement, good_requires.get(name, ()))):
                other = by_name.get(canonicalize_name(requirement.name))
                if other is not None and not _accepts(requirement, other.bad):
                    needs[other.name].add(name)
    return {name: frozenset(reached([name], needs.__getitem__)) for name in needs}


def _accepts(requirement: Requirement, pin: str | None) -> bool:
    if pin is None:
        return False
    if pin.startswith("@"):
        return True  # what a URL holds is not known without a download
    try:
        return requirement.specifier.contains(Version(pin.removeprefix("==")), prereleases=True)
    except InvalidVersion:
        return True


def search(request: SearchRequest, cache: EnvironmentCache, show: Show) -> Bisection:
    """Find the smallest set of package changes that turns the outcome at one lock into that at the other.

    Raises UsageError with all that is wrong with both files.
    """
    assert request.sides is not None
    base = base_request(request).model_copy(update={"overrides": ()})  # the two sides pin all packages
    pythons: list[str] = []
    locks: list[Lock] = []
    mistakes: list[str] = []
    for side in request.sides:
        try:
            locks.append(Lock(label=str(side), pins=_pins_of_side(side, request, cache, pythons)))
        except UsageError as error:
            mistakes.append(str(error))
    if mistakes:
        raise UsageError("\n".join(mistakes))
    start, end = locks
    base = base.model_copy(update={"python": pythons[0]}) if pythons else base
    with workbench(request, cache, show) as bench:
        bisection = Isolator(request=request, bench=bench, cache=cache, start=start, end=end, base=base).run()
    note = f"the two have Python {' and '.join(pythons)}; their packages were compared under {base.python}"
    notes = (note,) if len(set(pythons)) > 1 else ()
    return bisection.model_copy(update={"reasons": (*notes, *bisection.reasons)})


def base_request(request: SearchRequest, torch: str = "latest") -> Request:
    """Return a request for the build, Python and config that a search names, with one torch."""
    base = expand(request.file.with_axes(torch=(torch,), keep_rows=True), cache=request.home / "cache").requests[0]
    if base.problem is not None:
        raise PreventedError(base.problem)
    return base


def locked_request(lock: tuple[str, ...], base: Request, *, problem: str | None = None) -> Request:
    """Return the request for exactly what a lock pins, with the Python, build, config and patch of another request.

    A lock without torch gives a request with a problem, and with the torch of the other request.
    """
    torch = locked_versions("\n".join(lock)).get("torch", "")
    if not torch and problem is None:
        problem = "torch is not among the packages"
    return Request(
        torch=torch or base.torch,
        python=base.python,
        build=base.build,
        config=base.config,
        hardware=base.hardware,
        patch=base.patch,
        projects=base.projects,
        overrides=base.overrides,
        wheel=base.wheel if torch == base.torch else "",
        added_options=base.added_options,
        lock=lock,
        problem=problem,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAxis(Axis):
    """Positions that are resolved when they are first needed.

    Two positions with the same lock mean the same environment, which is installed and run once.
    """

    base: Request  # its Python, build and config
    cache: EnvironmentCache
    _resolved: dict[int, Request] = field(default_factory=dict)

    def lock(self, position: int) -> tuple[str, ...]:
        """Return the exact pins of a position. Raises InstallError."""
        raise NotImplementedError

    def request(self, position: int) -> Request:
        """Return the request for a position; it has a problem if an index does not answer, or nothing fits."""
        if position not in self._resolved:
            try:
                self._resolved[position] = locked_request(self.lock(position), self.base)
            except UnresolvableError as error:
                self._resolved[position] = locked_request((), self.base, problem=error.reason)
            except InstallError as error:
                return locked_request((), self.base, problem=error.reason)
        return self._resolved[position]

    def known_request(self, position: int) -> Request | None:
        """Return the request for a position that was resolved before."""
        return self._resolved.get(position)


def _pins_of_side(side: Path, request: SearchRequest, cache: Environments, pythons: list[str]) -> Pins:
    """Return what a side pins; add the Python of an environment to `pythons`."""
    if not os.access(side, os.X_OK):
        return read_lock(side)
    environment = cache.acquire(existing(side, config_named("default", request.file.config)))
    if not environment.packages:
        raise UsageError(f"{side}: {environment.reason}")
    pythons.append(environment.axes["python"])
    return pins_of(environment.packages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """One side of a comparison."""

    label: str
    pins: Pins


@dataclass(slots=True, kw_only=True)
class Isolator:
    """Finds the fewest package changes that turn the outcome at one lock into that at another. Call `run` once.

    Of n changes it tries at most n² + 3 n sets, none of them twice, whatever they show.
    """

    request: SearchRequest
    bench: Workbench
    cache: EnvironmentCache
    start: Lock
    end: Lock
    base: Request  # its Python, build and config
    _probes: dict[str, Probe] = field(default_factory=dict)
    _runs: int = 0
    _notes: list[str] = field(default_factory=list)
    _ends: Bisection | None = None  # the comparison of the two locks

    def run(self) -> Bisection:
        """Check both locks, find the changes that matter, confirm them; or say how far it came.

        KeyboardInterrupt passes through where the two locks were not compared by then.
        """
        try:
            return self._isolated()
        except KeyboardInterrupt as interrupt:
            if self._ends is None:
                raise
            self._notes.insert(0, self.bench.stop(interrupt))
            update = {"answer": AnswerKind.INCONCLUSIVE, "interrupted": self.bench.is_interrupted}
            return self._completed(self._ends.model_copy(update=update))

    def _isolated(self) -> Bisection:
        changes = differences(self.start.pins, self.end.pins)
        first, last = self._locked(()), self._locked(changes)
        goal = replace(self.request.goal, find=Find.ANY, low=0, high=None)
        ends = self._compared({self.start.label: first, self.end.label: last}, goal)
        ends = self._ends = ends.model_copy(update={"differing": len(changes)})
        if ends.answer is not AnswerKind.BOUNDARY:
            if not changes:
                self._notes.append("the two locks pin the same: the difference is not in the packages")
            return self._completed(ends)
        needs = self._needs(changes, first, last, ends.probes[0].environment.python)

        def needed_by(names: frozenset[str]) -> frozenset[str]:
            return frozenset[str]().union(*(needs[name] for name in names))

        def turns(names: frozenset[str]) -> bool:
            chosen = [change for change in changes if change.name in names]
            return len(chosen) == len(changes) or self._turned_by(chosen, first, last)

        oracle = RunsOracle(inquiry=inquiry_of(turns, needed_by))
        names = drive(minimal_set([change.name for change in changes]), oracle)
        needed = needed_by(names)
        # a change that needs all the others stands for them: torch, if there are several such
        leaders = sorted((name for name in needed if needs[name] == needed), key=lambda name: (name != "torch", name))
        names = frozenset(leaders[:1]) or names
        chosen = [change for change in changes if change.name in needed]
        leading = [change for change in chosen if change.name in names]
        label = f"{self.start.label} with {', '.join(map(str, leading))}"
        final = self._compared({self.start.label: first, label: self._locked(chosen)}, goal)
        update = {
            "changes": tuple(map(str, leading)),
            "along": tuple(str(change) for change in chosen if change not in leading),
            "differing": len(changes),
        }
        return self._completed(final.model_copy(update=update))

    def _completed(self, final: Bisection) -> Bisection:
        """Return the last comparison as the answer to the whole question."""
        return final.model_copy(
            update={
                "values": tuple(self._probes),
                "order": tuple(self._probes),
                "probes": tuple(self._probes.values()),
                "reasons": (*self._notes, *final.reasons),
                "runs": self._runs,
            }
        )

    def _compared(self, requests: dict[str, Request], goal: SearchOptions) -> Bisection:
        """Search a row of environments, by their labels, like any other axis."""
        environments, shared = tuple(requests.values()), common(self.base)
        axis = Axis(name=AxisName.LOCK, values=tuple(requests), requests=environments, common=shared)
        bad = None
        if self._ends is not None:  # it is known which of the two locks fails
            bad = 0 if self._ends.probes[0].verdict is SearchVerdict.BAD else len(requests) - 1
        ledger = Ledger(request=replace(self.request, jobs=1), bench=self.bench, axis=axis, goal=goal, named_bad=bad)
        bisection = bisected(ledger)
        self._runs += bisection.runs
        for probe in bisection.probes:
            before = self._probes.get(probe.value)
            self._probes[probe.value] = probe.model_copy(update={"reused": before.reused}) if before else probe
        return bisection

    def _locked(self, changed: Sequence[PackageChange]) -> Request:
        """Return the request for the first lock with some changes; it has a problem if they are incompatible."""
        lock = combined(self.start.pins, changed)
        fixed = {*self.start.pins, *(change.name for change in changed)}
        others = {name: pin for name, pin in self.end.pins.items() if name not in fixed}
        limits = tuple(f"{name}{pin}" for name, pin in others.items() if pin.startswith("=="))
        problem = None
        try:
            replaced = {requirement_name(text) for text in self.base.overrides}
            overrides = tuple(pin for pin in lock if requirement_name(pin) in replaced)
            lock = self.cache.locked(lock, self.base.build, self.base.python, constraints=limits, overrides=overrides)
        except (InstallError, CancelledError) as error:
            problem = str(error)
        return locked_request(lock, self.base, problem=problem)

    def _needs(
        self, changes: Sequence[PackageChange], first: Request, last: Request, version: str
    ) -> dict[str, frozenset[str]]:
        """Return the changes that each change needs, by what the packages of both sides require."""
        markers = python_markers(self.base.python, version) | {"extra": ""}

        def is_active(requirement: Requirement) -> bool:
            return requirement.marker is None or requirement.marker.evaluate(markers)

        required = cast("ResolvedEnvironments", self.bench.cache).requirements_of
        return together(changes, required(first), required(last), is_active)

    def _turned_by(self, changed: Sequence[PackageChange], first: Request, last: Request) -> bool:
        """Return whether some changes alone turn the outcome; False if that is not known."""
        label = f"{self.start.label} with {', '.join(map(str, changed))}"
        request = self._locked(changed)
        if request.problem is not None:
            self._notes.append(f"{label}: {request.problem}")
            return False
        goal = replace(self.request.goal, find=Find.ANY, low=0, high=None)
        # one run is enough for a step of the search: its end is confirmed
        if not (goal.flaky or any(0 < probe.k < probe.n for probe in self._probes.values())):
            goal = replace(goal, confirm_runs=1, pass_runs=1, confidence=0.0)
        bisection = self._compared({self.start.label: first, label: request, self.end.label: last}, goal)
        if self.bench.stopped:
            raise TimeOverError(self.bench.stopped)
        if bisection.answer is AnswerKind.INCONCLUSIVE:
            self._notes += [note for note in bisection.reasons if note not in self._notes]
        return any(boundary.to == label for boundary in bisection.boundaries)
