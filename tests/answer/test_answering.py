"""The work on a report: where its script runs, and how long it may take."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from whichtorch.answer.answer import ReleaseResult, ShownOutcome
from whichtorch.answer.answering import Answering, AnswerRequest, ReportTrial
from whichtorch.answer.claims import Claim, Claims
from whichtorch.answer.report import read_report
from whichtorch.environments.cache import EnvironmentCache
from whichtorch.failures.deadline import BESIDE_PASS, LONGER
from whichtorch.matrix.options import SearchAxes
from whichtorch.model import Outcome
from whichtorch.model.events import Show
from whichtorch.suite.headers import read_scenario


@pytest.mark.parametrize(
    ("passing", "running", "outcome"),
    [(50.0, 501.0, ShownOutcome.HANG), (50.0, 180.0, ShownOutcome.OTHER), (1.0, 60.0, ShownOutcome.HANG)],
)
def test_what_takes_long_where_it_passes_gets_ten_times_as_long_where_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passing: float, running: float, outcome: ShownOutcome
) -> None:
    """With the usual time nothing could be said of code that is compiled for a minute."""
    (tmp_path / "repro.py").write_text("import torch\n")
    looks: dict[str, float] = {}

    def results(_self: Answering, trial: ReportTrial, _claims: Claims, version: str) -> list[ReleaseResult]:
        looks[version] = LONGER * trial.scenario.timeout
        if version == "2.9.0":
            return [ReleaseResult(version=version, outcome=ShownOutcome.PASS, seconds=passing, cpu_seconds=passing)]
        return [ReleaseResult(version=version, outcome=ShownOutcome.OTHER, seconds=running, is_slow=True)]

    monkeypatch.setattr(Answering, "_results", results)
    request = AnswerRequest(report=read_report(b""), home=tmp_path)
    show = cast(Show, SimpleNamespace())
    answering = Answering(request=request, cache=EnvironmentCache(tmp_path), show=show)
    versions: dict[str, Any] = {"oldest": "2.0.0", "claimed": "2.1.0", "newest": "2.9.0"}
    trial = ReportTrial(
        scenario=read_scenario(tmp_path / "repro.py"),
        axes=SearchAxes(),
        python="",
        notes=(),
        differences=(),
        **versions,
    )

    here, _ = answering._both_ends(trial, Claims(claim=Claim(outcome=Outcome.HANG)))
    assert here.outcome is outcome
    assert looks["2.1.0"] >= BESIDE_PASS.times * passing
    assert looks["2.1.0"] >= looks["2.9.0"]
