"""Which of many things are needed: halving and delta debugging.

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

Thing = TypeVar("Thing")
Question = TypeVar("Question")
SetSearch = Generator[frozenset[Thing], bool, frozenset[Thing]]


def _unchanged(wanted: frozenset[Thing], _whole: frozenset[Thing]) -> frozenset[Thing]:
    return wanted


def fewest(
    things: Sequence[Thing],
    closed: Callable[[frozenset[Thing], frozenset[Thing]], frozenset[Thing]] = _unchanged,
    failed: set[frozenset[Thing]] | None = None,
) -> SetSearch[Thing]:
    """Return a smallest sufficient set: none of its things can be left out. All `things` together are sufficient.

    `closed` adds to a set what its members need from a larger one; an empty set is not tried. Sets in `failed` are
    skipped, and those that fail are added to it. The first things are tried first. Of n things at most n (n + 3) sets
    are tried, whatever the answers, and none twice.
    """
    failed = set() if failed is None else failed
    best, parts = list(things), 2
    while len(best) > 1:
        whole = frozenset(best)
        chunks = [frozenset(best[len(best) * n // parts : len(best) * (n + 1) // parts]) for n in range(parts)]
        rests = [whole - chunk for chunk in reversed(chunks)] if parts > 2 else []
        for number, wanted in enumerate([*chunks, *rests]):
            smaller = closed(wanted, whole)
            if not smaller or smaller == whole or smaller in failed:
                continue
            if (yield smaller):
                best = [thing for thing in best if thing in smaller]
                parts = 2 if number < len(chunks) else parts - 1
                break
            failed.add(smaller)
        else:
            if parts == len(best):
                break
            parts = min(2 * parts, len(best))
    return frozenset(best)


def minimal_set(things: Sequence[Thing]) -> SetSearch[Thing]:
    """Return the same as `fewest`, for changes of which a single one is most often enough.

    That one is looked for first, by halves: where the first half is not enough, the second is not asked, and the thing
    that is left must be enough alone.
    """
    asked = {frozenset(things): True}
    low, high = 0, len(things)
    while high - low > 1:
        middle = (low + high) // 2
        half = frozenset(things[low:middle])
        asked[half] = yield half
        low, high = (low, middle) if asked[half] else (middle, high)
    last = frozenset(things[low:high])
    if last not in asked:
        asked[last] = yield last
    if asked[last]:
        return last
    return (yield from fewest(things, failed={some for some, is_enough in asked.items() if not is_enough}))


def lowest(
    holds: Callable[[int], Generator[Question, bool, bool]], low: int, high: int
) -> Generator[Question, bool, int]:
    """Return the lowest number from `low` on for which something holds, as it is known to do for `high`."""
    while low < high:
        middle = (low + high) // 2
        if (yield from holds(middle)):
            high = middle
        else:
            low = middle + 1
    return high
