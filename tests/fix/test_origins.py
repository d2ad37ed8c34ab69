"""Commits that a patch goes back to, in histories that real git has made."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.repository import Repository
from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.git import Checkout
from whichtorch.fix import origins as origins_module
from whichtorch.fix.origins import Origins, ReleaseSpan
from whichtorch.fix.tree_change import unified_diff

OPS = "torch/ops.py"
TEXT = """\
import math


def add(first, second):
    total = first - second
    return total


def scale(values, factor):
    print("scaling", values)
    return [value * factor for value in values]
"""
FIXED = TEXT.replace("first - second", "first + second")
QUIET = TEXT.replace('    print("scaling", values)\n', "")


@dataclass
class PullRequests:
    """A repository with a branch per release, as PyTorch has them."""

    repository: Repository
    texts: dict[str, dict[str, str]] = field(default_factory=dict)  # files by tag

    def merged(self, title: str, files: dict[str, str | None], body: str = "") -> str:
        """Commit files, None for one that goes, and return the commit."""
        for path, text in files.items():
            file = self.repository.folder / path
            if text is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        self.repository.git("add", "-A")
        self.repository.git("commit", "--quiet", "--allow-empty", "-m", title, *(["-m", body] if body else []))
        return self.repository.git("rev-parse", "HEAD")

    def release(self, version: str, files: dict[str, str] | None = None) -> None:
        """Cut a release's branch, where a commit is made that is nowhere else, tag it, and go back to main."""
        self.repository.git("checkout", "--quiet", "-b", f"release/{version}")
        self.merged(f"[RELEASE ONLY] {version}", {"version.txt": version, **(files or {})})
        self.repository.git("tag", f"v{version}")
        self.texts[version] = {
            str(path.relative_to(self.repository.folder)): path.read_text()
            for path in self.repository.folder.rglob("*.py")
        }
        self.repository.git("checkout", "--quiet", "main")

    def span(self, bad: str = "2.11.0", good: str = "2.12.0") -> ReleaseSpan:
        span = ReleaseSpan.between(Checkout.at(self.repository.folder), bad, good)
        assert span is not None
        return span

    def origins(self, wanted: dict[str, str], bad: str = "2.11.0", good: str = "2.12.0") -> Origins:
        """Return where the patch comes from that makes files of the bad release what is wanted."""
        before = {path: self.texts[bad].get(path) for path in wanted}
        return self.span(bad, good).origins(unified_diff(before, wanted))


@pytest.fixture
def history(tmp_path: Path) -> PullRequests:
    """Return a history with one commit on main."""
    made = PullRequests(Repository.at(tmp_path / "pytorch", with_python=False))
    made.merged("Begin", {OPS: TEXT})
    return made


def told(found: Origins) -> list[tuple[str, int | None, int, bool]]:
    return [(origin.subject, origin.pull_request, origin.lines, origin.taken_back) for origin in found.commits]


def test_the_pull_request_is_named_and_no_other(history: PullRequests) -> None:
    """A fix merged to main between two branches has the lines that the patch adds and removes, and others have none."""
    history.release("2.11.0")
    fix = history.merged("Fix add (#12)", {OPS: FIXED}, "Pull Request resolved: https://example.org/pull/7")
    history.merged("Change scale (#13)", {OPS: FIXED.replace("scaling", "scale")})
    history.release("2.12.0")
    found = history.origins({OPS: FIXED})
    assert told(found) == [("Fix add (#12)", 12, 2, False)]
    assert (found.commits[0].commit, found.commits[0].paths, found.notes) == (fix, (OPS,), ())
    assert found.commits[0].date == "2026-01-01"


def test_commits_with_more_lines_come_first(history: PullRequests) -> None:
    """Two fixes in one patch are told apart; one without a number in its subject has that of its message."""
    history.release("2.11.0")
    history.merged("Quiet", {OPS: QUIET}, "Pull Request resolved: https://github.com/pytorch/pytorch/pull/14")
    both = QUIET.replace("first - second", "first + second")
    history.merged("Fix add", {OPS: both})
    history.release("2.12.0")
    assert told(history.origins({OPS: both})) == [("Fix add", None, 2, False), ("Quiet", 14, 1, False)]


