"""A case: as lines for a terminal, for a page, and as a document to be pasted into an issue."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted
from whichtorch.failures.failure import Signature, described
from whichtorch.failures.tracebacks import HEADER, is_linked, read_chain
from whichtorch.model import Outcome, variant_suffix
from whichtorch.reports.bisection_text import answer_lines, timeline_table
from whichtorch.reports.document import Code, Heading, Items, Listing, Paragraph, Table, one_line, screen, short_list
from whichtorch.reports.fix_text import run_counts
from whichtorch.suite.chain import without_chain
from whichtorch.triage.case import PATCH, Ladder
from whichtorch.triage.categories import UNCLASSIFIED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whichtorch.reports.document import Block, Line
    from whichtorch.triage.case import Case, Classification, Newest, Reproduction, Rung

ERROR_LINES = 40  # of the traceback that CASE.md shows
ERROR_HEAD = 8  # of them, from its beginning
LOGS_NAMED = 2  # on a terminal; more are counted
PATCH_LINES = 120  # of the patch that CASE.md shows
TITLE = 120  # characters
_PACKAGES = ("numpy", "triton", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "intel-openmp", "sympy")


def case_blocks(case: Case) -> Iterator[Block]:
    """Yield what a page shows of a case: its headline, the layers it was tried at, what is known, and the script."""
    yield Paragraph(f"{case.name}: {_headline(case)}")
    yield from _layers(case)
    yield Items([*_known(case)])
    if case.minimal is not None:
        yield Listing(case.minimal.source.rstrip().splitlines(), "python")


def case_lines(case: Case, folder: Path) -> Iterator[Line]:
    """Yield what is known, a line each, and where it is kept."""
    headline, *blocks = (block for block in case_blocks(case) if not isinstance(block, Listing))
    yield from (line for line in screen([headline]) if line)
    if case.environment is not None and case.environment.problem:
        yield f"  {case.environment.label}: {case.environment.problem}"
        yield f"  remedy: {case.environment.remedy}"
    yield from (f"  {line}" for line in screen(blocks) if line)
    if case.logs:
        yield f"  logs: {short_list(list(case.logs), LOGS_NAMED)}"
    yield f"  the case is in {folder}; {sum(case.seconds.values()):.0f} s"


def _to_see_it(case: Case) -> Iterator[Block]:
    """Yield the command that shows the failure of a chain; of a single run nobody needs one."""
    if case.chain is not None and case.environment is not None:
        test = case.smallest + variant_suffix(without_chain(case.variant))
        words = [test, *case.environment.options, *case.chain.options]
        words += ["--", *case.arguments] if case.arguments else []
        how = f"it takes {case.chain.runs} runs of the script, in fresh processes that share one set of compiler caches"
        yield Paragraph((f"{how}: ", Code(f"whichtorch matrix {shlex.join(words)}")))


def _known(case: Case) -> Iterator[Line]:
    """Yield what the steps have found, a line each."""
    if case.reproduction is not None:
        yield _seen(case.reproduction) + (f" in torch {case.environment.torch}" if case.environment else "")
    if (found := case.classification) is not None:
        yield _class(found)
    if (minimal := case.minimal) is not None:
        size = f"minimal script: {minimal.lines} of {counted(minimal.lines_before, 'line')} ({minimal.method})"
        alone = (
            "in processes of its own that share empty caches" if case.chain else "in a process and caches of its own"
        )
        verified = f"{alone} it fails in the same way" if minimal.is_verified else "not verified"
        healthy = f", and it passes in {minimal.healthy_in}" if minimal.healthy_in else ""
        yield f"{size}, {counted(minimal.runs, 'run')}; {verified}{healthy}"
        if minimal.error and (chain := read_chain(minimal.error)):
            yield one_line(f"the smallest script fails with {chain[0].name}: {chain[0].first_line}", TITLE)
    if case.bisection is not None:
        yield from answer_lines(case.bisection)
    if (test := case.unit_test) is not None:
        fails = f"fails in {test.fails_in}" if test.fails_in else "was not seen to fail"
        passes = f"passes in {test.passes_in}" if test.passes_in else "was not seen to pass"
        yield f"unit test: {test.file} {fails} and {passes}"
    if case.newest is not None:
        yield _newest(case.newest)
    if fix := _fix(case):
        yield fix
    if case.stopped and case.reproduction is not None:  # else the headline says it
        yield case.stopped.words


def _layers(case: Case) -> Iterator[Block]:
    """Yield how the script ends with each layer of the compiler."""
    ladder = case.ladder or Ladder()
    if ladder.rungs:
        rows = [[Code(rung.name), rung.outcome.word, _came_to(rung)] for rung in ladder.rungs]
        yield Table(["the same script with", "ends with", ""], rows)
    if ladder.graph_breaks or ladder.recompilations:
        yield Items([f"{ladder.graph_breaks} graph breaks, {ladder.recompilations} recompilations in a plain run"])


def _headline(case: Case) -> str:
    seen = case.reproduction
    if seen is None:
        return case.stopped.words if case.stopped else "not run"
    if not seen.outcome.is_red:
        return one_line(": ".join(filter(None, (seen.outcome.word, seen.where))), TITLE)
    head = Signature.parse(seen.signature).head
    what = seen.where if seen.outcome is Outcome.HANG else f"{head}: {seen.message}" if seen.message else seen.signature
    return one_line(f"{seen.outcome.word}: {what}", TITLE)


def _seen(seen: Reproduction) -> str:
    runs = counted(seen.runs, "run")
    if seen.outcome is not Outcome.PASS and not seen.outcome.is_red:
        return f"nothing can be said of it: {seen.outcome} in {seen.failing or seen.runs} of {runs}"
    if not seen.outcome.is_red:
        return f"it passes: {seen.runs} of {runs}, {seen.seconds:.1f} s"
    others = f"; other runs: {', '.join(seen.others)}" if seen.others else ""
    runs, chain = (counted(seen.runs, "attempt"), f": {seen.chain}") if seen.chain else (runs, "")
    return f"it {seen.outcome.row.verb} in {seen.failing} of {runs}, after {seen.seconds:.1f} s{chain}{others}"


def _class(found: Classification) -> str:
    if found.category == UNCLASSIFIED:
        return f"{UNCLASSIFIED}: {found.words}" + (f"; the nearest is {found.nearest}" if found.nearest else "")
    stage = f", {found.stage}" if found.stage else ""
    return f"{found.category}: {found.words}; look at {found.layer or 'the script'} ({found.mode}{stage})"


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


def _came_to(rung: Rung) -> str:
    return one_line("the same failure" if rung.is_same else described(rung.signature, rung.message), TITLE)


def case_document(case: Case) -> Iterator[Block]:
    """Yield the case for an issue: what is known, and then what shows it."""
    seen, minimal, environment = case.reproduction, case.minimal, case.environment
    outcome, colon, what = _headline(case).partition(": ")
    is_sentence = seen is not None and seen.outcome is Outcome.HANG
    yield Heading((outcome + colon, what if is_sentence else Code(what)), level=1)
    yield Items([*_known(case)])
    yield from _to_see_it(case)
    if case.classification:
        yield Items(case.classification.evidence)
    if minimal:
        yield from (Heading("Script"), Listing(minimal.source.rstrip().splitlines(), "python"))
    if seen and seen.where:
        yield from (Heading("Where it hangs"), Paragraph(seen.where))
    if seen and (error := _error_lines(((minimal and minimal.error) or seen.stderr).rstrip().splitlines())):
        yield from (Heading("Error"), Listing(error))
    if case.bisection:
        yield from (Heading("Versions"), timeline_table(case.bisection))
        if case.bisected == case.script != case.smallest:
            yield Paragraph("These are outcomes of the whole script: the smallest script passes in no release.")
    if case.ladder and case.ladder.rungs:
        yield from (Heading("At which layer"), *_layers(case))
    if case.unit_test:
        form = " is the same test in PyTorch's own form; PyTorch keeps such tests in "
        yield from (Heading("Unit test"), Paragraph((Code(case.unit_test.test_case), form, Code(case.unit_test.place))))
    if case.fix and case.fix.fix and case.fix.fix.patch:
        yield from (Heading("Fix"), Listing(case.fix.fix.patch.rstrip().splitlines()[:PATCH_LINES], "diff"))
    if environment:
        commit = f" ({environment.git_version})" if environment.git_version else ""
        packages = {name: environment.packages[name] for name in _PACKAGES if name in environment.packages}
        facts = {"torch": environment.torch + commit, "Python": environment.python, "system": environment.system}
        facts |= {"processor": environment.processor, **packages}
        yield from (Heading("Environment"), Items([f"{name}: {value}" for name, value in facts.items() if value]))
    if case.logs:
        yield from (Heading("Logs"), Items([(Code(path), f": {what}") for path, what in case.logs.items()]))
    if seen:
        yield Paragraph(("To reproduce it elsewhere: ", Code("whichtorch replay case.zip")))


def _error_lines(lines: list[str]) -> list[str]:
    """Return the last exception with its causes, without what was written before; all lines where there is none."""
    alone = [at for at, line in enumerate(lines) if line.startswith(HEADER) and not is_linked(lines, at)]
    shown = lines[alone[-1] :] if alone else lines
    cut = len(shown) - ERROR_LINES
    return shown if cut <= 0 else [*shown[:ERROR_HEAD], f"[... {cut} lines ...]", *shown[ERROR_HEAD + cut :]]
