"""A patch that cures one test -> what it does to the suite: each cell with it and without it, and what came of both.

What earlier runs know is not run again. Where a cell differs, both of its sides are run again before anything is said.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from whichtorch.matrix.compare.comparison import ChangeKind, RunSide, classify, run_side
from whichtorch.matrix.model import Cell, Environment, Model, Outcome
from whichtorch.matrix.plan.planning import RunOptions, plan
from whichtorch.matrix.records.store import read_records
from whichtorch.matrix.run.lab import opened_lab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.events import Show
    from whichtorch.matrix.model import Patch, Request, Scenario
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.run.lab import Lab
    from whichtorch.matrix.run.work import Machines

    Side = tuple[Environment, Cell]

REPEATS = 3  # attempts of both sides of a cell that differs


class SuiteEffect(StrEnum):
    """What a patch does to a cell, what matters most first."""

    BROKEN = "broken"  # it is red, and was not
    DIFFERENT = "different failure"
    CURED = "cured"
    NOT_COMPARABLE = "not comparable"  # a side could not be run, is flaky, or has no verdict
    SAME = "same"


_EFFECTS = {  # kinds of change that decide a cell's effect by themselves
    ChangeKind.REGRESSION: SuiteEffect.BROKEN,
    ChangeKind.NEW_FAILURE: SuiteEffect.BROKEN,
    ChangeKind.DIFFERENT: SuiteEffect.DIFFERENT,
    ChangeKind.FIXED: SuiteEffect.CURED,
    ChangeKind.STILL_FAILING: SuiteEffect.SAME,
    ChangeKind.STILL_PASSING: SuiteEffect.SAME,
}


class SuiteCell(Model):
    """A cell that is not the same with the patch."""

    name: str  # scenario and variant
    effect: SuiteEffect
    without: RunSide
    patched: RunSide
    why: str = ""  # it is not comparable


class SuiteCheck(Model):
    """What a patch does to the suite."""

    run: str  # id of the stored run
    counts: dict[SuiteEffect, int]
    differing: tuple[SuiteCell, ...] = ()  # what matters most first

    @property
    def cells(self) -> int:
        """How many cells the suite has in one environment."""
        return sum(self.counts.values())

    @property
    def is_worse(self) -> bool:
        """True where something is broken."""
        return bool(self.of(SuiteEffect.BROKEN))

    def of(self, effect: SuiteEffect) -> tuple[SuiteCell, ...]:
        """Return the cells that differ in one way."""
        return tuple(cell for cell in self.differing if cell.effect is effect)


def check_suite(
    request: Request, patch: Patch, suite: Sequence[Scenario], machines: Machines, show: Show
) -> SuiteCheck:
    """Run a suite in an environment and in a patched copy of it, and compare.

    An interrupt is raised as KeyboardInterrupt, with what is done kept.
    """
    planned = plan([request, request.model_copy(update={"patch": patch})], suite, RunOptions(cold=True))
    half = len(planned) // 2
    pairs = list(zip(planned[:half], planned[half:], strict=True))
    with opened_lab(machines, read_records(machines.environments.home), show, len(planned)) as lab:
        sides = _run(lab, pairs)
        differing = [place for place, side in enumerate(sides) if _is_doubtful(*side)]
        again = [(_repeated(pairs[place][0]), _repeated(pairs[place][1])) for place in differing]
        for place, side in zip(differing, _run(lab, again), strict=True):
            sides[place] = side
        run = lab.store.run.id
    return _checked(run, sides)


def _repeated(planned: PlannedCell) -> PlannedCell:
    return replace(planned, options=replace(planned.options, repeat=REPEATS))


def _run(lab: Lab, pairs: Sequence[tuple[PlannedCell, PlannedCell]]) -> list[tuple[Side, Side]]:
    """Run both sides of cells, and return what came of each pair."""
    if not pairs:
        return []
    planned = [side for sides in zip(*pairs, strict=True) for side in sides]
    environments, cells = lab(planned)
    by_id = {environment.id: environment for environment in environments}
    sides = [(by_id[cell.environment], cell) for cell in cells]
    return list(zip(sides[: len(pairs)], sides[len(pairs) :], strict=True))


def _is_doubtful(without: Side, patched: Side) -> bool:
    """Return whether a cell is to be run again: it differs, and more attempts could tell why."""
    cells = without[1], patched[1]
    is_prevented = any(cell.outcome.is_prevented for cell in cells)
    return not is_prevented and effect_of(*cells)[0] is not SuiteEffect.SAME


def _checked(run: str, sides: Sequence[tuple[Side, Side]]) -> SuiteCheck:
    found: dict[SuiteEffect, list[SuiteCell]] = {effect: [] for effect in SuiteEffect}
    for without, patched in sides:
        effect, why = effect_of(without[1], patched[1])
        name, both = patched[1].name, {"without": run_side(*without), "patched": run_side(*patched)}
        found[effect].append(SuiteCell(name=name, effect=effect, why=why, **both))
    counts = {effect: len(cells) for effect, cells in found.items()}
    differing = [cell for effect, cells in found.items() if effect is not SuiteEffect.SAME for cell in cells]
    return SuiteCheck(run=run, counts=counts, differing=tuple(differing))


def effect_of(without: Cell, patched: Cell) -> tuple[SuiteEffect, str]:
    """Return what a patch does to a cell, and why that is not known, or "".

    A cell that is red now is broken where it ended well before, or did not apply: it must not be luck.
    """
    sides = (without, patched)
    if any(cell.outcome.is_prevented for cell in sides):
        reasons = (cell.reason or str(cell.outcome) for cell in sides if cell.outcome.is_prevented)
        return SuiteEffect.NOT_COMPARABLE, next(reasons)
    change, doubt = classify(without, patched)
    is_red = [cell.is_red for cell in sides]
    if all(is_red) and (without.flaky is None) is not (patched.flaky is None):
        shares = [cell.flaky or "all" for cell in sides]
        doubt = f"fails in {shares[0]} runs without the patch, in {shares[1]} with it"
    if doubt or any(cell.outcome is Outcome.SLOW and not cell.is_red for cell in sides):
        return SuiteEffect.NOT_COMPARABLE, doubt or "still moving when its time was over"
    if change in _EFFECTS:
        return _EFFECTS[change], ""
    is_same = (without.outcome, without.doubt) == (patched.outcome, patched.doubt)
    return (SuiteEffect.SAME, "") if is_same else (SuiteEffect.NOT_COMPARABLE, "no verdict on one side")
