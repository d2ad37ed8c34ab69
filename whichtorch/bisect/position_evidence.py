"""What is known of each position of a search: its records, compared with one failure. Pure: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from whichtorch.failures.failure import Failure
from whichtorch.failures.missing_package import needs_package
from whichtorch.model import Cell, Doubt, Environment, Outcome, Record, speaking
from whichtorch.search.search_state import Find, ProbeRun, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, kw_only=True)
class PositionEvidence:
    """All that is known of one position."""

    position: int
    environment: Environment
    cell: Cell
    records: tuple[Record, ...] = ()  # of attempts that judge; none where the environment cannot be had
    reused: int = 0  # how many of them an earlier run made

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """The records that count.

        A slow run, which the clock ended while it moved, counts unless another explains it. A longer look stands for
        that run and for further slow ones, which get no longer look of their own.
        """
        attempts = speaking(record.attempt for record in self.records)
        speak = tuple(record for record in self.records if record.attempt in attempts)
        slow = [record for record in self.records if _is_slow(record) and record not in speak]
        shortest = min((record.attempt.limit for record in slow), default=0.0)
        longer = tuple(record for record in speak if record.attempt.limit > shortest and not _is_slow(record))
        return speak + longer[-1:] * max(0, len(slow) - len(longer))

    @property
    def is_provisional(self) -> bool:
        """True where a longer look may still decide: all runs are slow. Beside a pass, slow is most likely a hang."""
        return all(map(_is_slow, self.counted))

    @cached_property
    def failures(self) -> list[Failure]:
        """What its records show that is a failure, or may become one."""
        shown = [record for record in self.counted if record.attempt.outcome.is_red or _is_slow(record)]
        return [Failure.of(record).provisional for record in shown]

    def failure_with(self, words: str) -> Failure | None:
        """Return the first of its failures that has some words."""
        return next((failure for failure in self.failures if failure.has_words(words)), None)

    @property
    def passes(self) -> bool:
        """True where some run passed, with all that the test declares."""
        return any(record.attempt.outcome is Outcome.PASS for record in self.records) and not self.is_untestable

    @property
    def is_untestable(self) -> bool:
        """True where nothing ran, or all ended well, but perhaps without what the test declares.

        A test that passes alone is good, whatever it does after others: it is searched as it runs alone.
        """
        return not self.records or (self.cell.is_doubted and self.cell.doubt is not Doubt.ORDER)

    @property
    def lacks_feature(self) -> bool:
        """True where all its failures say that this version does not have what the test uses."""
        return all(failure.is_missing_api for failure in self.failures)

    @property
    def lacks_package(self) -> bool:
        """True where all its failures say that a package is not installed here."""
        return all(needs_package(each.signature, each.message, self.environment.packages) for each in self.failures)


def reference_of(
    evidence: Sequence[PositionEvidence],
    find: Find,
    *,
    any_failure: bool = False,
    named: str = "",
    named_bad: int | None = None,
) -> Failure | None:
    """Return the failure that a search is about, None where none was seen yet.

    It is the newest one that says `named`, and the one at the position that the user calls bad. If neither is given,
    it is the failure at the newest change: the last before what passes now, or the first after what passed before. A
    failure that says only that a version lacks what the test uses counts where something older passes, which had it,
    or where nothing else was seen yet: only a package that is not there is no matter of the release.
    """
    failing = {seen.position: seen for seen in evidence if seen.failure_with(named)}
    passes = [seen.position for seen in evidence if seen.passes]
    counted = [
        position
        for position, seen in failing.items()
        if any_failure or named or not seen.lacks_feature or position > min(passes, default=position)
    ]
    if not counted:
        is_asked = find is Find.FIX
        counted = [position for position, seen in failing.items() if is_asked or not (passes or seen.lacks_package)]
    if not counted:
        return None
    passing = [seen.position for seen in evidence if seen.passes and not seen.failures]
    position = named_bad if named_bad in counted else _at_newest_change(sorted(counted), passing, find)
    return failing[position].failure_with(named)


def _at_newest_change(failing: Sequence[int], passing: Sequence[int], find: Find) -> int:
    """Return which failing position is next to the newest change; the newest one where there is no such change."""
    newest = failing[-1]
    fixed = [position for position in failing if position < max(passing, default=0)]
    if find is Find.FIX:
        return max(fixed, default=newest)
    if find is not Find.REGRESSION and newest in fixed:
        return newest
    pass_before = max((position for position in passing if position < newest), default=newest - 1)
    return next(position for position in failing if position > pass_before)


def observations_of(
    evidence: Iterable[PositionEvidence], reference: Failure | None, *, any_failure: bool = False
) -> tuple[ProbeRun, ...]:
    """Return what every run says: good, bad, different or nothing."""

    def verdict(seen: PositionEvidence, record: Record) -> SearchVerdict:
        if record.attempt.outcome is Outcome.PASS:
            return SearchVerdict.GOOD
        if not (record.attempt.outcome.is_red or _is_slow(record)):
            return SearchVerdict.UNTESTABLE
        if reference is not None and (any_failure or reference.compare(Failure.of(record))):
            return SearchVerdict.BAD
        return SearchVerdict.UNTESTABLE if seen.lacks_feature else SearchVerdict.DIFFERENT

    runs = []
    for seen in evidence:
        if seen.is_untestable:
            runs.append(ProbeRun(position=seen.position, verdict=SearchVerdict.UNTESTABLE))
        else:
            runs += [
                ProbeRun(position=seen.position, verdict=verdict(seen, record), provisional=seen.is_provisional)
                for record in seen.counted
            ]
    return tuple(runs)


def _is_slow(record: Record) -> bool:
    return record.attempt.outcome is Outcome.SLOW
