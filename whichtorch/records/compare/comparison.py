"""Two runs, cell by cell: what is worse, what is better, and what is inconclusive."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from operator import attrgetter
from pathlib import Path

from pydantic import Field

from whichtorch.base.grouping import counted, grouped
from whichtorch.base.version_parsing import parse_version
from whichtorch.failures.failure import is_alike
from whichtorch.failures.verdict import passes_needed
from whichtorch.measure.measure import Measure
from whichtorch.model import (
    Cell,
    Effect,
    Environment,
    Measurement,
    Model,
    Outcome,
    ProjectCommand,
    Quantity,
    Result,
    Run,
    ValueChange,
)
from whichtorch.records.compare.factors import Versions, changed_facts, changed_packages, commit_of, compare_link
from whichtorch.search.step_search import Estimate
from whichtorch.suite.project import changed_files


class NumberChange(Quantity):
    """A number that is worse or better than it was, both measured in turns with the same reference."""

    reference: str  # label
    since: str  # id of the run that it is compared with
    old: ValueChange  # against the reference
    new: ValueChange
    change: ValueChange  # from old to new
    effect: Effect
    is_confirmed: bool = False  # the run before the new one says the same


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNumbers:
    """The numbers of a run by environment (its id in the new run), test and measure."""

    run: Run
    by_cell: dict[tuple[str, str], dict[str, Measurement]]

    def change(self, key: tuple[str, str], number: Measurement) -> NumberChange | None:
        """Return how a number differs from this run's, None where the two do not compare, or do not differ."""
        old = self.by_cell.get(key, {}).get(number.name)
        measure = Measure.of(number)
        if (
            old is None
            or old.basis is not number.basis
            or Measure.of(old).model_copy(update={"change": measure.change}) != measure
        ):
            return None
        shift = _shift(old, number, measure)
        effect = measure.threshold.effect(shift) if shift else Effect.UNDECIDED
        if shift is None or old.change is None or number.change is None or not effect.counts:
            return None
        return NumberChange(
            name=number.name,
            unit=number.unit,
            is_share=number.is_share,
            reference=number.reference,
            since=self.run.id,
            old=old.change,
            new=number.change,
            change=measure.change_in(shift),
            effect=effect,
        )


def number_changes(
    key: tuple[str, str], new: RunNumbers, old: RunNumbers, *before: RunNumbers
) -> Iterator[NumberChange]:
    """Yield the numbers of a cell that are worse or better than in the old run; `before` are those before the new one.

    A change needs two runs in a row. Where the old run is the one before, it may be the first of them: then both are
    compared with the run before it.
    """
    between = before[0] if before and before[0].run.started > old.run.started else None
    earlier = before[1] if len(before) > 1 and before[0].run.id == old.run.id else None
    for number in new.by_cell.get(key, {}).values():
        base, first = (earlier, old) if earlier else (old, between)
        change = base.change(key, number)
        seen_first = first.by_cell.get(key, {}).get(number.name) if first else None
        was = base.change(key, seen_first) if seen_first else None
        is_confirmed = bool(change and was and was.effect is change.effect)
        if change and (is_confirmed or base is old):
            yield change.model_copy(update={"is_confirmed": is_confirmed})
        elif earlier and (change := old.change(key, number)):
            yield change


def _shift(old: Measurement, new: Measurement, measure: Measure) -> Estimate | None:
    """Return by how much a change against a reference is worse than that against the same one at another time.

    None where there is no such reference. The interval is that of a difference of two independent estimates (Zou and
    Donner, Statistics in Medicine 27, 2008).
    """
    if not old.reference or old.reference != new.reference or old.change is None or new.change is None:
        return None
    try:
        was, now = (
            sorted(measure.on_scale(each + measure.is_share) for each in side.change or ()) for side in (old, new)
        )
    except ValueError:
        return None
    center = now[1] - was[1]
    low = center - math.hypot(now[1] - now[0], was[2] - was[1])
    high = center + math.hypot(now[2] - now[1], was[1] - was[0])
    rounds = min(len(old.samples), len(new.samples))
    return Estimate(center=center, low=low, high=high, rounds=rounds) if math.isfinite(center) else None


