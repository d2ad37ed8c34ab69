"""What records say of the positions of a search, compared with one failure. Pure: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.strategy.evidence import Find, ProbeRun, SearchVerdict
from whichtorch.matrix.diagnosis.sameness import is_missing_api, is_same_failure
from whichtorch.matrix.model import Cell, Environment, Outcome, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The failure that a search is about."""

    outcome: Outcome
    signature: str | None
    message: str = ""  # of the exception

    @classmethod
    def of(cls, record: Record) -> Failure:
        """Return what a record shows, as it is stored."""
        attempt = record.attempt
        return cls(outcome=attempt.outcome, signature=record.signature, message=attempt.message)

    def is_seen_in(self, record: Record) -> bool:
        """Return whether a record shows this failure."""
        outcome, signature = _failure_of(record)
        is_same = is_same_failure(signature, self.signature, record.attempt.message, self.message)
        return outcome is self.outcome and is_same

    def is_shown_by(self, record: Record) -> bool:
        """Return the same of a run whose limit was chosen for this failure: what does not end in it still hangs."""
        is_unfinished = self.outcome is Outcome.HANG and record.attempt.outcome is Outcome.SLOW
        return is_unfinished or self.is_seen_in(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """All that is known of one position."""

    position: int
    environment: Environment
    cell: Cell
    records: tuple[Record, ...] = ()  # of attempts that judge; none where the environment cannot be had
    reused: int = 0  # how many of them an earlier run made

    @property
    def telling(self) -> tuple[Record, ...]:
        """The records that count.

        A slow run, which the clock ended while it moved, counts until another decides. A longer look stands for that
        run and for further slow ones, which get no longer look of their own.
        """
        slow = [record for record in self.records if _is_slow(record)]
        decided = tuple(record for record in self.records if not _is_slow(record))
        if not slow or not decided:
            return self.records
        shortest = min(record.attempt.limit for record in slow)
        longer = tuple(record for record in decided if record.attempt.limit > shortest)
        return decided + longer[-1:] * max(0, len(slow) - len(longer))

    @property
    def unanswered(self) -> list[Record]:
        """The slow records beside those that count, if none of these had more time."""
        most = max((record.attempt.limit for record in self.telling), default=0.0)
        return [each for each in self.records if each not in self.telling and each.attempt.limit >= most]

    @property
    def failures(self) -> list[Record]:
        """The records that show a failure, or what may become one."""
        return [record for record in self.telling if record.attempt.outcome.is_red or _is_slow(record)]

    def failures_named(self, words: str) -> list[Record]:
        """Return those of its failures that some words name."""
        return [record for record in self.failures if is_named(record, words)]

    @property
    def passes(self) -> bool:
        """True where some run passed, with all that the test declares."""
        return any(record.attempt.outcome is Outcome.PASS for record in self.records) and not self.cell.is_doubted

    @property
    def lacks_feature(self) -> bool:
        """True where all its failures say that this version does not have what the test uses."""
        return all(is_missing_api(record.signature, record.attempt.message) for record in self.failures)


def reference_of(
    sightings: Sequence[Sighting],
    find: Find,
    *,
    any_failure: bool = False,
    named: str = "",
    named_bad: int | None = None,
) -> Failure | None:
    """Return the failure that a search is about, None where none was seen yet.

    It is the newest one that says `named`, and the one at the position that the user calls bad. If neither is given,
    it is the failure at the newest change: the last before what passes now, or the first after what passed before. A
    failure that says only that a version lacks what the test uses counts where there is no other and something
    older passes: the feature was taken away.
    """
    failing = [sighting for sighting in sightings if sighting.failures_named(named)]
    telling = [sighting for sighting in failing if any_failure or named or not sighting.lacks_feature]
    if not telling:
        oldest_pass = min((sighting.position for sighting in sightings if sighting.passes), default=None)
        telling = [
            sighting
            for sighting in failing
            if find is Find.FIX or (oldest_pass is not None and sighting.position > oldest_pass)
        ]
    if not telling:
        return None
    by_position = {sighting.position: sighting for sighting in telling}
    passing = [sighting.position for sighting in sightings if sighting.passes and not sighting.failures]
    position = named_bad if named_bad in by_position else _at_newest_change(sorted(by_position), passing, find)
    record = by_position[position].failures_named(named)[0]
    outcome, signature = _failure_of(record)
    return Failure(outcome=outcome, signature=signature, message=record.attempt.message)


def _at_newest_change(failing: Sequence[int], passing: Sequence[int], find: Find) -> int:
    """Return which failing position is next to the newest change; the newest one where there is no such change."""
    fixed = [position for position in failing if any(other > position for other in passing)]
    broken = [
        min(position for position in failing if position > other)
        for other in passing
        if any(position > other for position in failing)
    ]
    if find is Find.FIX:
        return max(fixed, default=failing[-1])
    if find is Find.REGRESSION or failing[-1] not in fixed:
        return max(broken, default=failing[-1])
    return failing[-1]


def observations_of(
    sightings: Iterable[Sighting], reference: Failure | None, *, any_failure: bool = False
) -> tuple[ProbeRun, ...]:
    """Return what every run says: good, bad, different or nothing."""
    observations: list[ProbeRun] = []
    for sighting in sightings:
        position = sighting.position
        if not sighting.records or sighting.cell.is_doubted:  # ended well, but perhaps without what it declares
            observations.append(ProbeRun(position=position, verdict=SearchVerdict.UNTESTABLE))
            continue
        for record in (*sighting.telling, *sighting.unanswered):
            verdict = _verdict(sighting, record, reference, any_failure=any_failure)
            observations.append(ProbeRun(position=position, verdict=verdict, provisional=_is_slow(record)))
    return tuple(observations)


def _verdict(sighting: Sighting, record: Record, reference: Failure | None, *, any_failure: bool) -> SearchVerdict:
    outcome = record.attempt.outcome
    if outcome is Outcome.PASS:
        return SearchVerdict.GOOD
    if not (outcome.is_red or _is_slow(record)):
        return SearchVerdict.UNTESTABLE
    if reference is not None and (reference.is_seen_in(record) or any_failure):
        return SearchVerdict.BAD
    return SearchVerdict.UNTESTABLE if sighting.lacks_feature else SearchVerdict.DIFFERENT


def _failure_of(record: Record) -> tuple[Outcome, str | None]:
    """Return outcome and signature; a slow run is a hang until a longer look says otherwise."""
    return (Outcome.HANG, None) if _is_slow(record) else (record.attempt.outcome, record.signature)


def is_named(record: Record, words: str) -> bool:
    """Return whether a record's outcome, signature or message has some words, in any case of letters."""
    return words.casefold() in _described(record).casefold()


def _described(record: Record) -> str:
    outcome, signature = _failure_of(record)
    return f"{outcome}: {signature or ''}: {record.attempt.message}"


def _is_slow(record: Record) -> bool:
    return record.attempt.outcome is Outcome.SLOW
