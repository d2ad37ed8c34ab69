"""Two runs, cell by cell: what is worse, what is better, and where nothing can be said."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version
from pydantic import Field

from matrix.compare.factors import Versions, changed_facts, changed_packages
from matrix.compare.histories import commit_of, compare_link
from matrix.diagnosis.sameness import is_same_failure
from matrix.diagnosis.verdict import passes_needed
from matrix.model import Cell, Environment, Model, Outcome, Result, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SCHEMA = 1
LUCK = 0.05  # chance that passes are luck, above which they are no proof that a failure that comes and goes is gone


class ChangeKind(StrEnum):
    """What became of a cell, what a reader wants to know first before the rest."""

    REGRESSION = "regression"  # passed, and does not any more
    NEW_FAILURE = "new failure"  # fails, and nothing was known of it
    DIFFERENT = "different failure"  # fails, and did so in another way
    FIXED = "fixed"  # failed, and passes
    INCONCLUSIVE = "inconclusive"  # nothing was learnt before or now
    STILL_FAILING = "still failing"
    DISAPPEARED = "disappeared"
    APPEARED = "appeared"
    STILL_PASSING = "still passing"


class RunSide(Model):
    """A cell in one of the two runs."""

    environment: str  # label
    outcome: Outcome
    signature: str | None
    flaky: str | None  # "k of n" where attempts disagree
    expected: bool


class CellChange(Model):
    """A cell of either run, or of both, with what became of it."""

    name: str  # scenario and variant
    change: ChangeKind
    old: RunSide | None
    new: RunSide | None
    script_changed: bool = False  # so that the change may be the script's
    why: str = ""  # what makes it inconclusive, or doubtful


class EnvironmentChange(Model):
    """An environment that is not what it was: other packages, another machine, or the nightly after."""

    old: str  # labels
    new: str
    packages: Versions  # before and after
    facts: Versions = Field(default_factory=dict)  # what else is recorded and differs: another processor
    commits: str | None = None  # link to the commits of torch between the two


class Comparison(Model):
    """What `compare --json` writes."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    old: Run
    new: Run
    cells: tuple[CellChange, ...]  # the most important first, else in the order of the new run
    environments: tuple[EnvironmentChange, ...] = ()
    incomplete: tuple[str, ...] = ()  # ids of the runs that did not come to their end

    @property
    def is_worse(self) -> bool:
        """True where something passed before and does not now."""
        return bool(self.of(ChangeKind.REGRESSION))

    @property
    def is_prevented(self) -> bool:
        """True where something that had an outcome about torch could not be run any more."""
        return any(
            cell.old and cell.new and cell.new.outcome.is_prevented and not cell.old.outcome.is_prevented
            for cell in self.cells
        )

    def of(self, change: ChangeKind) -> tuple[CellChange, ...]:
        """Return the cells of one kind."""
        return tuple(cell for cell in self.cells if cell.change is change)


def compare(old: Result, new: Result) -> Comparison:
    """Return what became of each cell from one run to the other.

    Cells are matched by test and environment. An environment is the one with the same id, else the same label,
    else, of nightlies, the one of the other night where there is one each.
    """
    pairs = list(_pairs(old.environments, new.environments))
    before, after = _cells(old), _cells(new)
    changes = []
    for one, other in pairs:
        names = dict.fromkeys([*after[other.id if other else ""], *before[one.id if one else ""]])
        for name in names:
            first = before[one.id].get(name) if one else None
            last = after[other.id].get(name) if other else None
            if first or last:
                changes.append(_change(name, _labelled(one, first), _labelled(other, last)))
    order = list(ChangeKind)
    return Comparison(
        old=old.run,
        new=new.run,
        cells=tuple(sorted(changes, key=lambda change: order.index(change.change))),
        environments=tuple(_environment_changes(pairs)),
        incomplete=tuple(result.run.id for result in (old, new) if not result.is_complete),
    )


def _cells(result: Result) -> defaultdict[str, dict[str, Cell]]:
    """Return the cells of a run by environment and name."""
    found: defaultdict[str, dict[str, Cell]] = defaultdict(dict)
    for cell in result.cells:
        found[cell.environment][cell.name] = cell
    return found


def _pairs(
    old: Sequence[Environment], new: Sequence[Environment]
) -> Iterator[tuple[Environment | None, Environment | None]]:
    """Yield the environments of the new run with what they were, then those that are gone."""
    left = list(old)
    found: dict[str, Environment] = {}
    for is_same in (_has_same_id, _has_same_label):
        for environment in new:
            match = next((one for one in left if environment.id not in found and is_same(one, environment)), None)
            if match is not None:
                found[environment.id] = match
                left.remove(match)
    nights = _by_stream(left)
    for stream, (*others, last) in _by_stream(one for one in new if one.id not in found).items():
        if not others and len(nights.get(stream, ())) == 1:
            found[last.id] = nights[stream][0]
            left.remove(nights[stream][0])
    yield from ((found.get(environment.id), environment) for environment in new)
    yield from ((environment, None) for environment in left)


