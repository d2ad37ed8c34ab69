"""A patch at the shell: tried on releases, searched with, explained; what cannot be tried is told at once."""

import sys

import pytest

from tests.cli.shell import FAILS_IN_OLD, User
from tests.wheels import behaviour_patch

pytestmark = pytest.mark.thorough

CUDA = """\
--- a/torch/__init__.py
+++ b/torch/__init__.py
@@ -60,7 +60,7 @@
 class cuda:
     @staticmethod
     def is_available():
-        return False
+        return True


 class _C:
"""


def test_a_patch_is_tried_on_releases(user: User) -> None:
    """Each release runs with and without it; the table has a line for the patch, and all is known the next time."""
    script = user.script("repro.py", FAILS_IN_OLD)
    (user.folder / "fix.diff").write_text(behaviour_patch("old", "new"))
    asked = ("matrix", "--torch", "9.1.0,9.2.0", "--patch", "none", "--patch", "fix.diff", script)
    ended = user.run(*asked)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    (row,) = (line for line in lines if line.startswith("repro.py    "))
    assert row.split()[1:] == ["FAIL!", "pass", "pass", "pass"]
    (heads,) = (line for line in lines if line.split()[:2] == ["none", "fix@" + line.partition("@")[2][:6]])
    assert heads.split()[2:] == heads.split()[:2]
    assert "torch-9.1.0-pypi+fix: ready, torch 9.1.0" in ended.stdout
    assert "patch fix is in this release already: nothing is changed" in ended.stdout
    assert "4 environments, 4 cells; all known" in user.run(*asked).stdout
    assert user.runs("repro.py") == 4
    (user.folder / "fix.diff").write_text(behaviour_patch("old", "newer"))
    edited = user.run(*asked)
    assert "FAIL!  repro.py  torch-9.1.0-pypi, torch-9.1.0-pypi+fix: " in edited.stdout
    assert "unbuildable  torch-9.2.0-pypi+fix: patch fix does not apply: torch/__init__.py at @@ -" in edited.stdout
    alone = user.run("matrix", "--torch", "9.1.0", "--patch", "fix.diff", "repro.py")
    assert "FAIL!  repro.py  torch-9.1.0-pypi+fix: " in alone.stdout
    assert "--patch fix.diff --fresh" in alone.stdout


def test_what_cannot_be_tried_is_told_before_any_install(newcomer: User) -> None:
    """Parts in C++, a file that is no patch, and another's environment are wrong usage."""
    (newcomer.folder / "cpp.diff").write_text(
        behaviour_patch("old", "new").replace("torch/__init__.py", "c10/Device.cpp")
    )
    (newcomer.folder / "empty.diff").touch()
    refusals = {
        ("--patch", "cpp.diff"): "cpp.diff changes what needs a compiler: c10/Device.cpp",
        ("--patch", "cpp.diff,empty.diff,lost.diff"): "3 mistakes in the options",
        ("--patch", "none,cpp.diff", "--interpreter", sys.executable): "needs a compiler",
    }
    for options, message in refusals.items():
        ended = newcomer.run("matrix", "--torch", "9.1.0", *options)
        assert ended.returncode == 2, ended.stdout + ended.stderr
        assert message in ended.stderr
    (newcomer.folder / "fix.diff").write_text(behaviour_patch("old", "new"))
    ended = newcomer.run("matrix", "--interpreter", sys.executable, "--patch", "fix.diff")
    assert ended.returncode == 2
    assert "not on what --interpreter names" in ended.stderr
    assert not (newcomer.folder / ".whichtorch" / "envs").exists()


def test_a_search_with_a_patch(user: User) -> None:
    """The boundary is that of the patched releases, and the answer names the patch."""
    script = user.script("repro.py", f"{FAILS_IN_OLD}assert torch.cuda.is_available()\n")
    (user.folder / "cuda.diff").write_text(CUDA)
    ended = user.run("bisect", script, "--patch", "cuda.diff")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "fixed in 9.2.0" in ended.stdout
    several = user.run("bisect", script, "--patch", "none,cuda.diff")
    assert several.returncode == 2
    assert "--patch names 2 for a search" in several.stderr


def test_a_patch_explains(user: User) -> None:
    """That a test passes with a patch, and not without, is an answer of `explain`, which an experiment confirms."""
    script = user.script("repro.py", FAILS_IN_OLD)
    (user.folder / "fix.diff").write_text(behaviour_patch("old", "new"))
    user.run("matrix", "--torch", "9.1.0", "--patch", "none,fix.diff", script)
    ended = user.run("explain", script)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "fails in 1 of 1 environment with patch none, passes in 1 of 1 without" in ended.stdout
    confirmed = user.run("explain", script, "--run", "--torch", "9.1.0", "--patch", "none,fix.diff")
    assert "experiment: from torch-9.1.0-pypi, changing patch from none to fix@" in confirmed.stdout
