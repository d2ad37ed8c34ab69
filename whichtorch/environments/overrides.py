"""Versions that replace what packages ask for: whether a lock has them, and who asks for something else.

uv says nothing of an override of a package that nothing needs, and takes no notice of what others ask for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from whichtorch.base.version_parsing import python_markers
from whichtorch.model import UNRESOLVABLE, Request

# what uv says of a version that exists, and cannot be had on this Python or machine
_UNUSABLE = re.compile(r"Failed to (download and )?build|is incompatible|[Nn]ot [Ff]ound")


def unmet(overrides: Iterable[str], locked: Mapping[str, str], names: Iterable[str]) -> str:
    """Return which overrides a lock does not have, "" if it has all, by its versions and the names of all packages."""
    names, problems = set(names), list[str]()
    for override in map(Requirement, overrides):
        version = locked.get(override.name)
        if override.name not in names:
            problems.append(f"nothing here needs {override.name}: add it with --with {override.name}")
        elif version and not override.specifier.contains(version, prereleases=True):
            problems.append(f"{override.name} {version} would be installed instead of {override.specifier}")
    return "; ".join(problems)


def blamed(reason: str, overrides: Iterable[str]) -> str:
    """Return why an environment cannot be made, with the overrides that the reason names."""
    named = [
        text for text in overrides if re.search(rf"(?<![\w-]){re.escape(Requirement(text).name)}(?![\w-])", reason)
    ]
    if not named:
        return reason
    is_mistake = _UNUSABLE.search(reason) and not reason.startswith(UNRESOLVABLE)
    reason = f"{UNRESOLVABLE}: {reason}" if is_mistake else reason
    return "; ".join([reason, *(f"{text} is an override" for text in named)])


def disagreements(
    request: Request, versions: Mapping[str, str], requires: Iterable[tuple[str, Sequence[str]]]
) -> Iterator[str]:
    """Yield for each override who asks for another version than was installed.

    `versions` has what was installed, `requires` what each package asks for, the package with its version.
    """
    asked = [(whose, text) for whose, texts in requires for text in texts]
    asked += [("a requirement", text) for text in (*request.build.requirements, *request.requirements)]
    asked += [("a constraint", text) for text in request.constraints]
    for override in map(Requirement, request.overrides):
        version = versions[override.name]
        others = [
            f"{whose} asks for {text}"
            for whose, each in asked
            if (text := _refusal(each, override.name, version, request.python))
        ]
        if others:
            yield f"{override.name} {version}, by --override: {'; '.join(dict.fromkeys(others))}"


def _refusal(text: str, name: str, version: str, python: str) -> str:
    """Return what a requirement asks for if it is about this package, counts here, and refuses the version; else ""."""
    with suppress(InvalidRequirement):  # of an old package
        asked = Requirement(text)
        where = python_markers(python) | {"extra": ""}
        counts = canonicalize_name(asked.name) == name and (asked.marker is None or asked.marker.evaluate(where))
        if counts and not asked.specifier.contains(version, prereleases=True):
            return f"{name}{asked.specifier}"
    return ""
