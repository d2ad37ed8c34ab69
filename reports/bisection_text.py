"""A bisection, as lines of text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from matrix.bisect.axis import AxisName
from matrix.bisect.strategy.evidence import AnswerKind, Change, SearchVerdict
from matrix.explain.explanation import verb
from reports.shown_text import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.bisect.bisection import Bisection, Boundary, Probe

COMMIT_DIGITS = 10  # of a hash: as many as git shows of a big history
VALUES_NAMED = 8  # of commits between two others; more are counted
PACKAGES_NAMED = 6  # that changed with torch; more are counted
NARROWEST = 40  # columns that a line of values takes at least
PLURALS = {
    AxisName.VERSION: "versions of torch",
    AxisName.DATE: "days",
    AxisName.COMMIT: "commits",
    AxisName.LOCK: "sets of packages",
    AxisName.PYTHON: "Pythons",
}


def bisection_lines(search: Bisection, width: int) -> Iterator[str]:
    """Yield what was searched, the line of values with what each showed, the answer, and what it cost."""
    yield heading(search)
    yield ""
    yield from _values(search, width)
    yield ""
    yield from answer_lines(search)
    yield from (f"  note: {reason}" for reason in search.reasons)
    yield cost(search)


def heading(search: Bisection) -> str:
    """Return what was searched, in one line."""
    shared = ", ".join(f"{name} {value}" for name, value in search.common.items())
    if search.axis is AxisName.LOCK:
        what = f"{search.differing} packages differ"
    else:
        is_ordered = not search.groups and len(search.values) > 1
        ends = f", {short(search, search.values[0])} to {short(search, search.values[-1])}" if is_ordered else ""
        what = f"{len(search.values)} {plural(search)}{ends}"
    return f"{search.scenario}: {what}" + (f"; {shared}" if shared else "")


def plural(search: Bisection) -> str:
    """Return what the values are called."""
    return PLURALS.get(search.axis, f"{search.axis}s")


def short(search: Bisection, value: str) -> str:
    """Return what people call a value; a commit by the first digits of its hash."""
    return value[:COMMIT_DIGITS] if search.axis is AxisName.COMMIT else value


def word(probe: Probe) -> str:
    """Return the outcome of a value as the table of a matrix writes it, in brackets where it is no evidence."""
    shown = probe.outcome.word
    shown += "~" if probe.verdict is SearchVerdict.DIFFERENT else ""
    shown = f"({shown})" if probe.verdict is SearchVerdict.UNTESTABLE else shown
    return shown + (f" {probe.k}/{probe.n}" if 0 < probe.k < probe.n else "")


def _values(search: Bisection, width: int) -> Iterator[str]:
    """Yield the values that were tried, in order, with the number of untried ones between them.

    Versions share lines, with a bar at each boundary; commits and locks have a line each.
    """
    if search.axis in {AxisName.LOCK, AxisName.COMMIT}:
        yield from (
            f"  {word(probe):<8} {short(search, probe.value)} {probe.title}".rstrip() for probe in search.probes
        )
        return
    edges = {boundary.from_ for boundary in search.boundaries} if search.answer is AnswerKind.BOUNDARY else set()
    parts: list[str] = []
    skipped = 0
    for value in search.values:
        probe = search.probe_at(value)
        if probe is None:
            skipped += 1
            continue
        if skipped:
            parts.append(f"..{skipped}..")
            skipped = 0
        parts.append(f"{value}\u00a0{word(probe)}" + ("\u00a0|" if value in edges else ""))
    if skipped:
        parts.append(f"..{skipped}..")
    columns = max(NARROWEST, width - 4)
    lines = textwrap.wrap("  ".join(parts), width=columns, break_long_words=False, break_on_hyphens=False)
    yield from (f"  {line}".replace("\u00a0", " ") for line in lines)


def answer_lines(search: Bisection) -> Iterator[str]:
    """Yield the boundaries, or that there is none, and what is no evidence."""
    does = verb(search.reference[0] if search.reference else None)
    if search.groups:
        yield from _group_lines(search, does)
    elif search.answer is AnswerKind.NONE:
        yield _none(search, does)
    elif search.answer is AnswerKind.INCONCLUSIVE and not search.boundaries:
        yield "inconclusive: no two values could be told apart"
    for boundary in search.boundaries:
        yield from _boundary_lines(boundary, search, does)
    if search.changes:
        yield from _change_lines(search)
    failure = failure_words(search)
    if failure:
        yield f"  it {does}: {failure}"
    yield from _no_evidence(search)


def failure_words(search: Bisection) -> str:
    """Return the failure: where it is stuck, or signature and message, in the last value that shows it."""
    if search.reference is None or search.reference[1] is None:
        return ""
    bad = [probe for probe in search.probes if probe.verdict is SearchVerdict.BAD]
    where = bad[-1].cell.diagnosis if bad else None
    if where:
        return where.summary
    says = bad[-1].message if bad else ""
    what = (bad[-1].signature if bad else None) or search.reference[1]
    return f"{what}: {says}" if says else what


def _group_lines(search: Bisection, does: str) -> Iterator[str]:
    """Yield which values fail and which pass, of an axis without an order."""
    verbs = {
        SearchVerdict.BAD: f"{does} with",
        SearchVerdict.DIFFERENT: "fails in another way with",
        SearchVerdict.GOOD: "passes with",
        SearchVerdict.UNTESTABLE: "could not be tested with",
    }
    parts = [f"{words} {', '.join(values)}" for verdict, words in verbs.items() if (values := search.groups[verdict])]
    yield ("inconclusive: " if search.answer is AnswerKind.INCONCLUSIVE else "") + (
        "; ".join(parts) or "nothing was tried"
    )


def _none(search: Bisection, does: str) -> str:
    verdicts = {probe.verdict for probe in search.probes}
    if SearchVerdict.BAD in verdicts and SearchVerdict.GOOD not in verdicts:
        return f"none fixes it: it {does} in all {_count(search, SearchVerdict.BAD)} {plural(search)} tried"
    if SearchVerdict.BAD not in verdicts:
        return f"nothing to find: it passes in all {_count(search, SearchVerdict.GOOD)} {plural(search)} tried"
    return "no change explains what was seen"


def _count(search: Bisection, verdict: SearchVerdict) -> int:
    return sum(probe.verdict is verdict for probe in search.probes)


def boundary_words(boundary: Boundary, search: Bisection, does: str) -> str:
    """Return what changed where, in one line."""
    first, last = short(search, boundary.from_), short(search, boundary.to)
    is_fix = boundary.change is Change.FIX
    confidence = f"confidence {min(boundary.confidence, 0.999):.3g}"
    if search.answer is AnswerKind.INCONCLUSIVE:
        what = "a fix" if is_fix else "a regression"
        return f"inconclusive: {what} after {first} and not after {last}, with probability {boundary.confidence:.2g}"
    what = "fixed" if is_fix else "broken"
    if search.axis is AxisName.LOCK:
        return f"{what} by the packages: {first} {'fails' if is_fix else 'passes'}, {last} does not; {confidence}"
    if not boundary.is_exact:
        return f"{what} after {first} and not after {last}; {confidence}"
    where = f"on {last}" if search.axis is AxisName.DATE else f"in {last}"
    ends = f"last that {does} {first}, first that passes {last}"
    ends = ends if is_fix else f"last that passes {first}, first that {does} {last}"
    return f"{what} {where}: {ends}; {confidence}"


def _boundary_lines(boundary: Boundary, search: Bisection, does: str) -> Iterator[str]:
    yield boundary_words(boundary, search, does)
    for title, values in between(boundary):
        named = [short(search, value) for value in values]
        yield f"  between them, {title}: {some(named, VALUES_NAMED if search.axis is AxisName.COMMIT else len(named))}"
    if boundary.commits:
        yield f"  commits: {boundary.commits}"
    if boundary.same_commit and search.axis is AxisName.VERSION:
        yield "  both were built from the same commit: look at how they were built, and at what they bring"
    if boundary.packages and not search.changes:
        changes = [f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in boundary.packages.items()]
        yield f"  changed with it: {some(changes, PACKAGES_NAMED)}"


def between(boundary: Boundary) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is known of the values between the two of a boundary, where there are any."""
    kinds = (
        ("could not be tested", boundary.untestable_between),
        ("fails in another way", boundary.different_between),
        ("not tried", boundary.untried_between),
    )
    yield from ((title, values) for title, values in kinds if values)


