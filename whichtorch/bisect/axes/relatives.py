"""Commits that are the same change as another one, or take it back: picked, reverted, landed again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.bisect.axes.git import Checkout

TELLING = 12  # characters of a title: a shorter one is too common to search for
_FORM = ("-z", "--format=%H%x09%P%x09%at%x09%s%x09%b")
_PICKED = re.compile(r"cherry picked from commit ([0-9a-f]{7,})")
_REVERTED = re.compile(r"reverts commit ([0-9a-f]{7,})")
_BACK = re.compile(r"revert\b|back out\b", re.IGNORECASE)
_AROUND = re.compile(r'^(?:(?:re-?land\b|re-?apply\b|\[re-?land\]|revert\b|back out\b) *:? *"?)*', re.IGNORECASE)
_NUMBER = re.compile(r" *\(#\d+\)")


class _Told(NamedTuple):
    """A commit and its message."""

    hash: str
    parents: tuple[str, ...]
    date: str  # when its author wrote it, which a picked commit keeps
    subject: str
    body: str

    @property
    def title(self) -> str:
        """Its subject; of a merged pull request, the title of that."""
        first = self.body.strip().partition("\n")[0]
        return first if first and self.subject.startswith("Merge pull request ") else self.subject

    @property
    def words(self) -> str:
        """The "Reland", "Reapply", "Revert" or "Back out" before the title of the change."""
        return "".join(_AROUND.findall(self.title))

    @property
    def name(self) -> str:
        """The title without that, the number of the pull request, and quotes."""
        return _NUMBER.sub("", self.title[len(self.words) :]).replace('"', "").strip()

    @property
    def is_back(self) -> bool:
        """Whether by its title it takes the change back."""
        return len(_BACK.findall(self.words)) % 2 == 1

    def mentions(self, words: re.Pattern[str], commits: Sequence[str]) -> bool:
        """Return whether it says some words about one of some commits."""
        return any(each.startswith(tuple(words.findall(self.body))) for each in commits)


def relatives(checkout: Checkout, commit: str, merges: Sequence[str] = ()) -> Iterator[str]:
    """Yield which commits are the same change as one that `merges` brought, or revert it, in words for a report.

    An equal title alone does not count, since many are "Update core.py". It does if it says that the change is reverted
    or lands again. Commits that the message of the commit itself names come last.
    """
    own, *around = _read(checkout, "--no-walk=unsorted", commit, *merges)
    picked, reverted = _PICKED.findall(own.body), _REVERTED.findall(own.body)
    known = (commit, *merges, *picked)
    names = {name for each in (own, *around) for name in (each.name, each.subject) if len(name) >= TELLING}
    asked = [f"--grep={each}" for each in (*known, *sorted(names))]
    found = _read(checkout, "--all", "--topo-order", "--reverse", "-F", *asked)
    others = [other for other in found if not other.hash.startswith((*known, *reverted))]
    copies = {each.hash for each in others if (each.words, each.name, each.date) == (own.words, own.name, own.date)}
    named_backs = {each.hash for each in others if each.is_back and each.name in names} - copies
    backs = {each.hash for each in others if each.mentions(_REVERTED, known)} | named_backs
    told = set(reverted)  # a merge of a commit that was told is not told
    for other in others:
        is_again = bool(own.words or other.words or backs) and other.name == own.name and own.name in names
        is_same = is_again or other.hash in copies or other.mentions(_PICKED, [commit])
        if (other.hash in backs or is_same) and not any(parent.startswith(tuple(told)) for parent in other.parents[1:]):
            told.add(other.hash)
            yield f"{'reverted' if other.hash in backs else 'also landed'} in {other.hash[:10]}"
    yield from (f"cherry-picked from {each[:10]}" for each in picked)
    yield from (f"it reverts {each[:10]}" for each in reverted)


def _read(checkout: Checkout, *asked: str) -> list[_Told]:
    entries = (entry.split("\t", 4) for entry in checkout.read("log", *_FORM, *asked).split("\0") if entry)
    return [_Told(commit, tuple(parents.split()), *rest) for commit, parents, *rest in entries]