LUCK = 0.05  # passes prove that a flaky failure is gone where the chance that they are luck is below this


class ChangeKind(StrEnum):
    """What became of a cell, the most important first."""

    REGRESSION = "regression"  # passed before, does not pass now
    NEW_FAILURE = "new failure"  # fails now, and this script had no verdict before
    DIFFERENT = "different failure"  # failed before in another way
    WORSE_NUMBER = "worse number"  # passes as before, and a number that was measured is worse
    FIXED = "fixed"  # failed before, passes now
    BETTER_NUMBER = "better number"
    INCONCLUSIVE = "inconclusive"  # no verdict before or now
    STILL_FAILING = "still failing"
    DISAPPEARED = "disappeared"
    APPEARED = "appeared"
    STILL_PASSING = "still passing"


_ALIKE = {ChangeKind.STILL_PASSING, ChangeKind.STILL_FAILING}


class RunSide(Model):
    """A cell in one of the two runs."""

    environment: str  # label
    outcome: Outcome
    signature: str | None
    flaky: str | None  # "k of n" where attempts disagree
    expected: bool
    chain: str = ""  # of runs that share caches: which of them went wrong, and with which cache

    @property
    def what(self) -> str:
        """What happened, "" where there is nothing to say."""
        return "; ".join(filter(None, (self.signature, self.chain)))


class CellChange(Model):
    """What became of one cell: its state in each run that has it."""

    name: str  # scenario and variant
    change: ChangeKind
    old: RunSide | None
    new: RunSide | None
    script_changed: bool = False  # then the script may be the cause
    changed: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # files of the `test` itself, of the `project`
    why: str = ""  # it is inconclusive or doubtful
    numbers: tuple[NumberChange, ...] = ()  # that are worse or better


class EnvironmentChange(Model):
    """An environment that changed between the runs: other packages, another machine, or the next nightly."""

    old: str  # labels
    new: str
    packages: Versions  # before and after
    facts: Versions = Field(default_factory=dict)  # other recorded differences, such as the processor
    commits: str | None = None  # link to the commits of torch between the two


class Comparison(Model):
    """What `compare --json` writes."""

    schema_: int = Field(default=1, alias="schema")
    old: Run
    new: Run
    cells: tuple[CellChange, ...]  # the most important first, else in the order of the new run
    environments: tuple[EnvironmentChange, ...] = ()
    incomplete: tuple[str, ...] = ()  # ids of the runs that did not finish

    @property
    def is_worse(self) -> bool:
        """True where some cell passed before and fails now, or has a number that two runs in a row show to be worse."""
        numbers = (number for cell in self.of(ChangeKind.WORSE_NUMBER) for number in cell.numbers)
        is_worse = any(number.is_confirmed and number.effect is not Effect.BETTER for number in numbers)
        return is_worse or bool(self.of(ChangeKind.REGRESSION))

    @property
    def is_prevented(self) -> bool:
        """True where some cell had an outcome about torch before and could not be run now."""
        return any(
            cell.old and cell.new and cell.new.outcome.is_prevented and not cell.old.outcome.is_prevented
            for cell in self.cells
        )

    def of(self, change: ChangeKind) -> tuple[CellChange, ...]:
        """Return the cells of one kind."""
        return tuple(cell for cell in self.cells if cell.change is change)


