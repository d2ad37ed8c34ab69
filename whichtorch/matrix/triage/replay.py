"""A case that was packed elsewhere, run here, to see whether it reproduces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from whichtorch.matrix.diagnosis.failure import Changed
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.model import Model, name_of_test
from whichtorch.matrix.plan.planning import RunOptions
from whichtorch.matrix.process.sandbox import Sandbox
from whichtorch.matrix.process.temporary_folders import temporary_folder
from whichtorch.matrix.run.variation import Variation
from whichtorch.matrix.suite import selection
from whichtorch.matrix.triage.archive import unpack
from whichtorch.matrix.triage.places import CasePlace, CaseTest, opened_case

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.matrix.environments.cache import EnvironmentCache
    from whichtorch.matrix.events import Show

RUNS = 2


class Replayed(Model):
    """What came of a case elsewhere."""

    schema_: int = 1
    name: str
    environment: str
    script: str  # of the case, that was run, with its variant
    expected: str  # outcome and signature in the case
    seen: tuple[str, ...]  # likewise, of each run here
    reproduces: bool | None  # None: nothing was learnt about torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Which case is to be run, and where."""

    archive: Path
    whole: bool = False  # the script as it was, instead of the smallest
    sandbox: Sandbox = Sandbox.AUTO
    place: CasePlace


def replay(order: ReplayRequest, cache: EnvironmentCache, show: Show) -> Replayed:
    """Unpack a case into a folder of its own and run its script there.

    Raises UsageError for what is no case or holds no failure, and as `triage`.
    """
    with temporary_folder() as folder:
        case = unpack(order.archive, folder)
        if case.reproduction is None or not case.reproduction.outcome.is_red:
            raise UsageError(f"{order.archive} holds no failure", hint="take the step `reproduce` of its triage first")
        script = folder / (case.script if order.whole else case.smallest)
        scenario = selection.with_arguments(selection.script(str(script)), case.arguments)
        scenario = scenario.model_copy(update={"requirements": case.requirements})
        if order.sandbox is not Sandbox.OFF:
            scenario = scenario.in_sandbox()
            if foreign := [text for text in case.overrides if Requirement(text).url]:
                hint = "name the wheel yourself with --override, or give --sandbox off"
                raise UsageError(f"the case overrides {', '.join(foreign)}, installed outside its sandbox", hint=hint)
        test = CaseTest(scenario=scenario, variant=case.variant, options=RunOptions(sandbox=order.sandbox))
        limit = case.reproduction.limit
        expected = case.reproduction.failure
        known = case.reproduction.shape if order.whole else case.smallest_failure
        file = order.place.file.for_script(scenario)
        variables = case.variables | dict(file.needs.variables)
        overrides = file.needs.overrides or case.overrides
        needs = replace(file.needs, variables=tuple(variables.items()), overrides=overrides)
        place = replace(order.place, beside=folder, file=file.model_copy(update={"needs": needs}))
        with opened_case(place, test, cache, show) as runs:
            made = [runs.run(limit, Variation(in_scratch=True)) for _ in range(RUNS)]
            label = runs.environment.label
    records = [run.record for run in made]
    told = [run for run in made if not run.record.attempt.outcome.is_prevented]
    # a case of before holds no more of its failure than the signature
    failure, changed = (known, Changed.SCRIPT_AND_RELEASE) if known else (expected, Changed.RELEASE)
    return Replayed(
        name=case.name,
        environment=label,
        script=name_of_test(script.name, case.variant),
        expected=f"{expected.outcome.word} {expected.signature or ''}".strip(),
        seen=tuple(f"{record.attempt.outcome.word} {record.signature or ''}".strip() for record in records),
        reproduces=any(failure.compare(run.failure, changed) for run in told) if told else None,
    )
