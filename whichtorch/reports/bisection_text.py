"""A bisection: as lines, and as a document, ready for an issue."""

from __future__ import annotations

import textwrap
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted, grouped
from whichtorch.bisect.search_request import AxisName
from whichtorch.failures.failure import described
from whichtorch.model import NO_PATCH, Environment, Outcome
from whichtorch.reports import cell_text
from whichtorch.reports.document import (
    Code,
    Fold,
    Heading,
    Items,
    Link,
    Listing,
    Paragraph,
    Table,
    first_and_last_lines,
    screen,
    short_list,
)
from whichtorch.reports.numbers_text import curve_lines, level_table
from whichtorch.search.search_state import AnswerKind, Change, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from whichtorch.bisect.bisection import Attribution, Bisection, Boundary, Culprit, Probe, SearchedTest, Stretch
    from whichtorch.reports.document import Block, Line


COMMIT_DIGITS = 10  # of a hash: as many as git shows of a big history
VALUES_NAMED = 8  # of commits between two others; more are counted
PACKAGES_NAMED = 6  # that changed with torch; more are counted
LUCK_SHOWN = 0.05  # probability of passes by chance, above which they are noted
FACT_SHOWN = 120  # characters of a fact of an environment; longer ones are left out
NARROWEST = 40  # columns that a line of values takes at least
PLURALS = {
    AxisName.VERSION: "versions of torch",
    AxisName.DATE: "days",
    AxisName.COMMIT: "commits",
    AxisName.LOCK: "sets of packages",
    AxisName.PYTHON: "Pythons",
}


def bisection_lines(search: Bisection, width: int) -> Iterator[str]:
    """Yield what was searched, the answer, what each value showed, the evidence, what to do, and what it cost."""
    answer, evidence = _parts(search)
    yield from (heading(search), "", *map("".join, answer), "")
    if not search.curve:
        yield from (*_values(search, width), "")
    yield from screen(shown_values(search), width)
    yield from map("".join, evidence)
    if command := next_command(search):
        yield f"next: {command}  # shows what changed as a patch"
    yield cost(search)


def answer_blocks(search: Bisection) -> Iterator[Block]:
    """Yield the answer, the evidence as a table, and what to do."""
    answer, evidence = _parts(search)
    yield from (Paragraph(answer[0]) if len(answer) == 1 else Items(answer), *shown_values(search))
    if evidence:
        yield Table(["evidence", ""], [*map(_titled, evidence)])
    if command := next_command(search):
        yield Items([("to do: ", Code(command), " shows what changed as a patch")])


def _parts(search: Bisection) -> tuple[list[Line], list[Line]]:
    """Return the answer and its evidence; where there are several changes, each is followed by its own."""
    lines = [*answer_lines(search)]
    answer = [line for line in lines if not "".join(line).startswith("  ")]
    is_one = len(answer) == 1 and not search.has_tests
    return (answer, [line for line in lines if line not in answer]) if is_one else (lines, [])


def _titled(line: Line) -> tuple[Line, Line]:
    """Return a line of evidence as title and words."""
    first, *rest = (line,) if isinstance(line, str) else line
    title, colon, words = f"{''.join(first).strip()} ".partition(": ")
    return (title, (words.rstrip(), *rest)) if colon else ("note", title.rstrip())


def next_command(search: Bisection) -> str:
    """Return the command that shows what changed in a release; "" where there is none."""
    is_told = search.answer is AnswerKind.BOUNDARY and search.axis is AxisName.VERSION
    exact = [boundary for boundary in search.boundaries if boundary.is_exact and not boundary.tests]
    does = search.reference[0] if search.reference else None
    if not (is_told and exact and does in {Outcome.FAIL, Outcome.HANG}):
        return ""
    ends = exact[-1].from_, exact[-1].to
    bad, good = ends if exact[-1].change is Change.FIX else ends[::-1]
    probe = search.probe_at(bad)
    options = cell_text.options_without_torch(probe.environment) if probe else []
    return cell_text.in_shell("whichtorch fix", search.scenario, *options, "--bad", bad, "--good", good)


