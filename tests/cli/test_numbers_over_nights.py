"""Numbers of several nights on stand-in wheels, as a user gives the commands."""

from pathlib import Path

import pytest

from tests.cli.shell import User
from tests.cli.test_numbers import given
from tests.wheels import build_companion, build_wheel

SOURCE = """NOTE
import torch
from pathlib import Path
factor = float(Path(FACTOR).read_text()) if torch.behaviour == "new" else 1
print("loss=", 2 * factor)
"""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return a folder with the release that every night measures, and one whose number a file decides."""
    folder = tmp_path / "wheels"
    build_companion(folder, "numpy", "2.2.0")
    build_wheel(folder, "9.1.0", behaviour="old")
    build_wheel(folder, "9.2.0", behaviour="new")
    return folder


@pytest.mark.thorough
def test_a_worse_number_is_red_in_the_second_night(user: User, tmp_path: Path) -> None:
    """`matrix --baseline` and `compare` say the same; `history` has the number of each night."""
    factor = tmp_path / "factor"
    user.script("repro.py", SOURCE.replace("FACTOR", repr(str(factor))))
    measured = ("matrix", "repro.py", "--torch", "9.1.0,9.2.0", "--measure", "loss", "--fresh")
    for night, (value, code) in enumerate([("1", 0), ("1.5", 0), ("1.5", 1), ("1.5", 0)]):
        factor.write_text(value)
        baseline = ("--baseline", "latest") if night else ()
        said = given(user, *measured, *baseline, code=code)
        assert ("loss is worse than in" in said) == (night in {1, 2})
        assert ("two runs in a row say so" in said) == (night == 2)
        assert "did not come to its end" not in said
    compared = user.run("compare", "latest~3", "latest")
    assert compared.returncode == 1, compared.stdout + compared.stderr
    assert "+50 % (against torch-9.1.0-pypi +0 %, now +50 %); two runs in a row say so" in compared.stdout
    told = user.run("history", "repro.py").stdout
    assert "loss in torch-9.2.0-pypi against torch-9.1.0-pypi, 4 nights: +0 % ▁███ +50 %" in told
