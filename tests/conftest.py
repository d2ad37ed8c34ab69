"""What all tests share."""

from __future__ import annotations

import os

# The commands under test are started a hundred times over: with bytecode each start takes 0.2 s less of a core.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
