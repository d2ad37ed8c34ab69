"""docs/contract.md says what the program does: each of its tables is compared with the code that it is about."""

import ast
import re
from collections.abc import Iterator
from inspect import signature
from typing import Any

import click
import pytest

from tests import contract
from tests.reports.test_junit import properties, read
from tests.reports.test_table import NEW, cell, result
from tests.test_schema import DOCS, MODELS
from whichtorch.bisect.axes.git import MARKER
from whichtorch.cli.app import app
from whichtorch.cli.command import Exit
from whichtorch.environments.installation import environment_id
from whichtorch.explain.explainer import Explanations
from whichtorch.model import (
    UNOBSERVED,
    Attempt,
    Build,
    Cell,
    Config,
    Diagnosis,
    Environment,
    Fingerprint,
    Measurement,
    Model,
    Outcome,
    Record,
    Request,
    Result,
    Run,
    StoppedBy,
    record_key,
)
from whichtorch.records.compare.comparison import ChangeKind, classify
from whichtorch.records.store import CellLine
from whichtorch.reports.event_lines import NAMES, EventLine
from whichtorch.reports.markdown import LIMIT

ROOT = DOCS.parent
STORED: tuple[type[Model], ...] = (Result, Run, Environment, Cell, Measurement, CellLine, Record, Attempt, EventLine)
EVERYWHERE = {Exit.GOOD, Exit.USAGE, Exit.PREVENTED, Exit.INTERRUPTED}  # codes that any command may end with


def helps(group: click.Group) -> Iterator[tuple[str, str]]:
    """Yield the help of each command, and of those below it, with the name of the one at the top."""
    for name, command in group.commands.items():
        yield name, command.help or ""
        if isinstance(command, click.Group):
            yield from ((name, below) for _, below in helps(command))


def test_exit_codes() -> None:
    """Every code has its number and its name."""
    promised = {int(code): name for code, name, _ in contract.table("code", "name", "meaning")}
    assert promised == {int(code): code.name for code in Exit}


def test_exit_codes_of_commands() -> None:
    """The help of a command names just the codes that the table gives it."""
    promised = {
        row[0]: {Exit(code) for code, what in zip((1, 4), row[1:], strict=True) if what != "-"}
        for row in contract.table("command", "1", "4")
    }
    for name, text in helps(app()):
        said = re.search(r"Exit code:(.*)", text, re.DOTALL)
        assert said is not None, f"the help of {name} says nothing of its exit code"
        codes = {Exit(int(code)) for code in re.findall(r"\b(\d+)\b", said[1])}
        own = {Exit.STOPPED} if name == "run" else set()
        assert codes - EVERYWHERE == promised.pop(name, set()) | own
    assert not promised


def test_outcomes() -> None:
    """Every outcome is there with the meaning that the legend gives it, and with what it says about torch."""
    promised = {row[0]: row[1:] for row in contract.table("outcome", "meaning", "says")}
    assert list(promised) == [str(outcome) for outcome in Outcome]
    for outcome in Outcome:
        meaning, says = promised[outcome]
        assert meaning.startswith(outcome.row.meaning)
        assert (says == "red") is outcome.is_red
        assert (says == "no evidence") is outcome.is_prevented
        assert (says == "good") is (outcome is Outcome.PASS)


def test_what_stops_an_attempt() -> None:
    """Every word of `stopped_by` is there."""
    assert contract.words("stopped by", "meaning") == [str(word) for word in StoppedBy]


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("is_expected", [True, False])
def test_junit(outcome: Outcome, is_expected: bool) -> None:
    """What is promised of an outcome is what a reader of junit.xml finds."""
    rows = {row[0]: row[2 if is_expected else 1] for row in contract.table("outcome", "not expected", "expected")}
    report = result([NEW], [cell(NEW, outcome, expected=is_expected)])
    ((case,),) = read(report)
    found = [f'<{type(child).__name__.lower()} type="{child.type}">' for child in case.result] or ["plain"]
    assert found == [rows[outcome]]


