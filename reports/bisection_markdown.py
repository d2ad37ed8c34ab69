"""A bisection as Markdown, ready for an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.bisect.strategy.evidence import AnswerKind, SearchVerdict
from matrix.explain.explanation import verb
from reports.bisection_text import answer_lines, cost, heading, short, word
from reports.gfm import code_span, escaped, fenced, table
from reports.shown_text import ends_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from matrix.bisect.bisection import Bisection, Boundary, Probe


def bisection_markdown(search: Bisection, file: Callable[[str], Path]) -> Iterator[str]:
    """Yield the report: summary, what each value showed, the failure, what changed, where, and how to repeat it.

    `file` finds the path of an attempt's file.
    """
    yield f"## {_title(search)}"
    yield ""
    yield from (f"- {escaped(line.strip())}" for line in answer_lines(search))
    yield ""
    yield escaped(f"{heading(search)}. {cost(search)}.")
    yield ""
    yield from _table(search)
    bad = _bad_probe(search)
    if bad is not None:
        yield from _failure(bad, file)
    for boundary in search.boundaries:
        yield from _changes(boundary)
    yield from _environment(search, bad)
    yield "### To repeat it"
    yield ""
    yield from fenced([search.command])
    if search.reasons:
        yield ""
        yield from (f"- {escaped(reason)}" for reason in search.reasons)


def _title(search: Bisection) -> str:
    does = verb(search.reference[0] if search.reference else None)
    if search.answer is AnswerKind.BOUNDARY and search.boundaries:
        ends = ", ".join(
            f"{boundary.change} between {short(search, boundary.from_)} and {short(search, boundary.to)}"
            for boundary in search.boundaries
        )
        return f"{code_span(search.scenario)} {does}: {escaped(ends)}"
    if search.answer is AnswerKind.BOUNDARY:
        return f"{code_span(search.scenario)} {does} with {escaped(', '.join(search.groups[SearchVerdict.BAD]))}"
    return f"{code_span(search.scenario)}: {'no change found' if search.answer is AnswerKind.NONE else 'inconclusive'}"


def _table(search: Bisection) -> Iterator[str]:
    rows = [
        [
            escaped(f"{short(search, probe.value)} {probe.title}"),
            word(probe),
            f"{probe.k} of {probe.n}" if probe.n else "-",
            escaped(": ".join(filter(None, (probe.signature, probe.message)))),
            f"{probe.seconds:.1f}",
        ]
        for probe in search.probes
    ]
    yield from table([str(search.axis), "outcome", "runs", "what", "seconds"], rows)
    yield ""


def _bad_probe(search: Bisection) -> Probe | None:
    """Return the probe to show: the bad side of the newest boundary, else the newest one that fails."""
    bad = [probe for probe in search.probes if probe.verdict is SearchVerdict.BAD]
    ends = {end for boundary in search.boundaries for end in (boundary.from_, boundary.to)}
    return next((probe for probe in reversed(bad) if probe.value in ends), bad[-1] if bad else None)


def _failure(bad: Probe, file: Callable[[str], Path]) -> Iterator[str]:
    yield f"### The failure, in {escaped(bad.value)}"
    yield ""
    where = bad.cell.diagnosis
    if where:
        yield escaped(where.summary)
        yield ""
        if where.place:
            yield f"Stage: {escaped(where.place)}"
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
    yield f"### Packages that differ between {escaped(boundary.from_)} and {escaped(boundary.to)}"
    yield ""
    rows = [[name, old or "none", new or "none"] for name, (old, new) in boundary.packages.items()]
    headers = ["package", escaped(boundary.from_), escaped(boundary.to)]
    yield from table(headers, rows)
    yield ""


def _environment(search: Bisection, bad: Probe | None) -> Iterator[str]:
    shown = bad or (search.probes[-1] if search.probes else None)
    if shown is None:
        return
    environment = shown.environment
    yield f"### Environment, in {escaped(shown.value)}"
    yield ""
    yield f"- torch {environment.torch}, Python {environment.python}, build {environment.build}"
    yield f"- config {environment.config}"
    for name, value in environment.fingerprint.model_dump().items():
        if isinstance(value, str | int | bool) and len(str(value)) <= 120:
            yield f"- {name}: {escaped(str(value))}"
    yield ""
