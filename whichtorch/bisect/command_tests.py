"""The tests of a command, searched together: what was seen of each, what a probe runs, and the answer.

Each test has a ledger of its own, which the records of all runs fill. A test that a release does not have is neither
good nor bad there. A file that cannot be imported, or a command that fails before it has found its tests, speaks for
the tests that it hides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

from whichtorch.base.grouping import grouped
from whichtorch.bisect.bisection import Boundary, SearchedTest
from whichtorch.bisect.ledger import Ledger, PositionEvidence, SearchEndedError
from whichtorch.bisect.probe_oracle import ProbeRunner, collected, driven
from whichtorch.failures.failure import described, gist, is_alike
from whichtorch.matrix.judgement import decided, judge_cell
from whichtorch.model import Outcome, judging_records
from whichtorch.search.decision import answer_so_far
from whichtorch.search.search_state import AnswerKind, Change, Costs, Find, NextProbe, SearchAnswer, SearchState
from whichtorch.search.shared_search import SharedAnswer, SharedProbe, SharedReply, is_in_question, shared_search

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Record

QUICK = 1.0  # seconds: shorter runs cost as much, since starting the process takes longer
ABSENT = "absent"  # what a release shows of a test that it does not have


@dataclass(slots=True, kw_only=True)
class CommandTests:
    """What was seen of a command and of each of its tests."""

    command: Ledger
    ledgers: dict[str, Ledger] = field(default_factory=dict)  # of each test, by its id
    states: dict[str, SearchState] = field(default_factory=dict)
    _new_runs: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))  # runs by position
    _search_started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds"))

    @property
    def has_none(self) -> bool:
        """True where the command has run at both bounds, or has passed, and nothing told of tests."""
        ran = [seen for seen in self.command.seen if seen.records]
        return not self.ledgers and (len(ran) > 1 or any(seen.passes for seen in ran))

    def load_position(self, position: int) -> None:
        """Take in all records of a position, and of those with the same environment."""
        environment = self.command.evidence[position].environment.id
        alike = [seen.position for seen in self.command.seen if seen.environment.id == environment]
        found = {id_ for place in alike for id_ in collected(self.command.evidence[place].records)}
        new = found - self.ledgers.keys()
        for id_ in sorted(new):
            request = replace(self.command.request, scenario=self.command.request.scenario.of_test(id_))
            command = self.command
            self.ledgers[id_] = Ledger(
                request=request, bench=command.bench, axis=command.axis, goal=command.goal, named_bad=command.named_bad
            )
        for id_, ledger in self.ledgers.items():
            for place in [seen.position for seen in self.command.seen] if id_ in new else alike:
                self._load_test(id_, ledger, place)
            shown = [each for each in ledger.seen if each.records]
            is_fix = bool(shown) and bool(shown[0].failures) and shown[-1].passes and not shown[-1].failures
            # when a fix is searched for, a failure because the old release lacks an API counts too
            is_fix &= self.command.goal.find is Find.ANY
            ledger.goal = replace(self.command.goal, find=Find.FIX) if is_fix else self.command.goal
            self.states[id_] = replace(ledger.search(), made=self._new_runs[id_].total())

    def _load_test(self, id_: str, ledger: Ledger, position: int) -> None:
        """Take in the records of a test at a position, or why it has none."""
        seen = self.command.evidence[position]
        records, problem = self._records(id_, ledger, seen)
        if seen.environment.is_usable and not (records or problem):
            return  # it was not run there
        now = [record for record in records if record.attempt.started >= self._search_started]
        self._new_runs[id_][position] = max(self._new_runs[id_][position], len(now))
        ledger.evidence[position] = PositionEvidence(
            position=position,
            environment=seen.environment,
            cell=judge_cell(ledger.planned(position), seen.environment, records, problem=problem),
            records=tuple(records),
            reused=len(records) - len(now),
        )

    def _records(self, id_: str, ledger: Ledger, seen: PositionEvidence) -> tuple[Sequence[Record], str]:
        """Return the records that speak for a test at a position; where there are none, why."""
        if not seen.environment.is_usable:
            return (), ""
        known = self.command.bench.records
        own = judging_records(known.of(ledger.planned(seen.position).key(seen.environment)))
        found = collected(seen.records)
        if own or id_ in found or not seen.records:
            return own, "" if seen.records else seen.cell.reason or ""
        file = id_.partition("::")[0]
        if file in found:
            file_cell = self.command.planned(seen.position).of_test(file)
            return judging_records(known.of(file_cell.key(seen.environment))), ABSENT
        return ((), ABSENT) if found else (seen.records, ABSENT)

    def priced_states(self) -> dict[str, SearchState]:
        """Return what the strategy decides on, with costs that are alike for tests that behave alike."""
        ledger = self.command
        seconds = ledger.bench.cache.typical_install()
        install = tuple(seconds * ledger.needs_install(position) for position in range(len(ledger.axis.values)))
        return {
            id_: replace(
                state, costs=Costs(install=install, good=self._seconds(id_, good=True), bad=self._seconds(id_))
            )
            for id_, state in self.states.items()
        }

    def _seconds(self, id_: str, *, good: bool = False) -> float:
        """Return what a run of a test takes, to one digit."""
        attempts = [record.attempt for seen in self.ledgers[id_].evidence.values() for record in seen.records]
        took = [attempt.seconds for attempt in attempts if (attempt.outcome is Outcome.PASS) is good]
        return max(QUICK, float(f"{median(took or [QUICK]):.0e}"))


@dataclass(frozen=True, slots=True)
class TestsOracle(ProbeRunner):
    """Answers the shared search of a command's tests."""

    tests: CommandTests

    def answer(self, question: Sequence[SharedProbe], _look_ahead: object) -> SharedReply:
        """Run probes until some have ended; raises as `ended` does, and SearchEndedError where there are no tests."""
        ended = self.ended(question)
        for position in ended:
            self.tests.load_position(position)
        if self.tests.has_none:
            raise SearchEndedError("the command has no tests of its own")
        positions_without_tests = frozenset(seen.position for seen in self.ledger.seen if not seen.records)
        return SharedReply(self.tests.priced_states(), ended, positions_without_tests)

    def cells(self, probe: NextProbe) -> list[PlannedCell]:
        """Return the command with the tests of a probe, once for each number of runs that they are to have."""
        planned = self.ledger.planned(probe.position)
        asked = probe.tests if isinstance(probe, SharedProbe) else None
        if asked is None:
            return [planned]

        def runs(id_: str) -> tuple[int, bool]:
            ledger, wanted = self.tests.ledgers[id_], asked[id_]
            seen = ledger.evidence.get(probe.position)
            done = decided(ledger.planned(probe.position), seen.records) if seen else 0
            return done + wanted.runs, wanted.firm

        return [
            replace(
                planned,
                scenario=planned.scenario.model_copy(update={"only": tuple(ids)}),
                options=replace(planned.options, repeat=repeat, provisional=not firm),
            )
            for (repeat, firm), ids in grouped(asked, runs).items()
        ]