def heading(search: Bisection) -> str:
    """Return what was searched, in one line."""
    shared = ", ".join(f"{name} {value}" for name, value in search.common.items())
    is_ordered = not search.groups and len(search.values) > 1
    ends = f", {value_name(search, search.values[0])} to {value_name(search, search.values[-1])}" if is_ordered else ""
    what = f"{len(search.values)} {_plural(search)}{ends}"
    what = f"{search.differing} packages differ" if search.axis is AxisName.LOCK else what
    return f"{search.scenario}: {what}" + (f"; {shared}" if shared else "")


def _plural(search: Bisection) -> str:
    if search.axis is AxisName.PACKAGE:
        return f"releases of {search.common['package']}"
    return PLURALS.get(search.axis, f"{search.axis}s")


def value_name(search: Bisection, value: str) -> str:
    """Return what people call a value; a commit by the first digits of its hash."""
    commit, over, wheel = value.partition(" over ")
    return commit[:COMMIT_DIGITS] + (f" (over {wheel})" if over else "") if search.axis is AxisName.COMMIT else value


def probe_word(probe: Probe) -> str:
    """Return the outcome of a value as the table of a matrix writes it, in brackets where it is no evidence."""
    shown = probe.outcome.word
    shown += "~" if probe.verdict is SearchVerdict.DIFFERENT else ""
    shown = f"({shown})" if probe.verdict is SearchVerdict.UNTESTABLE else shown
    return shown + (f" {probe.k}/{probe.n}" if 0 < probe.k < probe.n else "")


def _values(search: Bisection, width: int) -> Iterator[str]:
    """Yield the values that were tried, in order, with the number of untried ones between them.

    Versions share lines, with a bar at each boundary; commits and locks have a line each.
    """
    if search.axis in {AxisName.LOCK, AxisName.COMMIT}:
        yield from (
            f"  {probe_word(probe):<8} {value_name(search, probe.value)} {probe.title}".rstrip()
            for probe in search.probes
        )
        return
    edges = {boundary.from_ for boundary in search.boundaries} if search.answer is AnswerKind.BOUNDARY else set()
    parts: list[str] = []
    for shown, values in groupby(search.values, key=lambda value: _shown(search, value)):
        named = list(values)
        parts.append(f"{shown}\u00a0|" if shown and named[0] in edges else shown or f"..{len(named)}..")
    columns = max(NARROWEST, width - 4)
    lines = textwrap.wrap("  ".join(parts), width=columns, break_long_words=False, break_on_hyphens=False)
    yield from (f"  {line}".replace("\u00a0", " ") for line in lines)


def _shown(search: Bisection, value: str) -> str:
    """Return a value that was tried, with its outcome unless many tests have their own; "" for one that was not."""
    probe = search.probe_at(value)
    if probe is not None:
        return f"{value}\u00a0{probe_word(probe)}"
    return value if search.has_tests and value in search.order else ""


def answer_lines(search: Bisection) -> Iterator[Line]:
    """Yield the boundaries, or that there is none, and what is no evidence."""
    if search.has_tests:
        yield from changed_lines(search)
    elif search.curve:
        yield from curve_lines(search, search.curve)
    else:
        yield from _outcome_lines(search)
    yield from (f"  note: {reason}" for reason in search.reasons)


def _outcome_lines(search: Bisection) -> Iterator[Line]:
    does = _does(search)
    if search.groups:
        yield _groups(search, does)
    elif search.answer is AnswerKind.NONE:
        yield _none(search, does)
    elif search.answer is AnswerKind.INCONCLUSIVE and not search.boundaries:
        yield f"inconclusive: {_alike(search, does) or 'no two values could be told apart'}"
    for boundary in search.boundaries:
        yield from _boundary_lines(boundary, search, does)
    if search.changes:
        others = search.differing - len(search.changes) - len(search.along)
        rest = "one other change does not matter" if others == 1 else f"{others} other changes do not matter"
        yield f"  it takes {' and '.join(search.changes)}" + (f"; {rest}" if others else "")
    if search.changes and search.along:
        yield f"  which cannot be installed without {short_list(search.along, PACKAGES_NAMED)}"
    if failure := _failure_words(search):
        yield f"  it {does}: {failure}"
    yield from _no_evidence(search)


