"""Lock files: what two of them differ in, and which of the differences can be had alone. Pure but for reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from whichtorch.base.errors import UsageError
from whichtorch.base.grouping import reached
from whichtorch.environments.script_needs import requirement_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Pins = Mapping[str, str]  # name -> "==2.3.0" or "@ https://…/x.whl"


INSTALLERS = frozenset({"pip", "uv", "whichtorch"})  # say nothing about a script


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """A package that two locks have in different versions, or that one of them lacks."""

    name: str
    good: str | None  # as a pin: "==2.2.6"
    bad: str | None

    def __str__(self) -> str:
        good, bad = ("none" if pin is None else pin.removeprefix("==") for pin in (self.good, self.bad))
        return f"{self.name} {good} -> {bad}"


def read_lock(path: Path) -> dict[str, str]:
    """Return the pins of a file in pip freeze or requirements format, by normalized name.

    Lines whose marker does not hold here are left out; options and hashes are ignored. Raises UsageError that names
    every line that pins nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the lock file {path}: {error.strerror}") from None
    pins: dict[str, str] = {}
    mistakes: list[str] = []
    for number, line in requirement_lines(text):
        if line.startswith("-") and not line.startswith(("-e", "--editable")):
            continue  # an index or a hash
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            mistakes.append(f"{path}:{number}: {line!r} is no requirement that another environment could be given")
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        pin = _pin_of(requirement)
        if pin is None:
            mistakes.append(f"{path}:{number}: {line!r} pins no version; write {requirement.name}==VERSION")
        else:
            pins[canonicalize_name(requirement.name)] = pin
    if not pins and not mistakes:
        mistakes.append(f"{path}: there is no package in it")
    if mistakes:
        raise UsageError("\n".join(mistakes), hint="`pip freeze` and `uv pip freeze` write such files")
    return pins


def _pin_of(requirement: Requirement) -> str | None:
    if requirement.url:
        return f"@ {requirement.url}"
    specifiers = [each for each in requirement.specifier if each.operator != "!="]  # excluded substitutes
    is_exact = len(specifiers) == 1 and specifiers[0].operator in {"==", "==="} and "*" not in specifiers[0].version
    return f"=={specifiers[0].version}" if is_exact else None


def pins_in(lock: Iterable[str]) -> dict[str, str]:
    """Return the pins of exact lines, "name==version" or "name @ url", by normalized name."""
    pins = ((canonicalize_name(requirement.name), _pin_of(requirement)) for requirement in map(Requirement, lock))
    return {name: pin for name, pin in pins if pin is not None}


def pins_of(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the pins of what an environment holds, by name and version."""
    return {canonicalize_name(name): f"=={version}" for name, version in packages.items()}


def differences(good: Pins, bad: Pins) -> tuple[PackageChange, ...]:
    """Return what two locks differ in, without installers; torch comes last, because changing it takes longest."""
    names = sorted((good.keys() | bad.keys()) - INSTALLERS, key=lambda name: (name == "torch", name))
    changes = (PackageChange(name=name, good=good.get(name), bad=bad.get(name)) for name in names)
    return tuple(change for change in changes if change.good != change.bad)


def combined(good: Pins, changed: Iterable[PackageChange]) -> tuple[str, ...]:
    """Return the lines of the good lock with some differences taken from the bad one."""
    pins: dict[str, str | None] = {name: pin for name, pin in good.items() if name not in INSTALLERS}
    pins |= {change.name: change.bad for change in changed}
    kept = [(name, pin) for name in sorted(pins) if (pin := pins[name]) is not None]
    return tuple(f"{name} {pin}" if pin.startswith("@") else f"{name}{pin}" for name, pin in kept)


def together(
    changes: Iterable[PackageChange],
    good_requires: Mapping[str, Iterable[str]],
    bad_requires: Mapping[str, Iterable[str]],
    is_active: Callable[[Requirement], bool],
) -> dict[str, frozenset[str]]:
    """Return for each difference the others that it cannot be had without, by names, itself included.

    `good_requires` and `bad_requires` say by package what its metadata requires. If a package in its bad version
    refuses the good version of another, its change needs the other's change. If a package in its good version
    refuses the bad version of another, the other's change needs its change.
    """
    by_name = {change.name: change for change in changes}
    needs: dict[str, set[str]] = {name: {name} for name in by_name}
    for name, change in by_name.items():
        if change.bad is not None:
            for requirement in filter(is_active, map(Requirement, bad_requires.get(name, ()))):
                other = by_name.get(canonicalize_name(requirement.name))
                if other is not None and not _accepts(requirement, other.good):
                    needs[name].add(other.name)
        if change.good is not None:
            for requirement in filter(is_active, map(Requirement, good_requires.get(name, ()))):
                other = by_name.get(canonicalize_name(requirement.name))
                if other is not None and not _accepts(requirement, other.bad):
                    needs[other.name].add(name)
    return {name: frozenset(reached([name], needs.__getitem__)) for name in needs}


def _accepts(requirement: Requirement, pin: str | None) -> bool:
    if pin is None:
        return False
    if pin.startswith("@"):
        return True  # what a URL holds is not known without a download
    try:
        return requirement.specifier.contains(Version(pin.removeprefix("==")), prereleases=True)
    except InvalidVersion:
        return True
