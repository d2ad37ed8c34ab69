"""A case: as lines for a terminal, and as Markdown to be pasted into an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.bisect.strategy.evidence import AnswerKind
from matrix.model import Outcome
from matrix.triage.classification import UNCLASSIFIED
from reports.bisection_text import answer_lines
from reports.shown_text import code_span, escaped, fenced, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.triage.case import Case, Classification, Ladder, Minimal, Reproduction, ShownTest
    from matrix.triage.signs import Rung

ERROR_LINES = 40  # of the traceback that CASE.md shows
TITLE = 120  # characters
_PACKAGES = ("numpy", "triton", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "intel-openmp", "sympy")


def case_lines(case: Case, folder: Path) -> Iterator[str]:
    """Yield what is known, a line each, and where it is kept."""
    yield f"{case.name}: {_headline(case)}"
    if case.environment is not None and case.environment.problem:
        yield f"  {case.environment.label}: {case.environment.problem}"
        yield f"  remedy: {case.environment.remedy}"
    if (seen := case.reproduction) is not None:
        yield f"  {_seen(seen)}"
    if case.ladder is not None:
        yield from (f"  {line}" for line in _rung_lines(case.ladder))
    if (found := case.classification) is not None:
        yield f"  {_class(found)}"
    if (minimal := case.minimal) is not None:
        yield f"  minimal script: {_size(minimal)}, {minimal.runs} runs"
    if case.bisection is not None:
        yield from (f"  {line.strip()}" for line in answer_lines(case.bisection))
    if (test := case.unit_test) is not None:
        yield f"  unit test: {test.file} {_shown(test)}"
    if case.logs:
        yield f"  logs: {', '.join(case.logs)}"
    yield f"  the case is in {folder}; {sum(case.seconds.values()):.0f} s"


def _headline(case: Case) -> str:
    seen = case.reproduction
    if seen is None:
        return "not run"
    if not seen.outcome.is_red:
        return seen.outcome.word
    head = seen.signature.partition(" in ")[0]
    what = seen.where if seen.outcome is Outcome.HANG else f"{head}: {seen.message}" if seen.message else seen.signature
    return one_line(f"{seen.outcome.word}: {what}", TITLE)


def _seen(seen: Reproduction) -> str:
    if seen.outcome is not Outcome.PASS and not seen.outcome.is_red:
        return f"nothing can be said of it: {seen.outcome} in {seen.failing or seen.runs} of {seen.runs} runs"
    if not seen.outcome.is_red:
        return f"it passes: {seen.runs} of {seen.runs} runs, {seen.seconds:.1f} s"
    others = f"; other runs: {', '.join(seen.others)}" if seen.others else ""
    return f"it {seen.outcome.row.verb} in {seen.failing} of {seen.runs} runs, after {seen.seconds:.1f} s{others}"


def _class(found: Classification) -> str:
    if found.category == UNCLASSIFIED:
        return f"{UNCLASSIFIED}: {found.words}" + (f"; the nearest is {found.nearest}" if found.nearest else "")
    stage = f", {found.stage}" if found.stage else ""
    return f"{found.category}: {found.words}; look at {found.layer or 'the script'} ({found.mode}{stage})"


def _size(minimal: Minimal) -> str:
    return f"{minimal.lines} of {minimal.lines_before} lines ({minimal.method})"


def _shown(test: ShownTest) -> str:
    fails = f"fails in {test.fails_in}" if test.fails_in else "was not seen to fail"
    passes = f"passes in {test.passes_in}" if test.passes_in else "was not seen to pass"
    return f"{fails} and {passes}"


def _rung_lines(ladder: Ladder) -> Iterator[str]:
    width = max((len(rung.name) for rung in ladder.rungs), default=0)
    for rung in ladder.rungs:
        yield f"{rung.name:<{width}}  {rung.outcome.word:<6} {_came_to(rung)}".rstrip()
    if ladder.graph_breaks or ladder.recompilations:
        yield f"{ladder.graph_breaks} graph breaks, {ladder.recompilations} recompilations in a plain run"


def _came_to(rung: Rung) -> str:
    return one_line("the same failure" if rung.is_same else f"{rung.signature} {rung.message}".strip(), TITLE)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def case_markdown(case: Case) -> Iterator[str]:
    """Yield the case as Markdown."""
    yield f"# {escaped(_headline(case))}"
    yield ""
    if (seen := case.reproduction) is not None:
        where = f" in torch {case.environment.torch}" if case.environment is not None else ""
        yield f"{escaped(_sentence(_seen(seen)))}{escaped(where)}."
        yield ""
    if (found := case.classification) is not None:
        yield f"**{escaped(found.category)}**: {escaped(_class(found).partition(': ')[2])}."
        yield ""
    if case.minimal is not None:
        yield from _script(case.minimal)
    if seen is not None:
        yield from _error(seen)
    yield from _versions(case)
    yield from _layers(case)
    if found is not None and found.evidence:
        yield from ("## Evidence", "", *(f"- {escaped(line)}" for line in found.evidence), "")
    if (test := case.unit_test) is not None:
        yield from ("## Unit test", "", f"{code_span(test.file)} {escaped(_shown(test))}.", "")
        yield f"{code_span(test.test_case)} is the same as PyTorch writes tests; its tree has such tests in"
        yield f"{code_span(test.place)}."
        yield ""
    yield from _environment(case)
    if case.logs:
        yield from ("## Logs", "", *(f"- {code_span(path)}: {escaped(what)}" for path, what in case.logs.items()), "")
    if case.reproduction is not None:
        yield "To see it elsewhere: `whichtorch replay case.zip`"


def _script(minimal: Minimal) -> Iterator[str]:
    yield "## Script"
    yield ""
    yield from fenced(minimal.source.rstrip().splitlines(), "python")
    yield ""
    sure = "In a process and with caches of its own it fails in the same way" if minimal.is_verified else "Not verified"
    healthy = f", and it passes in {minimal.healthy_in}" if minimal.healthy_in else ""
    yield f"{escaped(_sentence(_size(minimal)))}. {sure}{escaped(healthy)}."
    yield ""


def _error(seen: Reproduction) -> Iterator[str]:
    lines = seen.stderr.rstrip().splitlines()
    if seen.where:
        yield from ("## Where it hangs", "", f"{escaped(seen.where)}.", "")
    if not lines:
        return
    cut = len(lines) - ERROR_LINES
    yield from ("## Error", "")
    yield from fenced([*([f"[... {cut} lines ...]"] if cut > 0 else []), *lines[-ERROR_LINES:]])
    yield ""


def _versions(case: Case) -> Iterator[str]:
    search = case.bisection
    if search is None:
        return
    yield from ("## Versions", "", "| torch | outcome | |", "|---|---|---|")
    for stretch in search.timeline:
        yield f"| {escaped(stretch.ends)} | {stretch.outcome.word} | {escaped(one_line(stretch.what, TITLE))} |"
    yield ""
    if search.answer is AnswerKind.BOUNDARY:
        yield from (f"- {escaped(line.strip())}" for line in answer_lines(search))
        yield ""


def _layers(case: Case) -> Iterator[str]:
    if case.ladder is None or not case.ladder.rungs:
        return
    yield from ("## At which layer", "", "| the same script with | comes to | |", "|---|---|---|")
    for rung in case.ladder.rungs:
        yield f"| {code_span(rung.name)} | {rung.outcome.word} | {escaped(_came_to(rung))} |"
    yield ""


def _environment(case: Case) -> Iterator[str]:
    if (environment := case.environment) is None:
        return
    facts = {
        "torch": environment.torch + (f" ({environment.git_version})" if environment.git_version else ""),
        "Python": environment.python,
        "system": environment.system,
        "processor": environment.processor,
        **{name: environment.packages[name] for name in _PACKAGES if name in environment.packages},
    }
    yield from ("## Environment", "", *(f"- {name}: {escaped(value)}" for name, value in facts.items() if value), "")
