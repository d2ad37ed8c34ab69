"""Patches as files: what they change, what of it can be applied, and where one does not fit."""

import difflib
from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.environments.commander import InstallError
from whichtorch.environments.patches import apply_patch, parts_of, read_patch
from whichtorch.model import Patch

BEFORE = "".join(f"line {number}\n" for number in range(30))
AFTER = BEFORE.replace("line 4\n", "changed\n").replace("line 25\n", "also changed\n")


def difference(name: str, before: str = BEFORE, after: str = AFTER, prefixes: tuple[str, str] = ("a/", "b/")) -> str:
    """Return the unified diff of a file; "" stands for one that is not there."""
    old, new = (prefix + name if text else "/dev/null" for prefix, text in zip(prefixes, (before, after), strict=True))
    header = f"diff --git a/{name} b/{name}\n" if prefixes == ("a/", "b/") else ""
    mode = ("" if before else "new file mode 100644\n") + ("" if after else "deleted file mode 100644\n")
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), old, new)
    return header + (mode if header else "") + "".join(lines)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder of packages that holds torch/a.py and torch/b.py, as they were before."""
    folder = tmp_path / "site-packages"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "a.py").write_text(BEFORE)
    (folder / "torch" / "b.py").write_text(BEFORE)
    return folder


def file_of(tmp_path: Path, text: str, name: str = "fix.diff") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


@pytest.mark.parametrize(
    "text",
    [
        difference("torch/a.py"),
        difference("torch/a.py", prefixes=("", "")),
        difference("torch/a.py", prefixes=("/one/lib/python3.11/site-packages/", "/two/lib/python3.11/site-packages/")),
        "From 1a2b Mon Sep 17 00:00:00 2001\nFrom: A <a@example.org>\nSubject: [PATCH] rename from docs/a.md\n\n---\n"
        f" torch/a.py | 4 ++--\n\n{difference('torch/a.py')}-- \n2.39.5\n",
        difference("torch/a.py").replace("\n@@", "\t2026-11-22 05:00:00.000000000 +0000\n@@", 1),
    ],
    ids=["git diff", "no prefix", "two environments", "mail", "times"],
)
def test_forms_of_a_patch(site: Path, text: str) -> None:
    """Whatever wrote it, a patch changes the file of the installation, and no original."""
    patched = apply_patch(Patch(name="fix", text=text), site)
    assert patched.files == {"torch/a.py": AFTER}
    assert patched.note == "patch fix changes a file"
    assert (site / "torch" / "a.py").read_text() == BEFORE


def test_files_come_and_go(site: Path) -> None:
    """A patch may add a file, data for Python too, move one, and remove one."""
    moved = (
        "diff --git a/torch/a.py b/torch/c.py\nsimilarity index 100%\nrename from torch/a.py\nrename to torch/c.py\n"
    )
    text = difference("torch/new/table.json", before="") + difference("torch/b.py", after="") + moved
    files = apply_patch(Patch(name="fix", text=text), site).files
    assert files == {"torch/new/table.json": AFTER, "torch/b.py": None, "torch/a.py": None, "torch/c.py": BEFORE}


def test_what_no_wheel_carries_is_left_out(site: Path) -> None:
    """Tests, documents and files that the release has no use for are left out, and named."""
    names = ("test/functorch/test_a.py", "docs/a.png", "torch/_C/__init__.pyi.in")
    picture = (
        "diff --git a/docs/a.png b/docs/a.png\nindex 1..2 100644\nBinary files a/docs/a.png and b/docs/a.png differ\n"
    )
    text = difference(names[0]) + picture + difference(names[2]) + difference("torch/a.py")
    patched = apply_patch(Patch(name="fix", text=text), site)
    assert list(patched.files) == ["torch/a.py"]
    assert patched.note.endswith(f"left out, since wheels do not carry it: {', '.join(names)}")


def test_parts_for_a_compiler_are_refused_by_name(tmp_path: Path) -> None:
    """A patch with parts in C++ is refused as a whole, whatever else it changes; C++ of tests is none."""
    names = ["aten/src/ATen/native/native_functions.yaml", "torch/csrc/autograd/python.cpp", "c10/core/Device.h"]
    text = "".join(map(difference, ["torch/a.py", "test/cpp/api/nn.cpp", *names, "tools/autograd/derivatives.yaml"]))
    with pytest.raises(UsageError, match="needs a compiler") as caught:
        read_patch(file_of(tmp_path, text))
    assert all(name in caught.value.message for name in names)
    assert caught.value.message.endswith("and 1 more")
    assert parts_of(text).left_out == ("test/cpp/api/nn.cpp",)


LINK = (
    "diff --git a/torch/a.py b/torch/a.py\nnew file mode 120000\n--- /dev/null\n+++ b/torch/a.py\n"
    "@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no patch: No valid patches in input"),
        ("<html>Not Found</html>\n", "is no patch: No valid patches in input"),
        (difference("torch/a.py")[:-20], "is no patch: corrupt patch"),
        (difference("test/test_a.py"), "changes nothing that wheels of torch carry, only test/test_a.py"),
        (LINK, "is no patch: it makes or changes a link"),
        (difference("torch/../../a.py"), "is no patch: it names files outside: torch/../../a.py"),
    ],
    ids=["empty", "page", "cut short", "tests only", "link", "outside"],
)
def test_what_is_no_patch_is_told_before_any_install(tmp_path: Path, text: str, message: str) -> None:
    """A file that cannot be applied anywhere is a usage error in git's words."""
    with pytest.raises(UsageError) as caught:
        read_patch(file_of(tmp_path, text))
    assert message in caught.value.message


