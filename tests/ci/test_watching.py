"""What docs/watch-a-command.md gives to a shell is run as it stands there, with a test that hangs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci.service import ROOT
from tests.patience import PATIENCE

PAGE = (ROOT / "docs" / "watch-a-command.md").read_text(encoding="utf-8")
HANGS = "import threading\ndef test_hang():\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()\n"
LINES = re.findall(r"^ *- (?:run: )?(whichtorch run .*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    "line", [*LINES, f"{ROOT}/docs/examples/watch.sh pytest tests"], ids=["github", "gitlab", "sh"]
)
def test_a_hang_is_named(line: str, tmp_path: Path) -> None:
    """The job ends with 124, and the log and hang.json say in which test and where."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(HANGS)
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 124, ended.stdout + ended.stderr
    assert "in tests/test_it.py::test_hang" in ended.stderr
    assert "test_it.py:5" in json.dumps(json.loads((tmp_path / "hang.json").read_text())["hang"])
