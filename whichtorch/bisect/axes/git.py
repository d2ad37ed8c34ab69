"""A git checkout that a search borrows: `git bisect` chooses and checks out commits; at the end all is as it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.process.marks import mark_for, owner_is_dead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GIT_TIMEOUT = 900.0  # seconds: to check out 20,000 files on a network drive
TOO_LONG = "it took too long"
MARKER = "WHICHTORCH_BISECT"  # in the git folder, while a search of ours uses the checkout
ONLY_SKIPPED_LEFT = 2  # exit code of `git bisect`: every commit that it could ask for is skipped
BAD_MERGE_BASE = 3  # exit code of `git bisect`: the change was undone on the line of the older bound
_GITHUB = re.compile(r"github\.com[:/](?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?$")
_IN_SUBJECT = re.compile(r"\(#(\d+)\)$")
_IN_MESSAGE = re.compile(r"^Pull Request resolved: *\S+/pull/(\d+)", re.MULTILINE | re.IGNORECASE)
_LINE = "--format=%H%x09%P%x09%s"
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")  # set where a hook called the tool
# overrides the user's configuration
_PLAIN = ("-c", "core.quotePath=false", "-c", "log.showSignature=false", "-c", "blame.ignoreRevsFile=")
# git before 2.44 knows only the second variable
_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "TZ": "UTC"}


class GitError(PreventedError):
    """A git command failed."""

    def __init__(self, command: str, folder: Path, code: int, explanation: str) -> None:
        super().__init__(f"`git {command}` failed in {folder}: {explanation or f'exit code {code}'}")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit of a history."""

    hash: str
    parents: tuple[str, ...]  # the first one is the line that it was made on
    subject: str  # the first line of its message

    @classmethod
    def read(cls, line: str) -> Commit:
        """Read a line of `git log` in our format."""
        commit, parents, subject = line.split("\t", 2)
        return cls(hash=commit, parents=tuple(parents.split()), subject=subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A work tree and its history."""

    folder: Path  # the top one

    @classmethod
    def at(cls, folder: Path) -> Checkout:
        """Return the checkout that holds a folder; raises UsageError if there is none."""
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}", hint="name a git checkout with --git")
        try:
            top = cls(folder=folder).git("rev-parse", "--show-toplevel")
        except GitError as error:
            raise UsageError(f"{folder} is no git checkout", hint=error.message) from None
        return cls(folder=Path(top))

    def git(self, *arguments: str) -> str:
        """Return what a git command prints; raises GitError with its explanation where it fails."""
        return self._run(arguments, GIT_TIMEOUT).decode(errors="replace").strip()

    def read(self, *arguments: str, seconds: float = GIT_TIMEOUT, given: str = "") -> str:
        """Run a git command that changes nothing, and return exactly what it prints; raises GitError.

        Ctrl-C kills it, and so does the end of `seconds`. It fetches nothing, not even what a partial clone lacks.
        """
        return self._run(arguments, seconds, only_reads=True, given=given).decode(errors="surrogateescape")

    def _run(self, arguments: Sequence[str], seconds: float, *, only_reads: bool = False, given: str = "") -> bytes:
        """Run a git command. An interrupt kills it only if it just reads; any other command first runs to its end."""
        if seconds <= 0:
            raise GitError(arguments[0], self.folder, -signal.SIGKILL, TOO_LONG)
        # it writes to files, because a hook's grandchild may hold a pipe open
        with tempfile.TemporaryFile() as input_, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            input_.write(given.encode(errors="surrogateescape"))
            input_.seek(0)
            try:
                started = subprocess.Popen(
                    ["git", *(_PLAIN if only_reads else ()), *arguments],
                    cwd=self.folder,
                    env=_environ() | (_OFFLINE if only_reads else {}),
                    stdin=input_,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C must not interrupt a checkout
                )
            except OSError as error:
                raise PreventedError(f"git cannot be run: {error.strerror}", hint="install it") from None
            # Popen.wait with a timeout would poll, and so take up to 50 ms longer
            timer = threading.Timer(seconds, started.kill)
            timer.start()
            try:
                code = started.wait()
            except KeyboardInterrupt:
                if only_reads:
                    started.kill()
                started.wait()
                raise
            finally:
                timer.cancel()
            output.seek(0)
            errors.seek(0)
            printed, explained = output.read(), errors.read()
        if code:
            words = " ".join((explained or printed).decode(errors="replace").split())
            command = " ".join(arguments[: 1 if only_reads else 2])
            raise GitError(command, self.folder, code, TOO_LONG if code == -signal.SIGKILL else words[:400])
        return printed

    # history

    def commit(self, revision: str) -> str:
        """Return the full hash of a revision; raises UsageError for an unknown one."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except GitError:
            hint = "name a hash, a tag or a branch; fetch it first"
            raise UsageError(f"{revision!r} is no commit of {self.folder}", hint=hint) from None

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Return whether one commit is in the history of another, or is it."""
        return self.git("rev-list", "-1", older, f"^{newer}") == ""

    def between(self, old: str, new: str) -> list[Commit]:
        """Return both bounds and all commits that only the newer one has, parents before children.

        If the newer bound does not descend from the older, the merge bases come first, because git tests them, too.
        """
        bases = [base for base in self.git("merge-base", "--all", old, new).split() if base != old]
        ends = self.git("log", "--no-walk=unsorted", _LINE, *bases, old)
        newer = self.git("log", "--topo-order", "--reverse", _LINE, new, f"^{old}")
        return [Commit.read(line) for line in f"{ends}\n{newer}".splitlines()]

    def descendants(self, commit: str, newest: str) -> frozenset[str]:
        """Return the commits on any path from one commit to another, without the first one."""
        return frozenset(self.git("rev-list", "--ancestry-path", f"{commit}..{newest}").split())

    def merge_base(self, commit: str, other: str) -> str:
        """Return where two commits part; raises UsageError where their histories do not meet here."""
        try:
            return self.git("merge-base", commit, other)
        except GitError:
            message = f"{commit[:10]} and {other[:10]} have no common history in {self.folder}"
            raise UsageError(message, hint="`git fetch --unshallow` brings the whole history") from None

    def line(self, old: str, new: str) -> list[Commit]:
        """Return the way from one commit to another: back to where they part, then on to the other.

        Of a merge it takes the first parent that descends from there.
        """
        base = self.merge_base(old, new)
        return [*reversed(self.ascent(base, old)), *self.ascent(base, new)[1:]]

    def ascent(self, base: str, tip: str) -> list[Commit]:
        """Return the way from a commit to one that descends from it."""
        told = [self.git("log", *asked, _LINE) for asked in (["--no-walk", base], ["--topo-order", tip, f"^{base}"])]
        commits = {commit.hash: commit for commit in map(Commit.read, filter(None, "\n".join(told).splitlines()))}
        on_way, way = {base, *self.descendants(base, tip)}, [tip]
        while way[-1] != base:
            way.append(next(parent for parent in commits[way[-1]].parents if parent in on_way))
        return [commits[each] for each in reversed(way)]

    def changes(self, commits: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the files in which each commit differs from the one before it, none for the first."""
        asked = "".join(f"{commit}^{{tree}}\n" for commit in commits)
        trees = self.read("cat-file", "--batch-check=%(objectname)", given=asked).split()
        heads = [f"{before} {after}" for before, after in pairwise(trees)]
        given = "".join(f"{head}\n" for head in heads)
        found: list[list[str]] = [[]]
        for name in self.read("diff-tree", "--stdin", "-r", "--name-only", "--no-renames", given=given).splitlines():
            if len(found) <= len(heads) and name == heads[len(found) - 1]:
                found.append([])
            else:
                found[-1].append(name)
        return list(map(tuple, found))

    def has(self, objects: Sequence[str]) -> list[bool]:
        """Return of each object whether the history here has it."""
        given = "".join(f"{each}\n" for each in objects)
        told = self.read("cat-file", "--batch-check", given=given) if given else ""
        return [not line.endswith(" missing") for line in told.splitlines()]

    def texts(self, blobs: Sequence[str]) -> list[str]:
        """Return the contents of blobs as texts that `encoded` turns into the same bytes. Raises GitError."""
        asked, texts, place = ["cat-file", "--batch"], list[str](), 0
        told = self._run(asked, GIT_TIMEOUT, only_reads=True, given="\n".join(blobs))
        for blob in blobs:
            head, _, _ = told[place : place + 100].partition(b"\n")
            if not head.split()[-1].isdigit():
                raise GitError("cat-file", self.folder, 1, f"{blob} is not in this clone, which is a partial one")
            first, size = place + len(head) + 1, int(head.split()[-1])
            texts.append(told[first : first + size].decode(errors="surrogateescape"))
            place = first + size + 1
        return texts

    def compare_link(self, first: str, last: str) -> str | None:
        """Return a link to the commits between two, None if no remote is on GitHub."""
        remotes = (_GITHUB.search(line.split()[1]) for line in self.git("remote", "-v").splitlines())
        remote = next(filter(None, remotes), None)
        return remote and f"https://github.com/{remote['owner']}/{remote['name']}/compare/{first}...{last}"

    # the work tree

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "HEAD")

    @property
    def changed(self) -> list[str]:
        """Tracked files with uncommitted changes; submodules are left to the build command."""
        return self.git("diff", "HEAD", "--name-only", "--ignore-submodules=all").splitlines()

    def go_to(self, commit: str) -> None:
        """Check a commit out, unless it is checked out already."""
        if self.head != commit:
            self.discard()
            self.git("checkout", "--quiet", "--detach", commit)

    def discard(self) -> None:
        """Undo changes to tracked files, by a build: git would not check out another commit over them.

        They are kept as a patch in the git folder, because it may have been the user who made them.
        """
        if self.changed:
            patch = self.git_path(f"whichtorch-discarded-{self.head[:10]}.patch")
            self.git("diff", "HEAD", "--binary", f"--output={patch}")
            self.git("reset", "--quiet", "--hard")

    # git bisect

    def restart(self, old: str, new: str) -> None:
        """Begin a bisection, or begin it again without the marks of its commits."""
        self.discard()
        self.git("bisect", "start")
        self.mark("new", new)
        self.mark("old", old)

    def mark(self, term: str, commit: str) -> None:
        """Mark a commit as "old", "new" or "skip"; git checks out the next one. Raises GitError."""
        self.discard()
        try:
            self.git("bisect", term, commit)
        except GitError as error:
            if error.code != ONLY_SKIPPED_LEFT:
                raise

    @property
    def suspects(self) -> list[str]:
        """The commits that may be the first new one, oldest first; a single one once it is found."""
        known_old = "--glob=refs/bisect/old-*"
        return self.git("rev-list", "--topo-order", "--reverse", "refs/bisect/new", "--not", known_old).split()

    @property
    def newest(self) -> str:
        """The oldest commit that is known to be new."""
        return self.git("rev-parse", "refs/bisect/new")

    def git_path(self, name: str) -> Path:
        """Return the path of a file in the git folder."""
        return self.folder / self.git("rev-parse", "--git-path", name)


