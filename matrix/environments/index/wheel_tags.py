"""Which wheels fit this machine and a Python."""

from __future__ import annotations

from functools import lru_cache

from packaging import tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version


@lru_cache(maxsize=16)
def ranks(python: str) -> dict[tags.Tag, int]:
    """Return the wheel tags that fit, best first: those of the asked Python, not of the running one."""
    major, minor = (int(part) for part in python.rstrip("t").split(".")[:2])
    abi = f"cp{major}{minor}" + ("t" if python.endswith("t") else "m" if (major, minor) < (3, 8) else "")
    platforms = list(tags.platform_tags())
    fitting = [
        *tags.cpython_tags((major, minor), abis=[abi], platforms=platforms),
        *tags.compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms),
    ]
    return {tag: place for place, tag in reversed(list(enumerate(fitting)))}


def fit(filename: str, project: str, python: str) -> tuple[Version, int] | None:
    """Return version and rank of a wheel of a project, the lower the better; None for one that does not fit."""
    try:
        name, version, _, wheel_tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):  # an sdist, or not a wheel at all
        return None
    rank = ranks(python)
    best = min((rank[tag] for tag in wheel_tags if tag in rank), default=None)
    return None if name != project or best is None else (version, best)


def machine() -> str:
    """Return what makes tags differ between machines that share a home folder."""
    return next(iter(tags.platform_tags()), "")
