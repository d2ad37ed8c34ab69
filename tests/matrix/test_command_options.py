"""What the options of a command make of it."""

from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.matrix.options import CommandOptions
from whichtorch.suite import project


def test_a_large_project_runs_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size limits copies only: what the error advises works."""
    monkeypatch.setattr(project, "MOST_BYTES", 10)
    (tmp_path / "weights.bin").write_bytes(bytes(11))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="too much to copy") as refused:
        CommandOptions().scenario(("true",), tmp_path / "home")
    assert "--in-place" in str(refused.value)
    made = CommandOptions(in_place=True).scenario(("true",), tmp_path / "home")
    assert made.command is not None
    assert made.command.in_place == tmp_path
