"""A run as Markdown, for an issue or a job's summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.table import legend_lines, matrix_lines, red_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.runs import StoredRun

NO_LIMIT = 10_000  # columns of text: a Markdown table is not cut to a terminal's width


def markdown_lines(stored: StoredRun, command: str) -> Iterator[str]:
    """Yield the whole report."""
    result = stored.result
    yield f"# whichtorch run {result.run.id}"
    yield ""
    yield f"Started {result.run.started}, took {result.run.seconds:.0f} s."
    yield ""
    if result.run.interrupted:
        yield "**Interrupted**: cells that had not ended are missing."
        yield ""
    yield from (line.replace("\n", " ") for line in matrix_lines(result, NO_LIMIT, "github"))
    yield "```"
    yield from legend_lines(result)
    yield "```"
    red = list(red_lines(stored, command))
    if red:
        yield ""
        yield from (f"- `{line.replace('`', chr(39))}`" for line in red)
    yield ""
    yield "## Environments"
    yield ""
    for environment in result.environments:
        facts = environment.fingerprint
        commit = facts.get("git_version") or "unknown commit"
        reason = f" {environment.outcome}: {environment.reason}" if environment.outcome else ""
        yield (
            f"- {environment.label} (`{environment.id}`): torch {environment.torch}, {commit}, "
            f"Python {environment.python}{reason}"
        )
