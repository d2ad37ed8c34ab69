"""What a patch does to the suite: what may be said of a cell, and that it is said after more than one look."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes import FakeCache
from tests.fix.packages import environment_folder
from whichtorch.matrix.environments.configs import BUILTIN
from whichtorch.matrix.events import Event
from whichtorch.matrix.fix.suite_check import REPEATS, SuiteEffect, check_suite, effect_of
from whichtorch.matrix.model import Attempt, Build, Cell, Doubt, Environment, Outcome, Patch, Request, StoppedBy
from whichtorch.matrix.run.site import ThisMachine
from whichtorch.matrix.suite import selection

LINE = "# /// scenario\n# summary = 'it'\n# timeout = 20\n# ///\nimport torch\n"
SUITE = {
    "same": "",
    "cured": "assert torch.behaviour == 'new'\n",
    "broken": "assert torch.behaviour == 'old', 'not any more'\n",
    # fails once, and only with the patch
    "once": "from pathlib import Path\nseen = Path(torch.__file__).parent / 'seen'\n"
    "assert torch.behaviour == 'old' or seen.exists() or seen.touch()\n",
}


def cell(*outcomes: Outcome, place: str = "f", doubt: Doubt | None = None) -> Cell:
    """Return a cell whose attempts had these outcomes, the first of which is the cell's."""
    attempts = tuple(Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.EXIT) for outcome in outcomes)
    signature = f"ValueError in {place}" if outcomes[0].is_red else None
    return Cell(
        environment="e",
        scenario="s",
        outcome=outcomes[0],
        signature=signature,
        expected=True,
        seconds=1,
        attempts=attempts,
        doubt=doubt,
    )


PASS, FAIL, SKIP = cell(Outcome.PASS), cell(Outcome.FAIL), cell(Outcome.SKIP)
OFTEN = (Outcome.FAIL, Outcome.FAIL, Outcome.PASS)
PASSES = cell(*[Outcome.PASS] * 3)


@pytest.mark.parametrize(
    ("without", "patched", "effect"),
    [
        (PASS, PASS, SuiteEffect.SAME),
        (FAIL, FAIL, SuiteEffect.SAME),
        (SKIP, SKIP, SuiteEffect.SAME),
        (PASS, FAIL, SuiteEffect.BROKEN),
        (SKIP, FAIL, SuiteEffect.BROKEN),
        (PASSES, cell(*OFTEN), SuiteEffect.BROKEN),
        (FAIL, PASS, SuiteEffect.CURED),
        (FAIL, cell(Outcome.FAIL, place="g"), SuiteEffect.DIFFERENT),
        (FAIL, cell(Outcome.HANG), SuiteEffect.DIFFERENT),
        (PASSES, cell(Outcome.FAIL, Outcome.PASS, Outcome.PASS), SuiteEffect.NOT_COMPARABLE),  # may be luck
        (cell(*OFTEN), cell(*[Outcome.FAIL] * 3), SuiteEffect.NOT_COMPARABLE),
        (cell(Outcome.UNBUILDABLE), cell(Outcome.UNBUILDABLE), SuiteEffect.NOT_COMPARABLE),
        (PASS, cell(Outcome.SLOW), SuiteEffect.NOT_COMPARABLE),
        (cell(Outcome.SLOW), cell(Outcome.SLOW), SuiteEffect.NOT_COMPARABLE),
        (PASS, SKIP, SuiteEffect.NOT_COMPARABLE),
        (PASS, cell(Outcome.PASS, doubt=Doubt.UNOBSERVED), SuiteEffect.NOT_COMPARABLE),
    ],
)
def test_what_may_be_said_of_a_cell(without: Cell, patched: Cell, effect: SuiteEffect) -> None:
    """A cell is broken if it fails only with the patch, more often than chance explains; no verdict is not compared."""
    found, why = effect_of(without, patched)
    assert found is effect
    assert bool(why) is (effect is SuiteEffect.NOT_COMPARABLE)


@dataclass
class PatchedCache(FakeCache):
    """An environment in which torch behaves in the old way, and in the new one where it has a patch."""

    pythons: dict[str, Path] = field(default_factory=dict)

    def environment(self, request: Request) -> Environment:
        behaviour = "new" if request.patch else "old"
        if behaviour not in self.pythons:
            files = {"torch/__init__.py": f"behaviour = {behaviour!r}\n"}
            self.pythons[behaviour] = environment_folder(self.home / behaviour, files)
        changes = {"id": behaviour, "interpreter": self.pythons[behaviour]}
        return super().environment(request).model_copy(update=changes)


def test_the_suite_with_a_patch(tmp_path: Path) -> None:
    """Cells that differ are run again on both sides; what failed once may be luck, and what is known is not run."""
    (tmp_path / "suite" / "family").mkdir(parents=True)
    for name, text in SUITE.items():
        (tmp_path / "suite" / "family" / f"{name}.py").write_text(LINE + text)
    suite = selection.suite(tmp_path / "suite")
    request = Request(torch="9.1.0", python="3.11", build=Build(name="pypi"), config=BUILTIN["default"])
    cache = PatchedCache(tmp_path)
    shown: list[Event] = []

    def show(_cells: int | None) -> AbstractContextManager[Callable[[Event], None]]:
        return nullcontext(shown.append)

    checked = check_suite(request, Patch(name="fix", text="new"), suite, ThisMachine(environments=cache), show)
    assert {each.name: each.effect for each in checked.differing} == {
        "family/broken": SuiteEffect.BROKEN,
        "family/cured": SuiteEffect.CURED,
        "family/once": SuiteEffect.NOT_COMPARABLE,
    }
    assert checked.counts[SuiteEffect.SAME] == 1
    (broken,) = checked.of(SuiteEffect.BROKEN)
    assert (broken.without.outcome, broken.patched.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert "it fails in 1 of 3 runs" in checked.differing[-1].why
    records = [line for file in tmp_path.glob("runs/*/records.jsonl") for line in file.read_text().splitlines()]
    assert len(records) == 2 + 3 * 2 * REPEATS
    again = check_suite(request, Patch(name="fix", text="new"), suite, ThisMachine(environments=cache), show)
    assert again.model_copy(update={"run": checked.run}) == checked
    assert not (tmp_path / "runs" / again.run / "records.jsonl").read_text()
