"""`whichtorch bisect --axis commit`: each commit is the wheel of the nearest release with its Python over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import User
from tests.repository import Repository
from tests.wheels import build_companion, build_wheel

pytestmark = pytest.mark.thorough

SCRIPT = "import lib\nassert lib.answer() == 42, 'wrong answer'\n"


def module(answer: str, comment: int = 0) -> dict[str, str]:
    """Return the files of a package whose `answer` is an expression."""
    return {
        "src/lib/__init__.py": "from lib._version import version\nfrom lib.core import answer\n",
        "src/lib/core.py": f"def answer():\n    return {answer}\n# {comment}\n",
        "src/lib/unread.py": f"# {comment}\n",
    }


class Project:
    """A checkout of a package, and wheels of its releases, with a file that only wheels have."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.repository, self.wheels = Repository.at(folder, with_python=False), wheels
        self.files: dict[str, str] = {"pyproject.toml": ""}

    def commit(self, files: dict[str, str], subject: str, *, merges: str = "") -> str:
        """Commit files; with `merges` as what a merge of a branch makes of them."""
        self.files |= files
        for path, text in self.files.items():
            (self.repository.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.repository.folder / path).write_text(text)
        if merges:
            self.repository.git("merge", "--quiet", "--no-ff", "--no-commit", "-s", "ours", merges)
        self.repository.git("add", "-A")
        self.repository.git("commit", "--quiet", "--allow-empty", "-m", subject)
        self.repository.commits.append(self.repository.git("rev-parse", "HEAD"))
        return self.repository.commits[-1]

    def release(self, version: str) -> None:
        """Tag what is checked out, and build its wheel."""
        self.repository.git("tag", f"lib-{version}")
        inside = {path.removeprefix("src/"): text for path, text in self.files.items() if path.startswith("src/")}
        generated = {"lib/_version.py": f"version = {version!r}\n"}
        build_companion(self.wheels, "lib", version, files=inside | generated)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    build_wheel(tmp_path / "wheels", "9.3.0")
    build_companion(tmp_path / "wheels", "numpy", "2.3.0")
    return tmp_path / "wheels"


@pytest.fixture
def project(tmp_path: Path, wheels: Path) -> Project:
    return Project(tmp_path / "checkout", wheels)


def answered(user: User, project: Project, *options: str, code: int = 0) -> dict[str, Any]:
    """Return the answer for the script, and what was said."""
    (user.folder / "repro.py").write_text(SCRIPT)
    where = ("--axis", "commit", "--git", str(project.repository.folder), "--package", "lib", "--build", "pypi")
    ended = user.run("bisect", "repro.py", *where, "--json", "answer.json", *options)
    assert ended.returncode == code, ended.stdout + ended.stderr
    answer: dict[str, Any] = json.loads((user.folder / "answer.json").read_text())
    return answer | {"said": ended.stdout}


def test_commit_is_found_between_releases_on_branches_of_their_own(user: User, project: Project) -> None:
    """Neither release is an ancestor of the other; what the script does not read is not run, and nothing is touched."""
    git = project.repository.git
    project.commit(module("41"), "begin")
    git("checkout", "--quiet", "-b", "release-1")
    project.commit(module("41"), "release 1.0")
    project.release("1.0")
    git("checkout", "--quiet", "main")
    for number in range(1, 9):
        project.commit({"src/lib/unread.py": f"# {number}\n"}, f"change {number}")
    project.commit({"src/native.c": "// nothing\n"}, "native code")  # so one wheel alone cannot tell
    project.commit(module("41", 9), "Touch what is read")
    fix = project.commit(module("42", 9), "Fix the answer (#17)")
    project.commit({"src/lib/unread.py": "# 10\n"}, "change 10")
    project.commit(module("6 * 7", 11), "Write it as a product")
    git("checkout", "--quiet", "-b", "release-2")
    project.commit(module("6 * 7", 12), "release 2.0")
    project.release("2.0")
    git("checkout", "--quiet", "main")
    (project.repository.folder / "src/lib/core.py").write_text("what the user is at work on")
    before = project.repository.state
    answer = answered(user, project)
    (boundary,) = answer["boundaries"]
    assert (answer["answer"], boundary["to"], boundary["change"]) == ("boundary", fix, "fix"), answer["said"]
    culprit = boundary["culprit"]
    assert (culprit["pull_request"], culprit["paths"]) == (17, ["src/lib/core.py"])
    assert culprit["checked"] == ["over the wheel of 1.0 it makes the same difference"]
    assert project.repository.state == before
    tried = {probe["value"][:40] for probe in answer["probes"]}
    assert not tried.intersection(project.repository.commits[2:9]), "these change nothing that the script reads"


