"""What is recorded of environments, as factors; and one test over the versions of torch, with all else equal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from whichtorch.base.grouping import grouped
from whichtorch.base.version_parsing import age
from whichtorch.hangs.dispatch.call_path import parse_table
from whichtorch.model import ANY_HARDWARE, NO_PATCH, Environment, Model

Factors = dict[str, str]
Versions = dict[str, tuple[str | None, str | None]]  # of packages: before and after, None where missing

# factors that a user can choose, the easiest to change first
AXES = ("config", "patch", "torch", "python", "build", "hardware")
PACKAGE = "package "  # begins the name of a factor that is a package's version
ABSENT = "not there"  # stands for the value of a factor that an environment does not have
_IN_AXES = {"torch", "python", "abi"}  # fields of the fingerprint that an axis holds already
_IN_LABEL = {*AXES, "git_version"} - {"patch"}  # factors that are compared elsewhere; of a patch only the name is


def factors_of(environment: Environment) -> Factors:
    """Return all that is recorded of an environment, flat: axes, "package NAME", fields of the fingerprint."""
    factors = environment.axes | {
        PACKAGE + name: version for name, version in environment.packages.items() if name != "torch"
    }
    for name, value in environment.fingerprint.model_dump().items():
        if name == "dispatch" and isinstance(value, dict):
            for operator, table in value.items():  # lines and shards change with every build, so they are left out
                for row in parse_table(table).rows:
                    factors[f"{operator}'s {row.key} kernel"] = "falls through" if row.fallthrough else row.source
        elif name not in _IN_AXES:
            factors |= dict(_flat(name, value))
    return factors


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value)) or "none"
    else:
        yield name, str(value)


def changed_packages(before: Environment, after: Environment) -> Versions:
    """Return the packages in which two environments differ, with both versions; None stands for a missing one."""
    names = sorted(before.packages.keys() | after.packages.keys())
    pairs = {name: (before.packages.get(name), after.packages.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def changed_facts(before: Environment, after: Environment) -> Versions:
    """Return the recorded facts, other than axes, packages and commit, in which two environments differ."""
    old, new = (
        {f"variable {name}": value for name, value in side.variables.items()} | factors_of(side)  # causes first
        for side in (before, after)
    )
    names = [name for name in {**old, **new} if name not in _IN_LABEL and not name.startswith(PACKAGE)]
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


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
    """Two neighboring versions, one of which is red and the other passes."""

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
    """The versions that ran under one Python, build, config and patch, on one hardware, oldest first."""

    python: str
    build: str
    config: str
    patch: str = NO_PATCH
    hardware: str = ANY_HARDWARE
    added: str = ""  # packages beside torch
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
        patch = "" if self.patch == NO_PATCH else f"patch {self.patch}, "
        hardware = "" if self.hardware == ANY_HARDWARE else f", hardware {self.hardware}"
        added = f", with {self.added}" if self.added else ""
        return f"config {self.config}, {patch}build {self.build}, Python {self.python}{hardware}{added}"


def histories(evidence: Iterable[tuple[Environment, bool]]) -> tuple[History, ...]:
    """Return the histories of two versions or more that environments make up, each given with whether it is red."""
    shared = ("python", "build", "config", "patch", "hardware")

    def stream(pair: tuple[Environment, bool]) -> tuple[str, ...]:
        return *(pair[0].axes[axis] for axis in shared), pair[0].added

    timelines = []
    for values, group in grouped(evidence, stream).items():
        versions = grouped(group, lambda pair: pair[0].torch)
        if len(versions) > 1:
            steps = tuple(_step(torch, versions[torch]) for torch in sorted(versions, key=age))
            timelines.append(History(**dict(zip((*shared, "added"), values, strict=True)), steps=steps))
    return tuple(timelines)


def _step(torch: str, evidence: list[tuple[Environment, bool]]) -> HistoryStep:
    commit = next(filter(None, (commit_of(environment) for environment, _ in evidence)), None)
    return HistoryStep(torch=torch, red=sum(is_red for _, is_red in evidence), of=len(evidence), commit=commit)


def commit_of(environment: Environment) -> str | None:
    """Return the commit that an environment's torch reports, or None."""
    commit = environment.fingerprint.git_version
    return commit if commit and _COMMIT.fullmatch(commit) else None


def compare_link(first: str | None, last: str | None) -> str | None:
    """Return a link to the commits between two builds, or None where they are unknown or the same."""
    if first is None or last is None or first == last:
        return None
    return COMPARE.format(first, last)
