"""Delta debugging: find which of the differences between two environments it takes.

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def minimal_set(factors: Sequence[str], passes: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """Return a set of factors that makes a failing test pass, of which none can be left out.

    All of them together are known to, none of them is known not to: neither is asked. `passes` is asked once
    per set; what cannot be told counts as no. The first factors are tried first.
    """
    known = {frozenset[str](): False, frozenset(factors): True}

    def ask(subset: Sequence[str]) -> bool:
        key = frozenset(subset)
        if key not in known:
            known[key] = passes(key)
        return known[key]

    current, parts = list(factors), 2
    while len(current) > 1:
        chunks = [current[len(current) * n // parts : len(current) * (n + 1) // parts] for n in range(parts)]
        smaller = next((chunk for chunk in chunks if ask(chunk)), None)
        if smaller is not None:
            current, parts = smaller, 2
            continue
        rests = [[factor for factor in current if factor not in chunk] for chunk in reversed(chunks)]
        rest = next((rest for rest in rests if ask(rest)), None)
        if rest is not None:
            current, parts = rest, max(parts - 1, 2)
        elif parts < len(current):
            parts = min(2 * parts, len(current))
        else:
            break
    return frozenset(current)
