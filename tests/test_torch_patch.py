"""Real torch wheels: the fix of a release, as a patch, cures the release before it."""

import hashlib
from pathlib import Path

import pytest

from tests.real_torch import run_of

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

    without = run_of(tmp_path, TEST, "--patch", "none", "--fresh")
    assert [cell["outcome"] for cell in without["cells"]] == ["fail"]
    venv = Path(without["environments"][0]["interpreter"]).parent.parent
    before = _hashes(venv)
    patched = run_of(tmp_path, TEST, "--patch", f"none,{tmp_path / 'fix.diff'}", "--fresh")
    assert [cell["outcome"] for cell in patched["cells"]] == ["fail", "pass"]
    assert _hashes(venv) == before


def _hashes(venv: Path) -> dict[Path, str]:
    found = {}
    for path in sorted(venv.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                found[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
