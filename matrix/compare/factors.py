"""What is recorded of environments, as factors, and in which of them two environments differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrix.diagnosis.dispatch.call_path import parse_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.model import Environment

Factors = dict[str, str]
Versions = dict[str, tuple[str | None, str | None]]  # of packages: before and after, None where missing

AXES = ("config", "torch", "python", "build")  # factors that a user can choose, the easiest to change first
PACKAGE = "package "  # begins the name of a factor that is a package's version
ABSENT = "not there"  # stands for the value of a factor that an environment does not have
_IN_AXES = {"torch", "python"}  # fields of the fingerprint that an axis holds already
_IN_LABEL = {*AXES, "git_version"}  # factors that are compared elsewhere


def factors_of(environment: Environment) -> Factors:
    """Return all that is recorded of an environment, flat: axes, "package NAME", fields of the fingerprint."""
    factors = {
        "config": environment.config,
        "torch": environment.torch,
        "python": ".".join(environment.python.split(".")[:2]),
        "build": environment.build,
    }
    factors |= {PACKAGE + name: version for name, version in environment.packages.items() if name != "torch"}
    for name, value in environment.fingerprint.model_dump().items():
        if name == "dispatch" and isinstance(value, dict):
            for operator, table in value.items():  # lines and shards change with every build, so they are left out
                for row in parse_table(table).rows:
                    kernel = "falls through" if row.fallthrough else row.source
                    factors[f"{operator}'s {row.key} kernel"] = kernel
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
