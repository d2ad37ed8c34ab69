"""Borrowing a checkout: what is refused, and that it is given back as it was."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.repository import Repository
from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.git import MARKER, Checkout, borrowed, refuse


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return three commits."""
    three_commits = Repository.at(tmp_path / "checkout", with_python=False)
    for _ in range(3):
        three_commits.commit("")
    return three_commits


def test_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    """A folder without a history is named, and so is one that is not there."""
    with pytest.raises(UsageError, match="no git checkout"):
        Checkout.at(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        Checkout.at(tmp_path / "nowhere")


def test_uncommitted_changes_are_refused(repository: Repository, tmp_path: Path) -> None:
    """Changes to tracked files are not touched; untracked ones do not matter."""
    checkout = Checkout.at(repository.folder)
    (repository.folder / "new.txt").write_text("")
    refuse(checkout)
    (repository.folder / "build.sh").write_text("mine")
    with pytest.raises(UsageError, match=r"not committed: build\.sh"), borrowed(checkout, tmp_path):
        pass
    assert (repository.folder / "build.sh").read_text() == "mine"


def test_bisection_of_the_user_is_refused(repository: Repository) -> None:
    """One that is in progress is left alone."""
    repository.git("bisect", "start")
    with pytest.raises(UsageError, match="a git bisect is in progress"):
        refuse(Checkout.at(repository.folder))
    assert repository.git("bisect", "log").startswith("git bisect start")


def test_another_search_is_refused(repository: Repository, tmp_path: Path) -> None:
    """While one search has the checkout, a second one does not get it."""
    checkout = Checkout.at(repository.folder)
    with borrowed(checkout, tmp_path), pytest.raises(UsageError, match="another search uses"):
        refuse(checkout)


@pytest.mark.parametrize("head", ["main", "detached"])
def test_checkout_is_given_back_as_it_was(repository: Repository, tmp_path: Path, head: str) -> None:
    """Whatever went wrong meanwhile, the branch or commit is checked out again, without what builds changed."""
    if head == "detached":
        repository.git("checkout", "--quiet", "--detach", repository.commits[1])
    before = (repository.git("rev-parse", "HEAD"), *repository.state)
    checkout = Checkout.at(repository.folder)
    with suppress(KeyboardInterrupt), borrowed(checkout, tmp_path):
        checkout.restart(repository.commits[0], repository.commits[2])
        assert checkout.head == repository.commits[1]
        checkout.go_to(repository.commits[0])
        (repository.folder / "build.sh").write_text("changed by a build")
        raise KeyboardInterrupt
    assert (repository.git("rev-parse", "HEAD"), *repository.state) == before
    assert not (repository.folder / ".git" / MARKER).exists()
    (patch,) = (repository.folder / ".git").glob("whichtorch-discarded-*.patch")
    assert "+changed by a build" in patch.read_text()


def test_what_a_killed_search_left_is_put_right(repository: Repository, tmp_path: Path) -> None:
    """A bisection whose search is dead, with its build's changes, is known by its marker and ended."""
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom whichtorch.bisect.axes.git import Checkout, borrowed\n"
        "checkout = Checkout.at(Path(sys.argv[1]))\n"
        "with borrowed(checkout, Path(sys.argv[2])):\n"
        "    checkout.restart(sys.argv[3], sys.argv[4])\n"
        "    (checkout.folder / 'build.sh').write_text('changed by a build')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    bounds = repository.commits[0], repository.commits[2]
    argv = [sys.executable, "-c", program, str(repository.folder), str(tmp_path), *bounds]
    assert subprocess.run(argv, check=False, cwd=Path(__file__).parents[2]).returncode == -9
    assert repository.state == ("HEAD", "M build.sh")
    with borrowed(Checkout.at(repository.folder), tmp_path):
        pass
    assert repository.state == ("main", "")


def test_link_only_to_a_history_on_github(repository: Repository) -> None:
    """A remote elsewhere gives no link; one with credentials gives it without them."""
    checkout = Checkout.at(repository.folder)
    assert checkout.compare_link("a", "b") is None
    repository.git("remote", "add", "one", "ssh://git@example.org/someone/torch.git")
    assert checkout.compare_link("a", "b") is None
    repository.git("remote", "add", "two", "https://me:secret@github.com/someone/torch")
    assert checkout.compare_link("a", "b") == "https://github.com/someone/torch/compare/a...b"