def _has_same_id(one: Environment, other: Environment) -> bool:
    return one.id == other.id


def _has_same_label(one: Environment, other: Environment) -> bool:
    return one.label == other.label


def _by_stream(environments: Iterable[Environment]) -> dict[str, list[Environment]]:
    """Return the nightlies among environments, by what they have in common from night to night."""
    found: defaultdict[str, list[Environment]] = defaultdict(list)
    for one in environments:
        if stream(one) != one.label:
            found[stream(one)].append(one)
    return found


def stream(environment: Environment) -> str:
    """Return what an environment is called from night to night: its label, with `nightly` for a nightly's version."""
    try:
        is_nightly = Version(environment.torch).is_devrelease
    except InvalidVersion:  # of one that could not be had
        return environment.label
    return environment.label.replace(environment.torch, "nightly") if is_nightly else environment.label


def _environment_changes(
    pairs: Iterable[tuple[Environment | None, Environment | None]],
) -> Iterator[EnvironmentChange]:
    for one, other in pairs:
        if one and other and one.is_usable and other.is_usable:
            packages, facts = changed_packages(one, other), changed_facts(one, other)
            if packages or facts or one.id != other.id:
                commits = compare_link(*ends) if (ends := (commit_of(one), commit_of(other)))[0] != ends[1] else None
                yield EnvironmentChange(old=one.label, new=other.label, packages=packages, facts=facts, commits=commits)


def _labelled(environment: Environment | None, cell: Cell | None) -> tuple[str, Cell] | None:
    return (environment.label, cell) if environment and cell else None


def _change(name: str, old: tuple[str, Cell] | None, new: tuple[str, Cell] | None) -> CellChange:
    change, why = classify(old[1] if old else None, new[1] if new else None)
    hashes = {pair[1].source_hash for pair in (old, new) if pair and pair[1].source_hash}
    return CellChange(name=name, change=change, old=_side(old), new=_side(new), script_changed=len(hashes) > 1, why=why)


def _side(pair: tuple[str, Cell] | None) -> RunSide | None:
    if pair is None:
        return None
    label, cell = pair
    return RunSide(
        environment=label, outcome=cell.outcome, signature=cell.what, flaky=cell.flaky, expected=cell.expected
    )


def classify(old: Cell | None, new: Cell | None) -> tuple[ChangeKind, str]:
    """Return what became of a cell, and why that is inconclusive or doubtful, if it is.

    One of the two is there. A failure counts where it was seen at all; that one is gone needs proof.
    """
    if new is None:
        return ChangeKind.DISAPPEARED, ""
    if old is None:
        return (ChangeKind.NEW_FAILURE if new.outcome.is_red else ChangeKind.APPEARED), ""
    if new.outcome.is_red:
        return _became_red(old, new)
    if _passes(new) and _passes(old):
        return ChangeKind.STILL_PASSING, ""
    if _passes(new) and old.outcome.is_red:
        doubt = _luck(old, new)
        return (ChangeKind.INCONCLUSIVE, doubt) if doubt else (ChangeKind.FIXED, "")
    return ChangeKind.INCONCLUSIVE, ""


def _became_red(old: Cell, new: Cell) -> tuple[ChangeKind, str]:
    if old.outcome.is_red:
        same = old.outcome is new.outcome and is_same_failure(old.signature, new.signature, old.message, new.message)
        return (ChangeKind.STILL_FAILING if same else ChangeKind.DIFFERENT), ""
    if not _passes(old):
        return ChangeKind.NEW_FAILURE, ""
    return ChangeKind.REGRESSION, _luck(new, old)


def _passes(cell: Cell) -> bool:
    return cell.outcome is Outcome.PASS and not cell.is_doubted


def _luck(red: Cell, green: Cell) -> str:
    """Return why the passes of one cell prove little where the failure of the other comes and goes; "" if they do."""
    seen, made = red.agreement
    if seen in {0, made}:  # none: attempts of a merged run may be gone, and with them the one that failed
        return ""
    passes = sum(attempt.outcome is Outcome.PASS for attempt in green.attempts)
    needed = passes_needed(seen, made, LUCK)
    if passes >= needed:
        return ""
    times = "one pass" if passes == 1 else f"{passes} passes"
    return f"it fails in {seen} of {made} runs, so {times} may be luck: --repeat {needed} tells"
