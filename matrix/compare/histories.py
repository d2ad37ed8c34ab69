"""One test over the versions of torch, all else equal: where it broke and where it was mended."""

from __future__ import annotations

import re
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
    red: int  # environments
    of: int
    commit: str | None = None

    @property
    def is_red(self) -> bool:
        """True where it is red in any environment of this version."""
        return self.red > 0


class VersionChange(Model):
    """Two neighbours among the versions tried, of which one is red."""

    before: HistoryStep
    after: HistoryStep

    @property
    def is_fix(self) -> bool:
        """True where the later one passes."""
        return self.before.is_red

    @property
    def commits(self) -> str | None:
        """Where the commits between them can be read."""
        return compare_link(self.before.commit, self.after.commit)


class History(Model):
    """The versions tried under one Python, build and config, oldest first."""

    python: str
    build: str
    config: str
    steps: tuple[HistoryStep, ...]

    @property
    def changes(self) -> tuple[VersionChange, ...]:
        """Where it turns from red to passing or back."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        return tuple(VersionChange(before=one, after=next_) for one, next_ in pairs if one.is_red != next_.is_red)

    @property
    def is_never_fixed(self) -> bool:
        """True where at least two versions were tried and the newest is red."""
        return len(self.steps) > 1 and self.steps[-1].is_red

    @property
    def words(self) -> str:
        """What all its versions share."""
        return f"config {self.config}, build {self.build}, Python {self.python}"


def histories(evidence: Iterable[tuple[Environment, bool]]) -> tuple[History, ...]:
    """Return the histories that environments, each with whether it is red, make up: those of two versions or more."""
    groups: dict[tuple[str, str, str], dict[str, list[tuple[Environment, bool]]]] = {}
    for environment, is_red in evidence:
        python = ".".join(environment.python.split(".")[:2])
        group = groups.setdefault((python, environment.build, environment.config), {})
        group.setdefault(environment.torch, []).append((environment, is_red))
    found = []
    for (python, build, config), versions in groups.items():
        steps = [
            HistoryStep(
                torch=torch,
                red=sum(is_red for _, is_red in tried),
                of=len(tried),
                commit=next((commit for one, _ in tried if (commit := commit_of(one))), None),
            )
            for torch, tried in sorted(versions.items(), key=lambda pair: age(pair[0]))
        ]
        if len(steps) > 1:
            found.append(History(python=python, build=build, config=config, steps=tuple(steps)))
    return tuple(found)


def age(torch: str) -> tuple[bool, Version, str]:
    """Return what sorts versions of torch, the oldest first and what is no version last."""
    try:
        return False, Version(torch), torch
    except InvalidVersion:
        return True, Version("0"), torch


def commit_of(environment: Environment) -> str | None:
    """Return the commit that an environment's torch says it was built from."""
    commit = environment.fingerprint.git_version
    return commit if commit and _COMMIT.fullmatch(commit) else None


def compare_link(first: str | None, last: str | None) -> str | None:
    """Return where the commits between two builds can be read, None where they are not known or the same."""
    if first is None or last is None or first == last:
        return None
    return COMPARE.format(first, last)
