"""A patch and a checkout of PyTorch -> the commits that its lines go back to.

A line that only one of two releases has was brought by a commit of that release's own history, or taken away by one of
the other's. `git blame` tells which: forwards for the first, in reverse from where the two part for the second. So
nothing depends on which of the releases is newer, nor on their branches.
"""

from __future__ import annotations

import ast
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.grouping import counted, grouped
from whichtorch.bisect.axes.git import Checkout, pull_request_of
from whichtorch.source.names import import_statements
from whichtorch.source.syntax import parse_module

PATIENCE = 300.0  # seconds for all that git is asked; a file of PyTorch takes a few
DISTINCT = 12  # characters of a line that a search for its text may find again
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_BLAMED = re.compile(
    r"^(?P<commit>[0-9a-f]{40,}) (?P<first>\d+) (?P<number>\d+).*\n(?P<head>(?:[a-z].*\n)+)", re.MULTILINE
)


class ChangedLine(NamedTuple):
    """A line that a patch adds or removes."""

    path: str
    is_added: bool
    number: int  # in the patched file, of a line that is added; else in the bad release's, from 1
    text: str  # without its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A commit that lines of a patch go back to."""

    commit: str  # full hash
    subject: str
    date: str  # day on which it was committed, UTC
    pull_request: int | None
    taken_back: bool  # it is in the bad release's history only, so that the patch undoes it
    lines: int  # of the patch, added or removed
    paths: tuple[str, ...]


class Origins(NamedTuple):
    """Where a patch comes from, as far as git knows."""

    commits: tuple[Origin, ...] = ()  # those with the most lines first
    notes: tuple[str, ...] = ()  # what is not known, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSpan:
    """What lies between two releases, in a checkout."""

    checkout: Checkout
    bad: str  # commit
    good: str
    is_regression: bool  # the bad release is the newer one

    @classmethod
    def between(cls, checkout: Checkout, bad: str, good: str) -> ReleaseSpan | None:
        """Return what lies between two versions; None where one is no release, as only releases have tags.

        Raises UsageError where the checkout does not have the tags, or not the history that joins them.
        """
        tags = [tag for version in (bad, good) if (tag := _tag(version))]
        if len(tags) < 2:
            return None
        commits = [_tagged(checkout, tag) for tag in tags]
        checkout.merge_base(*commits)
        return cls(checkout=checkout, bad=commits[0], good=commits[1], is_regression=Version(bad) > Version(good))

    def origins(self, patch: str) -> Origins:
        """Return where a patch's lines come from; what git does not answer is told in a note."""
        inquiry = _Inquiry(self)
        of_path = grouped(changed_lines(patch), lambda line: line.path)
        found: dict[_Cause, list[str]] = defaultdict(list)  # the path of each line
        notes = []
        for path, lines in of_path.items():
            try:
                causes = inquiry.causes(path, lines)
                for cause in causes:
                    found[cause].append(path)
                if missing := len(lines) - len(causes):
                    notes.append(f"no commit was found for {missing} of {counted(len(lines), 'line')} of {path}")
            except PreventedError as error:
                notes.append(f"the origin of {counted(len(lines), 'line')} of {path} is not known: {error.message}")
        try:
            commits = [inquiry.told(cause, paths) for cause, paths in found.items()]
        except PreventedError as error:
            return Origins(notes=(*notes, f"the origins are not known: {error.message}"))
        return Origins(tuple(sorted(commits, key=lambda origin: -origin.lines)), tuple(notes))


