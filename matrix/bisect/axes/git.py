"""A git checkout that a search borrows: `git bisect` chooses and checks out, and it is given back as it was."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import PreventedError, UsageError
from matrix.process.supervision import mark_for, owner_is_dead

if TYPE_CHECKING:
    from collections.abc import Iterator

GIT_TIMEOUT = 900.0  # seconds: to check out 20,000 files on a network drive
MARKER = "WHICHTORCH_BISECT"  # in the git folder, while a search of ours uses the checkout
BAD_MERGE_BASE = 3  # exit code of `git bisect`: the change was undone on the line of the older bound
_GITHUB = re.compile(r"github\.com[:/](?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?$")
_LINE = "--format=%H%x09%P%x09%s"
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")  # set where a hook called the tool


class GitError(PreventedError):
    """A git command failed."""

    def __init__(self, command: str, folder: Path, code: int, said: str) -> None:
        super().__init__(f"`git {command}` failed in {folder}: {said or f'exit code {code}'}")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit of a history."""

    hash: str
    parents: tuple[str, ...]  # the first one is the line that it was made on
    subject: str  # the first line of its message

    @classmethod
    def read(cls, line: str) -> Commit:
        """Return what a line of `git log` in our format says."""
        commit, parents, subject = line.split("\t", 2)
        return cls(hash=commit, parents=tuple(parents.split()), subject=subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A work tree and its history."""

    folder: Path  # the top one

    @classmethod
    def at(cls, folder: Path) -> Checkout:
        """Return the checkout that holds a folder; raises UsageError where none does."""
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}", hint="name a git checkout with --git")
        try:
            top = cls(folder=folder).git("rev-parse", "--show-toplevel")
        except GitError as error:
            raise UsageError(f"{folder} is no git checkout", hint=error.message) from None
        return cls(folder=Path(top))

    def git(self, *arguments: str) -> str:
        """Return what a git command prints; raises GitError with its explanation where it fails."""
        env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        # to files: a hook's grandchild may hold a pipe open
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                started = subprocess.Popen(
                    ["git", *arguments],
                    cwd=self.folder,
                    env=env | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C must not stop a checkout half-way
                )
            except OSError as error:
                raise PreventedError(f"git cannot be run: {error.strerror}", hint="install it") from None
            code = _ended(started)
            printed, said = (_text(file) for file in (output, errors))
        if code:
            words = " ".join((said or printed).split())
            raise GitError(" ".join(arguments[:2]), self.folder, code, words[:400])
        return printed

    # history

    def commit(self, revision: str) -> str:
        """Return the full hash of a revision; raises UsageError for what is none."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except GitError:
            raise UsageError(
                f"{revision!r} is no commit of {self.folder}", hint="name a hash, a tag or a branch; fetch it first"
            ) from None

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Return whether one commit is in the history of another, or is it."""
        return self.git("rev-list", "-1", older, f"^{newer}") == ""

    def between(self, old: str, new: str) -> list[Commit]:
        """Return both bounds and all that the newer has and the older lacks, parents before children.

        Where the newer does not descend from the older, the merge bases come first: git tests these, too.
        """
        bases = [base for base in self.git("merge-base", "--all", old, new).split() if base != old]
        ends = self.git("log", "--no-walk=unsorted", _LINE, *bases, old)
        rest = self.git("log", "--topo-order", "--reverse", _LINE, new, f"^{old}")
        return [Commit.read(line) for line in f"{ends}\n{rest}".splitlines()]

    def descendants(self, commit: str, newest: str) -> frozenset[str]:
        """Return what lies on a way from one commit to another, without the first one."""
        return frozenset(self.git("rev-list", "--ancestry-path", f"{commit}..{newest}").split())

    def compare_link(self, first: str, last: str) -> str | None:
        """Return where the commits between two can be read, None where the history is not GitHub's."""
        for line in self.git("remote", "-v").splitlines():
            found = _GITHUB.search(line.split()[1])
            if found:
                return f"https://github.com/{found['owner']}/{found['name']}/compare/{first}...{last}"
        return None

    # the work tree

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "HEAD")

    @property
    def changed(self) -> list[str]:
        """Tracked files with changes that are not committed; submodules are the build command's business."""
        return self.git("diff", "HEAD", "--name-only", "--ignore-submodules=all").splitlines()

    def go_to(self, commit: str) -> None:
        """Check a commit out, unless it is."""
        if self.head != commit:
            self.discard()
            self.git("checkout", "--quiet", "--detach", commit)

    def discard(self) -> None:
        """Undo what a build changed in tracked files: it would keep git from going on.

        A patch stays in the git folder, because it may have been the user who changed them meanwhile.
        """
        if self.changed:
            patch = self._git_path(f"whichtorch-discarded-{self.head[:10]}.patch")
            self.git("diff", "HEAD", "--binary", f"--output={patch}")
            self.git("reset", "--quiet", "--hard")

    # git bisect

    def restart(self, old: str, new: str) -> None:
        """Begin a bisection, or begin it again with what was said of its commits forgotten."""
        self.discard()
        self.git("bisect", "start")
        self.say("new", new)
        self.say("old", old)

    def say(self, term: str, commit: str) -> None:
        """Tell git what a commit is: "old", "new" or "skip". It checks out the next one; GitError has its code."""
        self.discard()
        try:
            self.git("bisect", term, commit)
        except GitError as error:
            only_skipped = error.code == 2
            if not only_skipped:
                raise

    @property
    def suspects(self) -> list[str]:
        """The commits that may be the first new one, oldest first; one of them once it is found."""
        known_old = "--glob=refs/bisect/old-*"
        return self.git("rev-list", "--topo-order", "--reverse", "refs/bisect/new", "--not", known_old).split()

    @property
    def newest(self) -> str:
        """The oldest commit so far that is new."""
        return self.git("rev-parse", "refs/bisect/new")

    def _git_path(self, name: str) -> Path:
        return self.folder / self.git("rev-parse", "--git-path", name)


