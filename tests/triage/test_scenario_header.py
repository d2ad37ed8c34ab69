"""The header that makes a scenario of a script that was triaged."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tests.triage.test_casework import triaged
from whichtorch.matrix.model import Outcome
from whichtorch.matrix.suite import selection
from whichtorch.matrix.triage.case import Case, CaseEnvironment, Reproduction
from whichtorch.matrix.triage.scenario_header import LONGEST_WORDS, SHORTEST, scenario_of


def header(text: str) -> dict[str, Any]:
    """Return what a scenario's header says, as TOML."""
    lines = text.split("# ///\n")[0].splitlines()[1:]
    return tomllib.loads("\n".join(line.removeprefix("#").strip() for line in lines))


def case(**fields: Any) -> Case:
    seen = Reproduction(failing=3, runs=3, outcome=Outcome.FAIL, seconds=12.0, limit=60.0, **fields)
    where = CaseEnvironment(label="torch-2.11.0-pypi", torch="2.11.0", python="3.11")
    return Case(name="repro", script="repro.py", source_hash="1", reproduction=seen, environment=where)


def test_without_a_bisection_only_the_release_of_the_case_is_expected_to_fail() -> None:
    """The timeout leaves a slower machine room, and the summary is the first line of the message, cut short."""
    text = scenario_of(case(message=f'it said "no" {"x" * 200}\nand more'), "import torch\n\n\n")
    said = header(text)
    assert said["expect"] == [{"torch": "==2.11.0", "outcome": "fail"}]
    assert said["timeout"] == 60
    assert said["summary"].startswith(': it said "no" xxx')
    assert len(said["summary"]) == LONGEST_WORDS
    assert text.endswith("# ///\nimport torch\n")


def test_what_a_whole_triage_found_is_a_scenario(tmp_path: Path) -> None:
    """The header is read as any other: kind, time and what fails are those of the case."""
    found, _, _ = triaged(tmp_path)
    assert found.minimal is not None
    file = tmp_path / "mine.py"
    file.write_text(scenario_of(found, found.minimal.source))
    scenario = selection.script(str(file))
    assert found.classification is not None
    assert scenario.tags == (found.classification.category,)
    assert scenario.timeout == SHORTEST