def _change_lines(search: Bisection) -> Iterator[str]:
    """Yield which packages it takes."""
    others = search.differing - len(search.changes) - len(search.along)
    rest = "one other change does not matter" if others == 1 else f"{others} other changes do not matter"
    yield f"  it takes {' and '.join(search.changes)}" + (f"; {rest}" if others else "")
    if search.along:
        yield f"  which cannot be had without {some(search.along, PACKAGES_NAMED)}"


def _no_evidence(search: Bisection) -> Iterator[str]:
    """Yield why values say nothing, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for probe in search.probes:
        if probe.verdict is SearchVerdict.UNTESTABLE:
            what = f"{probe.outcome}: {probe.signature or ''}".removesuffix(": ")
            says = f"{what}: {probe.message}" if probe.message else what
            reasons.setdefault(says, []).append(short(search, probe.value))
    for says, values in reasons.items():
        yield f"  no evidence: {some(values, PACKAGES_NAMED)}: {says}"


def cost(search: Bisection) -> str:
    """Return what the search took, in one line."""
    known = sum(probe.n == probe.reused and probe.n > 0 for probe in search.probes)
    reused = f" ({known} known before)" if known else ""
    return (
        f"{len(search.probes)} probes{reused}, {search.installs} installs, {search.runs} runs, {search.seconds:.0f} s"
    )
