"""The search of a command's tests as lines of text: what changes where, and what could not be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted, grouped
from whichtorch.model import Outcome
from whichtorch.reports.document import Link
from whichtorch.reports.shown_text import short_list
from whichtorch.search.search_state import AnswerKind, Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.bisect.bisection import Bisection, Boundary, SearchedTest
    from whichtorch.reports.document import Line

TESTS_NAMED = 8  # of one change; --json names all


def changed_lines(search: Bisection) -> Iterator[Line]:
    """Yield each change with its tests, then those that are flaky, those without a boundary, and the rest."""
    if search.answer is AnswerKind.NONE and not search.tests:
        yield "nothing to find: each test ends the same at both ends"
    for boundary in search.boundaries:
        yield from _boundary_lines(boundary)
    undecided = {id_: test for id_, test in search.tests.items() if test.answer is not AnswerKind.BOUNDARY}
    for (title, reason), ids in grouped(undecided, lambda id_: _undecided_because(undecided[id_])).items():
        yield f"{title}, {counted(len(ids), 'test')}" + (f": {reason}" if reason else "")
        yield from _named(ids)
    flaky = {id_: test for id_, test in search.tests.items() if test.flaky and id_ not in undecided}
    if flaky:
        shown = [f"{id_} ({_flaky(test)})" for id_, test in flaky.items()]
        yield f"flaky among them: {short_list(shown, TESTS_NAMED)}"
    for ends, others in search.others.items():
        what = ends if " -> " in ends else f"{ends} at both ends"
        named = "" if ends == Outcome.PASS else f": {short_list(others, TESTS_NAMED)}"
        yield f"not searched, {what}: {counted(len(others), 'test')}{named}"


def _boundary_lines(boundary: Boundary) -> Iterator[Line]:
    does = "fixed" if boundary.change is Change.FIX else "broken"
    confidence = f"confidence {min(boundary.confidence, 0.999):.3g}"
    tests = counted(len(boundary.tests), "test")
    yield f"{boundary.from_} -> {boundary.to}: {does}, {tests}, {boundary.what}{boundary.unasked}; {confidence}"
    yield from _named(boundary.tests)
    yield from (f"  between them, {title}: {', '.join(values)}" for title, values in boundary.between.items())
    if boundary.commits:
        yield "  commits: ", Link(boundary.commits)


def _named(ids: tuple[str, ...] | list[str]) -> Iterator[str]:
    yield from (f"  {id_}" for id_ in ids[:TESTS_NAMED])
    if len(ids) > TESTS_NAMED:
        yield f"  and {len(ids) - TESTS_NAMED} more"


def _undecided_because(test: SearchedTest) -> tuple[str, str]:
    """Return why a test has no boundary: a title and a reason."""
    none = "flaky" if test.flaky else "no change"
    title = none if test.answer is AnswerKind.NONE else "inconclusive"
    spans = ", ".join(f"after {first} and not after {last}" for first, last in test.boundaries)
    return title, "; ".join(filter(None, (spans, *test.reasons[:1])))


def _flaky(test: SearchedTest) -> str:
    return ", ".join(f"{value} {test.outcomes[value].word} {share}" for value, share in test.flaky.items())