def test_junit_properties() -> None:
    """The properties of suites and cases are those that are named, and no others."""
    attempts = (
        Attempt(outcome=Outcome.HANG, seconds=1, stopped_by=StoppedBy.STALL, diagnosis=Diagnosis(summary="in take")),
        Attempt(outcome=Outcome.PASS, seconds=1, stopped_by=StoppedBy.EXIT),
    )
    facts: dict[str, Any] = {"expected": False, "known": "x", "signature": "x"}
    cells = [
        cell(NEW, Outcome.HANG, attempts=attempts, **facts),
        cell(NEW, Outcome.PASS, scenario="b", reason=UNOBSERVED, **facts),
    ]
    environment = NEW.model_copy(update={"fingerprint": Fingerprint(git_version="abc"), "patch": "fix@3fa2c1"})
    (suite,) = read(result([environment], cells))
    sentences = re.search(r"Properties of a suite:(.*?)Properties of a case(.*?)`classname`", contract.TEXT, re.DOTALL)
    assert sentences is not None
    of_suite, of_case = (re.findall(r"`(\w+)`", sentence) for sentence in sentences.groups())
    assert list(properties(suite)) == of_suite
    assert {name for case in suite for name in properties(case)} == set(of_case)


@pytest.mark.parametrize("model", STORED, ids=lambda model: model.__name__)
def test_fields(model: type[Model]) -> None:
    """Every field that is written is there, by the name it is written under, in its order."""
    written = [field.alias or name for name, field in model.model_fields.items() if not field.exclude]
    assert contract.fields(model.__name__) == written


def test_no_model_is_told_that_is_not_compared() -> None:
    """A section about a model cannot grow old unseen."""
    assert re.findall(r"\n### `(\w+)`", contract.TEXT) == [model.__name__ for model in STORED]


def test_events() -> None:
    """Every event has a name."""
    assert contract.words("event", "what has happened") == list(NAMES.values())


def test_schemas() -> None:
    """Every schema in docs/ is there, with the model that it is made from."""
    promised = {
        name.removesuffix(".schema.json"): model for name, _, model in contract.table("schema", "command", "one of")
    }
    assert promised == {name: model.__name__ for name, model in MODELS.items()}
    assert {f"{name}.schema.json" for name in promised} == {path.name for path in DOCS.glob("*.schema.json")}
    assert Explanations.model_fields["schema_"].alias == "schema_version"


def test_identities() -> None:
    """What makes environments and records the same is what their identities are made from."""
    promised = {thing: same.split(", ") for thing, same in contract.table("thing", "is the same where these are")}
    assert promised["record's key"] == list(signature(record_key).parameters)
    made_of: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whichtorch.environments.installation.digest", made_of.append)
        request = Request(torch="2.11.0", python="3.11", build=Build(name="pypi"), config=Config(name="default"))
        environment_id(request, "3.11.7", [], [])
    (parts,) = made_of
    assert isinstance(parts, dict)
    assert promised["environment"] == list(parts)


SIDES = {
    "passes": cell(NEW, Outcome.PASS),
    "fails": cell(NEW, Outcome.FAIL, signature="ValueError in f (a.py)"),
    "otherwise": cell(NEW, Outcome.FAIL, signature="TypeError in g (b.py)"),
    "no verdict": cell(NEW, Outcome.SLOW),
    "not there": None,
}


def test_how_runs_are_compared() -> None:
    """Every word for a change is there, and what becomes of each pair of cells is what `compare` makes of it."""
    assert contract.words("change", "meaning") == [str(change) for change in ChangeKind]
    headers = ["in the old run", "passes now", "fails in the same way", "fails in another way"]
    rows = contract.table(*headers, "no verdict now", "not there now")
    before = [side for name, side in SIDES.items() if name != "otherwise"]
    found = [[str(classify(old, new)[0]) if old or new else "" for new in SIDES.values()] for old in before]
    assert [row[1:] for row in rows] == found


def test_variables() -> None:
    """Every variable of ours that the code names is there, and no other."""
    files = [ROOT / "noxfile.py", *(ROOT / "whichtorch").rglob("*.py")]
    ours = [path for path in files if "scenarios" not in path.parts]  # scripts have their variants
    named = {
        node.value
        for path in ours
        if "WHICHTORCH_" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"WHICHTORCH_[A-Z_]*[A-Z]", node.value)
    }
    assert set(contract.words("variable", "set by", "meaning")) == named - {MARKER}  # that is a file's name


def test_limit_of_the_markdown() -> None:
    """The size that is promised is the one that is kept."""
    (row,) = (row for row in contract.table("file", "holds") if row[0] == "report.md")
    assert f"less than {LIMIT // 1000} kB" in row[1]