def shown_values(search: Bisection) -> Iterator[Table]:
    """Yield the numbers of a curve, or the states along the values where there are more than those of one change."""
    if search.curve:
        yield from level_table(search, search.curve)
    elif not search.has_tests and len(_states(search)) > 2:
        yield timeline_table(search)


def timeline_table(search: Bisection) -> Table:
    """Return the states along the values, from old to new."""
    rows = []
    for stretch in _states(search):
        note = " (asked about)" if stretch.verdict is SearchVerdict.BAD else _luck(search, stretch)
        ends = " to ".join(value_name(search, each) for each in dict.fromkeys((stretch.values[0], stretch.values[-1])))
        rows.append([ends, f"{stretch.outcome.word}{note}", stretch.what if stretch.outcome.is_red else ""])
    return Table(["torch" if search.axis is AxisName.VERSION else search.axis, "outcome", "what"], rows)


def _states(search: Bisection) -> list[Stretch]:
    return [stretch for stretch in search.timeline if stretch.verdict is not SearchVerdict.UNTESTABLE]


def _luck(search: Bisection, stretch: Stretch) -> str:
    """Return a note on passes that an intermittent failure, still there, could have produced by chance."""
    mixed = [probe for probe in search.probes if probe.verdict is SearchVerdict.BAD and probe.k < probe.n]
    if not mixed or stretch.outcome is not Outcome.PASS:
        return ""
    passes = sum(probe.n for probe in search.probes if probe.value in stretch.values)
    luck = (1 - sum(probe.k for probe in mixed) / sum(probe.n for probe in mixed)) ** passes
    return f" in {counted(passes, 'run')}, which may be luck (probability {luck:.2g})" if luck > LUCK_SHOWN else ""


def _does(search: Bisection) -> str:
    return search.reference[0].row.verb if search.reference else "fails"


def _failure_words(search: Bisection) -> str:
    """Return the failure in the last value that shows it: where it is stuck, or signature and message."""
    signature = search.reference[1] if search.reference else None
    if signature is None:
        return ""
    probe = next((probe for probe in reversed(search.probes) if probe.verdict is SearchVerdict.BAD), None)
    if probe is None:
        return signature
    if probe.cell.diagnosis:
        return probe.cell.diagnosis.summary
    return described(probe.signature or signature, probe.message)


def _groups(search: Bisection, does: str) -> str:
    """Return which values fail and which pass, of an axis without an order."""
    verbs = {
        SearchVerdict.BAD: f"{does} with",
        SearchVerdict.DIFFERENT: "fails in another way with",
        SearchVerdict.GOOD: "passes with",
        SearchVerdict.UNTESTABLE: "could not be tested with",
    }
    parts = [f"{words} {', '.join(values)}" for verdict, words in verbs.items() if (values := search.groups[verdict])]
    words = "; ".join(parts) or "nothing was tried"
    return f"inconclusive: {words}" if search.answer is AnswerKind.INCONCLUSIVE else words


def _alike(search: Bisection, does: str) -> str:
    """Return what all values show that say something, and why the others say nothing; "" where none says something."""
    shown = [probe for probe in search.probes if probe.verdict in {SearchVerdict.GOOD, SearchVerdict.BAD}]
    verdicts = {probe.verdict for probe in shown}
    if len(verdicts) != 1:
        return ""
    first, last = (value_name(search, probe.value) for probe in (shown[0], shown[-1]))
    tested = f"all {len(shown)} {_plural(search)} that were tested, {first} to {last}"
    tested = f"{first}, and no other of the {_plural(search)} tried says whether it does" if first == last else tested
    how = "passes" if verdicts == {SearchVerdict.GOOD} else does
    others = (
        f"{words} with {short_list([value_name(search, value) for value in values], PACKAGES_NAMED)}"
        for words, values in search.unjudged.items()
    )
    return "; ".join([f"it {how} in {tested}", *others])


