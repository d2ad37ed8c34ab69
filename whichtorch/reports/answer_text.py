"""The answer to a bug report: as lines for a terminal, and as a comment."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from whichtorch.reports.document import Code, Fold, Items, Link, Listing, Paragraph, Strong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.answer.answer import ReportAnswer
    from whichtorch.reports.document import Block, Line

OUTPUT_LINES = 30  # of what a run wrote, that the comment folds in


def answer_lines(answer: ReportAnswer) -> Iterator[Line]:
    """Yield what is known, a line each: the verdict first."""
    yield Strong(answer.verdict), f": {answer.why}"
    if answer.claimed:
        version = f", torch {answer.claimed_version}" if answer.claimed_version else ""
        yield f"  the report: {answer.claimed}{version}"
    if answer.seen:
        variables = [f"{name}={shlex.quote(value)}" for name, value in answer.variables.items()]
        command = " ".join([*variables, "python repro.py", *answer.arguments])
        yield "  ran: ", Code(command), "".join(f", {each}" for each in (f"Python {answer.python}", *answer.packages))
    for each in {each.version: each for each in answer.seen}.values():
        yield f"  torch {each.version}: {each.outcome}" + (f"  {each.hang or each.failure}" if each.failure else "")
    if answer.boundary and answer.boundary.commits:
        yield "  commits: ", Link(answer.boundary.commits)
    if answer.asks:
        yield f"  ask for: {answer.asks}"
    yield from (f"  {line}" for line in answer.added)
    yield from (f"  note: {line}" for line in answer.notes)
    yield from (f"  blocked: {line}" for line in answer.blocked if answer.seen)  # else `why` has what it tries
    yield f"{answer.seconds:.0f} s"


def answer_blocks(answer: ReportAnswer) -> Iterator[Block]:
    """Yield the answer as a comment: what is known, with the script and the end of its output folded."""
    verdict, *others, _seconds = answer_lines(answer)
    yield from (Paragraph(verdict), Items(others))
    if script := answer.script.strip("\n").splitlines():
        yield Fold(f"What was {'run' if answer.seen else 'read'}", [Listing(script, "python")])
    if red := next((each for each in answer.seen if each.stderr), None):
        output = _portable(red.stderr).splitlines()[-OUTPUT_LINES:]
        yield Fold(f"The end of its output in {red.version}", [Listing(output)])


def _portable(output: str) -> str:
    """Return an output without the folders of this machine."""
    return re.sub(r"[^\s\"']*/(?=site-packages/|reports/\w+/)(?:reports/\w+/)?", "", output.strip("\n"))
