"""Real torch wheels, searched: the release that fixed a bug, the day that broke another, the package it was."""

from pathlib import Path
from typing import Any

import pytest

from tests.real_torch import ROOT, call

# numpy 2.0.0 came out on 2024-06-16; torch before 2.3 was compiled against numpy 1 and cannot use it
FROM_NUMPY = "import numpy, torch\nprint(torch.from_numpy(numpy.ones(3)).sum().item())\n"
COMMON = "torch==2.2.2\nscipy==1.13.1\nsetuptools==69.2.0\n"
GOOD_LOCK = COMMON + "numpy==1.26.4\nfilelock==3.13.3\nidna==3.6\nsympy==1.12\n"
BAD_LOCK = COMMON + "numpy==2.0.0\nfilelock==3.15.4\nidna==3.7\nsympy==1.13.0\n"

ADD_META = ROOT / "scenarios" / "fake_tensor" / "add_meta.py"

pytestmark = [pytest.mark.torch, pytest.mark.releases]


def bisect(folder: Path, script: str, *options: str) -> dict[str, Any]:
    """Search in the project's own state; return the JSON."""
    found: dict[str, Any] = call(folder, "bisect", script, "--build", "pypi", *options)
    return found


def ends(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(boundary["from"], boundary["to"], boundary["change"]) for boundary in found["boundaries"]]


def test_the_release_that_fixed_fake_tensor_add_is_found(tmp_path: Path) -> None:
    """Over all releases it takes at most nine installs, names the commits, and nothing a second time."""
    found = bisect(tmp_path, str(ADD_META))
    assert ends(found) == [("2.11.0", "2.12.0", "fix")]
    assert found["boundaries"][0]["confidence"] >= 0.95
    assert found["boundaries"][0]["commits"].startswith("https://github.com/pytorch/pytorch/compare/70d99e998b49")
    assert len(found["probes"]) <= 7
    assert found["installs"] <= 9
    assert found["boundaries"][0]["attribution"]["cause"] == "itself"
    again = bisect(tmp_path, str(ADD_META))
    assert (ends(again), again["installs"], again["runs"]) == (ends(found), 0, 0)


def test_the_day_and_the_package_are_found(tmp_path: Path) -> None:
    """The same requirements broke on the day of numpy 2.0.0, and numpy it was."""
    (tmp_path / "from_numpy.py").write_text(FROM_NUMPY)
    options = ("--axis", "date", "--torch", "2.2.2", "--since", "2024-06-12", "--until", "2024-06-20")
    found = bisect(tmp_path, "from_numpy.py", *options)
    assert ends(found) == [("2024-06-15", "2024-06-16", "regression")]
    assert found["changes"] == ["numpy 1.26.4 -> 2.0.0"]


def test_the_one_package_of_two_lock_files_is_found(tmp_path: Path) -> None:
    """Of the four packages in which two lock files differ, numpy is the one that breaks it."""
    (tmp_path / "from_numpy.py").write_text(FROM_NUMPY)
    (tmp_path / "good.txt").write_text(GOOD_LOCK)
    (tmp_path / "bad.txt").write_text(BAD_LOCK)
    found = bisect(tmp_path, "from_numpy.py", "--good", "good.txt", "--bad", "bad.txt")
    assert (found["changes"], found["along"], found["differing"]) == (["numpy 1.26.4 -> 2.0.0"], [], 4)


def test_the_release_of_a_package_is_found(tmp_path: Path) -> None:
    """With one torch, the release of numpy is found that broke it."""
    (tmp_path / "from_numpy.py").write_text(FROM_NUMPY)
    options = ("--package", "numpy>=1.26,<2.1", "--torch", "2.2.2")
    found = bisect(tmp_path, "from_numpy.py", *options)
    assert ends(found) == [("1.26.4", "2.0.0", "regression")]


def test_a_package_that_came_with_torch_is_told_from_torch(tmp_path: Path) -> None:
    """Numpy 2 came with torch 2.3.0, since torch before it is installed with numpy 1."""
    (tmp_path / "repro.py").write_text("import numpy, torch\nprint(torch.ones(3).numpy().astype(numpy.float_))\n")
    found = bisect(tmp_path, "repro.py", "--good", "2.2.2", "--bad", "2.3.0")
    (boundary,) = found["boundaries"]
    assert boundary["attribution"]["cause"] == "companion"
    assert boundary["attribution"]["changes"][0].startswith("numpy 1.26.4 -> 2.")
