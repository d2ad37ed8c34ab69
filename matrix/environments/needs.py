"""What torch needs and does not declare, as a table with the reason for every line."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement that some releases of torch are installed with."""

    torch: str  # specifier of those releases
    requirement: str
    reason: str


_NEEDS = (  # of each package, the first row that applies is taken
    Need("<2.3", "numpy<2", "torch before 2.3 was compiled against numpy 1 and cannot use numpy 2"),
    Need("", "numpy", "torch uses numpy where it is there, warns where it is not, and does not declare it"),
    Need(
        "<2.2",
        "setuptools<80",
        "torch.compile and cpp_extension before 2.2 import pkg_resources, which newer ones lack",
    ),
    # 2.2.2, 2.3.1 and 2.9.1 fail without one on Python 3.11; below 80 worked in all that were tried
    Need("<2.11", "setuptools<80", "inductor before 2.11 imports setuptools, which not every wheel declares"),
)


def needs_of(torch_version: str) -> list[Need]:
    """Return what a torch release needs beyond what its wheel declares, at most one row per package."""
    try:
        version = Version(torch_version)
    except InvalidVersion:
        return []
    release = Version(version.base_version)  # a nightly of 2.3 has 2.3's needs
    needs: dict[str, Need] = {}
    for need in _NEEDS:
        if SpecifierSet(need.torch).contains(release):
            needs.setdefault(requirement_name(need.requirement), need)
    return list(needs.values())


def requirement_name(requirement: str) -> str:
    """Return the normalised name of the package that a requirement is about."""
    return canonicalize_name(Requirement(requirement).name)
