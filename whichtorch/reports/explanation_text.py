"""An explanation, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from whichtorch.base.grouping import counted, grouped
from whichtorch.base.version_parsing import age
from whichtorch.explain.explanation import Answer, Experiment, Explanation, ExplanationKind, KnownResult
from whichtorch.failures.failure import missing_in_all
from whichtorch.hangs.conditions import words
from whichtorch.model import NO_PATCH, Outcome
from whichtorch.records.compare.factors import AXES, History
from whichtorch.reports.cell_text import in_shell
from whichtorch.reports.document import cut

EQUALS_NAMED = 4  # of what separates equally well; the rest is counted
PLACES_NAMED = 3  # environments; more are counted
WIDTH_OF_VALUE = 80  # characters of a factor's value: some fields hold a compiler's whole command line


def explanation_lines(explanation: Explanation, command: str, again: str) -> Iterator[str]:
    """Yield the answers, then what they rest on, then what to run.

    `command` is how the user calls `matrix`, with the options that it needs. `again` is the command that explains the
    same test and may run what it needs; "" where this explanation was allowed to.
    """
    yield explanation.test
    does = (explanation.reference or Outcome.FAIL).row.verb
    missing = missing_in_all((each.cell.signature, each.cell.message) for each in explanation.observations)
    yield from (f"  {line}" for line in missing)
    for answer in () if missing else explanation.answers:
        yield from (f"  {line}" for line in _ANSWERS[answer.kind](answer, explanation, does))
    if explanation.experiment:
        yield from (f"  {line}" for line in _experiment_lines(explanation.experiment, does))
    if explanation.problem:
        head = "undecided" if explanation.answers else "not enough evidence"
        yield f"  {head}: {explanation.problem}"
    yield from (f"  {line}" for line in _evidence_lines(explanation, does))
    if not explanation.is_answered:
        test = next((each.cell.runnable for each in explanation.observations), explanation.test)
        for cell in explanation.missing:
            axes = [word for axis, value in _options(cell.axes, explanation) for word in (f"--{axis}", value)]
            yield f"  run this ({cell.why}): {in_shell(command, test, *axes)}"
        if again:
            yield f"  or let it find out: {again}"


def _options(axes: dict[str, str], explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield the axes that a command line names, with their values there: a patch is named by its file."""
    yield from ((axis, axes[axis]) for axis in ("torch", "build", "python", "config"))
    for environment in (observation.environment for observation in explanation.observations):
        if environment.patch == axes["patch"] != NO_PATCH:
            yield "patch", environment.options[environment.options.index("--patch") + 1]
            return


def _here_lines(_answer: Answer, explanation: Explanation, does: str) -> Iterator[str]:
    ours = _ours(explanation)
    times = f" ({ours.cell.flaky} attempts)" if ours and ours.cell.flaky else ""
    label = ours.environment.label if ours else ""
    yield f"here: it {does} here too{times}: {label}, {explanation.signature or 'no signature'}"


def _environment_lines(answer: Answer, explanation: Explanation, does: str) -> Iterator[str]:
    rule = answer.rule
    assert rule is not None
    kinds = " and ".join(name if name in AXES else _cut(name) for name in rule.factors)
    yield f"environment: {kinds}"
    yield (
        f"  {does} in {answer.red} of {counted(answer.red, 'environment')} with {_cut(rule.words)}, "
        f"passes in {answer.green} of {answer.green} without"
    )
    if len(rule.terms) == 1:
        yield from _by_value(rule.terms[0].factor, explanation, does)
    red = {observation.environment.torch for observation in explanation.observations if observation.is_red}
    green = {observation.environment.torch for observation in explanation.observations if observation.is_pass}
    is_told = "torch" in rule.factors or any(history.changes for history in answer.histories)
    if red == green and len(red) > 1 and not is_told:
        yield f"  in every version tried: torch {', '.join(sorted(red, key=age))}"
    ours = _ours(explanation)
    if ours and ours.is_pass:
        broken = [term.factor for term in rule.terms if not term.holds(ours.factors)]
        facts = ", ".join(f"{name.removeprefix('package ')} {_cut(ours.factors.get(name, 'none'))}" for name in broken)
        yield f"  here ({ours.environment.label}): {facts}"
    if rule.equal:
        named = "; ".join(_cut(term.words) for term in rule.equal[:EQUALS_NAMED])
        more = len(rule.equal) - EQUALS_NAMED
        yield f"  separates equally well: {named}" + (f"; and {more} more" if more > 0 else "")
    yield from (f"  or: {' and '.join(term.words for term in rival)}" for rival in rule.rivals)


