"""Rules, versions and conditions from synthetic environments and records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtorch.explain.explanation import Explanation, ExplanationKind, explain, observe, smallest_rule
from whichtorch.model import UNOBSERVED, Attempt, Cell, Environment, Limits, Outcome, Record, StoppedBy
from whichtorch.reports.explanation_text import explanation_lines

PASS, HANG, FAIL = Outcome.PASS, Outcome.HANG, Outcome.FAIL
COMMITS = {"2.11.0": "a" * 40, "2.12.1": "b" * 40, "2.15.0": "c" * 40}


def environment(torch: str = "2.11.0", config: str = "default", **fields: Any) -> Environment:
    fingerprint = {"git_version": COMMITS.get(torch), "meta_mm": {"python": config != "cpp-meta"}}
    defaults: dict[str, Any] = {"python": "3.11.7", "build": "pypi", "fingerprint": fingerprint}
    label = f"torch-{torch}-pypi" + (f"-{config}" if config != "default" else "")
    fields = defaults | fields
    id_ = f"{torch}/{config}/{fields['build']}/{fields['python']}"
    return Environment(id=id_, label=label, torch=torch, config=config, **fields)


def record(environment: Environment, outcome: Outcome, signature: str | None = None) -> Record:
    return Record(
        key=environment.id,
        environment=environment.id,
        scenario="family/case",
        source_hash="hash",
        variant={},
        limits=Limits(timeout=60, memory_mb=1000),
        attempt=Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.EXIT),
        signature=signature,
    )


def explained(
    *rows: tuple[Environment, Outcome] | tuple[Environment, Outcome, str],
    here: Environment | None = None,
    cells: dict[str, Cell] | None = None,
) -> Explanation:
    records = [record(row[0], row[1], row[2] if len(row) > 2 else None) for row in rows]
    environments = {row[0].id: row[0] for row in rows}
    observations = observe("family/case", {}, records, environments, cells or {})
    return explain("family/case", observations, here.id if here else None)


def text(explanation: Explanation) -> str:
    return "\n".join(explanation_lines(explanation, "whichtorch matrix", "whichtorch explain family/case --run"))


def kinds(explanation: Explanation) -> list[ExplanationKind]:
    return [answer.kind for answer in explanation.answers]


def test_config_decides_in_every_version() -> None:
    """Hangs under one config and passes under two others, in each of three versions: the config it is."""
    rows = [
        (environment(torch, config), HANG if config == "default" else PASS)
        for torch in COMMITS
        for config in ("default", "single-thread", "iomp")
    ]
    found = explained(*rows)
    assert kinds(found) == [ExplanationKind.ENVIRONMENT]
    assert found.is_answered
    assert found.answers[0].rule is not None
    assert found.answers[0].rule.factors == ("config",)
    assert "hangs in 3 of 3 environments with config default, passes in 6 of 6 without" in text(found)
    assert "in every version tried: torch 2.11.0, 2.12.1, 2.15.0" in text(found)


def test_what_is_seen_with_a_config_is_named_after_it() -> None:
    """Where a field of the fingerprint separates as well as the config, the config comes first."""
    found = explained((environment(), HANG), (environment(config="cpp-meta"), PASS))
    rule = found.answers[0].rule
    assert rule is not None
    assert rule.words == "config default"
    assert [term.words for term in rule.equal] == ["aten::mm's Meta kernel registered from Python"]


def test_fingerprint_decides_where_no_axis_does() -> None:
    """Two builds of each kind: only where the kernel is registered tells those that hang."""
    rows = []
    for number, is_python in enumerate((True, True, False, False)):
        fingerprint = {"meta_mm": {"python": is_python}, "git_version": str(number)}
        own = environment(python=f"3.{11 + number % 2}.1", build=f"own-{number // 3}", fingerprint=fingerprint)
        rows.append((own.model_copy(update={"id": str(number)}), HANG if is_python else PASS))
    found = explained(*rows)
    assert found.answers[0].rule is not None
    assert found.answers[0].rule.words == "aten::mm's Meta kernel registered from Python"


def test_dispatch_tables_are_compared_row_by_row() -> None:
    """A kernel that moved to another language is named; one that moved by a line or a shard is no difference."""
    line = "{}: registered at {} [kernel]"

    def fingerprint(meta: str, cpu: str) -> dict[str, object]:
        return {"dispatch": {"aten::mm": line.format("CPU", cpu) + "\n" + line.format("Meta", meta)}}

    python, cpp = "/e/torch/_meta_registrations.py:53", "/w/RegisterMeta_0.cpp:9424"
    old = environment(build="own", fingerprint=fingerprint(python, "/w/RegisterCPU_0.cpp:1"))
    new = environment(build="own", fingerprint=fingerprint(cpp, "/w/RegisterCPU_1.cpp:9"))
    found = explained((old, HANG), (new.model_copy(update={"id": "new"}), PASS))
    assert found.answers[0].rule is not None
    assert found.answers[0].rule.words == "aten::mm's Meta kernel Python"
    assert found.answers[0].rule.equal == ()


def test_version_is_told_with_its_commits() -> None:
    """The last red and the first passing version, and where to read what lies between."""
    found = explained((environment("2.11.0"), FAIL), (environment("2.12.1"), PASS), (environment("2.15.0"), PASS))
    assert kinds(found) == [ExplanationKind.VERSION]
    assert "last version that fails: 2.11.0, first that passes: 2.12.1" in text(found)
    assert f"https://github.com/pytorch/pytorch/compare/{'a' * 40}...{'b' * 40}" in text(found)


def test_nothing_that_was_tried_fixes_it() -> None:
    """Red in all versions known is an answer, too."""
    found = explained((environment("2.11.0"), FAIL), (environment("2.15.0"), FAIL))
    assert kinds(found) == [ExplanationKind.VERSION]
    assert found.is_answered
    assert "no version tried fixes it: fails in 2.11.0, 2.15.0" in text(found)


def test_history_with_two_turns_is_shown_whole() -> None:
    """Good, bad, good again: both turns are shown."""
    found = explained((environment("2.1.2"), PASS), (environment("2.6.0"), FAIL), (environment("2.7.0"), PASS))
    assert kinds(found) == [ExplanationKind.VERSION]
    assert "its history turns 2 times: 2.1.2 passes, 2.6.0 fails, 2.7.0 passes" in text(found)


def test_factors_that_cannot_be_told_apart_are_both_named_with_the_cell_that_would() -> None:
    """Version and config changed together: no answer, but the command that gives one."""
    found = explained((environment("2.11.0"), HANG), (environment("2.12.1", "iomp"), PASS))
    assert not found.is_answered
    axes = {"config": "iomp", "patch": "none", "torch": "2.11.0", "python": "3.11", "build": "pypi"}
    axes["hardware"] = "any"
    assert found.missing[0].axes == axes
    command = "whichtorch matrix family/case --torch 2.11.0 --build pypi --python 3.11 --config iomp"
    assert command in text(found)


def test_what_was_not_tried_in_every_version_is_not_claimed_for_it() -> None:
    """A version in which it only ever passed is not one in which the config decides."""
    found = explained((environment(), HANG), (environment(config="iomp"), PASS), (environment("2.15.0", "iomp"), PASS))
    assert kinds(found) == [ExplanationKind.ENVIRONMENT]
    assert "in every version" not in text(found)


def test_two_factors_may_be_needed() -> None:
    """Hangs only with an old version and the default config: the rule names both."""
    found = explained(
        (environment("2.11.0"), HANG),
        (environment("2.12.1"), PASS),
        (environment("2.11.0", "iomp"), PASS),
        (environment("2.12.1", "iomp"), PASS),
    )
    assert found.answers[0].rule is not None
    assert found.answers[0].rule.factors == ("config", "torch")
    assert found.is_answered


def test_conditions_that_were_not_met_take_a_pass_back() -> None:
    """A vacuous cell is shown with what happened instead, and is no evidence of passing."""
    vacuous = environment()
    cell = Cell(
        environment=vacuous.id,
        scenario="family/case",
        outcome=Outcome.VACUOUS,
        expected=False,
        seconds=1,
        reason="aten::mm was not called under aten::matmul, but under aten::addmm",
    )
    found = explained((vacuous, PASS), cells={vacuous.id: cell})
    assert kinds(found) == [ExplanationKind.CONDITIONS]
    assert found.is_answered
    assert "aten::mm was not called under aten::matmul, but under aten::addmm (torch-2.11.0-pypi)" in text(found)


def test_pass_whose_conditions_nobody_could_observe_is_no_evidence() -> None:
    """A doubted pass is counted apart, and no rule rests on it."""
    doubted = environment(config="iomp")
    fields: dict[str, Any] = {"environment": doubted.id, "scenario": "family/case", "expected": True, "seconds": 1}
    cell = Cell(**fields, outcome=PASS, reason=f"{UNOBSERVED}: it did not end")
    found = explained((environment(), HANG), (doubted, PASS), cells={doubted.id: cell})
    assert found.answers == ()
    assert "no evidence: doubted pass in 1 environment" in text(found)


def test_it_does_hang_here() -> None:
    """Who asks why it does not hang here may be wrong."""
    ours = environment()
    found = explained((ours, HANG, "stuck: futex"), (environment(config="iomp"), PASS), here=ours)
    assert kinds(found)[0] == ExplanationKind.HERE
    assert "here: it hangs here too: torch-2.11.0-pypi, stuck: futex" in text(found)


def test_here_is_told_by_what_sets_it_apart() -> None:
    """The passing environment of the question is shown with its value of the factor that decides."""
    ours = environment(config="iomp")
    assert "here (torch-2.11.0-pypi-iomp): config iomp" in text(
        explained((environment(), HANG), (ours, PASS), here=ours)
    )


def test_here_without_a_run_is_no_answer() -> None:
    """Nothing is said of an environment in which the test has not run."""
    found = explained((environment(), HANG), (environment(config="iomp"), PASS), here=environment("2.15.0"))
    assert found.problem == "the test has not run here"
    assert not found.is_answered


@pytest.mark.parametrize(
    "outcome", [Outcome.SKIP, Outcome.ERROR, Outcome.UNBUILDABLE, Outcome.BROKEN, Outcome.SLOW, Outcome.VACUOUS]
)
def test_what_says_nothing_about_torch_is_no_evidence(outcome: Outcome) -> None:
    """Only red and passing cells count."""
    found = explained((environment(), HANG), (environment(config="iomp"), outcome))
    assert ExplanationKind.ENVIRONMENT not in kinds(found)
    assert not any(observation.is_pass for observation in found.observations)


def test_another_failure_is_no_evidence() -> None:
    """An operator that is gone raises something else: that version says nothing about the bug."""
    found = explained(
        (environment("2.11.0"), FAIL, "AssertionError in helper (x.py) < <module> (repro.py)"),
        (environment("2.12.1"), PASS),
        (environment("2.15.0"), FAIL, "AttributeError in helper (x.py) < <module> (repro.py)"),
    )
    assert [observation.is_different for observation in found.observations] == [False, False, True]
    assert "another failure, not counted: fail in torch-2.15.0-pypi: AttributeError" in text(found)
    assert "last version that fails: 2.11.0, first that passes: 2.12.1" in text(found)


def test_flaky_environment_is_red_with_its_count() -> None:
    """One hang in three attempts is a hang, and is shown as one of three."""
    old, new = environment("2.11.0"), environment("2.12.1")
    found = explained((old, PASS), (old, HANG), (old, PASS), (new, PASS))
    assert "flaky: hangs in 1 of 3 attempts in torch-2.11.0-pypi" in text(found)
    assert kinds(found) == [ExplanationKind.VERSION]


def test_one_pass_is_luck_where_a_failure_comes_and_goes() -> None:
    """A hang in one of two attempts needs seven passes elsewhere before a version is blamed."""
    old, new = environment("2.11.0"), environment("2.12.1")
    flaky = [(old, PASS), (old, HANG)]
    few, enough = explained(*flaky, (new, PASS)), explained(*flaky, *([(new, PASS)] * 7))
    assert "7 passes are needed to call one good, not 1: give --repeat 7" in text(few)
    assert (few.is_answered, enough.is_answered) == (False, True)


@pytest.mark.parametrize("outcome", [PASS, HANG])
def test_one_side_alone_is_not_enough(outcome: Outcome) -> None:
    """Without both a failure and a pass there is nothing to compare."""
    found = explained((environment(), outcome))
    assert not found.is_answered
    assert "not enough evidence" in text(found)
    assert "whichtorch explain family/case --run" in text(found)


def test_observing_attempts_are_no_evidence() -> None:
    """Environments without any attempt that judges are not observed at all."""
    assert observe("family/case", {}, [], {"x": environment()}, {}) == []


def test_what_is_only_seen_decides_nothing_while_other_things_separate_as_well() -> None:
    """Two environments of the user's that differ in many packages: they are named, and none is blamed."""
    packages = {"numpy": "1.26.4", "sympy": "1.13.1"}
    old = environment(build="existing", packages=packages)
    new = environment(build="existing", packages={"numpy": "2.2.0", "sympy": "1.14.0"})
    found = explained((old, HANG), (new.model_copy(update={"id": "new"}), PASS))
    assert not found.is_answered
    assert "the records cannot tell which of these decides" in text(found)
    assert "separates equally well: sympy up to 1.13.1" in text(found)


