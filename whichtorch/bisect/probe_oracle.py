"""What answers every search: it runs the probes that are wanted, and enters what they show in a ledger."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from whichtorch.base.grouping import counted
from whichtorch.bisect.ledger import Ledger, SearchEndedError
from whichtorch.matrix.judgement import decided
from whichtorch.matrix.lab import raise_if_impossible
from whichtorch.model import Outcome
from whichtorch.model.events import ProbeChosen
from whichtorch.search.runs_oracle import drive
from whichtorch.search.shared_search import SharedProbe

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from whichtorch.bisect.workbench import Probed
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Record
    from whichtorch.search.runs_oracle import Oracle
    from whichtorch.search.search_state import NextProbe, SearchState

    Question = TypeVar("Question")
    Answer = TypeVar("Answer")
    Found = TypeVar("Found")
    ProbeSearch = Generator[Sequence[NextProbe], frozenset[int], Found]  # yields probes, gets positions that ended


def driven(
    ledger: Ledger, search: Generator[Question, Answer, Found], oracle: Oracle[Question, Answer]
) -> tuple[Found | None, tuple[str, ...]]:
    """Drive a search to its end; return what it has found, or None and why it ended early.

    Raises UsageError for a command that none of the values that were tried has.
    """
    try:
        found = drive(search, oracle)
    except (KeyboardInterrupt, SearchEndedError) as end:
        return None, (ledger.stop(end),)
    finally:
        ledger.bench.close()
    raise_if_impossible(seen.cell for seen in ledger.seen)
    return found, ()


@dataclass(frozen=True, slots=True)
class ProbeRunner:
    """Runs the probes that a search wants, and enters their results in its ledger."""

    ledger: Ledger

    def ended(self, question: Sequence[NextProbe]) -> frozenset[int]:
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
        if ledger.evidence.keys() >= set(search.bounds):  # no others are installed for a command that is misspelled
            raise_if_impossible(seen.cell for seen in ledger.seen if seen.environment.is_usable)
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

    def cells(self, probe: NextProbe) -> list[PlannedCell]:
        """Return what is to be run at a probe's position."""
        ledger, reference = self.ledger, self.ledger.reference
        # a slow run may be taken for a hang, but for no other failure: that would have come by then
        may_be_slow = not probe.firm and (reference is None or reference.outcome is Outcome.HANG)
        planned = ledger.planned(probe.position, until=probe.until, provisional=may_be_slow)
        seen = ledger.evidence.get(probe.position)
        done = decided(planned, seen.records) if seen else 0
        return [replace(planned, options=replace(planned.options, repeat=done + probe.runs))]

    def _start(self, probe: NextProbe, search: SearchState) -> None:
        """Begin a probe that the strategy wants."""
        ledger, cells = self.ledger, self.cells(probe)
        before, after = search.neighbors(probe.position)
        between = (self._with_outcome(before), self._with_outcome(after))
        row = ledger.axis.name.row
        if not row.is_ordered or row.has_branches or isinstance(probe, SharedProbe):
            between = (None, None)
        ledger.purposes.setdefault(probe.position, probe.purpose)
        value = search.name(probe.position)
        subject = ledger.axis.subjects.get(value, "")
        ledger.bench.emit(
            ProbeChosen(
                number=ledger.bench.numbers.setdefault(cells[0].request.label, len(ledger.bench.numbers) + 1),
                value=f"{value[:10]} {subject}" if subject else value,
                purpose=probe.purpose,
                runs=probe.runs,
                between=between,
                left=after - before - 1 if all(between) else search.size,
                tests=sum(len(cell.scenario.only or ()) for cell in cells),
            )
        )
        ledger.bench.start(probe.position, cells)

    def _with_outcome(self, position: int) -> str | None:
        seen = self.ledger.evidence.get(position)
        return f"{self.ledger.axis.values[position]} ({seen.cell.outcome})" if seen else None


class ProbeOracle(ProbeRunner):
    """Answers the search of a single test."""

    __slots__ = ()

    def answer(self, question: Sequence[NextProbe], _look_ahead: object) -> frozenset[int]:
        """Run probes until some have ended; return the positions of those.

        Raises as `ended` does, and SearchEndedError for a command with tests, whose exit code says nothing of each.
        """
        ended = self.ended(question)
        for seen in self.ledger.seen:
            if tests := collected(seen.records):
                raise SearchEndedError(
                    f"the command has {counted(len(tests), 'test')} of pytest, which are told apart only along "
                    "releases and days; name a script, or a command without pytest"
                )
        return ended


def collected(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the ids of the tests that the latest run of a command has found; none where nothing told of tests."""
    return next((found for record in reversed(records) if (found := record.attempt.evidence.tests)), ())