def compare(old: Result, new: Result, before: Sequence[Result] = (), home: Path | None = None) -> Comparison:
    """Return what became of each cell from one run to the other; projects are kept in the state folder `home`.

    `before` are the two runs before the new one, latest first: a number is worse for sure where two runs in a row say
    so.

    Cells are matched by test and environment. Environments are matched by id, else by label. Of the remaining ones,
    two nightlies are matched where each run has exactly one of the same stream, and so are two releases.
    """
    pairs = list(_pairs(old.environments, new.environments))
    old_cells, new_cells = (grouped(result.cells, lambda cell: cell.environment) for result in (old, new))
    commands = {each.source_hash: each.command for each in (*old.scenarios, *new.scenarios) if each.command}
    files = cache(partial(changed_files, home))
    measured = [_numbers(result, new) for result in (new, old, *before)]
    changes = []
    for former, after in pairs:
        old_by_name = {cell.name: cell for cell in (old_cells.get(former.id, ()) if former else ())}
        new_by_name = {cell.name: cell for cell in (new_cells.get(after.id, ()) if after else ())}
        for name in dict.fromkeys([*new_by_name, *old_by_name]):
            cells = old_by_name.get(name), new_by_name.get(name)
            kind, why = classify(*cells)
            numbers: tuple[NumberChange, ...] = ()
            if kind is ChangeKind.STILL_PASSING and after:
                numbers = tuple(number_changes((after.id, name), *measured))
            if numbers:
                is_better = all(number.effect is Effect.BETTER for number in numbers)
                kind = ChangeKind.BETTER_NUMBER if is_better else ChangeKind.WORSE_NUMBER
            hashes = {cell.source_hash for cell in cells if cell and cell.source_hash}
            change = CellChange(
                name=name,
                change=kind,
                old=_side(former, cells[0]),
                new=_side(after, cells[1]),
                script_changed=len(hashes) > 1,
                changed=_sources_changed(cells, commands, files) if len(hashes) > 1 and kind not in _ALIKE else {},
                why=why,
                numbers=numbers,
            )
            changes.append(change)
    order = list(ChangeKind)
    return Comparison(
        old=old.run,
        new=new.run,
        cells=tuple(sorted(changes, key=lambda change: order.index(change.change))),
        environments=tuple(_environment_changes(pairs)),
        incomplete=tuple(result.run.id for result in (old, new) if not result.is_complete),
    )


def _numbers(result: Result, new: Result) -> RunNumbers:
    """Return the numbers of a run, by the ids that its environments have in the new one."""
    if not any(cell.numbers for cell in new.cells):
        return RunNumbers(run=result.run, by_cell={})
    ids = {before.id: after.id for before, after in _pairs(result.environments, new.environments) if before and after}
    cells = [cell for cell in result.cells if cell.environment in ids]
    by_cell = {(ids[cell.environment], cell.name): {each.name: each for each in cell.numbers} for cell in cells}
    return RunNumbers(run=result.run, by_cell=by_cell)


def _sources_changed(
    cells: Iterable[Cell | None], commands: Mapping[str, ProjectCommand], files: Callable[..., list[str] | None]
) -> dict[str, tuple[str, ...]]:
    """Return which files of the test itself and of its project changed, by these two words; the test comes first."""
    old, new = (cell for cell in cells if cell)
    was, now = (commands.get(cell.source_hash) for cell in (old, new))
    if was is None or now is None:
        return {"test": ("the script, or a module beside it",)}
    changed: dict[str, tuple[str, ...]] = {}
    if (was.words, was.options) != (now.words, now.options):
        changed["test"] = ("its command",)
    names = files(was.project, now.project) if was.project != now.project else []
    if names is None:
        return changed | {"project": ("which files is not known here",)}
    own = {posixpath.normpath(f"{now.subfolder}/{word.partition('::')[0]}") for word in new.command or now.words}
    kinds = grouped(names, lambda name: "test" if name in own else "project")
    return changed | {kind: tuple(kinds[kind]) for kind in ("test", "project") if kind in kinds}


def _side(environment: Environment | None, cell: Cell | None) -> RunSide | None:
    """Return a cell as one side of a comparison; None where a run has none."""
    if environment is None or cell is None:
        return None
    return RunSide(
        environment=environment.label,
        outcome=cell.outcome,
        signature=cell.what,
        flaky=cell.flaky,
        expected=cell.expected,
        chain=cell.chain.words if cell.chain and cell.is_red else "",
    )


