"""What kind of failure it is, of what real scripts showed on real releases of torch.

Each file of `recorded` is what a triage found of one small script, by its name and the release of torch.
"""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

from whichtorch.failures.failure import Failure
from whichtorch.failures.tracebacks import CodeFrame, RaisedException
from whichtorch.model import Outcome
from whichtorch.triage.case import Case, CompileCall, FailureFacts, Ladder, Rung, checks_backend, facts_of
from whichtorch.triage.categories import CATEGORIES, UNCLASSIFIED, classify, logs_of

RECORDED = Path(__file__).parent / "recorded"
KINDS = {
    "aot": ("trace-operator", "torch.compile", "while compiling"),
    "branch": ("data-dependent", "torch.compile", "while compiling"),
    "eager_op": ("operator", "eager", ""),
    "export_branch": ("data-dependent", "torch.export (strict)", "while compiling"),
    "export_constraint": ("dynamic-shapes", "torch.export (strict)", "while compiling"),
    "fake_device": ("fake-tensor", "eager", ""),
    "internal": ("script-check", "eager", ""),
    "lowering": ("lowering", "torch.compile", "while compiling"),
    "meta_missing": ("meta-error", "eager", ""),
    "meta_nonzero": ("meta-missing", "eager", ""),
    "own_backend": ("own-backend", "torch.compile", "while compiling"),
    "own_error": ("script-check", "eager", ""),
    "recompiles": ("recompile-limit", "torch.compile", "while compiling"),
    "removed": ("missing-api", "eager", ""),
    "segfault": ("crash", "eager", ""),
    "silent_recompile": ("silent-recompilation", "torch.compile", ""),
    "trace_op": ("trace-operator", "torch.compile", "while compiling"),
    "unsupported": ("graph-break", "torch.compile", "while compiling"),
}
OTHERWISE = {"recompiles-2.6.0": ("missing-api", "eager", "")}  # the setting came later


@pytest.mark.parametrize("file", sorted(RECORDED.glob("*.json")), ids=lambda file: file.stem)
def test_a_real_failure_has_its_kind(file: Path) -> None:
    """Kind, mode and stage are those that somebody who knows torch would name."""
    case = Case.model_validate(json.loads(file.read_text()))
    facts = replace(facts_of(case, RECORDED / "absent.py"), uses_meta=case.name.startswith("meta"))
    found = classify(facts)
    expected = OTHERWISE.get(file.stem, KINDS[case.name])
    assert (found.category, found.mode, found.stage) == expected


def test_every_kind_is_recorded() -> None:
    """No entry of the table above is about a file that is not there."""
    assert {file.stem.partition("-")[0] for file in RECORDED.glob("*.json")} == set(KINDS)


def test_the_outcome_comes_before_what_was_raised() -> None:
    """A hang is a hang and a crash a crash, whatever else was written."""
    calls = (CompileCall(call="compile", backend="inductor"),)
    passes = (Rung(name="off", outcome=Outcome.PASS, is_same=False),)
    compiled = FailureFacts(failure=Failure(outcome=Outcome.HANG), calls=calls, ladder=Ladder(rungs=passes))
    assert classify(compiled).category == "hang"
    assert classify(replace(compiled, failure=Failure(outcome=Outcome.CRASH))).category == "compiled-crash"
    assert classify(FailureFacts(failure=Failure(outcome=Outcome.CRASH))).category == "crash"
    assert classify(FailureFacts(failure=Failure(outcome=Outcome.OOM))).category == "out-of-memory"
    assert classify(FailureFacts(failure=Failure(outcome=Outcome.PASS))).category == "healthy"
    assert classify(FailureFacts(failure=Failure(outcome=Outcome.SKIP))).category == "skipped"


COUNTED = """
graphs, others = [], []
def counting(graph, inputs):
    graphs.append(graph)
    return graph.forward
result = torch.compile(f, backend=counting)(x)
assert len(graphs) == 1
assert result == 3
if len(graphs) > 1:
    raise ValueError("again")
counter = Counter()
torch.compile(f, backend=counter)(x)
assert (
    counter.frame_count
    == 1
)
assert others == []
"""


@pytest.mark.parametrize(("line", "does"), [(7, True), (8, False), (10, True), (14, True), (17, False)])
def test_a_check_of_what_a_backend_keeps_is_told_from_one_of_values(line: int, does: bool) -> None:
    """A list that it fills, a counter that it is, and an `if` before a `raise` count; a result does not."""
    assert checks_backend(ast.parse(COUNTED), line) is does


def test_a_count_that_is_wrong_eagerly_too_is_still_one_of_compilations() -> None:
    """With compilation off a backend is never called, so its count of 0 says nothing of the script's values."""
    source = "assert len(graphs) == 1"
    cause = RaisedException(
        type="AssertionError",
        message="2 graphs",
        frames=(CodeFrame(file="/home/me/a.py", line=7, function="<module>", source=source),),
    )
    ladder = Ladder(rungs=(Rung(name="off", outcome=Outcome.FAIL, is_same=True),), graph_breaks=1)
    calls = (CompileCall(call="compile", backend="counting", own=True),)
    facts = FailureFacts(failure=Failure(outcome=Outcome.FAIL), chain=(cause,), calls=calls, ladder=ladder)
    assert classify(facts).category == "script-check"
    assert classify(replace(facts, checks_backend=True)).category == "silent-graph-break"


def test_what_fits_no_rule_is_unclassified() -> None:
    """A script that ends with an exit code and no exception gives nothing to go by."""
    found = classify(FailureFacts(failure=Failure(outcome=Outcome.FAIL)))
    assert (found.category, found.nearest) == (UNCLASSIFIED, "")


def test_a_kind_has_words_and_logs() -> None:
    """Each row says what it is; logs are asked for by a kind's name."""
    assert all(category.words and category.name for category in CATEGORIES)
    assert "recompiles" in logs_of("recompile-limit")
    assert logs_of(UNCLASSIFIED) == ()
