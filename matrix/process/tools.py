"""Find the programs that the tool starts: py-spy, pystack, gdb, uv."""

# The supervisor must not pay for importing pathlib.
# ruff: noqa: PTH120

from __future__ import annotations

import os
import shutil
import sys


def find_tool(name: str) -> str | None:
    """Return the path of a tool beside the running interpreter, else on PATH."""
    folders = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    return shutil.which(name, path=folders)