def _none(search: Bisection, does: str) -> str:
    counts = Counter(probe.verdict for probe in search.probes)
    if search.unjudged and (words := _alike(search, does)):
        return f"{'none fixes it' if counts[SearchVerdict.BAD] else 'no change was seen'}: {words}"
    if not counts[SearchVerdict.BAD]:
        return f"nothing to find: it passes in all {counts[SearchVerdict.GOOD]} {_plural(search)} tried"
    if not counts[SearchVerdict.GOOD]:
        bad = [probe for probe in search.probes if probe.verdict is SearchVerdict.BAD]
        if all(probe.outcome is Outcome.SLOW for probe in bad):
            does = "hangs or is slow (no longer look was taken)"
        shown, other = len(bad), counts[SearchVerdict.DIFFERENT]
        if other:
            values = f"{shown} of the {shown + other} {_plural(search)} tried, and fails in another way in {other}"
            return f"none fixes it: it {does} in {values}"
        return f"none fixes it: it {does} in all {shown} {_plural(search)} tried"
    return "no change explains what was seen"


def _boundary_words(boundary: Boundary, search: Bisection, does: str) -> str:
    """Return what changed where, in one line."""
    first, last = value_name(search, boundary.from_), value_name(search, boundary.to)
    is_fix = boundary.change is Change.FIX
    what, guess = ("fixed", "a fix") if is_fix else ("broken", "a regression")
    confidence = f"confidence {min(boundary.confidence, 0.999):.3g}"
    if search.answer is AnswerKind.INCONCLUSIVE:
        return f"inconclusive: {guess} between {first} and {last}, with probability {boundary.confidence:.2g}"
    if search.axis is AxisName.LOCK:
        return f"{what} by the packages: {first} {'fails' if is_fix else 'passes'}, {last} does not; {confidence}"
    by = f", {boundary.attribution.words}" if boundary.attribution and boundary.attribution.words else ""
    if not boundary.is_exact:
        return f"{what} between {first} and {last}{by}{boundary.unasked}; {confidence}"
    on_or_in = "on" if search.axis is AxisName.DATE else "in"
    where = f"{on_or_in} {value_name(search, boundary.to.partition(' over ')[0])}"
    if boundary.culprit and boundary.culprit.taken_back:
        where = f"without {boundary.culprit.commit[:COMMIT_DIGITS]}, which only the older one has"
    where = (f"in {search.common['package']} {last}" if search.axis is AxisName.PACKAGE else where) + by
    before, after = (does, "passes") if is_fix else ("passes", does)
    return f"{what} {where}: last that {before} {first}, first that {after} {last}; {confidence}"


def _boundary_lines(boundary: Boundary, search: Bisection, does: str) -> Iterator[Line]:
    yield _boundary_words(boundary, search, does)
    for title, values in boundary.between.items():
        named = [value_name(search, value) for value in values]
        most = VALUES_NAMED if search.axis is AxisName.COMMIT else len(named)
        yield f"  between them, {title}: {short_list(named, most)}"
    if boundary.culprit:
        yield from _culprit_lines(boundary.culprit)
    if boundary.commits:
        yield "  commits: ", Link(boundary.commits)
    if boundary.same_commit and search.axis is AxisName.VERSION:
        yield "  both were built from the same commit: look at how they were built, and at what they bring"
    if boundary.attribution:
        if not boundary.attribution.words:
            yield f"  it is not known whether it was {boundary.attribution.package} itself or what changed with it"
        yield from (f"  tried: {mixture}" for mixture in boundary.attribution.tried)
        yield from (f"  note: {note}" for note in boundary.attribution.notes)
        yield from _release_of_companion(boundary, boundary.attribution, search)
    if boundary.packages and not search.changes:
        changes = [f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in boundary.packages.items()]
        yield f"  changed with it: {short_list(changes, PACKAGES_NAMED)}"