def test_commit_inside_a_merge_is_named_with_the_merge(user: User, project: Project) -> None:
    """First the merge is found, then the commit that it brought; an unfinished bound is no release."""
    git = project.repository.git
    first = project.commit(module("42"), "begin")
    project.release("1.0")
    git("checkout", "--quiet", "-b", "side")
    project.commit(module("42", 1), "side work")
    broken = project.commit(module("43", 2), "Add one")
    project.commit(module("43", 3), "more side work")
    git("checkout", "--quiet", "main")
    project.files |= module("42")
    project.commit({"src/lib/unread.py": "# main\n"}, "main goes on")
    merge = project.commit(module("43", 3), "Merge side", merges="side")
    project.commit(module("43", 4), "later")
    answer = answered(user, project, "--good", first, "--bad", "main")
    (boundary,) = answer["boundaries"]
    assert (boundary["to"], boundary["change"]) == (broken, "regression"), answer["said"]
    assert boundary["culprit"]["merges"] == [merge]


def test_a_commit_that_only_the_older_bound_has_is_named(user: User, project: Project) -> None:
    """Its release branch was never merged: no innocent commit of main stands in the first line."""
    git = project.repository.git
    project.commit(module("42"), "begin")
    project.release("1.0")
    git("checkout", "--quiet", "-b", "release-1")
    wrong = project.commit(module("43"), "Answer another question")
    git("checkout", "--quiet", "main")
    project.files |= module("42")
    for number in range(1, 4):
        project.commit({"src/lib/unread.py": f"# {number}\n"}, f"change {number}")
    answer = answered(user, project, "--package", "Lib", "--bad", "release-1", "--good", "main")
    assert f"fixed without {wrong[:10]}, which only the older one has: last that fails" in answer["said"]
    assert all(probe["reused"] == 0 for probe in answer["probes"])


def test_what_is_wrong_with_a_checkout_is_said_in_one_line(user: User, project: Project, tmp_path: Path) -> None:
    """A commit that is not there, a history that is cut off, a package without tags, the checkout of something else."""

    def refused(folder: Path, *bounds: str) -> str:
        (user.folder / "repro.py").write_text(SCRIPT)
        where = ("--axis", "commit", "--git", str(folder), "--package", "lib", "--build", "pypi")
        ended = user.run("bisect", "repro.py", *where, *bounds)
        assert ended.returncode in {2, 3}, ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr
        return ended.stdout + ended.stderr

    folder = project.repository.folder
    project.commit(module("41"), "begin")
    project.release("1.0")
    project.repository.git("checkout", "--quiet", "--orphan", "other")
    project.commit(module("42"), "begin again")
    project.release("2.0")
    bounds = ("--bad", "lib-1.0", "--good", "lib-2.0")
    assert "'nowhere' is no commit of" in refused(folder, "--good", "nowhere", "--bad", "lib-1.0")
    assert "needs both bounds, or none" in refused(folder, "--good", "lib-2.0")
    assert "have no common history" in refused(folder, *bounds)
    other = Project(tmp_path / "other", tmp_path / "unused")
    first = other.commit({"lib/__init__.py": "", "lib/core.py": ""}, "something else")
    assert "has no tag of a release of lib that has a wheel" in refused(tmp_path / "other", *bounds)
    other.repository.git("tag", "v1.0")
    other.commit({"lib/core.py": "answer = 42"}, "go on")
    other.repository.git("tag", "v2.0")
    said = f"error: {tmp_path / 'other'} is no checkout of the installed lib: at {first[:10]} 0 of 2 files are alike"
    assert said in refused(tmp_path / "other", "--good", "v1.0", "--bad", "v2.0")
    assert "is no checkout of the installed lib" in refused(tmp_path / "other", "--bad", first, "--good", "v2.0")
