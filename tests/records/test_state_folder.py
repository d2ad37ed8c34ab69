"""Where environments and runs are kept, if the user does not say."""

import os
from pathlib import Path

import pytest

from whichtorch.base.errors import PreventedError
from whichtorch.records.store import state_folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder of somebody who has not said where state lives."""
    monkeypatch.delenv("WHICHTORCH_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "project" / "below" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_variable_names_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WHICHTORCH_HOME counts more than a .whichtorch that is there; a relative path begins at the current folder."""
    (project / ".whichtorch").mkdir()
    monkeypatch.setenv("WHICHTORCH_HOME", "mine")
    assert state_folder() == project / "mine"


def test_it_is_found_from_a_folder_below(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest .whichtorch counts: of the current folder, else of a parent."""
    (project / ".whichtorch").mkdir()
    (project / "below" / ".whichtorch").mkdir()
    assert state_folder() == project / ".whichtorch"
    monkeypatch.chdir(project / "below" / "deep")
    assert state_folder() == project / "below" / ".whichtorch"


def test_it_is_in_the_users_cache_otherwise(project: Path, tmp_path: Path) -> None:
    """Where there is none, the user's cache folder has it, and nothing is made in the current folder."""
    assert state_folder() == tmp_path / "cache" / "whichtorch"
    assert list(project.iterdir()) == [project / "below"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_does_not_count(project: Path, tmp_path: Path) -> None:
    """A .whichtorch of somebody else, such as one in /tmp, is not taken: interpreters in it would be run."""
    (project / ".whichtorch").mkdir()
    os.chown(project / ".whichtorch", 12345, 12345)
    assert state_folder() == tmp_path / "cache" / "whichtorch"


def test_a_new_one_is_told_and_kept_out_of_backups_and_git(project: Path, tmp_path: Path) -> None:
    """A new state folder is announced once, and marked for tools that make backups and for git."""
    told: list[str] = []
    home = state_folder(told.append)
    assert [str(home) in line for line in told] == [True]
    assert (home / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert (home / ".gitignore").read_text() == "*\n"
    state_folder(told.append)
    assert len(told) == 1


def test_a_folder_with_files_is_not_marked(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the user's that has files already gets no .gitignore."""
    (project / "kept.txt").touch()
    monkeypatch.setenv("WHICHTORCH_HOME", str(project))
    state_folder()
    assert not (project / ".gitignore").exists()


def test_unwritable_one_is_named(project: Path) -> None:
    """Where it cannot be made, the error names it and the way out."""
    (project / ".whichtorch").write_text("a file, not a folder")
    with pytest.raises(PreventedError, match=r"cannot write to .*\.whichtorch: File exists") as caught:
        state_folder()
    assert "WHICHTORCH_HOME" in caught.value.hint
