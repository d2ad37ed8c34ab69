"""A bisection as Markdown, ready for an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.bisect.strategy.evidence import AnswerKind, SearchVerdict
from matrix.explain.explanation import verb
from reports.bisection_text import answer_lines, cost, heading, short, word
from reports.excerpts import ends_of
from reports.gfm import code_span, fenced, plain, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from matrix.bisect.bisection import Bisection, Boundary, Probe


def bisection_markdown(found: Bisection, file: Callable[[str], Path]) -> Iterator[str]:
    """Yield the report: summary, what each value showed, the failure, what changed, where, and how to repeat it.

    `file` finds what an attempt left behind.
    """
    yield f"## {_title(found)}"
    yield ""
    yield from (f"- {plain(line.strip())}" for line in answer_lines(found))
    yield ""
    yield plain(f"{heading(found)}. {cost(found)}.")
    yield ""
    yield from _table(found)
    bad = _bad_probe(found)
    if bad is not None:
        yield from _failure(bad, file)
    for boundary in found.boundaries:
        yield from _changes(boundary)
    yield from _environment(found, bad)
    yield "### To repeat it"
    yield ""
    yield from fenced([found.command])
    if found.reasons:
        yield ""
        yield from (f"- {plain(reason)}" for reason in found.reasons)


def _title(found: Bisection) -> str:
    does = verb(found.reference[0] if found.reference else None)
    if found.answer is AnswerKind.BOUNDARY and found.boundaries:
        ends = ", ".join(
            f"{one.change} between {short(found, one.from_)} and {short(found, one.to)}" for one in found.boundaries
        )
        return f"{code_span(found.scenario)} {does}: {plain(ends)}"
    if found.answer is AnswerKind.BOUNDARY:
        return f"{code_span(found.scenario)} {does} with {plain(', '.join(found.groups[SearchVerdict.BAD]))}"
    return f"{code_span(found.scenario)}: {'no change found' if found.answer is AnswerKind.NONE else 'inconclusive'}"


def _table(found: Bisection) -> Iterator[str]:
    rows = [
        [
            plain(f"{short(found, probe.value)} {probe.title}"),
            word(probe),
            f"{probe.k} of {probe.n}" if probe.n else "-",
            _short(probe),
            f"{probe.seconds:.1f}",
        ]
        for probe in found.probes
    ]
    headers = [str(found.axis), "outcome", "runs", "what", "seconds"]
    yield from table(headers, rows)
    yield ""


def _short(probe: Probe) -> str:
    what = probe.signature or ""
    says = probe.message
    return plain(f"{what}: {says}" if what and says else what or says)


def _bad_probe(found: Bisection) -> Probe | None:
    """Return the probe to show: the bad side of the newest boundary, else the newest one that fails."""
    bad = [probe for probe in found.probes if probe.verdict is SearchVerdict.BAD]
    ends = {end for boundary in found.boundaries for end in (boundary.from_, boundary.to)}
    return next((probe for probe in reversed(bad) if probe.value in ends), bad[-1] if bad else None)


def _failure(bad: Probe, file: Callable[[str], Path]) -> Iterator[str]:
    yield f"### The failure, in {plain(bad.value)}"
    yield ""
    where = bad.cell.diagnosis
    if where:
        yield plain(where.summary)
        yield ""
        if where.place:
            yield f"Stage: {plain(where.place)}"
            yield ""
    attempts = [attempt for attempt in bad.cell.attempts if attempt.outcome is bad.outcome]
    lines = ends_of(file(attempts[-1].stderr)) if attempts and attempts[-1].stderr else []
    if lines:
        yield from fenced(lines)
        yield ""


def _changes(boundary: Boundary) -> Iterator[str]:
    if boundary.commits:
        yield f"Commits: {boundary.commits}"
        yield ""
    if not boundary.packages:
        return
    yield f"### Packages that differ between {plain(boundary.from_)} and {plain(boundary.to)}"
    yield ""
    rows = [[name, old or "none", new or "none"] for name, (old, new) in boundary.packages.items()]
    headers = ["package", plain(boundary.from_), plain(boundary.to)]
    yield from table(headers, rows)
    yield ""


def _environment(found: Bisection, bad: Probe | None) -> Iterator[str]:
    shown = bad or (found.probes[-1] if found.probes else None)
    if shown is None:
        return
    environment = shown.environment
    yield f"### Environment, in {plain(shown.value)}"
    yield ""
    yield f"- torch {environment.torch}, Python {environment.python}, build {environment.build}"
    yield f"- config {environment.config}"
    for name, value in environment.fingerprint.model_dump().items():
        if isinstance(value, str | int | bool) and len(str(value)) <= 120:
            yield f"- {name}: {plain(str(value))}"
    yield ""
