"""Runs of the product with a real torch, in the project's own state, for tests."""

import json
import os
import subprocess
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RELEASE = "2.11.0"
PATIENCE = 2400  # seconds; installs of several torch releases on a slow network


def call(folder: Path, command: str, *words: str, cwd: Path | None = None, exits: Container[int] = (0,)) -> Any:
    """Give a command in the project's own state; return its JSON, with what it printed under "said" and "errors"."""
    path = folder / f"{command}.json"
    ended = subprocess.run(
        [sys.executable, "-m", "whichtorch", command, "--json", str(path), *words],
        cwd=cwd or folder,
        env={"WHICHTORCH_HOME": str(ROOT / ".whichtorch")} | os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode in exits, ended.stdout + ended.stderr
    return json.loads(path.read_text()) | {"said": ended.stdout, "errors": ended.stderr}


def run_of(folder: Path, *scenarios: str, release: str = RELEASE) -> dict[str, Any]:
    """Run scenarios of the suite in one release of torch, as expected, and return the run."""
    found: dict[str, Any] = call(folder, "matrix", "--build", "pypi", "--torch", release, *scenarios)
    return found