def _culprit_lines(culprit: Culprit) -> Iterator[str]:
    """Yield what a commit is, and what was checked."""
    request = f", pull request {culprit.pull_request}" if culprit.pull_request else ""
    yield f"  {culprit.commit[:COMMIT_DIGITS]}, {culprit.date}{request}: {culprit.subject}"
    if culprit.merges:
        yield f"  it came with the merge {' in '.join(merge[:COMMIT_DIGITS] for merge in reversed(culprit.merges))}"
    if culprit.paths:
        yield f"  files of it that the script reads: {short_list(culprit.paths, VALUES_NAMED)}"
    if culprit.relatives:
        yield f"  related commits: {short_list(culprit.relatives, VALUES_NAMED)}"
    yield from (f"  {words}" for words in culprit.checked)


def _release_of_companion(boundary: Boundary, attribution: Attribution, search: Bisection) -> Iterator[Line]:
    """Yield the command that finds the release of the one package that came with torch and changed the outcome."""
    if search.axis is not AxisName.VERSION or not attribution.release or len(attribution.changes) != 1:
        return
    name, old, _, new = attribution.changes[0].split()
    probe = search.probe_at(boundary.from_)
    if "none" not in {old, new} and probe:
        words = ["--package", f"{name}>={old},<={new}", "--torch", attribution.release]
        words += cell_text.options_without_torch(probe.environment)
        command = cell_text.in_shell("whichtorch bisect", search.scenario, *words)
        yield f"  which release of {name} it was: ", Code(command)


def _no_evidence(search: Bisection) -> Iterator[str]:
    """Yield why values say nothing, those with the same reason together."""

    def reason(probe: Probe) -> str:
        return ": ".join(filter(None, (probe.outcome, described(probe.signature, probe.message))))

    def kind(probe: Probe) -> str:
        """Return the reason without what names the value itself."""
        interpreter = probe.environment.interpreter
        folder = str(interpreter.parents[2]) if interpreter and len(interpreter.parents) > 2 else probe.value
        return reason(probe).replace(folder, "").replace(f"=={probe.value}", "")

    untestable = (probe for probe in search.probes if probe.verdict is SearchVerdict.UNTESTABLE)
    for probes in grouped(untestable, kind).values():
        values = [value_name(search, probe.value) for probe in probes]
        yield f"  no evidence: {short_list(values, PACKAGES_NAMED)}: {reason(probes[0])}"


def cost(search: Bisection) -> str:
    """Return what the search took, in one line."""
    known = sum(probe.n == probe.reused and probe.n > 0 for probe in search.probes)
    tried = len(search.order) if search.has_tests else len(search.probes)
    reused = f" ({known} known before)" if known else ""
    spent = f"{counted(search.installs, 'install')}, {counted(search.runs, 'run')}, {search.seconds:.0f} s"
    return f"{counted(tried, 'probe')}{reused}, {spent}"


def bisection_blocks(search: Bisection, file: Callable[[str], Path | None]) -> Iterator[Block]:
    """Yield the report: the answer, what each value showed, the failure, where, and how to repeat it.

    `file` finds the path of an attempt's file.
    """
    yield Heading(heading(search))
    lines = [line for line in answer_lines(search) if not "".join(line).startswith("  ")]  # tests are named below
    yield from ([Items(lines)] if search.has_tests else answer_blocks(search))
    bad = _bad_probe(search)
    if search.probes and not search.curve:
        rows = [
            (
                f"{value_name(search, probe.value)} {probe.title}",
                probe_word(probe),
                f"{probe.k} of {probe.n}" if probe.n else "-",
                described(probe.signature, probe.message),
                f"{probe.seconds:.1f}",
            )
            for probe in search.probes
        ]
        yield Table([search.axis, "outcome", "runs", "what", "seconds"], rows)
    if bad and not search.curve:
        yield Heading(f"The failure, in {value_name(search, bad.value)}", 3)
        yield from _failure_blocks(bad, file)
    for boundary in search.boundaries:
        first, last = (value_name(search, each) for each in (boundary.from_, boundary.to))
        ends = f"{first} to {last}"
        if boundary.tests:
            yield from (Heading(f"{ends}: {boundary.what}", 3), Listing(boundary.tests))
        if boundary.packages:
            versions = [[name, *(each or "none" for each in pair)] for name, pair in boundary.packages.items()]
            yield Fold(f"Packages that differ, {ends}", [Table(["package", first, last], versions)])
    if shown := bad or next(reversed(search.probes), None):
        lines = [*_environment_lines(shown.environment)]
        yield Fold(f"Environment, in {value_name(search, shown.value)}", [Items(lines)])
    yield from (Heading("To repeat it", 3), Paragraph(f"It took {cost(search)}."), Listing([search.command]))


