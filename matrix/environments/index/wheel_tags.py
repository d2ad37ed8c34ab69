"""Which wheels fit this machine and a Python."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from packaging import tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable


@lru_cache(maxsize=16)
def _ranks(python: str) -> dict[tags.Tag, int]:
    """Return the wheel tags that fit, best first: those of the asked Python, not of the running one."""
    major, minor = (int(part) for part in python.rstrip("t").split(".")[:2])
    abi = f"cp{major}{minor}" + ("t" if python.endswith("t") else "m" if (major, minor) < (3, 8) else "")
    platforms = list(tags.platform_tags())
    fitting = [
        *tags.cpython_tags((major, minor), abis=[abi], platforms=platforms),
        *tags.compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(fitting)))}


def fit(filename: str, project: str, python: str) -> tuple[Version, int] | None:
    """Return version and rank of a wheel of a project, the lower the better; None for one that does not fit."""
    try:
        name, version, _, wheel_tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):  # an sdist, or not a wheel at all
        return None
    ranks = _ranks(python)
    best = min((ranks[tag] for tag in wheel_tags if tag in ranks), default=None)
    return None if name != project or best is None else (version, best)


def best_fit(filenames: Iterable[str], project: str, version: str, python: str) -> str | None:
    """Return the wheel of a version that fits a Python best, the first of equals; None where none fits."""
    fits = ((filename, fit(filename, project, python)) for filename in filenames)
    ranks = {filename: found[1] for filename, found in fits if found is not None and found[0] == Version(version)}
    return min(ranks, key=lambda filename: ranks[filename], default=None)


def machine() -> str:
    """Return what makes tags differ between machines that share a home folder."""
    return next(iter(tags.platform_tags()), "")
