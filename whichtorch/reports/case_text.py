"""A case: as lines for a terminal, and as Markdown to be pasted into an issue."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, TypedDict

from whichtorch.matrix.bisect.strategy.search_state import AnswerKind
from whichtorch.matrix.diagnosis.signature import Signature, described
from whichtorch.matrix.diagnosis.tracebacks import read_chain
from whichtorch.matrix.grouping import counted
from whichtorch.matrix.model import Outcome, variant_suffix
from whichtorch.matrix.suite.chain import without_chain
from whichtorch.matrix.triage.case import PATCH
from whichtorch.matrix.triage.classification import UNCLASSIFIED
from whichtorch.reports.bisection_text import answer_lines
from whichtorch.reports.document import markdown_document
from whichtorch.reports.fix_text import run_counts
from whichtorch.reports.shown_text import one_line, short_list

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whichtorch.matrix.triage.case import Case, Classification, Ladder, Minimal, Newest, Reproduction, ShownTest
    from whichtorch.matrix.triage.failure_facts import Rung

ERROR_LINES = 40  # of the traceback that CASE.md shows
ERROR_HEAD = 8  # of them, from its beginning
LOGS_NAMED = 2  # on a terminal; more are counted
PATCH_LINES = 120  # of the patch that CASE.md shows
TITLE = 120  # characters
_CAUSES = ("The above exception was the direct cause", "During handling of the above exception")
_PACKAGES = ("numpy", "triton", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "intel-openmp", "sympy")


def case_lines(case: Case, folder: Path) -> Iterator[str]:
    """Yield what is known, a line each, and where it is kept."""
    yield f"{case.name}: {_headline(case)}"
    if case.environment is not None and case.environment.problem:
        yield f"  {case.environment.label}: {case.environment.problem}"
        yield f"  remedy: {case.environment.remedy}"
    if case.reproduction is not None:
        yield f"  {_seen(case.reproduction)}"
    if case.ladder is not None:
        yield from (f"  {line}" for line in _rung_lines(case.ladder))
    yield from (f"  {line}" for line in _found(case))
    if case.logs:
        yield f"  logs: {short_list(list(case.logs), LOGS_NAMED)}"
    yield f"  the case is in {folder}; {sum(case.seconds.values()):.0f} s"


def _to_see_it(case: Case) -> str:
    """Return the command that shows the failure of a chain; "" for a single run, where nobody needs one."""
    if case.chain is None or case.environment is None:
        return ""
    test = case.smallest + variant_suffix(without_chain(case.variant))
    words = [test, *case.environment.options, *case.chain.options]
    words += ["--", *case.arguments] if case.arguments else []
    return f"whichtorch matrix {shlex.join(words)}"


def _found(case: Case) -> Iterator[str]:
    """Yield what the steps after the ladder have found, a line each."""
    if (found := case.classification) is not None:
        yield _class(found)
    if (minimal := case.minimal) is not None:
        yield f"minimal script: {_size(minimal)}, {counted(minimal.runs, 'run')}"
        if minimal.error and (chain := read_chain(minimal.error)):
            yield one_line(f"the smallest script fails with {chain[0].name}: {chain[0].first_line}", TITLE)
    if case.bisection is not None:
        yield from (line.strip() for line in answer_lines(case.bisection))
    if (test := case.unit_test) is not None:
        yield f"unit test: {test.file} {_shown(test)}"
    if case.newest is not None:
        yield _newest(case.newest)
    if fix := _fix(case):
        yield fix
    if case.stopped and case.reproduction is not None:  # else the headline says it
        yield case.stopped.words


def _headline(case: Case) -> str:
    seen = case.reproduction
    if seen is None:
        return case.stopped.words if case.stopped else "not run"
    if not seen.outcome.is_red:
        return one_line(": ".join(filter(None, (seen.outcome.word, seen.where))), TITLE)
    head = Signature.parse(seen.signature).head
    what = seen.where if seen.outcome is Outcome.HANG else f"{head}: {seen.message}" if seen.message else seen.signature
    return one_line(f"{seen.outcome.word}: {what}", TITLE)


def _seen(seen: Reproduction, where: str = "") -> str:
    runs = counted(seen.runs, "run")
    if seen.outcome is not Outcome.PASS and not seen.outcome.is_red:
        return f"nothing can be said of it: {seen.outcome} in {seen.failing or seen.runs} of {runs}{where}"
    if not seen.outcome.is_red:
        return f"it passes: {seen.runs} of {runs}, {seen.seconds:.1f} s{where}"
    others = f"; other runs: {', '.join(seen.others)}" if seen.others else ""
    runs, chain = (counted(seen.runs, "attempt"), f": {seen.chain}") if seen.chain else (runs, "")
    return f"it {seen.outcome.row.verb} in {seen.failing} of {runs}, after {seen.seconds:.1f} s{where}{chain}{others}"


def _class(found: Classification) -> str:
    if found.category == UNCLASSIFIED:
        return f"{UNCLASSIFIED}: {found.words}" + (f"; the nearest is {found.nearest}" if found.nearest else "")
    stage = f", {found.stage}" if found.stage else ""
    return f"{found.category}: {found.words}; look at {found.layer or 'the script'} ({found.mode}{stage})"


def _size(minimal: Minimal) -> str:
    return f"{minimal.lines} of {counted(minimal.lines_before, 'line')} ({minimal.method})"


def _shown(test: ShownTest) -> str:
    fails = f"fails in {test.fails_in}" if test.fails_in else "was not seen to fail"
    passes = f"passes in {test.passes_in}" if test.passes_in else "was not seen to pass"
    return f"{fails} and {passes}"


def _newest(newest: Newest) -> str:
    """Return what the smallest script comes to in the newest release."""
    where = f"the newest release, {newest.torch}"
    if newest.is_same:
        return f"{where}, shows the same failure"
    what = described(newest.signature, newest.message)
    return one_line(f"{where}: {newest.outcome.word} {what}".rstrip(), 2 * TITLE)


def _fix(case: Case) -> str:
    """Return what is known of a fix, "" where none was looked for."""
    if case.fix is None or case.fix.fix is None:
        return ""
    found = case.fix.fix
    pair = f"{case.fix.bad} with Python of {case.fix.good}"
    if found.patch:
        shown = f"with it {run_counts(found.with_patch)} pass, without it {run_counts(found.without_patch)}"
        return f"fix: {PATCH}, {counted(found.lines, 'line')}: {pair}; {shown}"
    if found.why_not:
        return f"fix: not in Python alone, by {counted(found.trials, 'trial')} of {pair}"
    return f"fix: not known after {counted(found.trials, 'trial')} of {pair}"


def _rung_lines(ladder: Ladder) -> Iterator[str]:
    width = max((len(rung.name) for rung in ladder.rungs), default=0)
    for rung in ladder.rungs:
        yield f"{rung.name:<{width}}  {rung.outcome.word:<6} {_came_to(rung)}".rstrip()
    if ladder.graph_breaks or ladder.recompilations:
        yield f"{ladder.graph_breaks} graph breaks, {ladder.recompilations} recompilations in a plain run"


def _came_to(rung: Rung) -> str:
    return one_line("the same failure" if rung.is_same else described(rung.signature, rung.message), TITLE)


class CaseCard(TypedDict):
    """A case on a page: its heading, what is known in sentences, and the smallest script."""

    heading: str
    lines: list[str]
    script: str


def case_card(case: Case) -> CaseCard:
    """Return what a page shows of a case."""
    seen = [_seen(case.reproduction)] if case.reproduction is not None else []
    rungs = [
        f"{rung.name}: {rung.outcome.word} {_came_to(rung)}".rstrip()
        for rung in (case.ladder.rungs if case.ladder else ())
    ]
    lines = [*seen, *(["; ".join(rungs)] if rungs else []), *_found(case)]
    script = case.minimal.source.rstrip() if case.minimal is not None else ""
    return CaseCard(heading=f"{case.name}{_where(case)}: {_headline(case)}", lines=lines, script=script)


def case_markdown(case: Case) -> list[str]:
    """Return the case as Markdown."""
    seen, environment = case.reproduction, case.environment
    outcome, colon, what = _headline(case).partition(": ")
    answer = case.bisection and case.bisection.answer is AnswerKind.BOUNDARY and answer_lines(case.bisection)
    facts = environment and {
        "torch": environment.torch + (f" ({environment.git_version})" if environment.git_version else ""),
        "Python": environment.python,
        "system": environment.system,
        "processor": environment.processor,
        **{name: environment.packages[name] for name in _PACKAGES if name in environment.packages},
    }
    return markdown_document(
        "case",
        case=case,
        outcome=outcome + colon,
        what=what,
        is_sentence=seen is not None and seen.outcome is Outcome.HANG,
        seen=seen,
        seen_words=seen and _seen(seen, _where(case)),
        to_see_it=_to_see_it(case),
        class_words=case.classification and _class(case.classification).partition(": ")[2],
        size=case.minimal and _size(case.minimal),
        error=seen and _error_lines(((case.minimal and case.minimal.error) or seen.stderr).rstrip().splitlines()),
        newest=case.newest and _newest(case.newest),
        boundary_lines=[line.strip() for line in answer or ()],
        test_words=case.unit_test and _shown(case.unit_test),
        fix=case.fix and case.fix.fix,
        fix_words=_fix(case).removeprefix("fix: "),
        environment=facts,
        came_to=_came_to,
        one_line=one_line,
        title_length=TITLE,
        patch_lines=PATCH_LINES,
    )


def _error_lines(lines: list[str]) -> list[str]:
    """Return the last exception with its causes, without what was written before; all lines where there is none."""
    begins = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    causes = [number for number, line in enumerate(lines) if line.startswith(_CAUSES)]
    alone = [number for number in begins if not any(0 < number - cause <= 2 for cause in causes)]
    shown = lines[alone[-1] :] if alone else lines
    cut = len(shown) - ERROR_LINES
    return shown if cut <= 0 else [*shown[:ERROR_HEAD], f"[... {cut} lines ...]", *shown[ERROR_HEAD + cut :]]


def _where(case: Case) -> str:
    return f" in torch {case.environment.torch}" if case.environment is not None else ""
