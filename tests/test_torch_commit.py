"""Real torch wheels: the commit of a fix, in a history that is made of what differs between two releases."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.real_torch import ROOT, call
from tests.test_torch_patch import FIX
from tests.wheel_history import WheelHistory, tree_of

TEST = "fake_tensor/add_meta[level=fake]"
FIXED = "torch/_subclasses/fake_tensor.py"
READ = """\
import runpy, sys
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except BaseException:
    pass
print(*(file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))), sep="\\n")
"""

pytestmark = [pytest.mark.torch, pytest.mark.releases]


def files_read(interpreter: Path, site: Path) -> set[str]:
    """Return the files of an environment that the scenario imports."""
    script = ROOT / "scenarios" / "fake_tensor" / "add_meta.py"
    told = subprocess.run([interpreter, "-c", READ, script], capture_output=True, text=True, check=True).stdout
    return {line.removeprefix(f"{site}/") for line in told.splitlines() if line.startswith(f"{site}/torch")}


@pytest.mark.parametrize("is_reverted", [False, True])
def test_the_commit_of_a_fix(tmp_path: Path, is_reverted: bool) -> None:
    """Of 200 commits it is named, or one that landed it again, without one that needs native code of the newer one."""
    made = call(tmp_path, "matrix", TEST, "--build", "pypi", "--torch", "2.11.0,2.12.1", exits=(1,))
    interpreters = [Path(each["interpreter"]) for each in made["environments"]]
    sites = [next(each.parent.parent.glob("lib/python3*/site-packages")) for each in interpreters]
    old, new = map(tree_of, sites)
    (tmp_path / FIXED).parent.mkdir(parents=True)
    (tmp_path / FIXED).write_bytes(old[FIXED])
    subprocess.run(["git", "apply", "-p1", "--unidiff-zero", "-"], cwd=tmp_path, input=FIX.encode(), check=True)
    read = set.union(*(files_read(*each) for each in zip(interpreters, sites, strict=True)))
    fix = (FIXED, (tmp_path / FIXED).read_bytes())
    history = WheelHistory(tmp_path / "checkout", old, new, fix, tuple(sorted(read)), seed=int(is_reverted))
    history.make(is_reverted=is_reverted)
    where = ("--axis", "commit", "--git", str(history.folder), "--bad", "v2.11.0", "--good", "v2.12.1")
    answer = call(tmp_path, "bisect", TEST, "--build", "pypi", *where)
    (boundary,) = answer["boundaries"]
    assert answer["answer"] == "boundary", answer["said"]
    assert boundary["culprit"]["commit"] in history.fixes, answer["said"]
    assert len(answer["probes"]) <= 16