def search_tests(command: Ledger, named: Collection[int], notes: Sequence[str]) -> Bisection | None:
    """Search all tests of a command whose outcome differs between the bounds; None if the command has no tests.

    A single bound that the user names gets the newest value as the other one, or the oldest.
    """
    bounds = command.search().bounds
    if len(named) == 1:
        (position,), last = named, len(command.axis.values) - 1
        bounds = (position, last) if position < last else (0, last)
        command.goal = replace(command.goal, low=bounds[0], high=bounds[1])
    tests = CommandTests(command=command)
    command.recall_known()
    for place in list(command.evidence):
        tests.load_position(place)
    answer, ended_by = driven(command, shared_search(bounds, command.request.jobs), TestsOracle(command, tests))
    if tests.has_none:
        return None
    if answer is None:
        for place in list(command.evidence):
            tests.load_position(place)
        open_ones = {id_: state for id_, state in tests.states.items() if is_in_question(state)}
        answer = SharedAnswer(tests={id_: answer_so_far(state) for id_, state in open_ones.items()}, bounds=bounds)
    return _answered(tests, answer, ended_by, (*notes, *_about_bounds(tests, answer, bounds)))


def _about_bounds(tests: CommandTests, answer: SharedAnswer, bounds: tuple[int, int]) -> Iterator[str]:
    """Yield a sentence for each bound that ran no test."""
    for asked, used in zip(bounds, answer.bounds or bounds, strict=True):
        if asked != used:
            values = tests.command.axis.values
            reason = tests.command.evidence[asked].cell.reason or "it has none"
            yield f"no test could be run in {values[asked]}: {reason}; {values[used]} is the bound instead"
    if answer.bounds is None:
        yield "no two values could run the tests"
        yield from tests.command.shown(*tests.command.evidence)