def _tag(version: str) -> str:
    """Return the tag of a release, "" for what is none: a nightly, a wheel's path."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return ""
    return "" if parsed.is_prerelease else f"v{parsed.public}"


def _tagged(checkout: Checkout, tag: str) -> str:
    try:
        return checkout.commit(f"refs/tags/{tag}")
    except UsageError:
        hint = "`git fetch --tags https://github.com/pytorch/pytorch` brings the tags of all releases"
        raise UsageError(f"{checkout.folder} has no tag {tag}", hint=hint) from None


class _Cause(NamedTuple):
    """Why a line is in one release only."""

    commit: str
    in_good: bool  # in the history of the good release, else in that of the bad one


class _Blame(NamedTuple):
    """What `git blame` says of a line."""

    commit: str
    is_older: bool  # it is not of the range that was asked about
    path: str  # in that commit
    number: int  # likewise
    following: str  # in reverse: the next commit of the file, which does not have the line; "" for none


class _Inquiry:
    """All that git is asked about one patch, and the time it may take."""

    def __init__(self, span: ReleaseSpan) -> None:
        self._span, self._until = span, time.monotonic() + PATIENCE

    def _git(self, *arguments: str) -> str:
        return self._span.checkout.read(*arguments, seconds=self._until - time.monotonic())

    def causes(self, path: str, lines: Collection[ChangedLine]) -> list[_Cause]:
        """Return the cause of each line of a file that has one. Raises PreventedError."""
        bad, good = self._text(self._span.bad, path), self._text(self._span.good, path)
        if bad is None and good is None:
            raise PreventedError("it is generated when torch is built, so it is in no commit")
        before = dict(enumerate((bad or "").split("\n"), 1))  # a wheel may have been built from something else
        removed = [line.number for line in lines if not line.is_added and before.get(line.number) == line.text]
        added = _places(lines, bad or "", good or "")
        return [*self._of_side(path, removed, in_good=False), *self._of_side(path, added, in_good=True)]

    def told(self, cause: _Cause, paths: Sequence[str]) -> Origin:
        """Return what is told of a commit."""
        asked = ("--no-walk", "--date=format-local:%Y-%m-%d", "--format=%cd%n%s%n%b", cause.commit)
        date, subject, body = self._git("log", *asked).split("\n", 2)
        return Origin(
            commit=cause.commit,
            subject=subject,
            date=date,
            pull_request=pull_request_of(subject, body),
            taken_back=not cause.in_good,
            lines=len(paths),
            paths=tuple(sorted(set(paths))),
        )

    @cache  # noqa: B019 - lives as long as the inquiry
    def _text(self, commit: str, path: str) -> str | None:
        """Return a file's text in a commit, None where it is not there."""
        is_there = self._git("ls-tree", "--name-only", commit, "--", path)
        return self._git("cat-file", "blob", f"{commit}:{path}") if is_there else None

    def _of_side(self, path: str, numbers: Sequence[int], *, in_good: bool) -> list[_Cause]:
        """Return the causes of lines that one release has and the other has not.

        At first spaces do not count, so that who wrote a line is found, not who indented it.
        """
        found: dict[int, _Cause] = {}
        for spaces in (("-w",), ()):
            if left := sorted(set(numbers) - found.keys()):
                found |= self._blamed_side(path, left, spaces, in_good=in_good)
        return [found[number] for number in numbers if number in found]

    def _blamed_side(
        self, path: str, numbers: Sequence[int], spaces: Sequence[str], *, in_good: bool
    ) -> Iterator[tuple[int, _Cause]]:
        """Yield line numbers with the commit that brought the line here, or took it away in the other release."""
        span = self._span
        here, other = (span.good, span.bad) if in_good else (span.bad, span.good)
        common: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for number, blame in self._blame(path, numbers, *spaces, f"{other}..{here}"):
            if blame.is_older:
                common[blame.commit, blame.path][blame.number] = number
            elif in_good == span.is_regression and (remover := self._remover(path, number, here, other)):
                yield number, _Cause(remover, not in_good)
            else:
                yield number, _Cause(blame.commit, in_good)
        for (commit, old_path), old in common.items():
            if commit == other:
                continue
            for number, blame in self._blame(old_path, sorted(old), *spaces, "--reverse", f"{commit}..{other}"):
                if remover := blame.following or self._deletion(blame, other):
                    yield old[number], _Cause(remover, not in_good)

    def _remover(self, path: str, number: int, older: str, newer: str) -> str:
        """Return the commit that removed a line of the older release from the newer one's own history, "" for none.

        That had it if the older release's branch got the line as a cherry-pick.
        """
        lines = [line.strip() for line in (self._text(older, path) or "").split("\n")]
        text, there = lines[number - 1], self._text(newer, path)
        if len(text) < DISTINCT or lines.count(text) > 1 or there is None or text in there:
            return ""
        return self._git("log", "-1", "--format=%H", f"-S{text}", f"{older}..{newer}", "--", path).strip()

    def _blame(self, path: str, numbers: Sequence[int], *asked: str) -> Iterator[tuple[int, _Blame]]:
        ranges = [f"-L{number},{number}" for number in numbers]
        for entry in _BLAMED.finditer(self._git("blame", "--line-porcelain", *ranges, *asked, "--", path)):
            head = {key: text for key, _, text in (line.partition(" ") for line in entry["head"].splitlines())}
            following, old_path = head.get("previous", "").partition(" ")[0], head.get("filename", path)
            is_older, number = "boundary" in head, int(entry["first"])
            yield int(entry["number"]), _Blame(entry["commit"], is_older, old_path, number, following)

    def _deletion(self, last: _Blame, release: str) -> str:
        """Return the commit that removed the file in which a line was last seen, "" where it is still there."""
        later = f"{last.commit}..{release}"
        commits = self._git("log", "--format=%H", "--diff-filter=D", "--ancestry-path", later, "--", last.path).split()
        return commits[-1] if commits else ""


