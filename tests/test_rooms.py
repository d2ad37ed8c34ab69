"""The structure of the code: which room may import which, and that names are unique."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_rooms_import_earlier_rooms_only() -> None:
    """A later room may use an earlier one, never the other way round, types included."""
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0