def test_names(tmp_path: Path) -> None:
    """A patch is called like its file, in letters that a label can have; `none` is the release as it is."""
    patch = read_patch(file_of(tmp_path, difference("torch/a.py"), "my fix (2).diff"))
    assert patch.name == "my-fix-2-"
    with pytest.raises(UsageError, match="no patch can be called 'none'"):
        read_patch(file_of(tmp_path, difference("torch/a.py"), "none.diff"))
    with pytest.raises(UsageError, match="No such file") as caught:
        read_patch(tmp_path / "typo.diff")
    assert "unified diff" in caught.value.hint


def test_what_does_not_fit_is_named(site: Path) -> None:
    """Each hunk and file that does not fit is named with its place; nothing is applied."""
    (site / "torch" / "a.py").write_text(BEFORE.replace("line 25", "line twenty-five"))
    text = difference("torch/a.py") + difference("torch/lost.py") + difference("torch/b.py")
    with pytest.raises(InstallError) as caught:
        apply_patch(Patch(name="fix", text=text), site)
    reason = caught.value.reason
    assert "torch/a.py at @@ -23,7 +23,7 @@" in reason
    assert "there is no torch/lost.py" in reason
    assert "-2,7" not in reason
    assert "b.py" not in reason
    assert reason.endswith("make it for this release, or leave the release out")


def test_lines_may_have_moved(site: Path) -> None:
    """A patch fits though its lines stand elsewhere, as in another release."""
    (site / "torch" / "a.py").write_text("new\n" * 10 + BEFORE)
    patched = apply_patch(Patch(name="fix", text=difference("torch/a.py")), site)
    assert patched.files == {"torch/a.py": "new\n" * 10 + AFTER}


def test_what_is_there_already_changes_nothing(site: Path) -> None:
    """Where a release has all of a patch, that is told, and nothing is changed; half of it does not fit."""
    (site / "torch" / "a.py").write_text(AFTER)
    patched = apply_patch(Patch(name="fix", text=difference("torch/a.py")), site)
    assert (patched.files, patched.note) == ({}, "patch fix is in this release already: nothing is changed")
    with pytest.raises(InstallError, match=r"torch/a\.py at @@ -2,7 \+2,7 @@, torch/a\.py at"):
        apply_patch(Patch(name="fix", text=difference("torch/a.py") + difference("torch/b.py")), site)


def test_settings_and_repositories_do_not_matter(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository around the scratch folder, or the user's settings of git, change nothing."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert apply_patch(Patch(name="fix", text=difference("torch/a.py")), site).files == {"torch/a.py": AFTER}
