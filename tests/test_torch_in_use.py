"""A real torch that two tools use at once, by two paths to one state folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import wait_for
from tests.real_torch import PATIENCE, RELEASE, ROOT

LATE = """\
import pathlib, time, torch
pathlib.Path({begun!r}).touch()
time.sleep(20)
import torch.distributed.pipelining
import torch.ao.quantization
print(torch.ones(2).sum())
"""

pytestmark = pytest.mark.torch


def test_a_late_import_while_another_tool_uses_the_environment(tmp_path: Path) -> None:
    """A script imports torch, and parts of it 20 s later; meanwhile a second tool uses its environment by a link."""
    state = Path(os.environ.get("WHICHTORCH_HOME", ROOT / ".whichtorch"))
    (tmp_path / "link").symlink_to(state.resolve())
    (tmp_path / "late.py").write_text(LATE.format(begun=str(tmp_path / "begun")))
    (tmp_path / "quick.py").write_text("import torch\nprint(torch.ones(2).sum())\n")

    def start(home: Path, script: str) -> subprocess.Popen[bytes]:
        words = ["matrix", "--build", "pypi", "--torch", RELEASE, script, "--json", f"{script}.json"]
        command = [sys.executable, "-m", "whichtorch", *words, "--fresh"]
        environ = {"PYTHONPATH": str(ROOT)} | os.environ | {"WHICHTORCH_HOME": str(home)}
        return subprocess.Popen(command, cwd=tmp_path, env=environ)

    assert start(state, "quick.py").wait(PATIENCE) == 0  # now torch is installed
    with start(state, "late.py") as first:
        wait_for(lambda: (tmp_path / "begun").exists() or first.poll() is not None)
        assert start(tmp_path / "link", "quick.py").wait(PATIENCE) == 0
        assert first.poll() is None  # it has ended after the other one
        assert first.wait(PATIENCE) == 0
    for script in ("late.py", "quick.py"):
        (cell,) = json.loads((tmp_path / f"{script}.json").read_text())["cells"]
        assert (cell["outcome"], cell["attempts"][0]["note"]) == ("pass", "")
