"""Real torch wheels: the fix of a release, as a patch, cures the release before it."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 1200  # seconds; the install of torch on a slow network
TEST = "fake_tensor/add_meta[level=fake]"
# what https://github.com/pytorch/pytorch/pull/177524 does for add_
FIX = """\
--- a/torch/_subclasses/fake_tensor.py
+++ b/torch/_subclasses/fake_tensor.py
@@ -991,5 +991,8 @@
             if func in mixed_device_fns:
                 if any(map(check_cpu_device, (common_device, t.device))):
                     return

+            if func is aten.add_.Tensor and "meta" in (common_device.type, t.device.type):
+                return
+
             # if prefer_device_type is set, prefer that device type over others
"""

pytestmark = pytest.mark.torch


def test_the_fix_of_the_next_release_as_a_patch(tmp_path: Path) -> None:
    """A release fails, passes with the patch, and keeps every byte of its files."""
    (tmp_path / "fix.diff").write_text(FIX)

    def run(patches: str) -> dict[str, Any]:
        """Run the scenario with these patches in the project's own state."""
        options = ("--torch", "2.11.0", "--build", "pypi", TEST, "--patch", patches, "--fresh")
        ended = subprocess.run(
            [sys.executable, "-m", "whichtorch", "matrix", *options, "--json", "result.json"],
            cwd=tmp_path,
            env={"WHICHTORCH_HOME": str(ROOT / ".whichtorch")} | os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        found: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
        return found

    without = run("none")
    assert [cell["outcome"] for cell in without["cells"]] == ["fail"]
    venv = Path(without["environments"][0]["interpreter"]).parent.parent
    before = _hashes(venv)
    assert [cell["outcome"] for cell in run("none,fix.diff")["cells"]] == ["fail", "pass"]
    assert _hashes(venv) == before


def _hashes(venv: Path) -> dict[Path, str]:
    found = {}
    for path in sorted(venv.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                found[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
