"""A case's unit test: written, then seen to fail where the script fails and to pass where it passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.matrix.model import Outcome
from whichtorch.matrix.triage.case import ShownTest
from whichtorch.matrix.triage.unit_test import unit_test
from whichtorch.matrix.trial.variation import Variation

if TYPE_CHECKING:
    from whichtorch.matrix.triage.case import Case
    from whichtorch.matrix.triage.places import CaseTest, OtherReleases
    from whichtorch.matrix.trial.runner import Runner

TEST_MARGIN = 2.0  # times the script's limit, for a test that runs it in a process of its own


def shown_test(case: Case, folder: Path, runs: Runner, other_releases: OtherReleases, test: CaseTest) -> ShownTest:
    """Write both forms of a test into a case's folder, and run it here and in the nearest healthy release.

    It is made of the script with which that release was found, for the smallest one may be healthy nowhere.
    """
    seen, found, healthy = case.reproduction, case.classification, case.healthy_release
    assert seen is not None
    assert found is not None
    source = (folder / (case.bisected if healthy else case.smallest)).read_text(encoding="utf-8")
    tests = unit_test(source, case.name, seen.outcome, seen.limit, (found.category, found.layer))
    name = f"test_{Path(case.script).stem}.py"
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / name).write_text(tests.pytest, encoding="utf-8")
    (folder / "tests" / f"torch_{name}").write_text(tests.test_case, encoding="utf-8")
    shown = ShownTest(file=f"tests/{name}", test_case=f"tests/torch_{name}", place=tests.place)
    if _run(runs, tests.pytest, seen.limit) is Outcome.FAIL:
        shown = shown.model_copy(update={"fails_in": runs.environment.label})
    if healthy:
        with other_releases.runs(healthy, test) as there:
            if _run(there, tests.pytest, seen.limit) is Outcome.PASS:
                shown = shown.model_copy(update={"passes_in": there.environment.label})
    return shown


def _run(runs: Runner, source: str, limit: float) -> Outcome:
    """Return how the tests of a file end; they are called as pytest would, which need not be installed there."""
    called = "\nfor name, test in list(globals().items()):\n    if name.startswith('test_'):\n        test()\n"
    variation = Variation(source=source + called)
    return runs.run(TEST_MARGIN * limit, variation).record.attempt.outcome