def _pairs(
    old: Sequence[Environment], new: Sequence[Environment]
) -> Iterator[tuple[Environment | None, Environment | None]]:
    """Yield each environment of the new run with its counterpart, then the old ones that are gone."""
    unmatched = list(old)
    matches: dict[str, Environment] = {}

    def match(environment: Environment, counterpart: Environment) -> None:
        matches[environment.id] = counterpart
        unmatched.remove(counterpart)

    for key in (attrgetter("id"), attrgetter("label")):
        for environment in new:
            same = [other for other in unmatched if key(other) == key(environment)]
            if same and environment.id not in matches:
                match(environment, same[0])
    for name_of in (_nightly_name, lambda each: each.label.replace(each.torch, "")):
        left = grouped(unmatched, name_of)
        for name, same in grouped((each for each in new if each.id not in matches), name_of).items():
            if name and len(same) == len(left.get(name, ())) == 1:
                match(same[0], left[name][0])
    yield from ((matches.get(environment.id), environment) for environment in new)
    yield from ((environment, None) for environment in unmatched)


def _nightly_name(environment: Environment) -> str:
    return name if (name := stream(environment)) != environment.label else ""


def stream(environment: Environment) -> str:
    """Return the name of an environment that stays the same every night: a nightly's version becomes `nightly`."""
    return stream_name(environment.label, environment.torch)


def stream_name(label: str, torch: str) -> str:
    """Return the same of an environment's label and version of torch."""
    version = parse_version(torch)  # None where the environment could not be made
    return label.replace(torch, "nightly") if version is not None and version.is_devrelease else label


def _environment_changes(pairs: Iterable[tuple[Environment | None, Environment | None]]) -> Iterator[EnvironmentChange]:
    for before, after in pairs:
        if before and after and before.is_usable and after.is_usable:
            packages, facts = changed_packages(before, after), changed_facts(before, after)
            if packages or facts or before.id != after.id:
                commits = compare_link(commit_of(before), commit_of(after))
                yield EnvironmentChange(
                    old=before.label, new=after.label, packages=packages, facts=facts, commits=commits
                )


def classify(old: Cell | None, new: Cell | None) -> tuple[ChangeKind, str]:
    """Return what became of a cell, and why that is inconclusive or doubtful, or "".

    At least one of the two is there. One failed attempt is enough for a failure; that a failure is gone needs proof.
    """
    if new is None:
        return ChangeKind.DISAPPEARED, ""
    if old is None:
        return (ChangeKind.NEW_FAILURE if new.is_red else ChangeKind.APPEARED), ""
    if new.is_red and old.is_red:
        return (ChangeKind.STILL_FAILING if is_alike(old, new) else ChangeKind.DIFFERENT), ""
    if new.is_red:
        return (ChangeKind.REGRESSION, _luck(new, old)) if _passes(old) else (ChangeKind.NEW_FAILURE, "")
    if _passes(new) and _passes(old):
        return ChangeKind.STILL_PASSING, ""
    if _passes(new) and old.is_red:
        doubt = _luck(old, new)
        return (ChangeKind.INCONCLUSIVE, doubt) if doubt else (ChangeKind.FIXED, "")
    return ChangeKind.INCONCLUSIVE, ""


def _passes(cell: Cell) -> bool:
    return cell.outcome is Outcome.PASS and not cell.is_doubted


def _luck(red: Cell, green: Cell) -> str:
    """Return why the passes of one cell may be luck where the failure of the other is flaky, or ""."""
    failures, attempts = red.agreement
    if failures in {0, attempts}:  # 0: the attempts of a merged run may be gone, and the failed one with them
        return ""
    passes = sum(attempt.outcome is Outcome.PASS for attempt in green.attempts)
    needed = passes_needed(failures, attempts, LUCK)
    if passes >= needed:
        return ""
    times = "one pass" if passes == 1 else f"{passes} passes"
    return f"it fails in {failures} of {counted(attempts, 'run')}, so {times} may be luck: --repeat {needed} tells"
