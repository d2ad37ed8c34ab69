"""Texts that are versions of torch or Python, or something else in their place: a wheel's path, a Git commit."""

from __future__ import annotations

import re

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version


def parse_version(text: str) -> Version | None:
    """Return the version that a text is, None where it is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def age(torch: str) -> tuple[bool, Version, str]:
    """Return the sort key of a version of torch: the oldest first, a text that is no version last."""
    version = parse_version(torch)
    return version is None, version or Version("0"), torch


def minor_python(python: str) -> str:
    """Return the minor version of a Python: "3.11" of "3.11.7", "3.13t" of "3.13.5t", which has no GIL."""
    return re.sub(r"^(3\.\d+)[^t]*", r"\1", python)


def python_markers(minor: str, full: str = "") -> dict[str, str]:
    """Return what markers of requirements call a Python: "3.13" of "3.13t", too. Without `full`, it is the minor."""
    return {"python_version": minor.rstrip("t"), "python_full_version": (full or minor).rstrip("t")}


def in_specifier(version: str, specifier: str, *, as_final: bool) -> bool:
    """Return whether `specifier` is empty or holds `version`; a wheel's path is in no specifier.

    Pre-releases count. With `as_final`, 2.12.0rc1 counts as 2.12.0, unless the specifier itself names a
    pre-release.
    """
    if not specifier:
        return True
    if (parsed := parse_version(version)) is None:
        return False
    specifiers = SpecifierSet(specifier)
    if as_final and not specifiers.prereleases:
        parsed = Version(parsed.base_version)
    return specifiers.contains(parsed, prereleases=True)
