"""A bisection, as lines of text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from matrix.diagnosis.explain import verb
from matrix.search.evidence import Change, Kind, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.search.bisection import Bisection, Boundary, Probe

PACKAGES_NAMED = 6  # that changed with torch; more are counted


def bisection_lines(found: Bisection, width: int) -> Iterator[str]:
    """Yield what was searched, the line of values with what each showed, the answer, and what it cost."""
    yield heading(found)
    yield ""
    yield from _strip(found, width)
    yield ""
    yield from answer_lines(found)
    yield from (f"  note: {reason}" for reason in found.reasons)
    yield cost(found)


def heading(found: Bisection) -> str:
    """Return what was searched, in one line."""
    shared = ", ".join(f"{name} {value}" for name, value in found.common.items())
    ends = f", {found.values[0]} to {found.values[-1]}" if len(found.values) > 1 else ""
    return f"{found.scenario}: {len(found.values)} {_plural(found)}{ends}" + (f"; {shared}" if shared else "")


def _plural(found: Bisection) -> str:
    words = {"version": "versions of torch", "date": "days", "commit": "commits"}
    return words.get(found.axis, f"{found.axis}s")


def word(probe: Probe) -> str:
    """Return what a value showed, as the table of a matrix writes it."""
    shown = probe.outcome.upper() if probe.outcome.is_red else str(probe.outcome)
    shown += "~" if probe.verdict is Verdict.DIFFERENT else ""
    return shown + (f" {probe.k}/{probe.n}" if 0 < probe.k < probe.n else "")


def _strip(found: Bisection, width: int) -> Iterator[str]:
    """Yield the values that were tried, in order, a bar at each boundary, and dots with how many lie between."""
    edges = {boundary.from_ for boundary in found.boundaries} if found.answer is Kind.BOUNDARY else set()
    parts: list[str] = []
    skipped = 0
    for value in found.values:
        probe = found.probe_at(value)
        if probe is None:
            skipped += 1
            continue
        if skipped:
            parts.append(f"..{skipped}..")
            skipped = 0
        parts.append(f"{value}\u00a0{word(probe)}" + ("\u00a0|" if value in edges else ""))
    if skipped:
        parts.append(f"..{skipped}..")
    lines = textwrap.wrap("  ".join(parts), width=max(40, width - 4), break_long_words=False, break_on_hyphens=False)
    yield from (f"  {line}".replace("\u00a0", " ") for line in lines)


def answer_lines(found: Bisection) -> Iterator[str]:
    """Yield the boundaries, or that there is none."""
    does = verb(found.reference[0] if found.reference else None)
    if found.answer is Kind.NONE:
        yield _none(found, does)
    elif found.answer is Kind.INCONCLUSIVE and not found.boundaries:
        yield "inconclusive: no two values could be told apart"
    for boundary in found.boundaries:
        yield from _boundary_lines(boundary, found, does)
    if found.reference and found.reference[1]:
        yield f"  it {does}: {found.reference[1]}"


def _none(found: Bisection, does: str) -> str:
    verdicts = {probe.verdict for probe in found.probes}
    if Verdict.BAD in verdicts and Verdict.GOOD not in verdicts:
        return f"none fixes it: it {does} in all {_count(found, Verdict.BAD)} {_plural(found)} tried"
    if Verdict.BAD not in verdicts:
        return f"nothing to find: it passes in all {_count(found, Verdict.GOOD)} {_plural(found)} tried"
    return "no change explains what was seen"


def _count(found: Bisection, verdict: Verdict) -> int:
    return sum(probe.verdict is verdict for probe in found.probes)


def _boundary_lines(boundary: Boundary, found: Bisection, does: str) -> Iterator[str]:
    first, last = boundary.from_, boundary.to
    is_fix = boundary.change is Change.FIX
    if found.answer is Kind.INCONCLUSIVE:
        what = "a fix" if is_fix else "a regression"
        yield f"inconclusive: {what} after {first} and not after {last}, with probability {boundary.confidence:.2g}"
    elif boundary.is_exact:
        sure = f"confidence {_percent(boundary.confidence)}"
        if is_fix:
            yield f"fixed in {last}: last that {does} {first}, first that passes {last}; {sure}"
        else:
            yield f"broken in {last}: last that passes {first}, first that {does} {last}; {sure}"
    else:
        what = "fixed" if is_fix else "broken"
        yield f"{what} after {first} and not after {last}; confidence {_percent(boundary.confidence)}"
    for title, values in (
        ("could not be tested", boundary.untestable_between),
        ("fails in another way", boundary.different_between),
        ("not tried", boundary.untried_between),
    ):
        if values:
            yield f"  between them, {title}: {', '.join(values)}"
    if boundary.commits:
        yield f"  commits: {boundary.commits}"
    if boundary.same_commit:
        yield "  both were built from the same commit: look at how they were built, and at what they bring"
    if boundary.packages:
        changes = [f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in boundary.packages.items()]
        more = len(changes) - PACKAGES_NAMED
        yield "  changed with it: " + ", ".join(changes[:PACKAGES_NAMED]) + (f" and {more} more" if more > 0 else "")


def _percent(confidence: float) -> str:
    return f"{min(confidence, 0.999):.3g}"


def cost(found: Bisection) -> str:
    """Return what the search took, in one line."""
    tried = len(found.probes)
    known = sum(probe.n == probe.reused and probe.n > 0 for probe in found.probes)
    reused = f" ({known} known before)" if known else ""
    return f"{tried} probes{reused}, {found.installs} installs, {found.runs} runs, {found.seconds:.0f} s"
