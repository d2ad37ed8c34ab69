"""Every mixture of outcomes of one cell: what the cell, the table, reports, comparisons and searches make of it."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement, permutations
from typing import TYPE_CHECKING

import pytest

from tests import contract
from tests.results import FAIL, HANG, PASS, attempt, environment, result
from tests.results import cell as made_cell
from whichtorch.bisect.ledger import PositionEvidence, observations_of, reference_of
from whichtorch.cli.command import Exit, exit_code
from whichtorch.matrix.judgement import judge_cell
from whichtorch.matrix.options import RunOptions
from whichtorch.matrix.planning import PlannedCell
from whichtorch.model import (
    Build,
    Cell,
    Config,
    Limits,
    Outcome,
    Record,
    Request,
    Scenario,
    SharedProcess,
    combine,
    speaking,
)
from whichtorch.model.outcome import AttemptEvidence
from whichtorch.records.compare.comparison import ChangeKind, classify, compare
from whichtorch.records.compare.nights import NightCell, flake_rates
from whichtorch.reports.junit import element_of
from whichtorch.reports.table import cell_word
from whichtorch.search.search_state import Find, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from whichtorch.model import Attempt

HERE = environment()
SLOW, SKIP, ERROR = Outcome.SLOW, Outcome.SKIP, Outcome.ERROR
OF_ATTEMPTS = [PASS, FAIL, HANG, SLOW, Outcome.CRASH, Outcome.OOM, SKIP, ERROR]
SECONDS = {SLOW: 15.0, HANG: 15.0}  # of an attempt with a timeout of 15 s, where the others take two


def made(outcome: Outcome, **fields: object) -> Attempt:
    return attempt(outcome, **{"seconds": SECONDS.get(outcome, 2.0), "limit": 15} | fields)


def records_of(attempts: Sequence[Attempt]) -> list[Record]:
    limits = Limits(timeout=15, memory_mb=4096)
    fields = {"key": "k", "environment": HERE.id, "scenario": "s", "source_hash": "h", "variant": {}, "limits": limits}
    return [Record.model_validate(fields | {"attempt": each}) for each in attempts]


def cell_of(folder: Path, records: Sequence[Record]) -> Cell:
    """Return the cell that a matrix makes of records."""
    request = Request(torch="2.11.0", python="3.11", build=Build(name="pypi"), config=Config(name="default"))
    scenario = Scenario(name="s", path=folder / "s.py", source_hash="h")
    return judge_cell(PlannedCell(request=request, scenario=scenario, variant={}, options=RunOptions()), HERE, records)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_outcome_of_a_mixture_disappears(tmp_path: Path, size: int) -> None:
    """What is red in it is red and told as k of n; slow beside what was in time is red; an order decides nothing."""
    for mixture in combinations_with_replacement(OF_ATTEMPTS, size):
        assert_nothing_disappears(tmp_path, mixture)


def assert_nothing_disappears(tmp_path: Path, mixture: tuple[Outcome, ...]) -> None:
    records = records_of([made(outcome) for outcome in mixture])
    cell = cell_of(tmp_path, records)
    counting = [outcome for outcome in mixture if outcome is not ERROR] or list(mixture)
    counts = Counter(counting)
    red = [outcome for outcome in counts if outcome.is_red]
    is_mixed_slow = not red and SLOW in counts and len(counts) > 1

    # the cell
    assert cell.is_red == bool(red or is_mixed_slow)
    if red:
        assert cell.outcome in red
        assert counts[cell.outcome] == max(counts[outcome] for outcome in red)
    elif SLOW in counts:
        assert cell.outcome is SLOW
    else:
        assert not cell.is_red
    assert cell.flaky == (f"{counts[cell.outcome]} of {len(counting)}" if len(counts) > 1 else None)
    assert [each.outcome for each in cell.attempts] == list(mixture)  # all of them are kept
    assert cell.expected == (cell.outcome in {PASS, SKIP})
    for order in set(permutations(mixture)):
        other = combine([made(outcome) for outcome in order])
        assert other is not None
        assert other.outcome is cell.outcome

    # the table, JUnit and the exit code
    word = cell_word(cell)
    assert (cell.outcome.value.upper() in word) == cell.is_red
    assert ("/" in word) == (len(counts) > 1)
    failed = cell.is_red and not cell.expected
    code = exit_code([(cell.outcome, cell.expected)], failed=failed)
    assert code == (Exit.RED if cell.is_red else Exit.PREVENTED if cell.outcome is ERROR else Exit.GOOD)
    assert (element_of(cell) == "failure") == cell.is_red

    # compare, and history
    passed = made_cell(HERE, PASS, cell.name, source_hash="another")
    compared = compare(result([HERE], [passed]), result([HERE], [cell]))
    assert compared.is_worse == cell.is_red
    assert (classify(passed, cell)[0] is ChangeKind.REGRESSION) == cell.is_red
    assert (classify(cell, cell)[0] is ChangeKind.STILL_FAILING) == cell.is_red
    nights = [
        NightCell(run=result([HERE], [each], id_).run, environment=HERE, cell=each)
        for id_, each in (("one", passed), ("two", cell), ("three", passed))
    ]
    rates = list(flake_rates(nights))
    failures = sum(rate.failures for rate in rates)
    assert failures == sum(counts[outcome] for outcome in [*red, *([SLOW] if cell.is_red else [])])

    # bisect
    seen = PositionEvidence(position=0, environment=HERE, cell=cell, records=tuple(records))
    verdicts = {run.verdict for run in observations_of([seen], reference_of([seen], Find.ANY), any_failure=True)}
    assert (SearchVerdict.BAD in verdicts) == (bool(red) or SLOW in counts)
    assert (SearchVerdict.GOOD in verdicts) == (PASS in counts)


def test_slow_beside_passes_is_the_hang_that_a_search_looks_for(tmp_path: Path) -> None:
    """Its runs are firm evidence, as hangs are; where all runs are slow, a longer look may decide."""
    hang = PositionEvidence(
        position=0,
        environment=HERE,
        cell=cell_of(tmp_path, records_of([made(HANG)])),
        records=(*records_of([made(HANG)]),),
    )
    for mixture, provisional in (([SLOW, PASS, PASS], False), ([SLOW, SLOW], True)):
        records = records_of([made(outcome) for outcome in mixture])
        seen = PositionEvidence(position=1, environment=HERE, cell=cell_of(tmp_path, records), records=tuple(records))
        runs = [run for run in observations_of([hang, seen], reference_of([hang, seen], Find.ANY)) if run.position]
        assert [run.verdict is SearchVerdict.BAD for run in runs] == [outcome is SLOW for outcome in mixture]
        assert {run.provisional for run in runs} == {provisional}


ALONE = AttemptEvidence(shared=SharedProcess(alone=True, after="t::a", outcome="slow"))
WAITED = AttemptEvidence(decided="crowded")


@pytest.mark.parametrize(
    ("attempts", "outcome", "flaky"),
    [
        ([made(SLOW), made(PASS, limit=60, seconds=14)], PASS, None),  # it takes that long
        ([made(SLOW), made(PASS, limit=60, seconds=2)], SLOW, "1 of 2"),  # it does not
        ([made(SLOW), made(HANG, limit=60, seconds=60)], HANG, None),
        ([made(SLOW), made(FAIL, limit=60, seconds=14)], FAIL, None),
        ([made(SLOW), made(FAIL, limit=60, seconds=2)], FAIL, "1 of 2"),
        ([made(SLOW), made(PASS, seconds=14.9)], SLOW, "1 of 2"),  # it had no more time than that
        ([made(SLOW, evidence=WAITED), made(PASS)], PASS, None),
        ([made(SLOW, evidence=WAITED), made(SLOW)], SLOW, None),
        ([made(SLOW, evidence=WAITED), made(SLOW), made(PASS)], SLOW, "1 of 2"),
        ([made(SLOW, evidence=AttemptEvidence(shared=SharedProcess())), made(PASS, evidence=ALONE)], PASS, None),
        ([made(SLOW, evidence=ALONE), made(PASS, evidence=ALONE)], SLOW, "1 of 2"),
    ],
)
def test_what_explains_a_slow_attempt(attempts: list[Attempt], outcome: Outcome, flaky: str | None) -> None:
    """A longer look that took about as long, a core that it waited for, or the tests before it; nothing else does."""
    for order in (attempts, attempts[::-1]):
        speaker = combine(order)
        assert speaker is not None
        assert speaker.outcome is outcome
        counting = speaking(order)
        k, n = sum(each.outcome is outcome for each in counting), len(counting)
        assert (f"{k} of {n}" if k < n else None) == flaky


def test_the_contract_has_a_rule_for_every_mixture(tmp_path: Path) -> None:
    """Its table says of each kind of mixture what the cell is, whether it is red, and the exit code."""
    rows = contract.table(
        "attempts", "cell", "in the table", "says", "exit code", "compare after a pass", "in a search"
    )
    examples = {
        "some red": [FAIL, PASS, SLOW],
        "none red, some slow, others in time": [SLOW, PASS, PASS],
        "all slow": [SLOW, SLOW],
        "only pass and skip": [PASS, PASS, SKIP],
        "only error": [ERROR],
    }
    assert [row[0] for row in rows] == list(examples)
    for (_, outcome, word, says, code, change, search), mixture in zip(rows, examples.values(), strict=True):
        records = records_of([made(each) for each in mixture])
        cell = cell_of(tmp_path, records)
        seen = PositionEvidence(position=0, environment=HERE, cell=cell, records=tuple(records))
        runs = observations_of([seen], reference_of([seen], Find.ANY), any_failure=True)
        assert str(cell.outcome) in outcome
        assert cell_word(cell) in word.replace("`", "").split(", ")
        assert ("red" in says.split(", ")) == cell.is_red
        assert str(int(exit_code([(cell.outcome, cell.expected)], failed=cell.is_red))) == code
        assert str(classify(made_cell(HERE, PASS, cell.name), cell)[0]) == change
        assert {str(run.verdict) for run in runs} <= set(search.replace(" beside ", ", ").split(", "))
