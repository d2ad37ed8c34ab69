"""Runs of the product with a real torch, in the project's own state, for tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RELEASE = "2.11.0"
PATIENCE = 2400  # seconds; installs of torch on a slow network


def run_of(folder: Path, *scenarios: str, release: str = RELEASE) -> dict[str, Any]:
    """Run scenarios of the suite in one release of torch, as expected, and return the run."""
    path = folder / "result.json"
    asked = ["matrix", "--build", "pypi", "--torch", release, "--json", str(path), *scenarios]
    ended = subprocess.run(
        [sys.executable, "-m", "whichtorch", *asked],
        cwd=ROOT,
        env={"WHICHTORCH_HOME": str(ROOT / ".whichtorch")} | os.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found
