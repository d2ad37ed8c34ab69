"""Programs and hooks that run inside the environments under test, under Python 3.8 or newer."""

from pathlib import Path

FOLDER = Path(__file__).parent


def path(name: str) -> Path:
    """Return the path of a program, such as `probe.py`."""
    return FOLDER / name
