"""Which releases are worth trying first where everything passes."""

import sys
from pathlib import Path

import pytest

from whichtorch.bisect.axes.versions import own_torch, worth_first

VALUES = ("2.0.0", "2.0.1", "2.1.0", "2.2.0", "2.2.1", "2.2.2", "2.3.0")


@pytest.mark.parametrize(
    ("values", "own", "expected"),
    [
        (VALUES, None, [4, 3, 0]),
        (VALUES, "2.3.0+cu128", [6, 4, 3, 0]),
        (VALUES, "2.2.1", [4, 3, 0]),
        (VALUES, "1.13.0", [4, 3, 0]),
        (("2.4.0+cpu", "2.4.1+cpu"), None, [0]),
        (("2.4.0.dev20240101", "2.4.0.dev20240102", "/wheels/torch.whl"), None, []),
    ],
)
def test_the_own_version_and_what_a_point_release_mended_come_first(
    values: tuple[str, ...], own: str | None, expected: list[int]
) -> None:
    """The user's version comes first, then, newest first, each release that was followed by a point release."""
    assert list(worth_first(values, own)) == expected


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_torch_of_the_environment_that_is_active_is_seen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without torch in the tool's interpreter, the one that the shell's environment has is meant; else none."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert own_torch() is None
    info = tmp_path / "lib" / "python3.12" / "site-packages" / "torch-2.9.0+cu128.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+cu128\n")
    monkeypatch.setenv(name, str(tmp_path))
    assert own_torch() == "2.9.0+cu128"
