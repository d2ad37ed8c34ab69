"""A bisection as Markdown, ready for an issue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tabulate import tabulate

from matrix.diagnosis.explain import verb
from matrix.search.evidence import Kind, Verdict
from reports.bisect import answer_lines, cost, heading, short, word

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.search.bisection import Bisection, Boundary, Probe

HEAD, TAIL = 5, 25  # lines of a failure's output that are shown
READ = 2**16  # bytes of each end of an output file that are looked at


def bisection_markdown(found: Bisection, home: Path) -> Iterator[str]:
    """Yield the report: summary, what each value showed, the failure, what changed, where, and how to repeat it."""
    yield f"## {_title(found)}"
    yield ""
    yield from (f"- {_plain(line.strip())}" for line in answer_lines(found))
    yield ""
    yield f"{heading(found)}. {cost(found)}."
    yield ""
    yield from _table(found)
    bad = _bad_probe(found)
    if bad is not None:
        yield from _failure(bad, home)
    for boundary in found.boundaries:
        yield from _changes(boundary)
    yield from _environment(found, bad)
    yield "### To repeat it"
    yield ""
    yield from _fenced(found.command)
    if found.reasons:
        yield ""
        yield from (f"- {_plain(reason)}" for reason in found.reasons)


def _title(found: Bisection) -> str:
    does = verb(found.reference[0] if found.reference else None)
    if found.answer is Kind.BOUNDARY and found.boundaries:
        ends = ", ".join(
            f"{one.change} between {short(found, one.from_)} and {short(found, one.to)}" for one in found.boundaries
        )
        return f"`{found.scenario}` {does}: {ends}"
    if found.answer is Kind.BOUNDARY:
        return f"`{found.scenario}` {does} with {', '.join(found.groups[Verdict.BAD])}"
    return f"`{found.scenario}`: {'no change found' if found.answer is Kind.NONE else 'inconclusive'}"


def _table(found: Bisection) -> Iterator[str]:
    rows = [
        [
            f"{short(found, probe.value)} {_plain(probe.title)}".rstrip(),
            word(probe),
            f"{probe.k} of {probe.n}" if probe.n else "-",
            _short(probe),
            f"{probe.seconds:.1f}",
        ]
        for probe in found.probes
    ]
    headers = [str(found.axis), "outcome", "runs", "what", "seconds"]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    yield from tabulate(cells, headers=headers, tablefmt="github", disable_numparse=True).splitlines()
    yield ""


def _short(probe: Probe) -> str:
    what = probe.signature or ""
    says = probe.message
    return _plain(f"{what}: {says}" if what and says else what or says)


def _bad_probe(found: Bisection) -> Probe | None:
    """Return the probe to show: the bad side of the newest boundary, else the newest one that fails."""
    bad = [probe for probe in found.probes if probe.verdict is Verdict.BAD]
    ends = {end for boundary in found.boundaries for end in (boundary.from_, boundary.to)}
    return next((probe for probe in reversed(bad) if probe.value in ends), bad[-1] if bad else None)


def _failure(bad: Probe, home: Path) -> Iterator[str]:
    yield f"### The failure, in {bad.value}"
    yield ""
    where = bad.cell.diagnosis
    if where:
        yield f"{_plain(str(where['summary']))}"
        yield ""
        if where.get("place"):
            yield f"Stage: {_plain(str(where['place']))}"
            yield ""
    attempts = [attempt for attempt in bad.cell.attempts if attempt.outcome is bad.outcome]
    text = _ends_of(home / attempts[-1].stderr) if attempts and attempts[-1].stderr else ""
    if text:
        yield from _fenced(text)
        yield ""


def _ends_of(path: Path) -> str:
    """Return the first and last lines of a file; "" where it is gone or empty."""
    try:
        with path.open("rb") as file:
            head = file.read(READ)
            size = file.seek(0, 2)
            file.seek(max(len(head), size - READ))
            tail = file.read()
    except OSError:
        return ""
    lines = (head + tail).decode(errors="replace").splitlines()
    if len(lines) <= HEAD + TAIL:
        return "\n".join(lines)
    left_out = f"… {len(lines) - HEAD - TAIL} lines or more …"
    return "\n".join([*lines[:HEAD], left_out, *lines[-TAIL:]])


def _changes(boundary: Boundary) -> Iterator[str]:
    if boundary.commits:
        yield f"Commits: {boundary.commits}"
        yield ""
    if not boundary.packages:
        return
    yield f"### Packages that differ between {boundary.from_} and {boundary.to}"
    yield ""
    rows = [[name, old or "none", new or "none"] for name, (old, new) in boundary.packages.items()]
    headers = ["package", boundary.from_, boundary.to]
    yield from tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True).splitlines()
    yield ""


def _environment(found: Bisection, bad: Probe | None) -> Iterator[str]:
    shown = bad or (found.probes[-1] if found.probes else None)
    if shown is None:
        return
    environment = shown.environment
    yield f"### Environment, in {shown.value}"
    yield ""
    yield f"- torch {environment.torch}, Python {environment.python}, build {environment.build}"
    yield f"- config {environment.config}"
    for name, value in environment.fingerprint.items():
        if isinstance(value, str | int | bool) and len(str(value)) <= 120:
            yield f"- {name}: {_plain(str(value))}"
    yield ""


def _fenced(text: str) -> Iterator[str]:
    """Yield a block of text that no content can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from text.splitlines()
    yield fence


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is: nobody is mentioned, no HTML is read."""
    return re.sub(r"([\\`*_<>#@\[\]])", r"\\\1", text) if re.search(r"[<@`]|__|\*", text) else text