def _failure_blocks(bad: Probe, file: Callable[[str], Path | None]) -> Iterator[Block]:
    """Yield how a value fails: where it is stuck, and what it wrote."""
    if diagnosis := bad.cell.diagnosis:
        yield Items([diagnosis.summary, *([f"stage: {diagnosis.place}"] if diagnosis.place else [])])
    attempts = [attempt for attempt in bad.cell.attempts if attempt.outcome is bad.outcome]
    if attempts and (wrote := first_and_last_lines(file(attempts[-1].stderr))):
        yield Listing(wrote)


def _environment_lines(environment: Environment) -> Iterator[str]:
    yield f"torch {environment.torch}, Python {environment.python}, build {environment.build}"
    yield f"config {environment.config}" + (f", patch {environment.patch}" if environment.patch != NO_PATCH else "")
    for name, value in environment.fingerprint.model_dump().items():
        if isinstance(value, str | int) and len(str(value)) <= FACT_SHOWN:
            yield f"{name}: {value}"


def _bad_probe(search: Bisection) -> Probe | None:
    """Return the probe to show: the bad side of the newest boundary, else the newest one that fails."""
    bad = [probe for probe in search.probes if probe.verdict is SearchVerdict.BAD]
    ends = {end for boundary in search.boundaries for end in (boundary.from_, boundary.to)}
    return next((probe for probe in reversed(bad) if probe.value in ends), bad[-1] if bad else None)


TESTS_NAMED = 8  # of one change; --json names all


def changed_lines(search: Bisection) -> Iterator[Line]:
    """Yield each change with its tests, then those that are flaky, those without a boundary, and the rest."""
    if search.answer is AnswerKind.NONE and not search.tests:
        yield "nothing to find: each test ends the same at both ends"
    for boundary in search.boundaries:
        yield from _tests_boundary_lines(boundary)
    undecided = {id_: test for id_, test in search.tests.items() if test.answer is not AnswerKind.BOUNDARY}
    for (title, reason), ids in grouped(undecided, lambda id_: _undecided_because(undecided[id_])).items():
        yield f"{title}, {counted(len(ids), 'test')}" + (f": {reason}" if reason else "")
        yield from _named(ids)
    if flaky := {id_: test for id_, test in search.tests.items() if test.flaky and id_ not in undecided}:
        shown = [f"{id_} ({_flaky(test)})" for id_, test in flaky.items()]
        yield f"flaky among them: {short_list(shown, TESTS_NAMED)}"
    for ends, others in search.others.items():
        what = ends if " -> " in ends else f"{ends} at both ends"
        named = "" if ends == Outcome.PASS else f": {short_list(others, TESTS_NAMED)}"
        yield f"not searched, {what}: {counted(len(others), 'test')}{named}"


def _tests_boundary_lines(boundary: Boundary) -> Iterator[Line]:
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
    title = ("flaky" if test.flaky else "no change") if test.answer is AnswerKind.NONE else "inconclusive"
    spans = ", ".join(f"between {first} and {last}" for first, last in test.boundaries)
    return title, "; ".join(filter(None, (spans, *test.reasons[:1])))


def _flaky(test: SearchedTest) -> str:
    return ", ".join(f"{value} {test.outcomes[value].word} {share}" for value, share in test.flaky.items())
