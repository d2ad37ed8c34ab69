"""Declared conditions and an observation -> which were met, and what was seen instead."""

from typing import Any

import pytest

from whichtorch.hangs import conditions
from whichtorch.model import Condition, DispatchedCalls, Scenario

META = ["ADInplaceOrView", "AutogradMeta", "Meta"]


def row(op: str, *under: str, **fields: Any) -> dict[str, Any]:
    """Return what the observer writes of an operator."""
    known = {"keys": META, "grad_mode": True, "python_key": False, "thread": "main"}
    return {"op": op, "under": list(under), "devices": ["meta"], "keys_from": "call", "count": 1} | known | fields


LINEAR = [
    row("aten::linear"),
    row("aten::t", "aten::linear"),
    row("aten::matmul", "aten::linear"),
    row("aten::mm", "aten::matmul", "aten::linear"),
]
WITH_BIAS = [row("aten::linear"), row("aten::addmm", "aten::linear"), row("aten::mm", "aten::addmm", "aten::linear")]


def seen(condition: Condition, rows: list[dict[str, Any]]) -> tuple[bool | None, str]:
    observation = DispatchedCalls.model_validate({"operators": rows, "all_threads": True})
    (result,) = conditions.check([condition], observation)
    assert result.condition == condition
    return result.met, result.seen


@pytest.mark.parametrize(
    "condition",
    [
        Condition(op="aten::mm"),
        Condition(op="aten::mm", under="aten::matmul", keys=("Meta", "AutogradMeta")),
        Condition(op="aten::mm", under="aten::linear"),
        Condition(op="aten::mm", grad_mode=True, thread="main", python_key=False),
    ],
)
def test_met_by_a_call_that_is_all_that_is_asked(condition: Condition) -> None:
    """Enclosing operators count at any depth, and keys where the tensors have them among others."""
    assert seen(condition, LINEAR)[0]


@pytest.mark.parametrize(
    ("condition", "rows", "instead"),
    [
        (
            Condition(op="aten::mm", under="aten::matmul"),
            WITH_BIAS,
            "aten::mm was dispatched under aten::addmm, not under aten::matmul",
        ),
        (
            Condition(op="aten::mm", under="aten::matmul"),
            [row("aten::mm")],
            "aten::mm was dispatched by itself, not under aten::matmul",
        ),
        (
            Condition(op="aten::mm", keys=("Meta", "AutogradMeta")),
            [row("aten::mm", keys=["AutogradCPU", "CPU"])],
            "aten::mm was dispatched with AutogradCPU, CPU, not with Meta, AutogradMeta",
        ),
        (
            Condition(op="aten::mm", grad_mode=False),
            [row("aten::mm"), row("aten::mm", "aten::addmm")],
            "aten::mm was dispatched with grad mode on, not off",
        ),
        (
            Condition(op="aten::mm", thread="other"),
            LINEAR,
            "aten::mm was dispatched in the main thread, not in another one",
        ),
        (
            Condition(op="aten::mm", python_key=True),
            LINEAR,
            "aten::mm was dispatched without the Python key, not with the Python key",
        ),
        (
            Condition(op="aten::bmm", under="aten::matmul"),
            LINEAR,
            "aten::bmm was not dispatched, but under aten::matmul: aten::mm",
        ),
        (Condition(op="aten::bmm"), LINEAR, "aten::bmm was not dispatched, but aten::linear"),
        (
            Condition(op="aten::mm", under="aten::matmul"),
            [row("aten::linear"), row("aten::addmm", "aten::linear")],
            "aten::mm was not dispatched, but aten::addmm under aten::linear",
        ),
        (Condition(op="aten::bmm"), [], "aten::bmm was not dispatched, nor was any other operator"),
    ],
)
def test_what_happened_instead_is_told(condition: Condition, rows: list[dict[str, Any]], instead: str) -> None:
    """An unmet condition says what the nearest call of its operator was like, or which operators there were."""
    assert seen(condition, rows) == (False, instead)


@pytest.mark.parametrize(
    ("declared", "unknown"),
    [
        ({"grad_mode": False}, "with grad mode off"),
        ({"python_key": False}, "without the Python key"),
        ({"thread": "other"}, "in another thread"),
        ({"thread": "main", "python_key": True}, "in the main thread, with the Python key"),
    ],
)
def test_what_nobody_could_see_is_neither_met_nor_unmet(declared: dict[str, Any], unknown: str) -> None:
    """A call that may have been as asked leaves it open, whatever other calls were."""
    rows = [row("aten::mm", thread=None, grad_mode=None, python_key=None)]
    wanted = f"aten::mm was dispatched with ADInplaceOrView, AutogradMeta, Meta, not known whether {unknown}"
    assert seen(Condition(op="aten::mm", **declared), rows) == (None, wanted)
    other = row("aten::mm", thread="main", grad_mode=True, python_key=True)
    assert seen(Condition(op="aten::mm", grad_mode=False), [other, *rows])[0] is None


def test_one_call_must_be_all_that_is_asked() -> None:
    """Two calls that each have half of it do not meet a condition; the nearest one is told."""
    rows = [row("aten::mm", "aten::matmul", grad_mode=False), row("aten::mm", keys=["CPU"])]
    condition = Condition(op="aten::mm", under="aten::matmul", grad_mode=True, keys=("Meta",))
    assert seen(condition, rows) == (False, "aten::mm was dispatched with grad mode off, not on")


def test_conditions_may_be_asked_of_some_variants() -> None:
    """A condition that names a variant is asked of no other."""
    always, of_mm = Condition(op="aten::add"), Condition(op="aten::mm", variant={"op": "mm"})
    scenario = Scenario.model_validate({"name": "s", "path": "s.py", "source_hash": "", "conditions": (always, of_mm)})
    assert scenario.declared({"op": "mm", "gil": "held"}) == (always, of_mm)
    assert scenario.declared({"op": "add", "gil": "held"}) == (always,)


@pytest.mark.parametrize(
    ("observation", "problem"),
    [
        (None, "the observer wrote nothing"),
        ({"problem": "AttributeError: no profiler"}, "AttributeError: no profiler"),
        ({}, "the observer wrote no operators"),
        ({"operators": [], "all_threads": False}, "this torch's profiler sees the main thread only"),
        ({"operators": [], "all_threads": True}, None),
    ],
)
def test_an_observation_that_tells_nothing_is_no_evidence(
    observation: dict[str, Any] | None, problem: str | None
) -> None:
    """What could not be seen is told apart from what did not happen."""
    read = None if observation is None else DispatchedCalls.model_validate(observation)
    assert conditions.problem_of([Condition(op="aten::mm", thread="other")], read) == problem
