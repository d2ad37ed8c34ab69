"""Search an ordered axis for the change: ask the strategy, run what it wants, until it has the answer.

All that a decision rests on is in the records, so an interrupted search goes on from there, and what a matrix has run
already counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from packaging.version import InvalidVersion, Version

from whichtorch.matrix.bisect.ledger import Ledger, SearchEndedError
from whichtorch.matrix.bisect.search_request import AxisName
from whichtorch.matrix.bisect.strategy.decision import answer_so_far, decide_parallel
from whichtorch.matrix.bisect.strategy.search_state import (
    AnswerKind,
    Find,
    NextProbe,
    ProbeRun,
    SearchAnswer,
    SearchOptions,
    SearchState,
    SearchVerdict,
)
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.events import ProbeChosen
from whichtorch.matrix.model import Outcome
from whichtorch.matrix.search.driving import drive

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from whichtorch.matrix.bisect.bisection import Bisection
    from whichtorch.matrix.bisect.search_request import Axis, SearchRequest
    from whichtorch.matrix.bisect.workbench import Probed, Workbench

    Found = TypeVar("Found")
    ProbeSearch = Generator[Sequence[NextProbe], frozenset[int], Found]  # yields probes, gets positions that ended


def search_between(request: SearchRequest, axis: Axis, bench: Workbench) -> Bisection:
    """Search an ordered axis between the bounds that a request names, or its ends."""
    named: dict[SearchVerdict, int] = {}
    notes = []
    for verdict, value in ((SearchVerdict.GOOD, request.good), (SearchVerdict.BAD, request.bad)):
        if value is not None:
            named[verdict] = axis.nearest(value)
            nearest = axis.values[named[verdict]]
            if not _means(value, nearest):
                notes.append(f"there is no {value}: {nearest} is used instead")
    if len(named) == 2 and len(set(named.values())) == 1:
        raise UsageError(f"--good and --bad both mean {nearest}", hint="name two different values")
    goal = _with_bounds(request.goal, named, axis)
    ledger = Ledger(request=request, bench=bench, axis=axis, goal=goal, named_bad=named.get(SearchVerdict.BAD))
    return bisected(ledger, named, notes)


def _means(value: str, other: str) -> bool:
    """Return whether a value means another: 2.9 means 2.9.0, and 2.9.0 means 2.9.0+cpu."""
    try:
        return Version(value) in {Version(other), Version(Version(other).public)}
    except InvalidVersion:
        return value == other


def _with_bounds(goal: SearchOptions, named: dict[SearchVerdict, int], axis: Axis) -> SearchOptions:
    """Return a goal with the bounds as positions.

    A single bound gets its neighbor as the other bound; the search looks further out from there. The order of two
    bounds says which change is meant.
    """
    if not named:
        return goal
    low, high = min(named.values()), max(named.values())
    if len(named) == 1:
        low = min(low, len(axis.values) - 2)
        return replace(goal, low=low, high=low + 1)
    find = Find.REGRESSION if named[SearchVerdict.GOOD] == low else Find.FIX
    return replace(goal, low=low, high=high, find=find if goal.find is Find.ANY else goal.find)


def bisected(ledger: Ledger, named: Mapping[SearchVerdict, int] | None = None, notes: Sequence[str] = ()) -> Bisection:
    """Search an ordered axis to the end of the question or of the budget, or until it is interrupted.

    `named` holds the bounds that the user names, `notes` are about them. A second KeyboardInterrupt passes through; the
    next run of the same search continues from the records.
    """
    named = named or {}
    ledger.recall_known()
    answer, ended_by = driven(ledger, _bisection(ledger))
    if answer is None:
        answer = answer_so_far(ledger.priced_search())
        if answer.kind is AnswerKind.INCONCLUSIVE:
            answer = replace(answer, reasons=(*ended_by, *answer.reasons))
    search, axis = ledger.search(), ledger.axis
    reasons = [*answer.reasons, *notes]
    for verdict, position in named.items():
        if search.label(position) is not verdict:
            reasons += [f"not {verdict}: {words}" for words in ledger.shown(position)]
    reasons += [
        f"{axis.values[position]} was run again and showed nothing more, so its verdict rests on fewer runs"
        for position in sorted(ledger.exhausted)
    ]
    is_named = SearchVerdict.BAD in named or axis.name is AxisName.LOCK
    if answer.kind is AnswerKind.NONE and ledger.reference is None and not is_named:
        reasons.append(f"if you know a {axis.name} where it fails, name it: --bad {axis.name.upper()}")
    if answer.kind is not AnswerKind.BOUNDARY:  # the bounds are the reason
        reasons += ledger.shown(*search.bounds)
    return ledger.bisection(answer.kind, reasons, map(ledger.boundary, answer.boundaries))


def _bisection(ledger: Ledger) -> ProbeSearch[SearchAnswer]:
    """Yield the probes that are wanted now, the most urgent first, and return the answer."""
    ended: frozenset[int] = frozenset()
    before: tuple[ProbeRun, ...] = ()  # observations before the last probes ended
    while True:
        search = ledger.priced_search()
        step = decide_parallel(search, ledger.request.jobs)
        if isinstance(step, SearchAnswer):
            return step
        if (again := step[0].position) in ended and search.observations == before:
            if again in ledger.exhausted:
                raise SearchEndedError(f"{search.name(again)} was run again and again without a result")
            ledger.exhausted.add(again)
            continue
        before = search.observations
        ended = yield step


def driven(ledger: Ledger, search: ProbeSearch[Found]) -> tuple[Found | None, tuple[str, ...]]:
    """Drive a search to its end; return what it has found, or None and why it ended early."""
    try:
        return drive(search, ProbeOracle(ledger)), ()
    except (KeyboardInterrupt, SearchEndedError) as end:
        return None, (ledger.stop(end),)
    finally:
        ledger.bench.close()


@dataclass(frozen=True, slots=True)
class ProbeOracle:
    """Runs the probes that a search wants, and enters their results in its ledger."""

    ledger: Ledger

    def answer(self, question: Sequence[NextProbe], _look_ahead: object) -> frozenset[int]:
        """Run the probes that are wanted, and no others, until some have ended; return the positions of those.

        Raises TimeOverError where the budget is used up, SearchEndedError where a probe says nothing about its value.
        """
        ledger, bench, running = self.ledger, self.ledger.bench, self.ledger.bench.positions
        ledger.check_budget(wants_install=not running and not any(map(self._is_affordable, question)))
        unknown = [probe.position for probe in question if ledger.axis.known_request(probe.position) is None]
        if any(map(ledger.recall, unknown)):
            return frozenset()  # the recalled records may make the other probes unnecessary
        for position in running - {probe.position for probe in question}:
            bench.cancel(position)
        search = ledger.search()
        for probe in question:
            if probe.position not in running and self._is_affordable(probe):
                self._start(probe, search)
        ended = [probed for probed in bench.wait(ledger.seconds_left) if probed.cell is not None]
        problems = []
        for probed in ended:
            if problem := self._index_problem(probed):
                problems.append(problem)
            else:
                ledger.take_in(probed)
        if problems:
            raise SearchEndedError(problems[0])
        return frozenset(probed.position for probed in ended)

    def _is_affordable(self, probe: NextProbe) -> bool:
        """Return whether the budget allows the install of a probe, after the installs that are being made."""
        limit = self.ledger.request.budget.installs
        if limit is None or not self.ledger.needs_install(probe.position):
            return True
        being_made = sum(map(self.ledger.needs_install, self.ledger.bench.positions))
        return self.ledger.bench.installs + being_made < limit

    def _index_problem(self, probed: Probed) -> str | None:
        """Return why an index could not be asked about a value; None where the probe says something about it."""
        ledger, environment = self.ledger, probed.environment
        if environment is None or environment.outcome is not Outcome.UNBUILDABLE or not ledger.axis.name.row.is_ordered:
            return None
        return ledger.bench.cache.unreachable_index(ledger.axis.request(probed.position))

    def _start(self, probe: NextProbe, search: SearchState) -> None:
        """Begin a probe that the strategy wants."""
        ledger, reference = self.ledger, self.ledger.reference
        # a slow run may be taken for a hang, but for no other failure: that would have come by then
        may_be_slow = not probe.firm and (reference is None or reference.outcome is Outcome.HANG)
        planned = ledger.planned(probe.position, until=probe.until, provisional=may_be_slow)
        seen = ledger.evidence.get(probe.position)
        done = planned.decided(seen.records) if seen else 0
        planned = replace(planned, options=replace(planned.options, repeat=done + probe.runs))
        before, after = search.neighbors(probe.position)
        between = (self._with_outcome(before), self._with_outcome(after))
        if not ledger.axis.name.row.is_ordered or ledger.axis.name.row.has_branches:
            between = (None, None)
        ledger.purposes.setdefault(probe.position, probe.purpose)
        value = search.name(probe.position)
        subject = ledger.axis.subjects.get(value, "")
        ledger.bench.emit(
            ProbeChosen(
                number=len(ledger.evidence.keys() | ledger.purposes.keys()),
                value=f"{value[:10]} {subject}" if subject else value,
                purpose=probe.purpose,
                runs=probe.runs,
                between=between,
                left=after - before - 1 if all(between) else search.size,
            )
        )
        ledger.bench.start(probe.position, planned)

    def _with_outcome(self, position: int) -> str | None:
        seen = self.ledger.evidence.get(position)
        return f"{self.ledger.axis.values[position]} ({seen.cell.outcome})" if seen else None
