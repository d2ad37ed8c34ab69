"""Axes without an order: which of a few configs, Pythons or builds show the failure, and which do not.

Every value is tried; there is nothing to halve.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from matrix.bisect.bisection import Bisection, Searched
from matrix.bisect.driver import STOPS
from matrix.bisect.question import workbench
from matrix.bisect.results import probe_of, shown, sighting_of
from matrix.bisect.sightings import observations_of, reference_of
from matrix.bisect.strategy.evidence import AnswerKind, Find, Purpose, SearchVerdict, tally
from matrix.errors import PreventedError, UsageError
from matrix.events import ProbeChosen
from matrix.model import Outcome, judging_records, variant_suffix
from matrix.plan import matrix_file
from matrix.plan.planning import expand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.bisect.prober import Probed
    from matrix.bisect.question import SearchQuestion, Workbench
    from matrix.bisect.sightings import Failure, Sighting
    from matrix.environments.provider import Environments
    from matrix.events import Show
    from matrix.model import Request

CONFIGS = ("default", "single-thread", "iomp", "cpp-meta", "no-compile-threads")  # that change what torch does
PYTHONS = tuple(f"3.{minor}" for minor in range(8, 16))  # that had, have or will soon have wheels of torch


def tell_apart(
    question: SearchQuestion, axis: Searched, named: Sequence[str], cache: Environments, show: Show
) -> Bisection:
    """Try every value of an axis that is named, or the usual ones where none is.

    Raises UsageError or PreventedError where there are not two values to compare; KeyboardInterrupt passes through.
    """
    requests = _requests(question, axis, named)
    with workbench(question, cache, show) as bench:
        return _Comparison(question=question, axis=axis, requests=requests, bench=bench).run()


def _requests(question: SearchQuestion, axis: Searched, named: Sequence[str]) -> dict[str, Request]:
    """Return what asks for each value: the same torch, and all but the axis equal."""
    usual = {Searched.CONFIG: CONFIGS, Searched.PYTHON: PYTHONS}
    values = tuple(named) or usual.get(axis, ())
    if len(set(values)) < 2:
        example = {Searched.BUILD: "cpu,cu128", Searched.PYTHON: "3.11,3.13", Searched.CONFIG: "default,iomp"}[axis]
        raise UsageError(f"there are not two {axis}s to compare", hint=f"name them, as in --{axis} {example}")
    # the version is looked up once: what is the latest in one build need not be in another
    first = _replaced(question.file, axis, named[:1]) if named else question.file
    torch = _one_torch(question, first, axis)
    file = _replaced(_replaced(question.file, Searched.VERSION, (torch,)), axis, values)
    found = {_value(one, axis): one for one in expand(file, cache=question.home / "cache").requests}
    if axis is Searched.PYTHON and not named:  # one without wheels is only worth a word where it was named
        found = {value: request for value, request in found.items() if request.problem is None}
    if len(found) < 2:
        only = next(iter(found), "none")
        raise UsageError(f"there is only {only} to try of torch {torch}", hint=f"name at least two with --{axis}")
    return {value: found[value] for value in values if value in found} | found  # `auto` goes by its own name


def _replaced(file: matrix_file.MatrixFile, axis: Searched, values: Sequence[str]) -> matrix_file.MatrixFile:
    """Return a matrix file with other values on an axis, and no rows beside the product of its axes."""
    key = "torch" if axis is Searched.VERSION else str(axis)
    table = file.model_dump(by_alias=True, exclude={"include", "exclude"})
    table["axes"] |= {key: tuple(values)}
    return matrix_file.checked(table, "the options")


def _one_torch(question: SearchQuestion, file: matrix_file.MatrixFile, axis: Searched) -> str:
    """Return the one version that is asked for; without its local part where builds differ in just that."""
    found = expand(file, cache=question.home / "cache").requests
    usable = list(dict.fromkeys(request.torch for request in found if request.problem is None))
    if not usable:
        raise PreventedError(str(found[0].problem) if found else "no environment is left to try")
    if len(usable) > 1:
        few = ", ".join(usable[:3])
        raise UsageError(f"--torch names {len(usable)} versions ({few}, ...)", hint=f"--axis {axis} takes one")
    try:
        return Version(usable[0]).public if axis is Searched.BUILD else usable[0]
    except InvalidVersion:
        return usable[0]  # a wheel's path


def _value(request: Request, axis: Searched) -> str:
    return {
        Searched.CONFIG: request.config.name,
        Searched.PYTHON: request.python,
        Searched.BUILD: request.build.name,
    }[axis]


@dataclass(slots=True, kw_only=True)
class _Comparison:
    """One test, at every value once; those that may be flaky more often."""

    question: SearchQuestion
    axis: Searched
    requests: dict[str, Request]
    bench: Workbench
    _sightings: dict[int, Sighting] = field(default_factory=dict)
    _reused: dict[int, int] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)
    _over: str | None = None  # which part of the budget is

    @property
    def _values(self) -> tuple[str, ...]:
        return tuple(self.requests)

    def run(self) -> Bisection:
        started = time.monotonic()
        runs = self.question.asked.bound_runs
        try:
            first = runs if self.question.asked.flaky else 1
            self._run(dict.fromkeys(range(len(self._values)), first), started)
            self._run(dict.fromkeys(self._failing, runs), started, until=SearchVerdict.GOOD)
            if any(map(_is_mixed, self._seen)):  # what passed once may have been lucky, too
                self._run(dict.fromkeys(self._passing, runs), started, until=SearchVerdict.BAD)
        finally:
            self.bench.prober.close()
        return self._bisection(time.monotonic() - started)

    # runs

    def _run(self, runs: dict[int, int], started: float, until: SearchVerdict | None = None) -> None:
        """Have so many runs at each position, several positions at once; stop where the budget ends."""
        waiting = list(runs)
        prober, budget = self.bench.prober, self.question.budget
        while (waiting or prober.positions) and self._over is None:
            while waiting and len(prober.positions) < self.question.jobs:
                request = self.requests[self._values[waiting[0]]]
                wants_install = not self.bench.cache.is_installed(request)
                used = budget.used_up(time.monotonic() - started, self.bench.installs(), wants_install=wants_install)
                if used and prober.positions:
                    break  # what runs may end in time
                self._over = used
                if used:
                    return
                self._start(waiting.pop(0), runs, until)
            left = None if budget.seconds is None else budget.seconds - (time.monotonic() - started)
            ended = prober.wait(left)
            for probed in ended:
                self._see(probed)
            if not ended:
                self._over = budget.used_up(time.monotonic() - started, 0, wants_install=False)

    def _start(self, position: int, runs: dict[int, int], until: SearchVerdict | None) -> None:
        value = self._values[position]
        planned = self.question.planned(self.requests[value], repeat=runs[position], until=STOPS[until])
        if position not in self._sightings:
            known = self.bench.cache.known(planned.request)
            records = self.bench.records.of(planned.key(known)) if known is not None else []
            self._reused[position] = len(judging_records(records))
            self._order.append(position)
        purpose = Purpose.CONFIRM if position in self._sightings else Purpose.SAMPLE
        number, left = len(self._order), len(self._values) - len(self._order)
        self.bench.emit(
            ProbeChosen(
                number=number, value=value, purpose=purpose, runs=runs[position], between=(None, None), left=left
            )
        )
        self.bench.prober.start(position, planned)

    def _see(self, probed: Probed) -> None:
        if probed.environment is None or probed.cell is None:
            return  # it was cancelled
        planned = self.question.planned(self.requests[self._values[probed.position]])
        records = self.bench.records.of(planned.key(probed.environment)) if probed.environment.is_usable else []
        reused = self._reused.get(probed.position, 0)
        self._sightings[probed.position] = sighting_of(
            probed.position, planned, probed.environment, records, cell=probed.cell, reused=reused
        )

    # what they say

    @property
    def _seen(self) -> list[Sighting]:
        return [self._sightings[position] for position in sorted(self._sightings)]

    @property
    def _reference(self) -> Failure | None:
        """The failure that the others are held against: that of the first value that has one, often the default."""
        whole = (0, len(self._values) - 1)
        return reference_of(self._seen, whole, Find.FIX, any_failure=self.question.any_failure)

    @property
    def _failing(self) -> list[int]:
        return [one.position for one in self._seen if one.failures and not _is_mixed(one)]

    @property
    def _passing(self) -> list[int]:
        return [one.position for one in self._seen if one.records and not one.failures]

    def _bisection(self, seconds: float) -> Bisection:
        reference = self._reference
        seen = observations_of(self._seen, reference, any_failure=self.question.any_failure)
        labels = {position: counted.label for position, counted in tally(seen).items()}
        probes = [probe_of(one, self._values[one.position], labels[one.position]) for one in self._seen]
        groups = {
            str(verdict): tuple(probe.value for probe in probes if probe.verdict is verdict)
            for verdict in SearchVerdict
        }
        tested = [probe for probe in probes if probe.verdict is not SearchVerdict.UNTESTABLE]
        reasons = [self._over] if self._over else []
        if len(tested) < 2 or self._over:
            answer = AnswerKind.INCONCLUSIVE
        else:
            answer = (
                AnswerKind.BOUNDARY if groups[SearchVerdict.GOOD] and groups[SearchVerdict.BAD] else AnswerKind.NONE
            )
        reasons += [f"{shown(probe)}; it is flaky" for probe in tested if 0 < probe.k < probe.n]
        return Bisection(
            scenario=self.question.scenario.name + variant_suffix(self.question.variant),
            question=self.question.asked.find,
            axis=self.axis,
            values=self._values,
            common=self._common(),
            reference=(reference.outcome, reference.signature) if reference else None,
            probes=tuple(probes),
            order=tuple(self._values[position] for position in self._order if position in self._sightings),
            installs=self.bench.installs(),
            run=self.bench.prober.run_id,
            runs=sum(len(one.records) - one.reused for one in self._seen),
            seconds=round(seconds, 1),
            groups=groups,
            answer=answer,
            reasons=tuple(reasons),
        )

    def _common(self) -> dict[str, str]:
        """Return what all values share."""
        first = next(iter(self.requests.values()))
        shared = {
            "torch": first.torch,
            "build": first.build.name,
            "python": first.python,
            "config": first.config.name,
        }
        return {name: value for name, value in shared.items() if name != self.axis}


def _is_mixed(one: Sighting) -> bool:
    return bool(one.failures) and any(record.attempt.outcome is Outcome.PASS for record in one.records)
