"""The JSON Schema of --json is generated from the models, kept in docs/, and holds what is written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from matrix.model import Attempt, Cell, Environment, Outcome, Result, Run, StoppedBy

KEPT = Path(__file__).parent.parent / "docs" / "result.schema.json"

RESULT = Result(
    run=Run(id="20261101-000000-abcd", started="2026-11-01T00:00:00+00:00", seconds=3.5, command=("matrix",)),
    environments=(
        Environment(
            id="0123456789ab",
            label="torch-2.11.0-pypi",
            torch="2.11.0",
            python="3.11.7",
            build="pypi",
            config="default",
            packages={"torch": "2.11.0"},
            fingerprint={"git_version": "abc"},
        ),
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


def generated() -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Result.model_json_schema(
        mode="serialization"
    )
    return json.dumps(schema, indent=1) + "\n"


def test_kept_schema_is_the_models() -> None:
    """docs/result.schema.json says what the models say; `python -m tests.test_schema` writes it anew."""
    assert KEPT.read_text(encoding="utf-8") == generated()


def test_result_fulfils_the_schema() -> None:
    """What --json writes is what other programs were promised."""
    jsonschema.validate(json.loads(RESULT.model_dump_json(by_alias=True)), json.loads(generated()))


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


def test_result_is_read_back() -> None:
    """A stored result makes the same report later."""
    assert Result.model_validate_json(RESULT.model_dump_json(by_alias=True)).cells[0].outcome is Outcome.FAIL


if __name__ == "__main__":
    KEPT.write_text(generated(), encoding="utf-8")
