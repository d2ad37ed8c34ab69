"""The JSON Schema of --json is generated from the models, kept in docs/, and holds what is written."""

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from tests.results import environment
from whichtorch.answer.answer import ReportAnswer
from whichtorch.bisect.bisection import Bisection, Boundary
from whichtorch.bisect.search_request import AxisName
from whichtorch.environments.share_plan import SharePlan
from whichtorch.explain.explainer import Explanations
from whichtorch.fix.commission import FixAnswer
from whichtorch.model import Attempt, Cell, Environment, Fingerprint, Model, Outcome, Result, Run, StoppedBy
from whichtorch.records.compare.comparison import Comparison, compare
from whichtorch.records.compare.nights import Histories
from whichtorch.reports.event_lines import EventLine
from whichtorch.reports.stored_run_text import Runs
from whichtorch.search.search_state import AnswerKind, Find
from whichtorch.triage.case import Case
from whichtorch.triage.replay import Replayed
from whichtorch.watch.process_report import ProcessReport
from whichtorch.watch.watched_run import WatchedRun

DOCS = Path(__file__).parent.parent / "docs"
MODELS: dict[str, type[Model]] = {
    "result": Result,
    "bisect": Bisection,
    "compare": Comparison,
    "fix": FixAnswer,
    "triage": Case,
    "replay": Replayed,
    "answer": ReportAnswer,
    "explain": Explanations,
    "history": Histories,
    "runs": Runs,
    "plan": SharePlan,
    "stacks": ProcessReport,
    "events": EventLine,
    "run": WatchedRun,
}

RESULT = Result(
    run=Run(id="20261101-000000-abcd", started="2026-11-01T00:00:00+00:00", seconds=3.5, command=("matrix",)),
    environments=(
        environment(id="0123456789ab", packages={"torch": "2.11.0"}, fingerprint=Fingerprint(git_version="abc")),
    ),
    cells=(
        Cell(
            environment="0123456789ab",
            scenario="fake_tensor/add_meta",
            variant={"level": "fake"},
            outcome=Outcome.FAIL,
            signature="RuntimeError in merge_devices (fake_tensor.py)",
            expected=True,
            seconds=4.2,
            attempts=(Attempt(outcome=Outcome.FAIL, seconds=4.2, stopped_by=StoppedBy.EXIT, exit_code=1),),
        ),
    ),
)


BISECTION = Bisection(
    scenario="repro.py",
    question=Find.ANY,
    axis=AxisName.VERSION,
    values=("2.11.0", "2.12.0"),
    boundaries=(Boundary.model_validate({"from": "2.11.0", "to": "2.12.0", "change": "fix", "confidence": 0.99}),),
    installs=2,
    runs=5,
    seconds=61.5,
    answer=AnswerKind.BOUNDARY,
)


@cache
def generated(name: str = "result") -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | MODELS[name].model_json_schema(
        mode="serialization"
    )
    return json.dumps(schema, indent=1) + "\n"


@cache
def validator(name: str = "result") -> jsonschema.Draft202012Validator:
    """Return what checks JSON by a schema; to make one, and to check the schema itself, takes half a CPU second."""
    return jsonschema.Draft202012Validator(json.loads(generated(name)))


@pytest.mark.parametrize("name", MODELS)
def test_kept_schema_is_the_models(name: str) -> None:
    """docs/*.schema.json say what the models say; `python -m tests.test_schema` writes them anew."""
    assert (DOCS / f"{name}.schema.json").read_text(encoding="utf-8") == generated(name)
    jsonschema.Draft202012Validator.check_schema(json.loads(generated(name)))


def test_bisection_fulfils_the_schema() -> None:
    """What bisect --json writes has the promised names, "from" and "schema" among them."""
    written = json.loads(BISECTION.model_dump_json(by_alias=True))
    validator("bisect").validate(written)
    promised = {
        "schema",
        "scenario",
        "question",
        "axis",
        "boundaries",
        "probes",
        "installs",
        "runs",
        "seconds",
        "answer",
    }
    assert promised <= written.keys()
    assert {"from", "to", "change", "confidence", "untestable_between"} <= written["boundaries"][0].keys()


def test_result_fulfils_the_schema() -> None:
    """What --json writes is what other programs were promised."""
    validator().validate(json.loads(RESULT.model_dump_json(by_alias=True)))


def test_result_has_the_promised_fields() -> None:
    """The names that readers rely on are there."""
    written = json.loads(RESULT.model_dump_json(by_alias=True))
    assert written["schema"] == 1
    assert {"id", "torch", "python", "build", "config", "packages", "fingerprint"} <= written["environments"][0].keys()
    cell = written["cells"][0]
    assert {
        "environment",
        "scenario",
        "variant",
        "outcome",
        "signature",
        "expected",
        "seconds",
        "attempts",
    } <= cell.keys()
    promised = {
        "outcome",
        "seconds",
        "stopped_by",
        "exit_code",
        "signal",
        "peak_rss_mb",
        "survivors",
        "stdout",
        "stderr",
    }
    assert promised <= cell["attempts"][0].keys()


def test_comparison_fulfils_the_schema() -> None:
    """What compare --json writes has the promised names."""
    written = json.loads(compare(RESULT, RESULT).model_dump_json(by_alias=True))
    validator("compare").validate(written)
    assert {"schema", "old", "new", "cells", "environments", "incomplete"} <= written.keys()
    assert {"name", "change", "old", "new", "script_changed", "why"} <= written["cells"][0].keys()


def test_result_is_read_back() -> None:
    """A stored result makes the same report later."""
    assert Result.model_validate_json(RESULT.model_dump_json(by_alias=True)).cells[0].outcome is Outcome.FAIL


def test_fingerprint_is_written_as_the_probe_gave_it() -> None:
    """A record may hold fewer facts than the model, unknown ones and failed answers: it is written field for field."""
    probed: dict[str, object] = {"torch": "2.11.0", "hip": None, "config": "unknown (OSError)", "gpus": []}
    probed |= {"cpu": {"count": 2, "cache": 3}, "new": {"fact": [1, None]}}
    fields = RESULT.environments[0].model_dump(mode="json") | {"fingerprint": probed}
    written = json.loads(Environment.model_validate(fields).model_dump_json())
    assert json.dumps(written) == json.dumps(fields)


if __name__ == "__main__":
    for model in MODELS:
        (DOCS / f"{model}.schema.json").write_text(generated(model), encoding="utf-8")