def _by_value(factor: str, explanation: Explanation, does: str) -> Iterator[str]:
    """Yield how each value of a factor fared, where there are more than two."""
    decided = (each for each in explanation.observations if each.is_red or each.is_pass)
    values = grouped(decided, lambda observation: observation.factors.get(factor, "none"))
    if len(values) > 2 and factor in AXES:
        parts = (
            f"{does if observed[0].is_red else 'passes'} with {value} in {len(observed)} of {len(observed)}"
            for value, observed in values.items()
        )
        yield f"  {', '.join(parts)}"


def _version_lines(answer: Answer, _explanation: Explanation, does: str) -> Iterator[str]:
    yield "version: torch"
    shown = grouped(answer.histories, lambda history: tuple(_history_lines(history, does)))
    for lines, histories in shown.items():
        where = "; ".join(history.words for history in histories)
        where = "" if len(answer.histories) == 1 else f" ({where})"
        yield f"  {lines[0]}{where}"
        yield from (f"  {line}" for line in lines[1:])
    if answer.rule and answer.rule.rivals:
        yield from (f"  or: {' and '.join(term.words for term in rival)}" for rival in answer.rule.rivals)
    if not answer.histories and answer.rule:
        yield f"  {does} in {answer.red} of {answer.red} with {answer.rule.words}, in 0 of {answer.green} without"


def _history_lines(history: History, does: str) -> Iterator[str]:
    changes = history.changes
    if not changes:
        yield f"no version tried fixes it: {does} in {', '.join(step.torch for step in history.steps)}"
        return
    for change in changes:
        first, last = (does, "passes") if change.is_fix else ("passes", does)
        yield f"last version that {first}: {change.before.torch}, first that {last}: {change.after.torch}"
        yield f"  commits: {change.commits}" if change.commits else "  commits: not known for both"
    fates = ", ".join(f"{step.torch} {does if step.is_red else 'passes'}" for step in history.steps)
    yield f"its history turns {len(changes)} times: {fates}" if len(changes) > 1 else f"tried: {fates}"


def _condition_lines(answer: Answer, _explanation: Explanation, _does: str) -> Iterator[str]:
    yield "conditions: it ended well without what it declares, so that its pass says nothing"
    yield from (f"  {unmet.reason} ({_places(unmet.environments)})" for unmet in answer.unmet)


def _places(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= PLACES_NAMED else f"{len(labels)} environments"


_ANSWERS = {
    ExplanationKind.HERE: _here_lines,
    ExplanationKind.ENVIRONMENT: _environment_lines,
    ExplanationKind.VERSION: _version_lines,
    ExplanationKind.CONDITIONS: _condition_lines,
}


def _experiment_lines(experiment: Experiment, does: str) -> Iterator[str]:
    changes = ", ".join(f"{name} from {old} to {new}" for name, old, new in experiment.changes)
    yield f"experiment: from {experiment.red}, changing {changes} makes it pass"
    if len(experiment.differing) > len(experiment.changes):
        others = [name for name in experiment.differing if name not in {change[0] for change in experiment.changes}]
        yield f"  not needed, though they differ in {experiment.green}: {', '.join(others)}"
    confirmed = f"run again, it {does} before the change and passes after it"
    confirmed = confirmed if experiment.confirmed else "NOT confirmed when run again"
    yield f"  {confirmed}; {counted(experiment.attempts, 'attempt')} in all"


def _evidence_lines(explanation: Explanation, does: str) -> Iterator[str]:
    """Yield what became of conditions where it fails, what is flaky, and what was seen but is no evidence."""
    observations = explanation.observations
    red = [observation for observation in observations if observation.is_red]
    for what, seen in grouped(red, lambda observation: words(observation.cell.conditions)).items():
        if what:
            yield f"{what}, where it {does} ({_places([each.environment.label for each in seen])})"
    for observation in red:
        if observation.cell.flaky:
            yield f"flaky: {does} in {observation.cell.flaky} attempts in {observation.environment.label}"
    for observation in observations:
        if observation.is_different:
            what, where = observation.cell.signature or "no signature", observation.environment.label
            yield f"another failure, not counted: {observation.cell.outcome} in {where}: {what}"
    is_vacuous_shown = any(answer.kind is ExplanationKind.CONDITIONS for answer in explanation.answers)
    rest: Counter[str] = Counter()
    for observation in observations:
        is_shown = observation.is_red or observation.is_pass or observation.is_different
        if not is_shown and not (is_vacuous_shown and observation.is_vacuous):
            outcome = observation.cell.outcome
            rest["doubted pass" if outcome is Outcome.PASS else str(outcome)] += 1
    if rest:
        parts = (f"{outcome} in {count} environment{'' if count == 1 else 's'}" for outcome, count in rest.items())
        yield f"no evidence: {', '.join(parts)}"


def _ours(explanation: Explanation) -> KnownResult | None:
    return next((seen for seen in explanation.observations if seen.environment.id == explanation.here), None)


def _cut(text: str) -> str:
    return cut(text, WIDTH_OF_VALUE)