def test_a_removed_line(history: PullRequests) -> None:
    """Where the patch only removes a line, the commit is named that removed it."""
    history.release("2.11.0")
    history.merged("Quiet (#15)", {OPS: QUIET})
    history.merged("Fix add (#16)", {OPS: QUIET.replace("first - second", "first + second")})
    history.release("2.12.0")
    assert told(history.origins({OPS: QUIET})) == [("Quiet (#15)", 15, 1, False)]


def test_a_renamed_file(history: PullRequests) -> None:
    """A line that was brought before its file got another name is found under the old name."""
    history.release("2.11.0")
    history.merged("Fix add (#17)", {OPS: FIXED})
    history.merged("Rename (#18)", {OPS: None, "torch/operators.py": FIXED})
    history.release("2.12.0")
    found = history.origins({"torch/operators.py": FIXED})
    assert told(found)[0] == ("Fix add (#17)", 17, 1, False)


def test_formatting_is_no_origin(history: PullRequests) -> None:
    """Who only indented a fix did not bring it; who only indented a line of old is named where nobody else can be."""
    history.release("2.11.0")
    history.merged("Fix add (#19)", {OPS: FIXED})
    nested = FIXED.replace("    total = first + second\n", "    if True:\n        total = first + second\n")
    nested = nested.replace("    print", "    if True:\n        print")
    history.merged("Indent (#20)", {OPS: nested})
    history.release("2.12.0")
    found = history.origins({OPS: nested})
    assert set(told(found)) == {("Fix add (#19)", 19, 2, False), ("Indent (#20)", 20, 4, False)}


def test_a_regression(history: PullRequests) -> None:
    """Where the bad release is the newer one, the commits are named that the patch takes back."""
    history.release("2.11.0")
    broken = QUIET.replace("return total", "return total + 1")
    history.merged("Break add (#21)", {OPS: broken})
    history.release("2.12.0")
    found = history.origins({OPS: TEXT}, bad="2.12.0", good="2.11.0")
    assert told(found) == [("Break add (#21)", 21, 3, True)]


def test_a_file_that_a_newer_release_removed(history: PullRequests) -> None:
    """A patch that brings a whole file back goes back to the commit that removed it."""
    history.release("2.11.0")
    history.merged("Remove ops (#22)", {OPS: None, "torch/other.py": "VALUE = 1\n"})
    history.release("2.12.0")
    found = history.origins({OPS: TEXT}, bad="2.12.0", good="2.11.0")
    assert told(found) == [("Remove ops (#22)", 22, TEXT.count("\n"), True)]


def test_cherry_picks(history: PullRequests) -> None:
    """A fix that was picked onto a release's branch is named there; a picked line is not taken for the cause."""
    history.release("2.10.0")
    louder = TEXT.replace('"scaling"', '"scaling the values"')
    history.merged("Say more (#23)", {OPS: louder})
    history.repository.git("checkout", "--quiet", "release/2.10.0")
    history.repository.git("checkout", "--quiet", "-b", "next")
    history.merged("Say more (#23) (#24)", {OPS: louder})
    history.repository.git("tag", "v2.11.0")
    history.texts["2.11.0"] = {OPS: louder}
    history.repository.git("checkout", "--quiet", "main")
    history.merged("Quiet (#25)", {OPS: QUIET})
    history.release("2.12.0")
    assert told(history.origins({OPS: louder}, "2.10.0", "2.11.0")) == [("Say more (#23) (#24)", 24, 2, False)]
    assert told(history.origins({OPS: QUIET})) == [("Quiet (#25)", 25, 1, False)]


def test_what_only_the_bad_branch_lacks(history: PullRequests) -> None:
    """A line of old that the bad release's branch reverted goes back to that revert."""
    history.merged("Fix add (#26)", {OPS: FIXED})
    history.release("2.11.0", {OPS: TEXT})
    history.release("2.12.0")
    assert told(history.origins({OPS: FIXED})) == [("[RELEASE ONLY] 2.11.0", None, 2, True)]


