"""The answer to a bug report: as lines for a terminal, and as a comment in Markdown."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from whichtorch.reports.document import markdown_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.answer.answer import ReleaseResult, ReportAnswer

OUTPUT_LINES = 30  # of what a run wrote, that the comment folds in


def answer_lines(answer: ReportAnswer) -> Iterator[str]:
    """Yield what is known, a line each."""
    yield f"{answer.verdict}: {answer.why}"
    if answer.claimed:
        yield f"  the report: {answer.claimed}" + (
            f", torch {answer.claimed_version}" if answer.claimed_version else ""
        )
    ran = ", ".join([command_of(answer), f"Python {answer.python}", *answer.packages])
    yield from [f"  ran: {ran}"] if answer.seen else []
    for each in results(answer):
        yield f"  torch {each.version}: {each.outcome}" + (f"  {each.hang or each.failure}" if each.failure else "")
    if answer.boundary and answer.boundary.commits:
        yield f"  commits: {answer.boundary.commits}"
    if answer.asks:
        yield f"  ask for: {answer.asks}"
    yield from (f"  {line}" for line in answer.added)
    yield from (f"  note: {line}" for line in answer.notes)
    yield from (f"  blocked: {line}" for line in answer.blocked if answer.seen)  # else `why` has what it tries
    yield f"{answer.seconds:.0f} s"


def results(answer: ReportAnswer) -> list[ReleaseResult]:
    """Return what was seen, each release once."""
    return list({each.version: each for each in answer.seen}.values())


def command_of(answer: ReportAnswer) -> str:
    """Return how the script was started."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in answer.variables.items()]
    return " ".join([*variables, "python repro.py", *answer.arguments])


def _portable(output: str) -> str:
    """Return an output without the folders of this machine."""
    return re.sub(r"[^\s\"']*/(?=site-packages/|reports/\w+/)(?:reports/\w+/)?", "", output.strip("\n"))


def answer_markdown(answer: ReportAnswer) -> Iterator[str]:
    """Yield the answer as a comment: the verdict, a row for each release, and the rest folded."""
    seen = results(answer)
    red = next((each for each in seen if each.stderr), None)
    yield from markdown_document(
        "answer",
        answer=answer,
        seen=seen,
        command=command_of(answer),
        script=answer.script.strip("\n").splitlines(),
        red=red,
        output=_portable(red.stderr).splitlines()[-OUTPUT_LINES:] if red else [],
    )
