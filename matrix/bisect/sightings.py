"""What records say of the positions of a search, held against one failure. Pure: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.bisect.strategy.evidence import Find, ProbeRun, SearchVerdict
from matrix.diagnosis.missing_api import is_absent
from matrix.diagnosis.sameness import is_same_failure
from matrix.model import Cell, Environment, Outcome, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a search is about: the failure seen at its bad bound."""

    outcome: Outcome
    signature: str | None
    says: str = ""  # the exception

    def is_seen_in(self, record: Record) -> bool:
        """Return whether a record shows this failure."""
        outcome, signature = _failure_of(record)
        is_same = is_same_failure(signature, self.signature, record.attempt.message, self.says)
        return outcome is self.outcome and is_same


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """All that is known of one position that was tried."""

    position: int
    environment: Environment
    cell: Cell
    records: tuple[Record, ...] = ()  # of attempts that judge; none where the environment cannot be had
    reused: int = 0  # how many of them an earlier run made

    @property
    def telling(self) -> tuple[Record, ...]:
        """The records that count: a run that the clock ended while it moved only until a longer look decided.

        That stands for its own run and for further slow ones, which are not looked at for longer again.
        """
        slow = [record for record in self.records if _is_slow(record)]
        decided = tuple(record for record in self.records if not _is_slow(record))
        if not slow or not decided:
            return self.records
        shortest = min(record.attempt.limit for record in slow)
        longer = [record for record in decided if record.attempt.limit > shortest] or list(decided)
        return decided + (longer[-1],) * max(0, len(slow) - len(longer))

    @property
    def failures(self) -> list[Record]:
        """The records that show a failure, or what may become one."""
        return [record for record in self.telling if record.attempt.outcome.is_red or _is_slow(record)]

    @property
    def lacks(self) -> bool:
        """True where all its failures say that this version does not have what the test uses."""
        return all(is_absent(one.signature, one.attempt.message) for one in self.failures)


def reference_of(
    sightings: Sequence[Sighting],
    bounds: tuple[int, int],
    find: Find,
    *,
    any_failure: bool = False,
    named_bad: int | None = None,
) -> Failure | None:
    """Return the failure that a search is about, None where none was seen yet.

    It is the one at the bad bound that the user names, or nearest to it. Where none is named and both bounds fail
    it is the newer one's, since that is what is in use; asked for a fix, the older one's. What says only that a
    version lacks what the test uses is taken for a failure where there is no other, and where something older
    passes: it was taken away.
    """
    failing = [one for one in sightings if one.failures]
    telling = [one for one in failing if any_failure or not one.lacks]
    if not telling:
        oldest_pass = min((one.position for one in sightings if _passes(one)), default=None)
        telling = [
            one for one in failing if find is Find.FIX or (oldest_pass is not None and one.position > oldest_pass)
        ]
    if not telling:
        return None
    preferred = (named_bad, *(bounds if find is Find.FIX else bounds[::-1]))
    chosen = next((one for bound in preferred for one in telling if one.position == bound), None)
    if chosen is None:  # the bounds pass, or say nothing: of what passes at the new end, the oldest failure
        newest_passes = any(_passes(one) for one in sightings if one.position >= max(t.position for t in telling))
        chosen = (min if newest_passes else max)(telling, key=lambda one: one.position)
    outcome, signature = _failure_of(chosen.failures[0])
    return Failure(outcome=outcome, signature=signature, says=chosen.failures[0].attempt.message)


def observations_of(
    sightings: Iterable[Sighting], reference: Failure | None, *, any_failure: bool = False
) -> tuple[ProbeRun, ...]:
    """Return what every run says: good, bad, different or nothing."""
    found: list[ProbeRun] = []
    for one in sightings:
        if not one.records or one.cell.is_doubted:  # ended well, but perhaps without what it declares
            found.append(ProbeRun(position=one.position, verdict=SearchVerdict.UNTESTABLE))
            continue
        found += [
            ProbeRun(
                position=one.position,
                verdict=_verdict(one, record, reference, any_failure=any_failure),
                provisional=_is_slow(record),
            )
            for record in one.telling
        ]
    return tuple(found)


def _verdict(one: Sighting, record: Record, reference: Failure | None, *, any_failure: bool) -> SearchVerdict:
    outcome = record.attempt.outcome
    if outcome is Outcome.PASS:
        return SearchVerdict.GOOD
    if not (outcome.is_red or _is_slow(record)):
        return SearchVerdict.UNTESTABLE
    if reference is not None and (reference.is_seen_in(record) or any_failure):
        return SearchVerdict.BAD
    return SearchVerdict.UNTESTABLE if one.lacks else SearchVerdict.DIFFERENT


def _failure_of(record: Record) -> tuple[Outcome, str | None]:
    """Return outcome and signature; what was slow is a hang until a longer look says otherwise."""
    return (Outcome.HANG, None) if _is_slow(record) else (record.attempt.outcome, record.signature)


def _is_slow(record: Record) -> bool:
    return record.attempt.outcome is Outcome.SLOW


def _passes(one: Sighting) -> bool:
    return any(record.attempt.outcome is Outcome.PASS for record in one.records) and not one.cell.is_doubted
