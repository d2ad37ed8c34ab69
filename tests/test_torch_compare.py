"""Real torch wheels, two nights: compare finds what was planted between them, and nothing else."""

from pathlib import Path

import pytest

from tests.real_torch import ROOT, call

# torch before 2.3 was compiled against numpy 1 and cannot use numpy 2
FROM_NUMPY = "import numpy, torch\nprint(torch.from_numpy(numpy.ones(3)).sum().item())\n"
FORKS = (ROOT / "scenarios" / "threads" / "fork_after_openmp.py").read_text().partition("# ///\n")[2]  # no header
FIXED = "import torch\nassert torch.ones(2).sum().item() == {two}\n"
MATRIX = """
requirements = ["{numpy}"]
[axes]
torch = ["2.2.2", "2.12.1"]
build = ["pypi"]
config = ["house"]
[config.house]
env = {{ OMP_NUM_THREADS = "{threads}" }}
"""

pytestmark = [pytest.mark.torch, pytest.mark.releases]


def night(folder: Path, *, numpy: str, threads: int, **sources: str) -> None:
    """Run scripts in both releases, with a numpy and so many threads of OpenMP."""
    (folder / "matrix.toml").write_text(MATRIX.format(numpy=numpy, threads=threads))
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    scripts = [f"{name}.py" for name in sources]
    run = call(folder, "matrix", "--matrix", "matrix.toml", *scripts, exits=(0, 1))
    assert "unbuildable" not in run["said"], run["said"]  # a disk that is full says so here


def test_exactly_what_was_planted_between_two_runs_is_found(tmp_path: Path) -> None:
    """Another numpy breaks one release, threads hang a fork in both, an edited script is fixed, two come and go."""
    once = FIXED.format(two=3)
    night(tmp_path, numpy="numpy<2", threads=1, from_numpy=FROM_NUMPY, forks=FORKS, edited=once, gone="import torch\n")
    fixed = FIXED.format(two=2)
    night(tmp_path, numpy="numpy>=2", threads=2, from_numpy=FROM_NUMPY, forks=FORKS, edited=fixed, new="import torch\n")
    found = call(tmp_path, "compare", "latest~1", "latest", exits=(1,))
    old, new = "torch-2.2.2-pypi-house", "torch-2.12.1-pypi-house"
    assert {(cell["name"], (cell["new"] or cell["old"])["environment"]): cell["change"] for cell in found["cells"]} == {
        ("from_numpy.py", old): "regression",
        ("from_numpy.py", new): "still passing",
        ("forks.py", old): "regression",
        ("forks.py", new): "regression",
        ("edited.py", old): "fixed",
        ("edited.py", new): "fixed",
        ("gone.py", old): "disappeared",
        ("gone.py", new): "disappeared",
        ("new.py", old): "appeared",
        ("new.py", new): "appeared",
    }
    outcomes = {cell["name"]: cell["new"]["outcome"] for cell in found["cells"] if cell["change"] == "regression"}
    assert outcomes == {"from_numpy.py": "fail", "forks.py": "hang"}
    assert {cell["name"] for cell in found["cells"] if cell["script_changed"]} == {"edited.py"}
    changed = {delta["new"]: delta["packages"]["numpy"] for delta in found["environments"]}
    assert set(changed) == {old, new}
    assert all(before.startswith("1.") and after.startswith("2.") for before, after in changed.values())
    assert "from_numpy.py --matrix matrix.toml --torch 2.2.2 --build pypi --config house" in found["said"]