def _answered(tests: CommandTests, answer: SharedAnswer, ended_by: Sequence[str], notes: Sequence[str]) -> Bisection:
    """Return all that is known at the end of the search."""
    ends = answer.bounds or tests.command.search().bounds
    searched = {id_: _searched(tests, id_, found, ends) for id_, found in sorted(answer.tests.items())}
    kinds = {each.answer for each in searched.values()}
    is_open = answer.bounds is None or bool(ended_by) or AnswerKind.INCONCLUSIVE in kinds
    kind = AnswerKind.INCONCLUSIVE if is_open else AnswerKind.NONE
    kind = AnswerKind.BOUNDARY if AnswerKind.BOUNDARY in kinds else kind
    files = {id_.partition("::")[0] for id_ in tests.ledgers if "::" in id_}  # which speak for the tests in them
    others: dict[str, list[str]] = grouped(
        (id_ for id_ in sorted(tests.ledgers) if id_ not in searched and id_ not in files),
        lambda id_: " -> ".join(dict.fromkeys(_shown(tests.ledgers[id_], end) for end in ends)),
    )
    request, reasons = tests.command.request, [*ended_by, *notes]
    if request.failure and not any(ledger.reference for ledger in tests.ledgers.values()):
        reasons.append(f"no failure that was seen has the words {request.failure!r}")
    tests.command.request = replace(request, failure="")  # which is of the tests, not of the command's own
    bisection = tests.command.bisection(kind, reasons, _boundaries(tests, answer))
    update = {"tests": searched, "others": {shown: tuple(ids) for shown, ids in others.items()}, "reference": None}
    return bisection.model_copy(update=update | {"probes": (), "timeline": ()})


def _searched(tests: CommandTests, id_: str, answer: SearchAnswer, ends: tuple[int, int]) -> SearchedTest:
    ledger = tests.ledgers[id_]
    values, cells = ledger.axis.values, {seen.position: seen.cell for seen in ledger.seen if seen.records}
    return SearchedTest(
        answer=answer.kind,
        boundaries=tuple((values[found.before], values[found.after]) for found in answer.boundaries),
        confidence=round(min((found.confidence for found in answer.boundaries), default=0.0), 4),
        outcomes={values[position]: cell.outcome for position, cell in cells.items()},
        flaky={values[position]: cell.flaky for position, cell in cells.items() if cell.flaky},
        reasons=(*([] if answer.kind is AnswerKind.BOUNDARY else _two_failures(ledger, ends)), *answer.reasons),
    )


def _two_failures(ledger: Ledger, ends: tuple[int, int]) -> Iterator[str]:
    """Yield that a test fails in two ways at the ends of a search, which has no good side then."""
    cells = [ledger.evidence[end].cell for end in ends if end in ledger.evidence]
    if len(cells) == 2 and all(cell.is_red for cell in cells) and not is_alike(*cells):
        shown = [described(gist(cell.signature), cell.message) or cell.outcome.word for cell in cells]
        first, last = (f"in {ledger.axis.values[end]} with {what}" for end, what in zip(ends, shown, strict=True))
        yield f"it fails {first}, and {last}: two failures; --failure WORDS searches for one of them"


def _boundaries(tests: CommandTests, answer: SharedAnswer) -> list[Boundary]:
    """Return the changes, from old to new, each once for all tests that show the same there; the largest come first."""
    groups: dict[tuple[int, int, str], list[tuple[str, Boundary]]] = {}
    words: dict[tuple[int, int, str], str] = {}
    for id_, found in sorted(answer.tests.items()):
        ledger = tests.ledgers[id_]
        for bracket in found.boundaries if found.kind is AnswerKind.BOUNDARY else ():
            cell = ledger.evidence[bracket.before if bracket.change is Change.FIX else bracket.after].cell
            key = (bracket.before, bracket.after, f"{cell.outcome} {gist(cell.signature)}")
            groups.setdefault(key, []).append((id_, ledger.boundary(bracket)))
            words.setdefault(key, described(gist(cell.signature), cell.message) or str(cell.outcome))
    ordered = sorted(groups.items(), key=lambda group: (*group[0][:2], -len(group[1])))
    return [
        members[0][1].model_copy(
            update={
                "tests": tuple(id_ for id_, _ in members),
                "what": words[key],
                "confidence": min(boundary.confidence for _, boundary in members),
            }
        )
        for key, members in ordered
    ]


def _shown(ledger: Ledger, position: int) -> str:
    """Return in a word what a test shows at a position."""
    seen = ledger.evidence.get(position)
    if seen is None:
        return "not run"
    return ABSENT if seen.cell.reason == ABSENT else str(seen.cell.outcome)
