"""Where the start-up hooks are. The files beside this one run inside environments, never here."""

from pathlib import Path

FOLDER = Path(__file__).parent  # first on PYTHONPATH of every cell
