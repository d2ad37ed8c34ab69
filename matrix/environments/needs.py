"""What torch needs and does not declare, as a table with the reason for every line."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A requirement installed with torch, and why."""

    requirement: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    torch: str  # specifier of the releases that have this need
    requirement: str
    reason: str


# the first rule that applies to a package is the one taken
_RULES = (
    _Rule(
        torch="<2.3",
        requirement="numpy<2",
        reason="torch before 2.3 was compiled against numpy 1 and cannot use numpy 2",
    ),
    _Rule(
        torch="",
        requirement="numpy",
        reason="torch uses numpy where it is there, warns where it is not, and does not declare it",
    ),
    _Rule(
        torch="<2.2",
        requirement="setuptools<80",
        reason="torch.compile and cpp_extension before 2.2 import pkg_resources, which newer ones lack",
    ),
    _Rule(
        torch="<2.11",
        requirement="setuptools<80",
        # 2.2.2, 2.3.1 and 2.9.1 fail without one on Python 3.11; below 80 worked in all that were tried
        reason="inductor before 2.11 imports setuptools, which not every wheel declares",
    ),
)


def needs_of(torch_version: str, python: str) -> list[Need]:  # noqa: ARG001  a need may come to depend on it
    """Return what a torch release needs beyond what its wheel declares, at most one line per package."""
    try:
        version = Version(torch_version)
    except InvalidVersion:
        return []
    release = Version(version.base_version)  # a nightly of 2.3 has 2.3's needs
    found: dict[str, Need] = {}
    for rule in _RULES:
        if SpecifierSet(rule.torch).contains(release):
            name = requirement_name(rule.requirement)
            found.setdefault(name, Need(requirement=rule.requirement, reason=rule.reason))
    return list(found.values())


def requirement_name(requirement: str) -> str:
    """Return the normalised name of the package that a requirement is about."""
    return canonicalize_name(Requirement(requirement).name)
