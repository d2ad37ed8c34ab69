"""Axes without an order: which configs, Pythons or builds show the failure, and which do not.

Every value is tried, because there is no order to bisect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from whichtorch.matrix.bisect.axes.versions import common
from whichtorch.matrix.bisect.ledger import Ledger
from whichtorch.matrix.bisect.search_request import Axis, AxisName
from whichtorch.matrix.bisect.strategy.search_state import AnswerKind, Purpose, SearchVerdict
from whichtorch.matrix.bisect.workbench import workbench
from whichtorch.matrix.errors import PreventedError, UsageError
from whichtorch.matrix.model import Outcome, Request
from whichtorch.matrix.plan.expansion import expand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whichtorch.matrix.bisect.bisection import Bisection
    from whichtorch.matrix.bisect.position_evidence import PositionEvidence
    from whichtorch.matrix.bisect.search_request import SearchRequest
    from whichtorch.matrix.environments.provider import Environments
    from whichtorch.matrix.events import Show
    from whichtorch.matrix.plan.matrix_file import MatrixFile

CONFIGS = ("default", "single-thread", "iomp", "cpp-meta", "no-compile-threads")  # that change what torch does
PYTHONS = tuple(f"3.{minor}" for minor in range(8, 16))  # that had, have or will soon have wheels of torch
_USUAL = {AxisName.CONFIG: CONFIGS, AxisName.PYTHON: PYTHONS}
_EXAMPLES = {AxisName.BUILD: "cpu,cu128", AxisName.PYTHON: "3.11,3.13", AxisName.CONFIG: "default,iomp"}


def search(request: SearchRequest, cache: Environments, show: Show) -> Bisection:
    """Try every value that the request names, or the usual ones.

    Raises UsageError or PreventedError if there are not two values to compare; KeyboardInterrupt passes through.
    """
    requests = _requests(request)
    first = next(iter(requests.values()))
    shared = {"torch": first.torch, **common(first)}
    axis = Axis(
        name=request.axis,
        values=tuple(requests),
        requests=tuple(requests.values()),
        common={name: value for name, value in shared.items() if name != request.axis},
    )
    with workbench(request, cache, show) as bench:
        # the failure of the first value, often the default, is the one that is searched
        ledger = Ledger(request=request, bench=bench, axis=axis, goal=request.goal, named_bad=0)
        return ValueComparison(ledger=ledger).run()


def _requests(request: SearchRequest) -> dict[str, Request]:
    """Return the request for each value; apart from the axis they are equal."""
    axis, named = request.axis, request.values
    values = named or _USUAL.get(axis, ())
    if len(set(values)) < 2:
        raise UsageError(f"there are not two {axis}s to compare", hint=f"name them, as in --{axis} {_EXAMPLES[axis]}")
    # the version is looked up once, because builds may differ in their latest version
    torch = _one_torch(request, _with_values(request.file, axis, named[:1]) if named else request.file)
    file = _with_values(request.file.with_axes(torch=(torch,)), axis, values)
    expansion = expand(file, cache=request.home / "cache")
    requests = {_value(each, axis): each for each in expansion.requests}
    if axis is AxisName.PYTHON and not named:  # a usual Python without wheels is no news
        requests = {value: each for value, each in requests.items() if each.problem is None}
    if len(requests) < 2:
        only = next(iter(requests), "none")
        raise UsageError(f"there is only {only} to try of torch {torch}", hint=f"name at least two with --{axis}")
    return {value: requests[value] for value in values if value in requests} | requests  # `auto` has another name now


def _with_values(file: MatrixFile, axis: AxisName, values: tuple[str, ...]) -> MatrixFile:
    """Return a matrix file with other values on an axis, and without its rows."""
    if axis is AxisName.CONFIG:
        return file.with_axes(config=values)
    return file.with_axes(python=values) if axis is AxisName.PYTHON else file.with_axes(build=values)


def _one_torch(request: SearchRequest, file: MatrixFile) -> str:
    """Return the single version that the file means; without its local part if builds are compared."""
    requests = expand(file, cache=request.home / "cache").requests
    usable = list(dict.fromkeys(each.torch for each in requests if each.problem is None))
    if not usable:
        raise PreventedError(str(requests[0].problem) if requests else "no environment is left to try")
    if len(usable) > 1:
        few = ", ".join(usable[:3])
        raise UsageError(f"--torch names {len(usable)} versions ({few}, ...)", hint=f"--axis {request.axis} takes one")
    try:
        return Version(usable[0]).public if request.axis is AxisName.BUILD else usable[0]
    except InvalidVersion:
        return usable[0]  # a wheel's path


def _value(request: Request, axis: AxisName) -> str:
    build, config = request.build.name, request.config.name
    return {AxisName.CONFIG: config, AxisName.PYTHON: request.python, AxisName.BUILD: build}[axis]


@dataclass(slots=True, kw_only=True)
class ValueComparison:
    """One test at every value, once, and up to `bound_runs` times if it may be flaky. Call `run` once."""

    ledger: Ledger
    _ended_by: str = ""  # what ended it before its end

    def run(self) -> Bisection:
        """Try every value, or as many as the budget allows."""
        ledger, runs = self.ledger, self.ledger.goal.bound_runs
        try:
            self._run(range(len(ledger.axis.values)), runs if ledger.goal.flaky else 1)
            failing = [seen for seen in ledger.seen if seen.failures and not _is_mixed(seen)]
            self._run((seen.position for seen in failing), runs, SearchVerdict.GOOD)
            if any(map(_is_mixed, ledger.seen)):  # a value that passed once may be flaky, too
                passing = [seen for seen in ledger.seen if seen.records and not seen.failures]
                self._run((seen.position for seen in passing), runs, SearchVerdict.BAD)
        except KeyboardInterrupt as end:
            self._ended_by = ledger.stop(end)
        finally:
            ledger.bench.close()
        return self._bisection()

    def _run(self, positions: Iterable[int], runs: int, until: SearchVerdict | None = None) -> None:
        """Run each position until it has so many runs, several at once. Raises TimeOverError when the time is over."""
        waiting, ledger, bench = list(positions), self.ledger, self.ledger.bench
        while waiting or bench.positions:
            while waiting and len(bench.positions) < ledger.request.jobs:
                wants_install = ledger.needs_install(waiting[0])
                if bench.positions and ledger.over(wants_install=wants_install):
                    break  # running probes may still end in time
                ledger.check_budget(wants_install=wants_install)
                self._start(waiting.pop(0), runs, until)
            probes = bench.wait(ledger.seconds_left)
            for probed in probes:
                ledger.take_in(probed)
            if not probes:
                ledger.check_budget()

    def _start(self, position: int, runs: int, until: SearchVerdict | None) -> None:
        ledger = self.ledger
        purpose = Purpose.CONFIRM if position in ledger.evidence else Purpose.SAMPLE
        left = len(ledger.axis.values) - len(ledger.purposes.keys() | {position})
        ledger.start(position, ledger.planned(position, repeat=runs, until=until), purpose, left=left)

    def _bisection(self) -> Bisection:
        ledger = self.ledger
        probes = ledger.probes
        groups = {
            str(verdict): tuple(probe.value for probe in probes if probe.verdict is verdict)
            for verdict in SearchVerdict
        }
        tested = [probe for probe in probes if probe.verdict is not SearchVerdict.UNTESTABLE]
        if len(tested) < 2 or self._ended_by:
            answer = AnswerKind.INCONCLUSIVE
        elif groups[SearchVerdict.GOOD] and groups[SearchVerdict.BAD]:
            answer = AnswerKind.BOUNDARY
        else:
            answer = AnswerKind.NONE
        reasons = [self._ended_by] if self._ended_by else []
        reasons += [f"{probe.in_words}; it is flaky" for probe in tested if 0 < probe.k < probe.n]
        return ledger.bisection(answer, reasons).model_copy(update={"groups": groups})


def _is_mixed(seen: PositionEvidence) -> bool:
    return bool(seen.failures) and any(record.attempt.outcome is Outcome.PASS for record in seen.records)