def _places(lines: Collection[ChangedLine], bad: str, good: str) -> list[int]:
    """Return where the lines that a patch adds stand in the good release's file; those of its own making do not."""
    after, there = patched(bad.split("\n"), lines), good.split("\n")
    blocks = SequenceMatcher(None, after, there).get_matching_blocks()
    places = {block.a + offset + 1: block.b + offset + 1 for block in blocks for offset in range(block.size)}
    found = (places.get(line.number) or _import_place(line.text, good) for line in lines if line.is_added)
    return [place for place in found if place]


def _import_place(line: str, good: str) -> int:
    """Return which line of a file imports what a line of a patch does, 0 for none: a patch imports names one by one."""
    if not re.match(r"\s*(import|from)\s", line):
        return 0
    try:
        wanted, there = (list(import_statements(ast.walk(parse_module(text)))) for text in (line.strip(), good))
    except (SyntaxError, ValueError):
        return 0
    lines = {statement: alias.lineno for statement, alias in there}
    return next((lines[statement] for statement, _ in wanted if statement in lines), 0)


def changed_lines(patch: str) -> Iterator[ChangedLine]:
    """Yield the lines that a patch adds or removes, in its order."""
    path, old, new, old_end, new_end = "", 1, 1, 1, 1
    for line in patch.split("\n"):
        mark, text = line[:1], line[1:]
        if old < old_end or new < new_end:
            if mark in {"+", "-"}:
                yield ChangedLine(path=path, is_added=mark == "+", number=new if mark == "+" else old, text=text)
            old += mark in {"-", " "}
            new += mark in {"+", " "}
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            old_end, new_end = old + int(hunk[2] or 1), new + int(hunk[4] or 1)
        elif line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")


def patched(bad: Sequence[str], lines: Collection[ChangedLine]) -> list[str]:
    """Return the lines of a file with those that a patch changes in it."""
    removed = {line.number for line in lines if not line.is_added}
    added = {line.number: line.text for line in lines if line.is_added}
    left = (text for number, text in enumerate(bad, 1) if number not in removed)
    whole = range(1, len(bad) - len(removed) + len(added) + 1)
    return [added[number] if number in added else next(left, "") for number in whole]