def test_imports_of_the_patchs_own_making(history: PullRequests) -> None:
    """A patch imports names one by one; the commit is named that brought the name in the release's own import."""
    history.release("2.11.0")
    first = TEXT.replace("import math\n", "import math\nfrom torch.maths import (\n    minus,\n)\n")
    history.merged("Use minus (#27)", {OPS: first})
    second = first.replace("    minus,\n", "    minus,\n    plus,\n").replace("first - second", "plus(first, second)")
    history.merged("Use plus (#28)", {OPS: second})
    history.release("2.12.0")
    wanted = TEXT.replace("import math\n", "import math\nfrom torch.maths import plus\n")
    found = history.origins({OPS: wanted.replace("first - second", "plus(first, second)")})
    assert told(found) == [("Use plus (#28)", 28, 3, False)]


def test_a_generated_file(history: PullRequests) -> None:
    """What is made when torch is built is said to be in no commit; the other files' origins are told."""
    history.release("2.11.0")
    history.merged("Fix add (#29)", {OPS: FIXED})
    history.release("2.12.0")
    history.texts["2.11.0"]["torch/version.py"] = "debug = True\n"
    found = history.origins({OPS: FIXED, "torch/version.py": "debug = False\n"})
    assert told(found) == [("Fix add (#29)", 29, 2, False)]
    (note,) = found.notes
    assert note.startswith("the origin of 2 lines of torch/version.py is not known: it is generated")


def test_lines_that_no_commit_has(history: PullRequests) -> None:
    """What a wheel has and its tag has not is counted, not guessed."""
    history.release("2.11.0")
    history.merged("Fix add (#30)", {OPS: FIXED})
    history.release("2.12.0")
    found = history.origins({OPS: FIXED + "EXTRA = 1\n"})
    assert told(found) == [("Fix add (#30)", 30, 2, False)]
    assert found.notes == (f"no commit was found for 1 of 3 lines of {OPS}",)


def test_what_is_wrong_is_told_at_once(history: PullRequests, tmp_path: Path) -> None:
    """A missing tag and a history that was cut off are the user's to mend; a nightly has no tag, and is no mistake."""
    history.release("2.11.0")
    with pytest.raises(UsageError, match=r"has no tag v2\.12\.0") as missing:
        history.span()
    assert "git fetch --tags" in missing.value.hint
    history.repository.git("checkout", "--quiet", "--orphan", "elsewhere")
    history.merged("Begin anew", {OPS: TEXT})
    history.repository.git("tag", "v2.12.0")
    with pytest.raises(UsageError, match="no common history") as cut:
        history.span()
    assert "--unshallow" in cut.value.hint
    checkout = Checkout.at(history.repository.folder)
    assert ReleaseSpan.between(checkout, "2.11.0", "2.13.0.dev20260701") is None
    assert ReleaseSpan.between(checkout, "2.11.0+cpu", "torch-2.13.0-cp311.whl") is None


def test_a_partial_clone_fetches_nothing(history: PullRequests, tmp_path: Path) -> None:
    """What a partial clone lacks is not fetched: the answer says that origins are not known, and why."""
    history.release("2.11.0")
    history.merged("Fix add (#31)", {OPS: FIXED})
    history.release("2.12.0")
    source = history.repository
    source.git("config", "uploadpack.allowFilter", "true")
    source.git("clone", "--quiet", "--no-checkout", "--filter=blob:none", source.folder.as_uri(), str(tmp_path / "c"))
    span = ReleaseSpan.between(Checkout.at(tmp_path / "c"), "2.11.0", "2.12.0")
    assert span is not None
    found = span.origins(unified_diff({OPS: TEXT}, {OPS: FIXED}))
    assert found.commits == ()
    assert found.notes[0].startswith(f"the origin of 2 lines of {OPS} is not known: `git cat-file` failed")


def test_the_time_is_bounded(history: PullRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that takes too long is stopped, and the answer says so."""
    history.release("2.11.0")
    history.merged("Fix add (#32)", {OPS: FIXED})
    history.release("2.12.0")
    monkeypatch.setattr(origins_module, "PATIENCE", 0.0)
    assert "it took too long" in history.origins({OPS: FIXED}).notes[0]


def test_ctrl_c_ends_git(history: PullRequests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while git reads passes through, and no git is left running."""
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 0.5\nkill -INT $PPID\nexec sleep 60\n")
    slow.chmod(0o755)
    checkout = Checkout.at(history.repository.folder)
    monkeypatch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
    with pytest.raises(KeyboardInterrupt):
        checkout.read("log", seconds=60)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
