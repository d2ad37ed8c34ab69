"""Real torch wheels: the hang of a C++ thread with its cure, and what the observer sees of a pass."""

from pathlib import Path
from typing import Any

import pytest

from tests.real_torch import run_of

pytestmark = pytest.mark.torch


def cells(tmp_path: Path, *scenarios: str) -> dict[str, dict[str, Any]]:
    """Run scenarios; return their cells by name."""
    found = run_of(tmp_path, *scenarios)["cells"]
    return {",".join([cell["scenario"].rpartition("/")[2], *cell["variant"].values()]): cell for cell in found}


def test_the_thread_hangs_until_the_gil_is_released(tmp_path: Path) -> None:
    """A stall tells the deadlock of mm on meta tensors in a C++ thread; without the GIL held it passes.

    In either case the conditions are met: by the stacks of the hang, and as the observer saw the pass.
    """
    found = cells(
        tmp_path, "meta_mm/worker_thread[op=mm,guard=none,gil=held,device=meta]", "meta_mm/worker_thread[gil=released]"
    )
    base, released = found["worker_thread,mm,none,held,meta"], found["worker_thread,mm,none,released,meta"]
    assert (base["outcome"], base["attempts"][0]["stopped_by"]) == ("hang", "stall")
    assert [result["met"] for result in base["conditions"]] == [True, True]
    assert released["outcome"] == "pass"
    assert [result["met"] for result in released["conditions"]] == [True, True]


def test_linear_with_a_bias_is_vacuous(tmp_path: Path) -> None:
    """With a bias, mm is called by addmm; without one, by matmul as the condition asks."""
    found = cells(tmp_path, "meta_mm/linear_bias[dims=3]", "meta_mm/linear[dims=3,grad=on]")
    assert found["linear_bias,3"]["outcome"] == "vacuous"
    assert found["linear_bias,3"]["expected"]
    assert found["linear_bias,3"]["reason"] == "aten::mm was dispatched under aten::addmm, not under aten::matmul"
    assert found["linear,3,on"]["outcome"] == "pass"
    assert "aten::mm was dispatched under aten::matmul" in found["linear,3,on"]["conditions"][0]["seen"]