VALUES = st.sampled_from(["1.0", "2.0", "3.0", "x", "y"])
FACTORS = st.fixed_dictionaries(
    dict.fromkeys(("config", "torch", "python", "build"), VALUES),
    optional={"package numpy": VALUES, "cpu.model": VALUES, "meta_mm.python": st.sampled_from(["True", "False"])},
)


@given(st.lists(st.tuples(FACTORS, st.booleans()), max_size=12))
def test_rule_is_never_contradicted(rows: list[tuple[dict[str, str], bool]]) -> None:
    """Whatever is recorded, every red environment meets the rule and its rivals, and no passing one does."""
    red = [factors for factors, is_red in rows if is_red]
    green = [factors for factors, is_red in rows if not is_red]
    rule = smallest_rule(red, green)
    if rule is None:
        return
    for terms in (rule.terms, *rule.rivals, *((term,) for term in rule.equal)):
        assert all(term.holds(factors) for term in terms for factors in red)
        assert not any(all(term.holds(factors) for term in terms) for factors in green)


@given(st.lists(FACTORS, min_size=1, max_size=8), st.sampled_from(["config", "torch"]))
def test_rule_finds_the_one_factor_that_decides(rows: list[dict[str, str]], factor: str) -> None:
    """Where a value of one axis decides, a rule of one term is found."""
    red = [row for row in rows if row[factor] == "1.0"]
    green = [row for row in rows if row[factor] != "1.0"]
    rule = smallest_rule(red, green)
    assert (rule is None) == (not red or not green)
    assert rule is None or len(rule.terms) == 1