@contextmanager
def borrowed(checkout: Checkout, home: Path) -> Iterator[None]:
    """Have a checkout for a search, and give it back on the branch or commit it was on.

    Raises UsageError where it is the user's own at the moment. What a killed search left is put right first.
    """
    marker = checkout._git_path(MARKER)
    refuse(checkout)
    if marker.exists():
        _give_back(checkout, marker)
    marker.write_text(mark_for(home, "bisect"), encoding="utf-8")
    try:
        checkout.git("bisect", "start")
        yield
    finally:
        _give_back(checkout, marker)


def refuse(checkout: Checkout) -> None:
    """Raise UsageError where a checkout has changes or a bisection that are not ours."""
    marker = checkout._git_path(MARKER)
    if marker.exists():
        if owner_is_dead(marker.read_text(encoding="utf-8")):
            return
        raise UsageError(f"another search uses {checkout.folder}", hint="wait for its end, or use `git worktree add`")
    if checkout._git_path("BISECT_START").exists():
        hint = "end it with `git bisect reset`, or use another checkout, as by `git worktree add`"
        raise UsageError(f"a git bisect is in progress in {checkout.folder}", hint=hint)
    changed = checkout.changed
    if changed:
        few = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        hint = "commit or stash them, or use another checkout, as by `git worktree add`"
        raise UsageError(f"{checkout.folder} has changes that are not committed: {few}", hint=hint)


def _give_back(checkout: Checkout, marker: Path) -> None:
    """End our bisection; until that is done the marker stays, so that the next search does it."""
    if checkout._git_path("BISECT_START").exists():
        checkout.discard()
        checkout.git("bisect", "reset")
    marker.unlink(missing_ok=True)


def _ended(started: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a git command, killed where it takes too long, but not by an interrupt."""
    # waiting with a timeout would poll, for up to 50 ms longer than it takes
    timer = threading.Timer(GIT_TIMEOUT, started.kill)
    timer.start()
    try:
        return started.wait()
    except KeyboardInterrupt:
        started.wait()
        raise
    finally:
        timer.cancel()


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return str(file.read().decode(errors="replace")).strip()  # type: ignore[attr-defined]
