"""What is recorded of environments, as factors that a rule can be made of, and the terms of such rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from matrix.diagnosis.dispatch.operator_table import parse
from matrix.model import Environment, Model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Factors = dict[str, str]
Versions = dict[str, tuple[str | None, str | None]]  # of packages: before and after, None where missing

AXES = ("config", "torch", "python", "build")  # what a user can ask for, the easiest to change first
ABSENT = "not there"
_PACKAGE = "package "
_TABLES = "dispatch"  # field of the fingerprint: dispatch tables as torch tells them, by operator
_SAID_BY_AXES = {"torch", "python"}  # fields of the fingerprint
_TOLD_APART = {*AXES, "git_version"}
_WORDS = {
    ("meta_mm.python", "True"): "aten::mm's Meta kernel registered from Python",
    ("meta_mm.python", "False"): "aten::mm's Meta kernel registered in C++",
}


class Term(Model):
    """One condition of a rule: a factor has one of some values, or a version lies in a range."""

    factor: str
    values: tuple[str, ...]
    low: str | None = None  # of a range of versions, both ends in it; None where it is open
    high: str | None = None
    is_range: bool = False

    def holds(self, factors: Mapping[str, str]) -> bool:
        """Return whether an environment meets the condition."""
        value = factors.get(self.factor, ABSENT)
        if not self.is_range:
            return value in self.values
        version = _version(value)
        if version is None:
            return False
        return (self.low is None or version >= Version(self.low)) and (
            self.high is None or version <= Version(self.high)
        )

    @property
    def is_telling(self) -> bool:
        """True for an axis, and for a field that is known to matter."""
        return self.factor in AXES or (self.factor, self.values[0]) in _WORDS

    @property
    def words(self) -> str:
        """The condition as a fragment: "config default", "torch up to 2.11.0"."""
        name = (
            self.factor.removeprefix(_PACKAGE).replace("python", "Python") if self.factor == "python" else self.factor
        )
        name = name.removeprefix(_PACKAGE)
        if len(self.values) == 1 and (self.factor, self.values[0]) in _WORDS:
            return _WORDS[self.factor, self.values[0]]
        if not self.is_range:
            return f"{name} {' or '.join(self.values)}"
        if self.low == self.high:
            return f"{name} {self.low}"
        if self.low is None:
            return f"{name} up to {self.high}"
        return f"{name} from {self.low} on" if self.high is None else f"{name} {self.low} to {self.high}"


def factors_of(environment: Environment) -> Factors:
    """Return all that is recorded of an environment, flat: axes, "package NAME", fields of the fingerprint."""
    found = {
        "config": environment.config,
        "torch": environment.torch,
        "python": ".".join(environment.python.split(".")[:2]),
        "build": environment.build,
    }
    found |= {_PACKAGE + name: version for name, version in environment.packages.items() if name != "torch"}
    for name, value in environment.fingerprint.model_dump().items():
        if name == _TABLES and isinstance(value, dict):
            found |= dict(_kernels(value))
        elif name not in _SAID_BY_AXES:
            found |= dict(_flat(name, value))
    return found


def _kernels(tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield by which kernel each dispatch key of some operators is served; lines and shards change with every build."""
    for operator, text in tables.items():
        for row in parse(str(text)).rows:
            yield f"{operator}'s {row.key} kernel", "falls through" if row.fallthrough else row.source


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value)) or "none"
    else:
        yield name, str(value)


def term_of(factor: str, red: Sequence[Factors], green: Sequence[Factors]) -> Term | None:
    """Return the narrowest condition on a factor that all red environments meet; None where it would mean nothing.

    A range where versions allow it. A field with as many values as environments, such as a commit, separates
    anything from anything: unless it is an axis, one side must have a single value.
    """
    inside = {one.get(factor, ABSENT) for one in red}
    outside = {one.get(factor, ABSENT) for one in green} - inside
    if not outside:
        return None
    if factor in {"torch", "python"} or factor.startswith(_PACKAGE):
        term = _range(factor, inside, outside)
        if term is not None:
            return term
    if factor not in AXES and len(inside) > 1 and len(outside) > 1:
        return None
    return Term(factor=factor, values=_ordered(inside))


def _range(factor: str, inside: set[str], outside: set[str]) -> Term | None:
    """Return the range of versions that holds all of one set and none of the other."""
    versions = {value: _version(value) for value in inside | outside}
    if any(version is None for version in versions.values()):
        return None
    order = sorted(versions, key=lambda value: Version(value))
    places = [place for place, value in enumerate(order) if value in inside]
    first, last = places[0], places[-1]
    if any(value in outside for value in order[first : last + 1]):
        return None
    low = order[first] if first > 0 else None
    high = order[last] if last < len(order) - 1 else None
    return Term(factor=factor, values=_ordered(inside), low=low, high=high, is_range=True)


def _ordered(values: set[str]) -> tuple[str, ...]:
    if all(_version(value) is not None for value in values):
        return tuple(sorted(values, key=lambda value: Version(value)))
    return tuple(sorted(values))


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def rank(term: Term) -> tuple[int, int, str]:
    """Order terms: what the user can act on first, then packages, then what is only seen; the telling ones first."""
    if term.factor in AXES:
        return AXES.index(term.factor), 0, ""
    is_seen = not term.is_telling and not term.factor.startswith(_PACKAGE)
    return len(AXES) + is_seen, len(term.values), term.factor


def changed_packages(before: Environment, after: Environment) -> Versions:
    """Return the packages in which two environments differ, with the version in each, None where it is missing."""
    names = sorted(before.packages.keys() | after.packages.keys())
    pairs = {name: (before.packages.get(name), after.packages.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def changed_facts(before: Environment, after: Environment) -> Versions:
    """Return what is recorded beside axes, packages and commit, and differs between two environments."""
    first, last = (
        {f"variable {name}": value for name, value in one.variables.items()} | factors_of(one)  # causes first
        for one in (before, after)
    )
    names = [name for name in {**first, **last} if name not in _TOLD_APART and not name.startswith(_PACKAGE)]
    return {name: (first.get(name), last.get(name)) for name in names if first.get(name) != last.get(name)}
