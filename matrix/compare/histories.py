"""One test over the versions of torch, with all else equal: where it broke and where it was fixed."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from matrix.model import Environment, Model

if TYPE_CHECKING:
    from collections.abc import Iterable

COMPARE = "https://github.com/pytorch/pytorch/compare/{}...{}"
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HistoryStep(Model):
    """One version of torch."""

    torch: str
    red: int  # environments where the test is red
    of: int  # environments
    commit: str | None = None

    @property
    def is_red(self) -> bool:
        """True where the test is red in any environment of this version."""
        return self.red > 0


class VersionChange(Model):
    """Two neighbouring versions of which one is red and one passes."""

    before: HistoryStep
    after: HistoryStep

    @property
    def is_fix(self) -> bool:
        """True where the later version passes."""
        return self.before.is_red

    @property
    def commits(self) -> str | None:
        """Link to the commits between them."""
        return compare_link(self.before.commit, self.after.commit)


class History(Model):
    """The versions that ran under one Python, build and config, oldest first."""

    python: str
    build: str
    config: str
    steps: tuple[HistoryStep, ...]

    @property
    def changes(self) -> tuple[VersionChange, ...]:
        """Where the test turns from red to passing or back."""
        pairs = pairwise(self.steps)
        return tuple(VersionChange(before=old, after=new) for old, new in pairs if old.is_red != new.is_red)

    @property
    def is_never_fixed(self) -> bool:
        """True where at least two versions ran and the newest is red."""
        return len(self.steps) > 1 and self.steps[-1].is_red

    @property
    def words(self) -> str:
        """What its versions have in common."""
        return f"config {self.config}, build {self.build}, Python {self.python}"


def histories(evidence: Iterable[tuple[Environment, bool]]) -> tuple[History, ...]:
    """Return the histories of two versions or more that environments make up, each given with whether it is red."""
    groups: dict[tuple[str, str, str], dict[str, list[tuple[Environment, bool]]]] = {}
    for environment, is_red in evidence:
        python = ".".join(environment.python.split(".")[:2])
        group = groups.setdefault((python, environment.build, environment.config), {})
        group.setdefault(environment.torch, []).append((environment, is_red))
    timelines = []
    for (python, build, config), versions in groups.items():
        if len(versions) > 1:
            steps = tuple(_step(torch, versions[torch]) for torch in sorted(versions, key=age))
            timelines.append(History(python=python, build=build, config=config, steps=steps))
    return tuple(timelines)


def _step(torch: str, evidence: list[tuple[Environment, bool]]) -> HistoryStep:
    commits = [commit_of(environment) for environment, _ in evidence]
    red = sum(is_red for _, is_red in evidence)
    return HistoryStep(torch=torch, red=red, of=len(evidence), commit=next(filter(None, commits), None))


def age(torch: str) -> tuple[bool, Version, str]:
    """Return the sort key of a version of torch: the oldest first, a text that is no version last."""
    try:
        return False, Version(torch), torch
    except InvalidVersion:
        return True, Version("0"), torch


def commit_of(environment: Environment) -> str | None:
    """Return the commit that an environment's torch reports, or None."""
    commit = environment.fingerprint.git_version
    return commit if commit and _COMMIT.fullmatch(commit) else None


def compare_link(first: str | None, last: str | None) -> str | None:
    """Return a link to the commits between two builds, or None where they are unknown or the same."""
    if first is None or last is None or first == last:
        return None
    return COMPARE.format(first, last)
