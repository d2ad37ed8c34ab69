"""A fix between two releases: as lines of text, and as Markdown, ready for an issue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichtorch.matrix.grouping import counted
from whichtorch.reports.bisection_text import answer_lines
from whichtorch.reports.document import markdown_document
from whichtorch.reports.shown_text import code_span, escaped, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.fix.commission import FixAnswer
    from whichtorch.matrix.fix.fixing import Fix
    from whichtorch.matrix.fix.origins import Origin

UNITS_NAMED = 8  # that a patch changes; more are counted
ORIGINS_NAMED = 8  # likewise, of the commits
SUBJECT = 100  # characters of a commit's subject
_PULL_REQUEST = re.compile(r"`\(#(\d+)\):`")  # as `escaped` leaves it
_LINK = r"([#\1](https://github.com/pytorch/pytorch/pull/\1)):"


def fix_lines(answer: FixAnswer, patch: str, rerun: str) -> Iterator[str]:
    """Yield what cures the test, how sure that is, and how to use it; `patch` is the file that holds it."""
    fix = answer.fix
    if fix is None and answer.interrupted and answer.bisection:
        yield f"{answer.scenario}: the two releases have not been found yet"
        yield from (f"  {line.strip()}" for line in answer_lines(answer.bisection))
        return
    if fix is None:
        yield f"{answer.scenario}: no two releases could be told apart, so there is nothing to compare"
        return
    pair = f"{answer.scenario}, {answer.bad} (bad) and {answer.good} (good)"
    if fix.patch:
        yield f"{pair}: cured by {counted(fix.lines, 'line')} of Python"
        yield from (f"  {line}" for line in (*_units(fix), *fix.manner))
        yield from (f"  {line}" for line in _origin_lines(fix))
        with_it, without_it = run_counts(fix.with_patch), run_counts(fix.without_patch)
        seen = f"with the patch {with_it} pass, without it {without_it}; {_reverted(fix)}"
        yield f"  {seen if any(fix.with_patch) else 'one run passed with the patch; it was not confirmed'}"
        yield f"  the patch is in {patch}; to try it: {rerun}"
    elif fix.why_not:
        yield f"{pair}: not in Python alone"
        yield from (f"  {reason}" for reason in fix.why_not)
    else:
        yield f"{pair}: not known, no cure was found"
    yield from (f"  note: {note}" for note in (*filter(None, [fix.stopped]), *fix.notes))
    ahead = f" and {fix.trials_ahead} ahead that were not needed" if fix.trials_ahead else ""
    cost = f"{fix.trials} trial{'' if fix.trials == 1 else 's'}{ahead}, {fix.seconds:.0f} s"
    yield f"{cost}; {fix.trials_to_cure} to the first cure" if fix.patch else cost


def _units(fix: Fix) -> list[str]:
    more = len(fix.units) - UNITS_NAMED
    return [*fix.units[:UNITS_NAMED], *([f"and {more} more"] if more > 0 else [])]


def _origin_lines(fix: Fix) -> Iterator[str]:
    yield from (_origin_line(origin, fix) for origin in fix.origins[:ORIGINS_NAMED])
    if more := fix.origins[ORIGINS_NAMED:]:
        yield f"and {len(more)} more commits: {sum(origin.lines for origin in more)} of {counted(fix.lines, 'line')}"


def _origin_line(origin: Origin, fix: Fix) -> str:
    verb = "takes back" if origin.taken_back else "brought by"
    number = f" (#{origin.pull_request})" if origin.pull_request else ""
    subject = one_line(origin.subject.removesuffix(number), SUBJECT)
    return f"{verb} {origin.commit[:7]} {subject}{number}: {origin.lines} of {counted(fix.lines, 'line')}"


def run_counts(counts: tuple[int, int]) -> str:
    """Return how many of how many runs, in words."""
    return f"{counts[0]} of {counted(counts[1], 'run')}"


def _reverted(fix: Fix) -> str:
    words = {
        "same": "taken back from the good release, the failure returns",
        "cured": "the good release passes without it, too: it is a way round, or something else there helps",
        "unresolved": "taken back from the good release, that fails in another way",
    }
    return words.get(fix.reverted, "it could not be taken back from the good release")


def _marked(line: str) -> str:
    """Return a line as Markdown: code that stands between backticks in it stays code as a whole."""
    parts = line.split("`")
    if len(parts) % 2 == 0:
        parts = [line]
    shown = (code_span(part) if place % 2 else escaped(part).join(_blanks(part)) for place, part in enumerate(parts))
    return _PULL_REQUEST.sub(_LINK, "".join(shown))


def _blanks(text: str) -> tuple[str, str]:
    """Return the blanks around a text, which `escaped` drops."""
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


def fix_markdown(answer: FixAnswer, patch: str, rerun: str) -> list[str]:
    """Return the report: the answer, the patch, and how to repeat it."""
    lines = [_marked(line.strip()) for line in fix_lines(answer, patch, rerun)]
    return markdown_document("fix", answer=answer, lines=lines)
