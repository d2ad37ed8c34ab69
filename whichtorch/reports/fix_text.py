"""A fix between two releases: as lines, and as a document, ready for an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted
from whichtorch.reports.bisection_text import answer_lines
from whichtorch.reports.document import Code, Heading, Items, Link, Listing, Paragraph, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.fix.commission import FixAnswer
    from whichtorch.fix.fixing import Fix
    from whichtorch.fix.origins import Origin
    from whichtorch.reports.document import Block, Line

UNITS_NAMED = 8  # that a patch changes; more are counted
ORIGINS_NAMED = 8  # likewise, of the commits
SUBJECT = 100  # characters of a commit's subject


def fix_lines(answer: FixAnswer, patch: str, rerun: str) -> Iterator[Line]:
    """Yield what cures the test, how sure that is, and how to use it; `patch` is the file that holds it."""
    fix = answer.fix
    if fix is None and answer.interrupted and answer.bisection:
        yield f"{answer.scenario}: the two releases have not been found yet"
        yield from (f"  {line}" for line in answer_lines(answer.bisection))
        return
    if fix is None:
        yield f"{answer.scenario}: no two releases could be told apart, so there is nothing to compare"
        return
    pair = f"{answer.scenario}, {answer.bad} (bad) and {answer.good} (good)"
    if fix.patch:
        yield f"{pair}: cured by {counted(fix.lines, 'line')} of Python"
        more = len(fix.units) - UNITS_NAMED
        units = (*fix.units[:UNITS_NAMED], *([f"and {more} more"] if more > 0 else []))
        yield from (f"  {line}" for line in (*units, *fix.manner))
        yield from _origin_lines(fix)
        with_it, without_it = run_counts(fix.with_patch), run_counts(fix.without_patch)
        seen = f"with the patch {with_it} pass, without it {without_it}; {_reverted(fix)}"
        yield f"  {seen if any(fix.with_patch) else 'one run passed with the patch; it was not confirmed'}"
        yield f"  the patch is in {patch}; to try it: ", Code(rerun)
    elif fix.why_not:
        yield f"{pair}: not in Python alone"
        yield from (f"  {reason}" for reason in fix.why_not)
    else:
        yield f"{pair}: not known, no cure was found"
    yield from (f"  note: {note}" for note in (*filter(None, [fix.stopped]), *fix.notes))
    ahead = f" and {fix.trials_ahead} ahead that were not needed" if fix.trials_ahead else ""
    cost = f"{counted(fix.trials, 'trial')}{ahead}, {fix.seconds:.0f} s"
    yield f"{cost}; {fix.trials_to_cure} to the first cure" if fix.patch else cost


def _origin_lines(fix: Fix) -> Iterator[Line]:
    yield from (_origin_line(origin, fix) for origin in fix.origins[:ORIGINS_NAMED])
    if more := fix.origins[ORIGINS_NAMED:]:
        yield f"  and {len(more)} more commits: {sum(origin.lines for origin in more)} of {counted(fix.lines, 'line')}"


def _origin_line(origin: Origin, fix: Fix) -> Line:
    verb = "takes back" if origin.taken_back else "brought by"
    number = (" (", Link(f"#{origin.pull_request}"), ")") if origin.pull_request else ()
    subject = one_line(origin.subject.removesuffix("".join(number)), SUBJECT)
    return f"  {verb} {origin.commit[:7]} {subject}", *number, f": {origin.lines} of {counted(fix.lines, 'line')}"


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


def fix_blocks(answer: FixAnswer, patch: str, rerun: str) -> Iterator[Block]:
    """Yield the report: the answer, the patch, and how to repeat it."""
    yield Heading(("What cures ", Code(answer.scenario)))
    first, *others = fix_lines(answer, patch, rerun)
    yield from (Paragraph(first), Items(others))
    if answer.fix and answer.fix.patch:
        yield from (Heading("The patch", 3), Listing(answer.fix.patch.splitlines(), "diff"))
    yield from (Heading("To repeat it", 3), Listing([answer.command]))
