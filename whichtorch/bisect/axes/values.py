"""Axes without an order: which configs, Pythons or builds show the failure, and which do not.

Every value is tried, because there is no order to bisect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.bisect.ledger import Ledger
from whichtorch.bisect.probe_oracle import ProbeOracle, driven
from whichtorch.bisect.search_request import Axis, AxisName, common
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.expansion import expand
from whichtorch.matrix.judgement import decided
from whichtorch.model import Outcome, Request
from whichtorch.search.search_state import AnswerKind, NextProbe, Purpose, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.ledger import PositionEvidence
    from whichtorch.bisect.probe_oracle import ProbeSearch
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.matrix_file import MatrixFile
    from whichtorch.environments.provider import Environments
    from whichtorch.model.events import Show

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
        return compare_values(Ledger(request=request, bench=bench, axis=axis, goal=request.goal, named_bad=0))


def _requests(request: SearchRequest) -> dict[str, Request]:
    """Return the request for each value; apart from the axis they are equal."""
    axis, named = request.axis, request.values
    values = named or _USUAL.get(axis, ())
    if len(set(values)) < 2:
        raise UsageError(f"there are not two {axis}s to compare", hint=f"name them, as in --{axis} {_EXAMPLES[axis]}")
    # the version is looked up once, because builds may differ in their latest version
    torch = one_torch(request, request.file.with_axes(keep_rows=False, **{axis: named[:1] or None}))
    file = request.file.with_axes(keep_rows=False, **{"torch": (torch,), axis: values})
    requests = {common(each)[axis]: each for each in expand(file, cache=request.home / "cache").requests}
    if axis is AxisName.PYTHON and not named:  # a usual Python without wheels is no news
        requests = {value: each for value, each in requests.items() if each.problem is None}
    if len(requests) < 2:
        only = next(iter(requests), "none")
        raise UsageError(f"there is only {only} to try of torch {torch}", hint=f"name at least two with --{axis}")
    return {value: requests[value] for value in values if value in requests} | requests  # `auto` has another name now


def one_torch(request: SearchRequest, file: MatrixFile) -> str:
    """Return the single version that the file means; without its local part if builds are compared."""
    requests = expand(file, cache=request.home / "cache").requests
    usable = list(dict.fromkeys(each.torch for each in requests if each.problem is None))
    if not usable:
        raise PreventedError(str(requests[0].problem) if requests else "no environment is left to try")
    if len(usable) > 1:
        few = ", ".join(usable[:3])
        hint = f"a search of {request.axis}s takes one"
        raise UsageError(f"--torch names {len(usable)} versions ({few}, ...)", hint=hint)
    try:
        return Version(usable[0]).public if request.axis is AxisName.BUILD else usable[0]
    except InvalidVersion:
        return usable[0]  # a wheel's path


def compare_values(ledger: Ledger) -> Bisection:
    """Try every value once, or as many as the budget allows, and up to `bound_runs` times if it may be flaky."""
    _, ended_by = driven(ledger, _probes(ledger), ProbeOracle(ledger))
    probes = ledger.probes
    groups = {
        str(verdict): tuple(probe.value for probe in probes if probe.verdict is verdict) for verdict in SearchVerdict
    }
    tested = [probe for probe in probes if probe.verdict is not SearchVerdict.UNTESTABLE]
    if len(tested) < 2 or ended_by:
        answer = AnswerKind.INCONCLUSIVE
    elif groups[SearchVerdict.GOOD] and groups[SearchVerdict.BAD]:
        answer = AnswerKind.BOUNDARY
    else:
        answer = AnswerKind.NONE
    reasons = [*ended_by, *(f"{probe.in_words}; it is flaky" for probe in tested if 0 < probe.k < probe.n)]
    return ledger.bisection(answer, reasons).model_copy(update={"groups": groups})


def _probes(ledger: Ledger) -> ProbeSearch[None]:
    """Yield the probes that are wanted now."""
    runs = ledger.goal.bound_runs
    yield from _runs(ledger, range(len(ledger.axis.values)), runs if ledger.goal.flaky else 1)
    failing = [seen.position for seen in ledger.seen if seen.failures and not _is_mixed(seen)]
    yield from _runs(ledger, failing, runs, SearchVerdict.GOOD)
    if any(map(_is_mixed, ledger.seen)):  # a value that passed once may be flaky, too
        passing = [seen.position for seen in ledger.seen if seen.records and not seen.failures]
        yield from _runs(ledger, passing, runs, SearchVerdict.BAD)


def _runs(ledger: Ledger, positions: Iterable[int], runs: int, until: SearchVerdict | None = None) -> ProbeSearch[None]:
    """Ask for positions until each has `runs` runs or has shown `until`, several at once."""
    probes = []
    for position in positions:
        seen = ledger.evidence.get(position)
        missing = runs - (decided(ledger.planned(position), seen.records) if seen else 0)
        purpose = Purpose.CONFIRM if seen else Purpose.SAMPLE
        if missing > 0:
            probes.append(NextProbe(position=position, runs=missing, until=until, purpose=purpose, firm=True))
    while probes:
        ended = yield probes[: ledger.request.jobs]
        probes = [probe for probe in probes if probe.position not in ended]


def _is_mixed(seen: PositionEvidence) -> bool:
    return bool(seen.failures) and any(record.attempt.outcome is Outcome.PASS for record in seen.records)
