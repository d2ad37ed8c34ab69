"""Real torch below real launchers: who failed, and in which release that changed."""

from collections.abc import Container
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.failures.test_launched import CALLERS, FOLDER, NO_FRAMES, WAYS
from tests.real_torch import RELEASE, call

pytestmark = pytest.mark.torch

PAIRS = [  # `.ci/run` has each launcher and each way to fail once
    pytest.param(launcher, way, marks=[pytest.mark.releases] if (column - row) % len(CALLERS) else [])
    for (row, launcher), (column, way) in product(enumerate(CALLERS), enumerate(WAYS))
]

RANKS = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank()
if r == 1 and torch.__version__ >= "2.15": raise KeyError("weights")
if r == 1 and torch.__version__ < "2.13": raise OSError("no shm")
dist.barrier()
"""


def run(folder: Path, command: str, *words: str, exits: Container[int]) -> Any:
    """Give a command in a project's folder; return its JSON."""
    return call(folder.parent, command, "--build", "pypi", *words, cwd=folder, exits=exits)


@pytest.mark.releases
def test_two_failures_of_a_rank_are_a_boundary(tmp_path: Path) -> None:
    """The exception, the line and the rank are told in each release, and the search finds where they change."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pg.py").write_text(RANKS)
    command = ("--", "torchrun", "--nproc-per-node", "2", "pg.py")
    result = run(tmp_path / "project", "matrix", "--torch", "2.11.0,2.15.0", *command, exits=(1,))
    shown = [
        (cell["outcome"], cell["signature"], cell["attempts"][-1]["evidence"]["process"]) for cell in result["cells"]
    ]
    assert shown == [
        ("fail", 'OSError "no shm" in <module> (pg.py:4)', "rank 1"),
        ("fail", "KeyError \"'weights'\" in <module> (pg.py:3)", "rank 1"),
    ]
    for failure, boundary in (("KeyError", ("2.13.0", "2.15.0")), ("OSError", ("2.11.0", "2.13.0"))):
        asked = ("--torch", "2.11.0,2.13.0,2.15.0", "--failure", failure)
        found = run(tmp_path / "project", "bisect", *asked, *command, exits=(0,))
        assert [(each["from"], each["to"]) for each in found["boundaries"]] == [boundary]


@pytest.mark.parametrize(("launcher", "way"), PAIRS)
def test_real_launchers_are_read(tmp_path: Path, launcher: str, way: str) -> None:
    """What torch writes today is what was recorded: outcome, head and innermost line."""
    program = ("torchrun", "--nproc-per-node", "2") if launcher in {"ranks", "early", "recorded"} else ("python",)
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("fail.py", f"{launcher}.py"):
        (folder / name).write_text((FOLDER / name).read_text())
    result = run(folder, "matrix", "--torch", RELEASE, "--", *program, f"{launcher}.py", way, exits=(0, 1))
    (cell,) = result["cells"]
    outcome, head = WAYS[way]
    head = head.partition(" in ")[0] if (launcher, way) in NO_FRAMES else head
    assert cell["outcome"] == outcome
    assert cell["signature"].startswith(head)