def pull_request_of(subject: str, body: str) -> int | None:
    """Return the number of the pull request that a commit's message names."""
    numbers = _IN_SUBJECT.findall(subject) or _IN_MESSAGE.findall(body)
    return int(numbers[-1]) if numbers else None


@contextmanager
def borrowed(checkout: Checkout, home: Path) -> Iterator[None]:
    """Use a checkout for a search, and end on the branch or commit that was checked out.

    Raises UsageError if the user is at work in it. What a killed search left is cleaned up first.
    """
    marker = checkout.git_path(MARKER)
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
    """Raise UsageError if a checkout has changes or a bisection of the user's, or another search uses it."""
    marker = checkout.git_path(MARKER)
    if marker.exists():
        if owner_is_dead(marker.read_text(encoding="utf-8")):
            return
        raise UsageError(f"another search uses {checkout.folder}", hint="wait for its end, or use `git worktree add`")
    if checkout.git_path("BISECT_START").exists():
        hint = "end it with `git bisect reset`, or use another checkout, as by `git worktree add`"
        raise UsageError(f"a git bisect is in progress in {checkout.folder}", hint=hint)
    if changed := checkout.changed:
        first = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        hint = "commit or stash them, or use another checkout, as by `git worktree add`"
        raise UsageError(f"{checkout.folder} has changes that are not committed: {first}", hint=hint)


def _give_back(checkout: Checkout, marker: Path) -> None:
    """End our bisection. The marker goes last, so that after a kill the next search does the rest."""
    if checkout.git_path("BISECT_START").exists():
        checkout.discard()
        checkout.git("bisect", "reset")
    marker.unlink(missing_ok=True)


def _environ() -> dict[str, str]:
    """Return the variables that a git command gets: nobody is asked for anything."""
    env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    return env | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
